"""The supervisor of `sluicegate run`: what follows its own death, and a driver that was fenced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli import supervisor
from sluicegate.cli.app import app
from sluicegate.cli.driver_process import DriverProcess, stop_without_supervisor
from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import ExitCode
from sluicegate.storage import driver_end
from sluicegate.storage.driver_end import Why, read_end
from sluicegate.storage.driver_failure import FOLDER, read_failure
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate_jobs.restart_demo import JOB, RestartDemoSettings

_DRIVER = """
import os, signal, sys, time
from sluicegate.cli import driver_process
def stop(*_):
    os.write(1, b"stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
driver_process.stop_without_supervisor()
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
    stop_without_supervisor()


class _Drivers:
    """Drivers that end with the given errors, one after another, and then with success."""

    def __init__(self, *kinds: str) -> None:
        self.kinds, self.started = list(kinds), 0
        self.restarts: list[str] = []

    def run(self, _command: list[str], environment: Mapping[str, str]) -> int:
        self.started += 1
        self.restarts.append(environment[DriverVariable.RESTARTS])
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


def test_each_driver_gets_the_number_of_restarts_until_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drivers = _Drivers("DecisionUnknown", "Fenced")
    settings = RestartDemoSettings(restart="fixed-delay", restart_delay_s=0)
    monkeypatch.setattr(supervisor._Stopper, "__enter__", lambda stopper: stopper)
    monkeypatch.setattr(supervisor._Stopper, "run", lambda _stopper, *given: drivers.run(*given))
    supervisor.supervise(JOB, settings)
    assert drivers.restarts == ["0", "1", "2"]


def test_why_a_driver_failed_is_recorded_in_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = LocalObjectStore(tmp_path)
    create_lineage(store, Lineage("l", JOB.name))
    drivers = _Drivers("DecisionUnknown", "Sealed")
    settings = RestartDemoSettings(
        checkpoint=store.url, restart="fixed-delay", restart_delay_s=0.01
    )
    monkeypatch.setattr(supervisor._Stopper, "__enter__", lambda stopper: stopper)
    monkeypatch.setattr(supervisor._Stopper, "run", lambda _stopper, *given: drivers.run(*given))
    supervisor.supervise(JOB, settings)
    recorded = [read_failure(store, name) for name in sorted(store.entries(FOLDER))]
    assert [(f.kind, f.what, f.exit_code) for f in recorded if f] == [
        ("DecisionUnknown", "it was overtaken", ExitCode.FAILED),
        ("Sealed", "it was overtaken", ExitCode.SUPERSEDED),
    ]
    assert recorded[0] is not None
    assert recorded[0].then.startswith("restart in 0.01 s")
    assert recorded[1] is not None
    assert recorded[1].then == "a restart cannot help"


@pytest.mark.parametrize(
    ("code", "asked", "ends", "failures"),
    [
        (0, False, [Why.FINISHED], []),
        (0, True, [Why.STOPPED], []),
        (-signal.SIGTERM, True, [Why.STOPPED], []),  # before its query had started
        (-signal.SIGKILL, True, [], ["no restart: a stop was requested"]),
        (-signal.SIGKILL, False, [], ["no restart (none: a failed driver is not restarted)"]),
    ],
)
def test_how_the_last_driver_ended_is_recorded_in_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: int,
    ends: list[Why],
    failures: list[str],
    *,
    asked: bool,
) -> None:
    store = LocalObjectStore(tmp_path)
    create_lineage(store, Lineage("l", JOB.name))

    def run(stopper: supervisor._Stopper, *_given: object) -> int:
        if asked:
            stopper.requested.set()
        return code

    monkeypatch.setattr(supervisor._Stopper, "__enter__", lambda stopper: stopper)
    monkeypatch.setattr(supervisor._Stopper, "run", run)
    settings = RestartDemoSettings(checkpoint=store.url, restart="none")
    assert supervisor.supervise(JOB, settings) == code
    recorded = [read_end(store, name) for name in store.entries(driver_end.FOLDER)]
    assert [of.why for of in recorded if of] == ends
    failed = [read_failure(store, name) for name in store.entries(FOLDER)]
    assert [of.then for of in failed if of] == failures


_DRIVER_OR_STANDBY = """
import os, sys, time
from sluicegate.cli import driver_process
driver_process.stop_without_supervisor()
if driver_process.is_standby():
    print(f"standby {os.getpid()}", flush=True)
    assert driver_process.await_turn()
print(f"driver {os.getpid()} {os.environ.get('SLUICEGATE_RESTARTS')}", flush=True)
driver_process.report_started()
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""


def _command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", script, *arguments]


def test_a_signal_that_comes_while_a_driver_is_being_started_reaches_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the job runs on, and its supervisor waits for it."""
    stopper = supervisor._Stopper()

    class Starting(DriverProcess):
        def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
            super().__init__(command, environment)
            while "running" not in capfd.readouterr().out:
                time.sleep(0.02)  # it has its own handler now
            stopper._stop(signal.SIGTERM, None)

    monkeypatch.setattr(supervisor, "DriverProcess", Starting)
    assert stopper.run([sys.executable, "-c", _DRIVER], dict(os.environ)) == 0
    assert capfd.readouterr().out == "stopped"


class _Output:
    """A file to which every driver appends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "output"

    def command(self, seconds: float) -> list[str]:
        redirect = f"import sys; sys.stdout = open({str(self.path)!r}, 'a')\n"
        return _command(redirect + _DRIVER_OR_STANDBY, str(seconds))

    def lines(self) -> list[tuple[str, int]]:
        """Return what the drivers wrote: (role, process id)."""
        words = [line.split() for line in self.path.read_text().splitlines()]
        return [(role, int(pid)) for role, pid, *_ in words]

    def restarts(self) -> list[str]:
        """Return the number of restarts that each driver knows of."""
        words = [line.split() for line in self.path.read_text().splitlines()]
        return [number for role, _, *numbers in words if role == "driver" for number in numbers]

    def await_role(self, role: str, count: int) -> None:
        deadline = time.monotonic() + 30
        while [r for r, _ in self.lines()].count(role) < count:
            assert time.monotonic() < deadline, self.lines()
            time.sleep(0.02)


def test_the_standby_of_a_driver_that_failed_is_the_next_driver(tmp_path: Path) -> None:
    """It counts itself as a restart, though it was started before the failure."""
    output, environment = _Output(tmp_path), {**os.environ, DriverVariable.RESTARTS: "4"}
    stopper = supervisor._Stopper(standby=True)
    assert stopper.run(output.command(1.5), environment) == 7
    output.await_role("standby", 1)
    assert stopper.run(output.command(1.5), environment) == 7
    stopper.__exit__()
    roles = output.lines()
    assert [role for role, _ in roles[:3]] == ["driver", "standby", "driver"]
    assert roles[2][1] == roles[1][1] != roles[0][1]
    assert output.restarts() == ["4", "5"]


def test_a_standby_that_has_died_is_replaced_by_a_new_driver(tmp_path: Path) -> None:
    output, environment = _Output(tmp_path), dict(os.environ)
    stopper = supervisor._Stopper(standby=True)
    assert stopper.run(output.command(1.5), environment) == 7
    output.await_role("standby", 1)
    dead = output.lines()[1][1]
    os.kill(dead, signal.SIGKILL)
    assert stopper._standby is not None
    stopper._standby.wait()
    assert stopper.run(output.command(0), environment) == 7
    stopper.__exit__()
    assert output.lines()[2][0] == "driver"
    assert output.lines()[2][1] != dead


def test_no_standby_outlives_its_supervisor(tmp_path: Path) -> None:
    output = _Output(tmp_path)
    stopper = supervisor._Stopper(standby=True)
    assert stopper.run(output.command(1.5), dict(os.environ)) == 7
    output.await_role("standby", 1)
    stopper.__exit__()
    with pytest.raises(ProcessLookupError):
        os.kill(output.lines()[1][1], 0)


def test_a_driver_that_ends_before_its_query_runs_gets_no_standby() -> None:
    process = DriverProcess(_command("pass"), dict(os.environ))
    assert not process.await_started()
    process.close()


def test_a_standby_needs_a_supervisor() -> None:
    result = CliRunner().invoke(app, ["run", "restart_demo", "--once", "--standby"])
    assert result.exit_code == 2
    assert "--standby needs a supervisor" in result.output


def test_with_a_standby_the_delay_counts_from_the_start_of_the_failed_driver(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So a driver that ran for long is replaced at once, and one that always fails is not a hot loop."""

    class SlowDrivers(_Drivers):
        def run(self, command: list[str], environment: Mapping[str, str]) -> int:
            time.sleep(0.3)
            return super().run(command, environment)

    monkeypatch.setattr(supervisor._Stopper, "__enter__", lambda stopper: stopper)
    for standby, delay in ((True, "0"), (False, "0.2")):
        drivers = SlowDrivers("DecisionUnknown")
        monkeypatch.setattr(supervisor._Stopper, "run", lambda _, *given: drivers.run(*given))  # noqa: B023
        settings = RestartDemoSettings(restart="fixed-delay", restart_delay_s=0.2)
        assert supervisor.supervise(JOB, settings, standby=standby) == 0
        assert f"restart in {delay} s" in caplog.text
