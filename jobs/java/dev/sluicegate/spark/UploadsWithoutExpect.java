package dev.sluicegate.spark;

import software.amazon.awssdk.core.interceptor.Context;
import software.amazon.awssdk.core.interceptor.ExecutionAttributes;
import software.amazon.awssdk.core.interceptor.ExecutionInterceptor;
import software.amazon.awssdk.http.SdkHttpRequest;

/**
 * Removes the header Expect: 100-continue, with which the AWS SDK waits for an answer of the store before
 * it sends the body of an upload: a round trip for each file, and checkpoint files have a few kilobytes.
 *
 * <p>S3A makes one by the setting fs.s3a.audit.execution.interceptors. That it sets
 * fs.s3a.connection.expect.continue only keeps the HTTP client from adding the header, not the SDK.
 */
public final class UploadsWithoutExpect implements ExecutionInterceptor {
  private static final String EXPECT = "Expect";

  @Override
  public SdkHttpRequest modifyHttpRequest(
      Context.ModifyHttpRequest context, ExecutionAttributes attributes) {
    SdkHttpRequest request = context.httpRequest();
    if (request.firstMatchingHeader(EXPECT).isEmpty()) {
      return request;
    }
    return request.toBuilder().removeHeader(EXPECT).build();
  }
}
