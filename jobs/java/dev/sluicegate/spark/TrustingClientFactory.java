package dev.sluicegate.spark;

import java.io.IOException;
import java.security.GeneralSecurityException;
import org.apache.hadoop.fs.s3a.DefaultS3ClientFactory;

/**
 * S3A's own maker of clients, in a JVM that trusts whom SSL_CERT_FILE names.
 *
 * <p>S3A asks it before it connects to the bucket, in drivers and executors; nothing of ours is called
 * earlier in an executor. By the setting fs.s3a.s3.client.factory.impl of the checkpoint's bucket.
 */
public final class TrustingClientFactory extends DefaultS3ClientFactory {
  static {
    try {
      Authorities.install();
    } catch (IOException | GeneralSecurityException e) {
      throw new ExceptionInInitializerError(e);
    }
  }
}
