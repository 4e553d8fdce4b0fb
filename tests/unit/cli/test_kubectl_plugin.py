"""`kubectl sluicegate` with a kubectl that records its arguments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluicegate.cli.kubectl_plugin import app

KUBECTL = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *{refused}) exit 3 ;; esac
"""


class Kubectl:
    """A kubectl that fails if its arguments end with some text."""

    def __init__(self, folder: Path) -> None:
        self.program, self.log = folder / "kubectl", folder / "log"

    def refuse(self, arguments: str) -> None:
        self.program.write_text(KUBECTL.format(log=self.log, refused=arguments))
        self.program.chmod(0o755)

    @property
    def verbs(self) -> list[str]:
        """What it was called for, with how it was called if nothing was to be changed."""
        calls = (line.split() for line in self.log.read_text().splitlines())
        return [f"{call[1]}{' (dry run)' * (call[-1] == '--dry-run=server')}" for call in calls]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return Kubectl(tmp_path)


def savepoint(*options: str) -> Result:
    arguments = ["--namespace=shop", "savepoint", "orders", "--timeout-s=0", *options]
    return CliRunner().invoke(app, arguments)


def test_a_job_is_not_suspended_for_a_savepoint_that_is_refused(kubectl: Kubectl) -> None:
    kubectl.refuse("--dry-run=server")
    assert savepoint("--stop").exit_code == 3
    assert kubectl.verbs == ["create (dry run)"]


def test_a_savepoint_that_fails_after_the_suspend_is_said_with_how_to_resume(
    kubectl: Kubectl,
) -> None:
    kubectl.refuse("--filename=-")
    done = savepoint("--stop", "--name=move")
    assert done.exit_code == 3
    assert kubectl.verbs == ["create (dry run)", "patch", "create"]
    assert "did not create Savepoint move, and orders is suspended" in done.stderr
    assert "kubectl sluicegate --namespace=shop resume orders" in done.stderr


def test_a_savepoint_of_a_job_that_goes_on_is_created_at_once(kubectl: Kubectl) -> None:
    kubectl.refuse("nothing")
    assert savepoint().exit_code == 0
    assert kubectl.verbs == ["create"]
