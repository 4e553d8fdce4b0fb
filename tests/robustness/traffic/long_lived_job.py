"""A job of a long run: its driver is stopped at failpoints that are armed while it runs, and restarted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.deployment.environment import DriverVariable
from sluicegate.failpoints import VARIABLE
from sluicegate.packaged_job import JobSettings
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, Strike, all_failpoints
from tests.robustness.traffic.ip_count_harness import RunningDriver, command_of, start
from tests.robustness.traffic.packaged_job_harness import JobScenario

_TICK_S = 0.05


class ArmedFailpoints:
    """Failpoints of which each stops the driver when its file is removed; see `sluicegate.failpoints`.

    A failpoint with a once-file does nothing while the file exists. The process that passes it first
    after the removal creates the file again and stops itself with SIGSTOP.

    Args:
        folder: of the files.
        sinks: role of a sink -> its id.
    """

    def __init__(self, folder: Path, sinks: Mapping[str, str]) -> None:
        self._files = {(p, s): folder / f"{p}.{s}" for p, s in all_failpoints() if p != ANY_MOMENT}
        folder.mkdir()
        for file in self._files.values():
            file.touch()
        self.setting = ";".join(
            f"{point}{f':{sinks[sink]}' if sink else ''}=stop-group~{file}"
            for (point, sink), file in self._files.items()
        )
        """The value of SLUICEGATE_FAILPOINTS."""

    def arm(self, strike: Strike) -> None:
        """Stop the next process that passes the failpoint of a strike."""
        self._file(strike).unlink()

    def disarm(self, strike: Strike) -> None:
        """Stop no process there."""
        self._file(strike).touch()

    def reached(self, strike: Strike) -> bool:
        """Return whether a process was stopped there since it was armed."""
        return self._file(strike).exists()

    def _file(self, strike: Strike) -> Path:
        return self._files[strike.point, strike.sink]


@dataclass(frozen=True)
class Process:
    """A process of /proc."""

    pid: int
    parent: int
    group: int
    session: int
    name: str
    stopped: bool


def processes() -> Iterator[Process]:
    """Yield the processes of this machine, without those that have ended."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        state, parent, group, session = rest.split()[:4]
        if state not in "ZX":
            ids = int(folder.name), int(parent), int(group), int(session)
            yield Process(*ids, name, stopped=state == "T")


@dataclass(frozen=True)
class Driver:
    """A driver with all its processes: Python, JVM, Python workers. It leads a session."""

    running: RunningDriver
    began: float = field(default_factory=time.monotonic)

    @property
    def age_s(self) -> float:
        """The time since it was started."""
        return time.monotonic() - self.began

    @property
    def pid(self) -> int:
        """The Python process of the driver."""
        return self.running.process.pid

    @property
    def group(self) -> int:
        """The id of the group that its processes run as."""
        return Path(f"/proc/{self.pid}").stat().st_gid

    @property
    def drivers(self) -> int:
        """How many drivers have run."""
        return 1

    @property
    def taken_over(self) -> int:
        """How many of them were a standby that a supervisor had started."""
        return 0

    @property
    def code(self) -> int | None:
        """The exit code of the Python process; None while it runs."""
        return self.running.process.poll()

    def members(self) -> list[Process]:
        """Return the live processes of its session."""
        return [process for process in processes() if process.session == self.pid]

    def jvm(self) -> list[Process]:
        """Return its JVM."""
        return [p for p in self.members() if p.name == "java" and p.parent == self.pid]

    def await_stopped(self, timeout_s: float) -> list[Process]:
        """Wait until a process has stopped itself at a failpoint, with its group; return the group.

        It creates the file before: a SIGCONT in between would come too early, and it would stop for good.
        None is returned if it has ended, as a worker does whose task was killed.
        """
        deadline = time.monotonic() + timeout_s
        while not (stopped := [process for process in self.members() if process.stopped]):
            if time.monotonic() > deadline:
                break
            time.sleep(_TICK_S)
        return stopped

    def executors(self) -> list[Process]:
        """Return its executors, if they are processes of their own: the JVM has started them."""
        parents = {process.pid for process in self.jvm()}
        return [p for p in self.members() if p.name == "java" and p.parent in parents]

    def workers(self) -> list[Process]:
        """Return its Python workers and their daemon, which leads a process group of its own."""
        return [p for p in self.members() if p.group != self.pid]

    def signal(self, number: signal.Signals, to: list[Process] | None = None) -> None:
        """Send a signal to some of its processes, by default to all."""
        for process in self.members() if to is None else to:
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue  # it ended meanwhile

    def terminate(self) -> None:
        """Ask it to stop at the end of its epoch."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all its processes, and wait for them."""
        while self.members():
            self.signal(signal.SIGKILL)
            self.running.process.poll()
            time.sleep(_TICK_S)
        self.running.process.wait()

    def last_line(self) -> str:
        """Return the last line of its log."""
        lines = self.running.text().strip().splitlines()
        return lines[-1] if lines else "no output"

    def says(self, word: str) -> bool:
        """Return whether the end of its log has a word."""
        return word in self.running.text()[-4000:]

    def wait_code(self, timeout_s: float) -> int | None:
        """Wait until its Python process exits; return the code, or None if it does not."""
        deadline = time.monotonic() + timeout_s
        while self.code is None and time.monotonic() < deadline:
            time.sleep(_TICK_S)
        return self.code

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until no process of it is left; return whether that is so."""
        deadline = time.monotonic() + timeout_s
        while self.members():
            if time.monotonic() > deadline:
                return False
            self.running.process.poll()
            time.sleep(_TICK_S)
        return True


@dataclass(frozen=True)
class SupervisedDriver(Driver):
    """A supervisor, `sluicegate run`, which is the process of this object, with its drivers.

    Members are the processes of the drivers: each driver, and a standby, leads a session of its own.
    """

    sessions: list[int] = field(default_factory=list)
    """The drivers that were seen, oldest first."""

    @property
    def drivers(self) -> int:
        """How many drivers have run, a standby that waits among them."""
        self.members()
        return max(1, len(self.sessions))

    @property
    def taken_over(self) -> int:
        """How many of them were a standby that a supervisor had started."""
        return self.running.text().count("the standby takes over")

    def members(self) -> list[Process]:
        """Return the live processes of its drivers, also if the supervisor has ended."""
        found = list(processes())
        for process in sorted(found, key=lambda process: process.pid):
            # until it leads a session it is a copy of the supervisor, which starts a program
            leads = process.session == process.pid
            if process.parent == self.pid and leads and process.pid not in self.sessions:
                self.sessions.append(process.pid)
        return [process for process in found if process.session in self.sessions]

    def kill(self) -> None:
        """Kill the supervisor, all its drivers, and wait for them."""
        self.abandon()
        super().kill()

    def abandon(self) -> None:
        """Kill the supervisor alone."""
        if self.code is None:
            os.kill(self.pid, signal.SIGSTOP)  # it starts no driver that would not be seen
            self.members()
            os.kill(self.pid, signal.SIGKILL)
            self.running.process.wait()

    def kill_driver(self) -> None:
        """Kill the driver that runs, if one does, all of its processes; not a standby, which goes on."""
        members = self.members()
        alive = {member.session for member in members}
        first = next((session for session in self.sessions if session in alive), None)
        self.signal(signal.SIGKILL, [member for member in members if member.session == first])
        self.signal(signal.SIGCONT)


@dataclass(frozen=True)
class _Standby:
    """A driver that waits for its turn; a write to the pipe gives it that."""

    driver: Driver
    settings: JobSettings
    turn: int

    def can_run(self, settings: JobSettings) -> bool:
        """Return whether it lives and has these settings."""
        return self.settings == settings and self.driver.code is None

    def take_over(self) -> None:
        """Give it its turn."""
        with suppress(BrokenPipeError):  # it has just ended, and the run starts another driver
            os.write(self.turn, b"1")
        os.close(self.turn)

    def kill(self) -> None:
        """Kill it."""
        self.driver.kill()
        os.close(self.turn)


class LongLivedJob:
    """Starts the drivers of a scenario, one log a driver.

    Args:
        scenario: the job; its settings may change before a restart.
        armed: its failpoints.
        variables: more variables of a driver, such as the endpoint of its object store.
        within: returns for the number of a driver a command that executes it.
        supervisor: options of `sluicegate run`, which then starts the drivers; None: the run starts them.
    """

    def __init__(
        self,
        scenario: JobScenario,
        armed: ArmedFailpoints,
        variables: Mapping[str, str],
        within: Callable[[int], Sequence[str]] = lambda _number: (),
        supervisor: Sequence[str] | None = None,
    ) -> None:
        dump = {"PYTHONFAULTHANDLER": "1"}  # SIGABRT prints the stack of each thread into the log
        self.scenario, self._variables = scenario, {VARIABLE: armed.setting, **dump, **variables}
        self._within, self._supervisor = within, supervisor
        self._processes = 0
        self._standby: _Standby | None = None
        self._started, self._taken_over = 0, 0  # without those of the current driver
        self.driver = self._start()

    @property
    def started(self) -> int:
        """How many drivers have run."""
        return self._started + self.driver.drivers

    @property
    def taken_over(self) -> int:
        """How many of them were standbys before."""
        return self._taken_over + self.driver.taken_over

    def restart(self) -> None:
        """Run the next driver with the settings of the scenario; the driver before may still exist.

        That is the standby, unless its settings are others.
        """
        self._started, self._taken_over = self.started, self.taken_over
        standby = self._standby
        if standby is not None and standby.can_run(self.scenario.settings):
            standby.take_over()
            self._standby, self.driver = None, standby.driver
            self._taken_over += 1
        else:
            self.drop_standby()
            self.driver = self._start()

    def keep_standby(self) -> None:
        """Start a standby unless there is one."""
        if self._standby is None:
            turn, other_end = os.pipe()
            try:
                driver = self._start({DriverVariable.TURN: str(turn)}, (turn,))
            finally:
                os.close(turn)
            self._standby = _Standby(driver, self.scenario.settings, other_end)

    def drop_standby(self) -> None:
        """Kill the standby if there is one."""
        standby, self._standby = self._standby, None
        if standby is not None:
            standby.kill()

    def _start(
        self, variables: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
    ) -> Driver:
        self._processes += 1
        supervised = self._supervisor is not None
        command = command_of(self.scenario.job.name, self.scenario.settings, supervised=supervised)
        log = self.scenario.folder / f"driver-{self._processes:04}.log"
        given, within = {**self._variables, **(variables or {})}, self._within(self._processes)
        running = start([*command, *(self._supervisor or ())], log, given, pass_fds, within=within)
        return SupervisedDriver(running) if supervised else Driver(running)
