"""The class paths of driver and executors, with and without an archive of their classes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluicegate.spark.class_archive import ARCHIVE, CLASS_PATH, jar_settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two jars."""
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).touch()
    return tmp_path


def archive(folder: Path, *jars: str) -> None:
    (folder / ARCHIVE).touch()
    (folder / CLASS_PATH).write_text("".join(f"{folder / jar}\n" for jar in jars))


def class_path(settings: dict[str, str], process: str = "driver") -> list[str]:
    jars = settings[f"spark.{process}.extraClassPath"].split(os.pathsep)
    return [Path(jar).name for jar in jars]


def test_without_an_archive_the_class_path_has_the_jars_in_order(folder: Path) -> None:
    settings = jar_settings(folder, "local[2]")
    assert class_path(settings) == ["a.jar", "b.jar"]
    assert "spark.driver.extraJavaOptions" not in settings


def test_with_an_archive_the_class_path_begins_with_the_jars_of_the_archive(folder: Path) -> None:
    """An image of a user may add a jar to the folder, wherever it is in the order of names."""
    archive(folder, "a.jar", "b.jar")
    (folder / "aa.jar").touch()
    settings = jar_settings(folder, "local[2]")
    assert class_path(settings) == ["a.jar", "b.jar", "aa.jar"]
    assert f"-XX:SharedArchiveFile={folder / ARCHIVE}" in settings["spark.driver.extraJavaOptions"]


def test_an_archive_of_a_jar_that_is_gone_is_not_used_and_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive(folder, "a.jar", "older.jar")
    settings = jar_settings(folder, "local[2]")
    assert class_path(settings) == ["a.jar", "b.jar"]
    assert "spark.driver.extraJavaOptions" not in settings
    assert "older.jar, which is gone: this start takes up to twice as long" in caplog.text


def test_executors_in_pods_fetch_the_jars_of_the_folder_alone(folder: Path) -> None:
    """Those of Spark are in their image."""
    archive(folder, "a.jar", CLASS_PATH, "b.jar")
    settings = jar_settings(folder, "k8s://https://kubernetes")
    assert settings["spark.jars"] == f"{folder / 'a.jar'},{folder / 'b.jar'}"
    assert "spark.executor.extraClassPath" not in settings


def test_executors_of_a_local_cluster_have_the_archive_too(folder: Path) -> None:
    archive(folder, "a.jar", "b.jar")
    settings = jar_settings(folder, "local-cluster[1,1,1024]")
    assert class_path(settings, "executor") == ["a.jar", "b.jar"]
    assert str(folder / ARCHIVE) in settings["spark.executor.extraJavaOptions"]
