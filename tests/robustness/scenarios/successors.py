"""The drivers of a long run after its first: which one follows, and what it starts with."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka.admin import NewPartitions

from infra.local_services import Services
from sluicegate.errors import FINAL_EXIT_CODES, ExitCode, Sealed
from tests.robustness.failpoints.fault_plan import PARTITIONS, SAVEPOINT, Change
from tests.robustness.scenarios.judgment import Stuck
from tests.robustness.traffic.long_lived_job import LongLivedJob, SupervisedDriver
from tests.robustness.traffic.moved_job import moved
from tests.robustness.traffic.steady_traffic import SteadyTraffic

WHOLE_BACKLOG = 200_000
"""`max_records` of the next driver when a partition was added. That gets the newest events, and a driver that
is some epochs behind would move the watermark past the events that the other partitions still have."""


@dataclass
class Successors:
    """Starts the next driver of a job, as its supervisor would, or with what a fault changes.

    Args:
        job: whose drivers they are.
        traffic: that writes to its topic.
        services: where the topic is.

    Attributes:
        moves: how often the job was moved to a new checkpoint.
        changed: whether the planned change made a difference.
    """

    job: LongLivedJob
    traffic: SteadyTraffic
    services: Services
    moves: int = field(default=0, init=False)
    changed: bool = field(default=False, init=False)
    _change: Change | None = field(default=None, init=False)
    _fenced: bool = field(default=False, init=False)  # the driver before this one was

    def __post_init__(self) -> None:
        self._first_checkpoint = self.job.scenario.settings.checkpoint

    def plan(self, change: Change | None) -> None:
        """Let the next driver start with a change; None: with what the one before it had."""
        self._change, self.changed = change, False

    def forget_plan(self) -> None:
        """Let a change that no driver has started with not happen."""
        self._change = None

    def start(self) -> None:
        """Start the next driver, with the change that is planned."""
        change, self._change = self._change, None
        if change is not None:
            self.changed = self._apply(change)
        self.job.restart()

    def replace_ended(self) -> None:
        """Start the next driver if this one has exited, as its supervisor would.

        Raises:
            Stuck: no supervisor would.
        """
        driver = self.job.driver
        if driver.code is None:
            return
        # a supervisor starts again once after a driver was fenced early, by the last epoch of the one before
        early = driver.age_s < self.job.scenario.settings.timeout_s
        once_more = driver.code == ExitCode.SUPERSEDED and early and not self._fenced
        once_more = once_more and not driver.says(Sealed.__name__)
        final = driver.code == 0 or (driver.code in FINAL_EXIT_CODES and not once_more)
        # a supervisor of its own restarts drivers without end
        if final or isinstance(driver, SupervisedDriver):
            raise Stuck(
                f"the only driver ended for good: exit code {driver.code}, {driver.last_line()}"
            )
        self._fenced = once_more
        driver.kill()
        self.start()

    def _apply(self, change: Change) -> bool:
        """Change what the next driver starts with; return whether anything is different now."""
        scenario = self.job.scenario
        if change.setting == PARTITIONS:
            self._add_partition()
            self.job.scenario = scenario.with_settings(max_records=WHOLE_BACKLOG)
            return True
        if change.setting == SAVEPOINT:
            address = f"{self._first_checkpoint}-{self.moves + 1}"
            successor = moved(scenario, address, str(change.value))
            if successor is None:
                return False
            self.moves += 1
        else:
            successor = scenario.with_settings(**{change.setting: change.value})
        self.job.scenario = successor
        return bool(successor.settings != scenario.settings)

    def _add_partition(self) -> None:
        source = self.job.scenario.settings.source
        partitions = self.traffic.partitions + 1
        admin = self.services.kafka.admin()
        asked = admin.create_partitions([NewPartitions(source, partitions)], operation_timeout=30.0)
        asked[source].result(timeout=60.0)
        self.traffic.grow(partitions)
