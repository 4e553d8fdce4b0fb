"""Gives a session what Spark needs to write its own checkpoint files to S3 safely.

Everything is set when a query starts, for the checkpoint's bucket only, so that a user's own
session works too and his other buckets keep their settings; only whom SSL_CERT_FILE names is the
whole process's matter. Not here: Sluicegate's own objects
(`storage.objects`). Called by `query`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.storage.s3 import S3Environment, bucket_of, is_s3

FILE_MANAGER = "dev.sluicegate.spark.FencedCheckpointFileManager"
"""Creates with If-None-Match and lets a failed write through; source in jobs/java."""

TRUSTING_FACTORY = "dev.sluicegate.spark.TrustingClientFactory"
"""Has a JVM, an executor's too, trust whom SSL_CERT_FILE names before it asks the bucket's store."""

_QUERY_SETTINGS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    # a second object beside each state file; S3 checks what it stores by itself
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""What a query with its checkpoint on S3 is started with."""

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"

_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"

_ALWAYS: Mapping[str, str] = {
    # no looks around a new file for folders and for what it might hide: the names are ours
    "performance.flags": "create,mkdir",
    # checkpoint files are small; a buffer on disk is a file more for each
    "fast.upload.buffer": "bytebuffer",
    "create.conditional.enabled": "true",
}


def prepare_store(spark: SparkSession, checkpoint: str) -> None:
    """Tell a session how to reach the checkpoint's bucket; does nothing for a disk.

    Endpoint and keys come from the AWS_* variables, as for Sluicegate's own objects, and whom an
    https store's certificate may be signed by from SSL_CERT_FILE: a PEM file with all authorities
    that this process and executors need, since it is the whole JVM that trusts them and no others. A
    file system that the session has open on the bucket keeps the settings that it was opened with.

    Raises:
        SettingsInvalid: the session lacks the classes, the variables do not fit together, or the
            authorities cannot be read.
    """
    if not is_s3(checkpoint):
        return
    store = S3Environment.read()
    needed = [_S3A, FILE_MANAGER, *([TRUSTING_FACTORY] if store.authorities else [])]
    missing = [name for name in needed if not _loadable(spark, name)]
    if missing:
        raise SettingsInvalid(
            f"the Spark session cannot write checkpoints to S3: it has no {' and no '.join(missing)}",
            data="nothing was started",
            do="put the jars of SLUICEGATE_JARS (`make jars`) on its class path, as "
            "sluicegate.session() does, or keep the checkpoint on a disk",
        )
    if store.authorities:
        _trust(spark)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - no public door
    for key, value in bucket_settings(store).items():
        hadoop.set(f"fs.s3a.bucket.{bucket_of(checkpoint)}.{key}", value)


def bucket_settings(environment: S3Environment) -> dict[str, str]:
    """Return what S3A is told of a bucket, without the prefix `fs.s3a.bucket.NAME.`."""
    given = {
        "endpoint": environment.endpoint,
        # with an endpoint of one's own a region is only part of the signature
        "endpoint.region": environment.region or ("us-east-1" if environment.endpoint else ""),
        "access.key": environment.access_key,
        "secret.key": environment.secret_key,
        "session.token": environment.session_token,
    }
    if environment.authorities:
        given["s3.client.factory.impl"] = TRUSTING_FACTORY
    if environment.web_identity and not environment.access_key:
        given["aws.credentials.provider"] = _WEB_IDENTITY
    encrypted = not environment.endpoint.startswith("http://")
    return {
        **_ALWAYS,
        "path.style.access": _text(not environment.virtual_hosts),
        "connection.ssl.enabled": _text(encrypted),
        **{key: value for key, value in given.items() if value},
    }


@contextmanager
def checkpoint_files(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Let a query that starts inside write its files by the manager that its store needs.

    A query keeps what it was started with; other queries of the session keep their own.
    """
    if not is_s3(checkpoint):
        yield
        return
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in _QUERY_SETTINGS}
    for key, value in _QUERY_SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def spark_url(checkpoint: str) -> str:
    """Return the checkpoint as Hadoop's file systems name it."""
    return (
        checkpoint.replace("s3://", "s3a://", 1) if checkpoint.startswith("s3://") else checkpoint
    )


def _loadable(spark: SparkSession, name: str) -> bool:
    utils = spark._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr] # noqa: SLF001
    return bool(utils.classIsLoadable(name))


def _trust(spark: SparkSession) -> None:
    try:
        spark._jvm.dev.sluicegate.spark.Authorities.install()  # type: ignore[union-attr] # noqa: SLF001 - no public door
    except Py4JJavaError as error:
        raise SettingsInvalid(
            f"the authorities of SSL_CERT_FILE cannot be used: {error.java_exception}",
            data="nothing was started",
            do="let it name a PEM file with the certificates of the authorities, or unset it",
        ) from error


def _text(value: bool) -> str:  # noqa: FBT001 - its only parameter
    return str(value).lower()
