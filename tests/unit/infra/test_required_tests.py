"""Tests that must run fail if they are skipped (`SLUICEGATE_MAY_SKIP`)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.workspace import CHECKOUT
from tests.required import MAY_SKIP

TESTS = """
import pytest

@pytest.fixture
def server():
    pytest.skip("kube-apiserver is not built: run `make test`")

def test_with_a_program(server): ...

@pytest.mark.skipif(True, reason="SLUICEGATE_NO_S3 is set")
def test_of_a_choice(): ...

@pytest.mark.xfail
def test_that_is_expected_to_fail():
    raise ValueError
"""


def outcomes(folder: Path, allowed: str | None) -> str:
    """Return pytest's last line."""
    (folder / "test_some.py").write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    environment.pop(MAY_SKIP, None)
    if allowed is not None:
        environment[MAY_SKIP] = allowed
    plugins = ["-p", "tests.required", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(folder), str(folder)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (None, "2 skipped, 1 xfailed"),
        ("", "1 xfailed, 2 errors"),
        ("SLUICEGATE_(NO|SIM)_", "1 skipped, 1 xfailed, 1 error"),
    ],
)
def test_a_skipped_test_fails_unless_its_reason_was_chosen(
    tmp_path: Path, allowed: str | None, expected: str
) -> None:
    assert expected in outcomes(tmp_path, allowed)


def test_continuous_integration_chooses_its_reasons() -> None:
    script = (CHECKOUT / ".ci" / "run").read_text()
    assert re.search(rf"(?m)^export {MAY_SKIP}=", script)
