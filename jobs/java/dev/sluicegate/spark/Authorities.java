package dev.sluicegate.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;

/**
 * Lets this JVM trust the authorities in the file that SSL_CERT_FILE names, and no others, as OpenSSL
 * and obstore do.
 *
 * <p>Java reads no PEM file by itself: they are put into a store of its own, which the JVM's default
 * trust manager opens (JSSE Reference Guide, javax.net.ssl.trustStore). A store that was named
 * already stays. It runs before the driver opens a checkpoint, and for each S3 client of TrustingClientFactory.
 */
public final class Authorities {
  private static final String VARIABLE = "SSL_CERT_FILE";
  private static final String STORE = "javax.net.ssl.trustStore";
  private static final String TYPE = "PKCS12";

  /** Java's own; what it guards is public. */
  private static final String PASSWORD = "changeit";

  private Authorities() {}

  /** Does it once in a JVM; without SSL_CERT_FILE Java's own authorities stay. */
  public static synchronized void install() throws IOException, GeneralSecurityException {
    String file = System.getenv(VARIABLE);
    if (file == null || file.isEmpty() || System.getProperty(STORE) != null) {
      return;
    }
    KeyStore store = KeyStore.getInstance(TYPE);
    store.load(null, null);
    try (InputStream pem = Files.newInputStream(Path.of(file))) {
      for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
        store.setCertificateEntry("authority-" + store.size(), one);
      }
    }
    if (store.size() == 0) {
      throw new IOException(file + " holds no certificate");
    }
    Path made = Files.createTempFile("sluicegate-authorities-", ".p12");
    made.toFile().deleteOnExit();
    try (OutputStream out = Files.newOutputStream(made)) {
      store.store(out, PASSWORD.toCharArray());
    }
    System.setProperty(STORE + "Type", TYPE);
    System.setProperty(STORE + "Password", PASSWORD);
    System.setProperty(STORE, made.toString());
  }
}
