"""Start scripts: which command they end in. What they start is replaced by one that tells its arguments."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.images.catalog import SCRIPTS

EXECUTOR = {
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "app-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "job-1-exec-3",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Put programs on a path that print their arguments, one a line."""
    for name in ("tini", "java"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n', encoding="utf-8")
        program.chmod(0o755)
    return f"{tmp_path / 'bin'}:/usr/bin:/bin"


def _run(
    script: str, *arguments: str, path: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    argv = [str(SCRIPTS / script), *arguments]
    given = {"PATH": path, **environment}
    return subprocess.run(argv, env=given, capture_output=True, text=True, check=False)


def test_an_executor_gets_its_options_in_order_each_one_word(path: str) -> None:
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn={n} a" for n in range(11)}
    done = _run("entrypoint", "executor", path=path, environment=EXECUTOR | options)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["-s", "--", "java"]
    assert lines[3:14] == [f"-Dn={n} a" for n in range(11)]
    assert lines[14:18] == ["-Xms512m", "-Xmx512m", "-cp", "/spark/jars/*"]
    assert lines[18] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    pairs = dict(zip(lines[19::2], lines[20::2], strict=True))
    assert pairs == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "app-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "job-1-exec-3",
    }


def test_an_executor_without_a_variable_says_which(path: str) -> None:
    environment = {k: v for k, v in EXECUTOR.items() if k != "SPARK_DRIVER_URL"}
    done = _run("entrypoint", "executor", path=path, environment=environment)
    assert done.returncode == 64
    assert "SPARK_DRIVER_URL is not set" in done.stderr


def test_another_command_is_run_as_it_is(path: str) -> None:
    done = _run("entrypoint", "java", "a b", path=path, environment={})
    assert done.stdout == "a b\n"


def test_kafka_without_settings_says_where_they_belong(path: str) -> None:
    done = _run("kafka-server", path=path, environment={"KAFKA_CONFIG": "/none"})
    assert (done.returncode, done.stderr) == (
        64,
        "kafka-server: there is no /none: mount the settings there\n",
    )


def test_mysql_without_settings_says_where_they_belong(path: str) -> None:
    done = _run("mysql-server", path=path, environment={"MYSQL_CONFIG": "/none"})
    assert (done.returncode, done.stderr) == (
        64,
        "mysql-server: there is no /none: mount the settings there\n",
    )


def test_a_new_data_folder_of_mysql_needs_a_password(path: str, tmp_path: Path) -> None:
    config = tmp_path / "my.cnf"
    config.touch()
    environment = {"MYSQL_CONFIG": str(config), "MYSQL_DATA": str(tmp_path / "data")}
    done = _run("mysql-server", path=path, environment=environment)
    assert done.returncode == 64
    assert "MYSQL_ROOT_PASSWORD is not set" in done.stderr
