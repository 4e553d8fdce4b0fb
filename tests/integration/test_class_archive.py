"""The class archive that `make classes` has made."""

from __future__ import annotations

import subprocess

import pytest

from infra.preflight import java_command
from infra.toolchain import maven
from sluicegate.spark.class_archive import jar_settings


def test_the_jvm_accepts_the_archive_with_the_class_path_of_a_driver() -> None:
    """Without `-Xshare:on` it would load the classes from their jars, without a word."""
    settings = jar_settings(maven.folder("spark"), "local[2]")
    options = settings["spark.driver.extraJavaOptions"].split()
    path = settings["spark.driver.extraClassPath"] + ":conf:more/*"
    command = [java_command(), *options, "-Xshare:on", "-cp", path, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr)
