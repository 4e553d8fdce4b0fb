"""The commands that start scripts execute; the programs are replaced by scripts that print arguments."""

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
    """Return a PATH with programs that print their arguments, one per line."""
    for name in ("tini", "java"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            '#!/bin/sh\nfor argument in "$@"; do echo "$argument"; done\n', encoding="utf-8"
        )
        program.chmod(0o755)
    return f"{tmp_path / 'bin'}:/usr/bin:/bin"


def _run(
    script: str, *arguments: str, path: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    argv = [str(SCRIPTS / script), *arguments]
    variables = {"PATH": path, **environment}
    return subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)


def test_an_executor_gets_its_options_in_order_and_unsplit(path: str) -> None:
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn={n} a" for n in range(11)}
    result = _run("entrypoint", "executor", path=path, environment=EXECUTOR | options)
    lines = result.stdout.splitlines()
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


def test_an_executor_has_the_class_archive_and_the_class_path_that_it_fits(
    path: str, tmp_path: Path
) -> None:
    (tmp_path / "driver.jsa").touch()
    (tmp_path / "driver.classpath").write_text("/jars/a.jar\n/spark/jars/b.jar\n")
    own = {"SLUICEGATE_JARS": str(tmp_path), "SPARK_CONF_DIR": "/conf", "SPARK_JAVA_OPT_0": "-Da"}
    result = _run("entrypoint", "executor", path=path, environment=EXECUTOR | own)
    lines = result.stdout.splitlines()
    assert lines[3:6] == ["-Da", f"-XX:SharedArchiveFile={tmp_path}/driver.jsa", "-Xshare:auto"]
    class_path = lines[lines.index("-cp") + 1]
    assert class_path == "/jars/a.jar:/spark/jars/b.jar:/conf:/spark/jars/*"


def test_an_executor_names_a_missing_variable(path: str) -> None:
    environment = {k: v for k, v in EXECUTOR.items() if k != "SPARK_DRIVER_URL"}
    result = _run("entrypoint", "executor", path=path, environment=environment)
    assert result.returncode == 64
    assert "SPARK_DRIVER_URL is not set" in result.stderr


def test_another_command_is_executed_unchanged(path: str) -> None:
    result = _run("entrypoint", "java", "a b", path=path, environment={})
    assert result.stdout == "a b\n"


@pytest.mark.parametrize("server", ["kafka", "mysql"])
def test_a_server_without_settings_names_their_path(path: str, server: str) -> None:
    environment = {f"{server.upper()}_CONFIG": "/none"}
    result = _run(f"{server}-server", path=path, environment=environment)
    assert (result.returncode, result.stderr) == (
        64,
        f"{server}-server: there is no /none: mount the settings there\n",
    )


def test_a_new_data_folder_of_mysql_needs_a_password(path: str, tmp_path: Path) -> None:
    config = tmp_path / "my.cnf"
    config.touch()
    environment = {"MYSQL_CONFIG": str(config), "MYSQL_DATA": str(tmp_path / "data")}
    result = _run("mysql-server", path=path, environment=environment)
    assert result.returncode == 64
    assert "MYSQL_ROOT_PASSWORD is not set" in result.stderr
