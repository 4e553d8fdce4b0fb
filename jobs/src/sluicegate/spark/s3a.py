"""Configures S3A so that Spark writes its own checkpoint files to S3 safely.

The settings are made when a query starts, for the checkpoint's bucket only, so a user's own session
works too and its other buckets keep their settings. Only the CAs of SSL_CERT_FILE apply to the whole
process. `storage.object_store` accesses Sluicegate's own objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sluicegate.errors import SettingsInvalid
from sluicegate.spark.java_classes import has_class
from sluicegate.storage.s3_config import S3Config, bucket_of, is_s3

FILE_MANAGER = "dev.sluicegate.spark.FencedCheckpointFileManager"
"""Creates files with If-None-Match and reports a failed write; source in jobs/java."""

TRUSTING_FACTORY = "dev.sluicegate.spark.TrustingClientFactory"
"""Makes a JVM, also of an executor, trust the CAs of SSL_CERT_FILE before its first request."""

QUERY_SETTINGS: Mapping[str, str] = {
    # it would write a second object for each state file; S3 verifies checksums itself
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""Settings for the start of a query with its checkpoint on S3, besides the file manager."""

_WITHOUT_EXPECT = "dev.sluicegate.spark.UploadsWithoutExpect"
"""Removes the header Expect from uploads."""

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"

_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"


def prepare_store(spark: SparkSession, checkpoint: str) -> None:
    """Configure a session for the checkpoint's bucket; does nothing for a checkpoint on disk.

    Endpoint and keys come from the AWS_* variables. SSL_CERT_FILE is a PEM file with all CAs that this
    process and the executors need, because the whole JVM trusts them and no others. A file system that
    the session already has open for the bucket keeps its settings.

    Raises:
        SettingsInvalid: the session lacks the classes, the variables contradict each other, or the
            CAs cannot be read.
    """
    if not is_s3(checkpoint):
        return
    config = S3Config.read()
    needed = [_S3A, FILE_MANAGER, *([TRUSTING_FACTORY] if config.ca_file else [])]
    missing = [name for name in needed if not has_class(spark, name)]
    if missing:
        raise SettingsInvalid(
            f"the Spark session cannot write checkpoints to S3: it has no {' and no '.join(missing)}",
            data="nothing was started",
            do="put the jars of SLUICEGATE_JARS (`make jars`) on its class path, as "
            "sluicegate.session() does, or put the checkpoint on a disk",
        )
    if config.ca_file:
        _trust(spark)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - no public API
    for key, value in bucket_settings(config).items():
        hadoop.set(f"fs.s3a.bucket.{bucket_of(checkpoint)}.{key}", value)


def bucket_settings(config: S3Config) -> dict[str, str]:
    """Return the S3A settings of a bucket, without the prefix `fs.s3a.bucket.NAME.`."""
    given = {
        "endpoint": config.endpoint,
        # for a custom endpoint the region is only part of the signature
        "endpoint.region": config.region or ("us-east-1" if config.endpoint else ""),
        "access.key": config.access_key,
        "secret.key": config.secret_key,
        "session.token": config.session_token,
    }
    if config.ca_file:
        given["s3.client.factory.impl"] = TRUSTING_FACTORY
    if config.web_identity and not config.access_key:
        given["aws.credentials.provider"] = _WEB_IDENTITY
    plain = config.endpoint.startswith("http://")
    return {
        # skip the checks of a new file for parent folders and overwritten files: the names are ours
        "performance.flags": "create,mkdir",
        # otherwise each upload waits for a round trip before it sends its few bytes: S3A has a setting,
        # and the SDK sends the header in spite of it
        "connection.expect.continue": "false",
        "audit.execution.interceptors": _WITHOUT_EXPECT,
        # checkpoint files are small; a disk buffer would be an additional file for each
        "fast.upload.buffer": "bytebuffer",
        "create.conditional.enabled": "true",
        # how long a store is waited for whose pod has another address, or whose node is lost. Hadoop
        # allows no less than 15 s, and its own 200 s for an answer are more than an epoch may take
        "connection.establish.timeout": "15s",
        "connection.timeout": "60s",
        "path.style.access": "false" if config.virtual_hosts else "true",
        "connection.ssl.enabled": "false" if plain else "true",
        **{key: value for key, value in given.items() if value},
    }


def spark_url(checkpoint: str) -> str:
    """Return the checkpoint's address for Hadoop's file systems."""
    return re.sub("^s3://", "s3a://", checkpoint)


def _trust(spark: SparkSession) -> None:
    try:
        spark._jvm.dev.sluicegate.spark.Authorities.install()  # type: ignore[union-attr] # noqa: SLF001 - no public API
    except Py4JJavaError as error:
        raise SettingsInvalid(
            f"the CA certificates of SSL_CERT_FILE cannot be used: {error.java_exception}",
            data="nothing was started",
            do="set it to a PEM file with the CA certificates, or unset it",
        ) from error
