"""The supervisor of `sluicegate run`: what follows its own death, and a driver that was fenced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sluicegate.cli import supervisor
from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import ExitCode
from sluicegate_jobs.restart_demo import JOB, RestartDemoSettings

_DRIVER = """
import os, signal, sys, time
from sluicegate.cli import supervisor
def stop(*_):
    os.write(1, b"stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
supervisor.stop_without_supervisor()
os.write(1, b"running ")
time.sleep(30)
"""

_SUPERVISOR = """
import os, sys
from sluicegate.cli.supervisor import _Stopper
_Stopper().run([sys.executable, "-c", sys.argv[1]], dict(os.environ))
"""


def test_a_driver_whose_supervisor_is_killed_stops_as_at_sigterm() -> None:
    command = [sys.executable, "-c", _SUPERVISOR, _DRIVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 8) == b"running "
        process.kill()
        assert process.stdout.read() == b"stopped"


def test_a_driver_without_a_supervisor_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DriverVariable.SUPERVISOR, raising=False)
    supervisor.stop_without_supervisor()


class _Drivers:
    """Drivers that end with the given errors, one after another, and then with success."""

    def __init__(self, *kinds: str) -> None:
        self.kinds, self.started = list(kinds), 0

    def run(self, _command: list[str], environment: Mapping[str, str]) -> int:
        self.started += 1
        if not self.kinds:
            return 0
        kind = self.kinds.pop(0)
        reason = {"kind": kind, "what": "it was overtaken"}
        Path(environment[DriverVariable.TERMINATION_FILE]).write_text(json.dumps(reason))
        return ExitCode.FAILED if kind == "DecisionUnknown" else ExitCode.SUPERSEDED


@pytest.mark.parametrize(
    ("kinds", "code", "started"),
    [
        (("Fenced",), 0, 2),  # by the last epoch of a driver whose supervisor was killed
        (("Fenced", "Fenced"), ExitCode.SUPERSEDED, 2),  # by another supervisor's driver
        (("DecisionUnknown", "Fenced"), 0, 3),  # by the late request of the driver before it
        (("DecisionUnknown", "Fenced", "Fenced"), ExitCode.SUPERSEDED, 3),
        (("Sealed",), ExitCode.SUPERSEDED, 1),
    ],
)
def test_a_driver_that_was_fenced_is_started_again_once(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], code: int, started: int
) -> None:
    """So two supervisors of one checkpoint cannot fence each other without end."""
    drivers = _Drivers(*kinds)
    settings = RestartDemoSettings(restart="fixed-delay", restart_delay_s=0)
    monkeypatch.setattr(supervisor._Stopper, "__enter__", lambda stopper: stopper)
    monkeypatch.setattr(supervisor._Stopper, "run", lambda _stopper, *given: drivers.run(*given))
    assert supervisor.supervise(JOB, settings) == code
    assert drivers.started == started
