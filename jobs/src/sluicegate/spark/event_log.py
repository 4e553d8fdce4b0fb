"""Spark's event logs, and the history server that shows them after their driver has ended.

Spark opens the log while its context starts, before anything of a job is known. So what it needs for
S3 is among the settings of the session. The keys are not: S3A reads them from the AWS_* variables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.find_spark_home import _find_spark_home

from sluicegate.deployment.environment import EVENT_LOG, EVENT_LOG_FOLDER
from sluicegate.errors import SettingsInvalid, TargetMissing
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.spark.conf import JARS_VARIABLE
from sluicegate.spark.s3a import bucket_settings, spark_url
from sluicegate.storage.object_store import open_store
from sluicegate.storage.s3_config import S3Config, bucket_of, is_s3

_ROLLING = {
    "spark.eventLog.rolling.enabled": "true",
    # the least that Spark permits: a file on S3 is visible, and survives a kill, once it is complete
    "spark.eventLog.rolling.maxFileSize": "10m",
    "spark.eventLog.compress": "true",
}

_MARKER = ".folder"
"""An object that makes a prefix of S3 a folder, which Spark demands. History servers skip its name."""

_KEYS = ("access.key", "secret.key", "session.token")


def event_log_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what a session needs for its event log, and create the log's folder.

    Args:
        conf: the settings of the session. Nothing is done unless `spark.eventLog.enabled` is true.

    Raises:
        SettingsInvalid: the log has no folder, or one of an unknown scheme.
        StoreUnavailable: the folder cannot be created.
    """
    if conf.get(EVENT_LOG, "").lower() != "true":
        return {}
    folder = conf.get(EVENT_LOG_FOLDER, "")
    if not folder:
        raise SettingsInvalid(
            f"{EVENT_LOG} is set without {EVENT_LOG_FOLDER}",
            data=NOTHING_STARTED,
            do=f"set {EVENT_LOG_FOLDER} to a folder, or to s3://BUCKET/PREFIX",
        )
    address = re.sub("^s3a://", "s3://", folder)
    if is_s3(address):
        open_store(address).create(_MARKER, b"")
    elif urlsplit(folder).scheme in ("", "file"):
        Path(urlsplit(folder).path).mkdir(parents=True, exist_ok=True)
    given = {key: value for key, value in _ROLLING.items() if key not in conf}
    return given | {EVENT_LOG_FOLDER: spark_url(address)} | _access(address)


def require_logs(folder: str) -> None:
    """Refuse a folder of event logs that no driver has created yet, before a JVM starts for it.

    Args:
        folder: the folder of event logs, or `s3://BUCKET/PREFIX`. Reading and listing are enough.

    Raises:
        TargetMissing: there is no such folder.
        StoreUnavailable: it cannot be listed.
    """
    if is_s3(folder):
        exists = next(iter(open_store(folder).entries("")), None) is not None
    else:
        exists = Path(folder.removeprefix("file:")).is_dir()
    if not exists:
        raise TargetMissing(
            f"there is no folder of event logs at {folder}",
            data="nothing was started; event logs are no part of a checkpoint",
            do=f"start a job whose sparkConf has {EVENT_LOG}, which creates the folder, and try again; "
            "otherwise correct the address",
        )


def history_server(folder: str, host: str, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of Spark's history server and its environment.

    Args:
        folder: the folder of event logs, or `s3://BUCKET/PREFIX`.
        host: the address to listen on; anyone who reaches it can read the logs.
        port: the port.
    """
    options = {
        "spark.history.fs.logDirectory": spark_url(folder if is_s3(folder) else _as_url(folder)),
        "spark.history.ui.port": str(port),
        **_access(folder),
    }
    home = _find_spark_home()  # type: ignore[no-untyped-call] # as pyspark's own programs
    jars = os.environ.get(JARS_VARIABLE)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": host,
        "SPARK_HISTORY_OPTS": " ".join(f"-D{key}={value}" for key, value in options.items()),
        **({"SPARK_DAEMON_CLASSPATH": f"{Path(jars).resolve()}/*"} if jars else {}),
    }
    command = [f"{home}/bin/spark-class", "org.apache.spark.deploy.history.HistoryServer"]
    return command, environment


def _as_url(folder: str) -> str:
    return folder if folder.startswith("file:") else Path(folder).resolve().as_uri()


def _access(address: str) -> dict[str, str]:
    """Return the S3A settings of an address, without keys; empty for a folder."""
    if not is_s3(address):
        return {}
    prefix = f"spark.hadoop.fs.s3a.bucket.{bucket_of(address)}"
    settings = bucket_settings(S3Config.read())
    return {f"{prefix}.{key}": text for key, text in settings.items() if key not in _KEYS}
