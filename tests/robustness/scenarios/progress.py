"""How a long run waits: for new rows, for a failpoint, or for some time, while its job goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.robustness.history.recorder import Recorder
from tests.robustness.scenarios.judgment import Stuck
from tests.robustness.scenarios.run_options import EndOfRun
from tests.robustness.scenarios.successors import Successors
from tests.robustness.traffic.steady_traffic import SteadyTraffic
from tests.robustness.validate.readers import Seen

RECOVERY_TIMEOUT_S = 240.0
"""A job whose sinks have no new rows by then is stuck."""

_TICK_S = 0.05


class TooLate(Exception):
    """The run has no time to wait for the end of a fault; its rows are still judged."""


@dataclass(frozen=True)
class Progress:
    """Waits, and meanwhile restarts a driver that has exited, as its supervisor would.

    Args:
        traffic: what the job reads.
        successors: start the next driver.
        seen: what was seen of each sink.
        history: of the run.
        end: of the run.
    """

    traffic: SteadyTraffic
    successors: Successors
    seen: Mapping[str, Seen]
    history: Recorder
    end: EndOfRun

    def until(self, met: Callable[[], bool], deadline: float) -> bool:
        """Wait until something has happened, at most until a time; return whether it has.

        Args:
            met: whether it has.
            deadline: by time.monotonic().
        """
        while not met():
            if time.monotonic() > deadline:
                return False
            self._keep_running()
            time.sleep(_TICK_S)
        return True

    def run_for(self, seconds: float) -> None:
        """Let the job run for some time."""
        self.until(lambda: False, time.monotonic() + seconds)

    def await_rows(self, start: float) -> dict[str, float]:
        """Wait until every sink has shown rows that it did not show at a time; return when it did.

        Raises:
            Stuck: one shows none.
            TooLate: the run has no time left in which one would have to.
        """
        deadline = time.monotonic() + RECOVERY_TIMEOUT_S
        if not self.until(lambda: self.rows_since(start) or self.end.faults_over(), deadline):
            missing = ", ".join(sink for sink, at in self._first_after(start).items() if at is None)
            raise Stuck(f"no new rows in {missing} for {RECOVERY_TIMEOUT_S:g} s")
        times = {sink: at for sink, at in self._first_after(start).items() if at is not None}
        if len(times) < len(self.seen):
            raise TooLate
        return times

    def rows_since(self, start: float) -> bool:
        """Return whether every sink has shown rows that it did not show at a time."""
        return None not in self._first_after(start).values()

    def _first_after(self, start: float) -> dict[str, float | None]:
        return {sink: seen.first_after(start) for sink, seen in self.seen.items()}

    def _keep_running(self) -> None:
        self.traffic.check()
        driver = self.successors.job.driver
        if driver.code is not None:
            self.history.add("restart", code=driver.code)
            self.successors.replace_ended()
