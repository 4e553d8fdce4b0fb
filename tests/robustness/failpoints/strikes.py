"""Lets an actor of a long run fail: sends signals, kills and pauses servers, cuts connections."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from infra.local_services import Services
from infra.local_services.process import Server
from infra.local_services.services import start_all
from tests.robustness.failpoints import brokers
from tests.robustness.failpoints.actors import (
    ACTORS_OF,
    DRIVER_ACTORS,
    KAFKA_NETWORK_ACTORS,
    STORE_EFFECTS,
    Actor,
    Matrix,
)
from tests.robustness.failpoints.database import LostCommits, killed
from tests.robustness.failpoints.fault_plan import DEAD_LETTERS, Strike
from tests.robustness.failpoints.machine import Machine
from tests.robustness.failpoints.network import Network
from tests.robustness.failpoints.replica import Replica
from tests.robustness.failpoints.store_machine import StoreMachine
from tests.robustness.traffic.long_lived_job import Driver, LongLivedJob, Process, SupervisedDriver

EXIT_TIMEOUT_S = 120.0
"""A driver that has lost its JVM, its Python or its role must have exited by then, without help."""

_DUMP_S = 2.0
"""In which a process that got SIGABRT writes its stacks."""

_EXECUTOR_TIMEOUT_S = 30.0
_TICK_S = 0.05


class Violated(Exception):
    """A promise is broken, of the product or of a server: the message is an anomaly of the report."""


@dataclass(frozen=True)
class Parts:
    """What fails in runs of some kinds; None in the others.

    Args:
        network: where drivers can be cut off.
        machine: that drivers share.
        replica: of MySQL.
        store: the machine of the object store.
    """

    network: Network | None = None
    machine: Machine | None = None
    replica: Replica | None = None
    store: StoreMachine | None = None


class Strikes:
    """The actors of a run.

    Args:
        services: servers of this run alone.
        job: the job whose driver is struck.
        parts: what else fails.
    """

    def __init__(self, services: Services, job: LongLivedJob, parts: Parts) -> None:
        self._services, self._job, self._parts = services, job, parts

    def strike(self, strike: Strike, at_failpoint: Sequence[Process] = ()) -> str:
        """Let an actor fail; a driver that stands at a failpoint continues, or is replaced.

        Args:
            strike: what fails.
            at_failpoint: the processes that stopped there by themselves.

        Returns:
            What became of the driver so far: an exit code, or that it still runs.

        Raises:
            Violated: processes were left, or a driver went on without its other half.
        """
        driver = self._job.driver
        outcomes: dict[Actor, Callable[[Driver], None]] = {
            Actor.DRIVER: lambda d: d.kill(),
            Actor.MOVED: lambda d: d.kill(),
            Actor.PYTHON: _kill_python,
            Actor.JVM: _kill_jvm,
            Actor.WORKERS: _kill_workers,
            Actor.EXECUTOR: partial(_end_executor, signal.SIGKILL, at_failpoint),
            Actor.EXECUTOR_STOPPED: partial(_end_executor, signal.SIGTERM, at_failpoint),
            Actor.SUPERVISED: _kill_supervised,
            Actor.POWER_CUT: self._cut_power,
        }
        if strike.actor in outcomes:
            outcomes[strike.actor](driver)
            return "still running" if driver.code is None else f"exit code {driver.code}"
        assert strike.actor not in DRIVER_ACTORS
        if strike.actor not in STORE_EFFECTS:  # the proxy has done it
            self._strike_server(strike, driver)
        return "still running"

    def _strike_server(self, strike: Strike, driver: Driver) -> None:
        if strike.actor is Actor.MYSQL_CUT:
            self._cut_connections()
            driver.signal(signal.SIGCONT)
            return
        if strike.actor is Actor.SUPERVISOR_PAUSED:
            with _stopped([driver.pid]):
                driver.signal(signal.SIGCONT)
                time.sleep(strike.length_s)
            return
        fail = _SERVER_ACTORS.get(strike.actor)
        with fail(self._servers(strike)) if fail else self._impaired(strike.actor, driver):
            driver.signal(signal.SIGCONT)
            time.sleep(strike.length_s)

    def _servers(self, strike: Strike) -> Sequence[Server]:
        """Return the servers that a strike is at."""
        match strike.actor:
            case Actor.MYSQL_PAUSED:
                return [self._services.database]
            case Actor.STORE_KILLED | Actor.STORE_PAUSED:
                return [self._services.store]
            case Actor.KAFKA_KILLED | Actor.KAFKA_PAUSED:
                return self._services.brokers
            case Actor.COORDINATOR_KILLED:
                return [brokers.coordinator(self._services.brokers)]
            case Actor.CONTROLLER_KILLED:
                return [brokers.controller(self._services.brokers)]
            case _:
                settings = self._job.scenario.settings
                topic = settings.dead_letters if strike.sink == DEAD_LETTERS else settings.topic
                return [brokers.leader(self._services.brokers, topic)]

    def _impaired(self, actor: Actor, driver: Driver) -> AbstractContextManager[None]:
        """Return a block in which MySQL is killed or fails over, or a machine or the network fails."""
        if actor is Actor.MYSQL_KILLED:
            return self._database_killed(driver)
        if actor in ACTORS_OF[Matrix.REPLICA]:
            assert self._parts.replica is not None
            return self._parts.replica.promoted()
        if actor in ACTORS_OF[Matrix.MACHINE]:
            assert self._parts.machine is not None
            return self._parts.machine.failing(actor, driver)
        if actor in ACTORS_OF[Matrix.STORE_MACHINE]:
            assert self._parts.store is not None
            return self._parts.store.failing(actor)
        assert self._parts.network is not None
        impair = {
            Actor.KAFKA_UNREACHABLE: self._parts.network.cut,
            Actor.MYSQL_UNREACHABLE: self._parts.network.cut,
            Actor.KAFKA_SLOW: self._parts.network.slow,
            Actor.MYSQL_SLOW: self._parts.network.slow,
            Actor.KAFKA_REPLIES_LOST: self._parts.network.lose_replies,
            Actor.MYSQL_REPLIES_LOST: self._parts.network.lose_replies,
        }
        kafka, mysql = self._ports()
        return impair[actor](driver, [kafka if actor in KAFKA_NETWORK_ACTORS else mysql])

    def _cut_power(self, driver: Driver) -> None:
        assert self._parts.machine is not None
        self._job.drop_standby()  # it is on the same machine
        self._parts.machine.cut_power(driver)

    @contextmanager
    def _database_killed(self, driver: Driver) -> Iterator[None]:
        try:
            with killed(self._services.database, self._job.scenario.folder):
                yield
                driver.signal(signal.SIGSTOP)  # it must not write before the server is checked
        except LostCommits as error:
            raise Violated(str(error)) from error
        finally:
            driver.signal(signal.SIGCONT)

    def _cut_connections(self) -> None:
        """End every connection of the job's user, as an administrator or a proxy does."""
        admin = self._services.database.admin
        with closing(admin.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            user = self._services.mysql.user
            cursor.execute(f"KILL CONNECTION USER '{user}'@'127.0.0.1'")

    def _ports(self) -> tuple[int, int]:
        """Return the ports of Kafka and of MySQL."""
        kafka = self._services.kafka.bootstrap
        return int(kafka.rpartition(":")[2]), self._services.mysql.port

    @contextmanager
    def away(self, driver: Driver, strike: Strike) -> Iterator[None]:
        """Keep a driver stopped, or running without its servers or supervisor, while the block runs.

        Without a supervisor it is stopped for the length of the strike, if it was.
        """
        if strike.actor is Actor.SUPERVISOR_KILLED:
            assert isinstance(driver, SupervisedDriver)
            driver.abandon()
            back = threading.Timer(strike.length_s, driver.signal, [signal.SIGCONT])
            back.start()
            try:
                yield
            finally:
                back.join()
            return
        if strike.actor is Actor.ISOLATED:
            assert self._parts.network is not None
            with self._parts.network.cut(driver, self._ports()):
                driver.signal(signal.SIGCONT)  # it may stand at a failpoint
                yield
            return
        driver.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            driver.signal(signal.SIGCONT)

    def await_superseded(self, zombie: Driver) -> str:
        """Wait for the exit of a driver that is back after its successor took over.

        Raises:
            Violated: it did not exit without help.
        """
        code = zombie.wait_code(EXIT_TIMEOUT_S)
        _require_gone(zombie, "the superseded driver")
        return f"exit code {code}"


@contextmanager
def _killed(servers: Sequence[Server]) -> Iterator[None]:
    """Kill servers, and start them again at the end of the block, all at the same time."""
    for server in servers:
        server.kill()
    yield
    start_all(servers)


@contextmanager
def _paused(servers: Sequence[Server]) -> Iterator[None]:
    pids = [pid for server in servers if (pid := server.pid) is not None]
    assert len(pids) == len(servers)
    with _stopped(pids):
        yield


@contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def _restarted(servers: Sequence[Server]) -> Iterator[None]:
    """Stop servers as an update does; a broker gives the leadership of its partitions away before it ends."""
    with ThreadPoolExecutor() as pool:
        stopping = [pool.submit(server.stop) for server in servers]
        yield
        for stopped in stopping:
            stopped.result()
    start_all(servers)


_SERVER_ACTORS: Mapping[Actor, Callable[[Sequence[Server]], AbstractContextManager[None]]] = {
    Actor.KAFKA_KILLED: _killed,
    Actor.KAFKA_PAUSED: _paused,
    Actor.MYSQL_PAUSED: _paused,
    Actor.LEADER_KILLED: _killed,
    Actor.LEADER_PAUSED: _paused,
    Actor.LEADER_RESTARTED: _restarted,
    Actor.COORDINATOR_KILLED: _killed,
    Actor.CONTROLLER_KILLED: _killed,
    Actor.STORE_KILLED: _killed,
    Actor.STORE_PAUSED: _paused,
}


def _kill_python(driver: Driver) -> None:
    os.kill(driver.pid, signal.SIGKILL)
    driver.signal(signal.SIGCONT)
    driver.wait_code(EXIT_TIMEOUT_S)
    _require_gone(driver, "a driver without its Python")


def _kill_jvm(driver: Driver) -> None:
    driver.signal(signal.SIGKILL, driver.jvm())
    driver.signal(signal.SIGCONT)
    driver.wait_code(EXIT_TIMEOUT_S)
    _require_gone(driver, "a driver without its JVM")


def _kill_workers(driver: Driver) -> None:
    driver.signal(signal.SIGKILL, driver.workers())
    driver.signal(signal.SIGCONT)


def _kill_supervised(driver: Driver) -> None:
    """Kill a driver, which its supervisor must replace."""
    assert isinstance(driver, SupervisedDriver)
    driver.kill_driver()


def _end_executor(number: signal.Signals, at_failpoint: Sequence[Process], driver: Driver) -> None:
    """End an executor by a signal: the one whose worker stands at the failpoint, if a worker does.

    The driver must go on with another one.
    """
    deadline = time.monotonic() + _EXECUTOR_TIMEOUT_S
    while not (executors := driver.executors()):
        if time.monotonic() > deadline:
            raise Violated("the driver has no executor")
        time.sleep(_TICK_S)
    parents = {process.parent for process in at_failpoint}
    struck = [one for one in executors if one.pid in parents] or executors
    driver.signal(number, struck[:1])
    driver.signal(signal.SIGCONT)


def _require_gone(driver: Driver, who: str) -> None:
    if not driver.wait_gone(EXIT_TIMEOUT_S):
        left = ", ".join(f"{process.name} {process.pid}" for process in driver.members())
        # Python writes into the driver's log where its threads are (PYTHONFAULTHANDLER)
        driver.signal(signal.SIGABRT)
        driver.wait_gone(_DUMP_S)
        driver.kill()
        raise Violated(f"{who} did not exit: {left}")
