"""infra/preflight.py says what is missing in one line, under any Python 3."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra import preflight

SCRIPT = Path(preflight.__file__)


def fake_java(folder: Path, answer: str, code: int = 0) -> Path:
    """Make a JAVA_HOME whose java says this."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


def run(**environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the script as the Makefile does, with this environment only."""
    return subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )


def test_missing_java_is_one_line_and_exit_1(tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Java 17" in done.stderr


@pytest.mark.parametrize("version", ["11.0.20", "23", "25"])
def test_a_java_that_spark_cannot_run_on_is_named_with_its_version(
    tmp_path: Path, version: str
) -> None:
    home = fake_java(tmp_path, f'openjdk version "{version}" 2023-07-18')
    done = run(PATH=os.defpath, JAVA_HOME=str(home))
    assert done.returncode == 1
    assert f"is Java {version.partition('.')[0]}" in done.stderr


def test_a_work_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    """`make docs` and `make clean` remove folders in it."""
    home = str(fake_java(tmp_path / "java", 'openjdk version "17"'))
    work = tmp_path / "work"
    environment = {"PATH": os.defpath, "JAVA_HOME": home, "SLUICEGATE_WORK": str(work)}
    for _ in range(2):
        assert run(**environment).returncode == 0
        (work / "docs").mkdir(exist_ok=True)  # made by make
    (work / preflight.MARK).unlink()
    refused = run(**environment)
    assert refused.returncode == 1
    assert "files of others" in refused.stderr


def test_new_java_is_accepted_in_silence(tmp_path: Path) -> None:
    home = fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    done = run(PATH=os.defpath, JAVA_HOME=str(home))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("answer", "code", "major"),
    [
        ('java version "1.8.0_392"', 0, 8),
        ('openjdk version "17.0.15" 2025-04-15', 0, 17),
        ('openjdk version "25" 2025-09-16', 0, 25),
        ("The operation could not be completed. Unable to locate a Java Runtime.", 1, 0),
    ],
)
def test_java_versions_are_read(tmp_path: Path, answer: str, code: int, major: int) -> None:
    home = fake_java(tmp_path, answer, code)
    assert preflight.java_major(str(home / "bin" / "java")) == major


def test_java_home_without_java_is_named_as_the_cause(tmp_path: Path) -> None:
    done = run(PATH=os.defpath, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "JAVA_HOME" in done.stderr


def test_an_old_python_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert preflight.main() == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "is 3.9" in message


def test_a_python_without_venv_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "venv" else name)
    assert "python3-venv" in preflight.python_gap()


def test_everything_missing_is_still_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight.main() == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "Python 3.11" in message
    assert "Java 17" in message


def test_the_script_parses_under_python_3_6() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 6))
