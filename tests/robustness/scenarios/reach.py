"""Where a strike is to happen: waits until the driver is stopped at its failpoint, or its request is made."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from tests.robustness.failpoints.actors import ACTORS_OF, STORE_EFFECTS, STORE_REQUESTS, Matrix
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, MOVED_FROM, Strike
from tests.robustness.failpoints.s3_proxy import Fault, S3Proxy
from tests.robustness.scenarios.progress import Progress, TooLate
from tests.robustness.scenarios.run_options import EndOfRun
from tests.robustness.traffic.long_lived_job import ArmedFailpoints, LongLivedJob, Process
from tests.robustness.traffic.steady_traffic import SteadyTraffic

REACH_TIMEOUT_S = 60.0
"""How long a failpoint is waited for; then the actor fails wherever the driver is."""

PRUNE_TIMEOUT_S = 300.0
"""How long a deletion from the log is waited for: a run has a hundred epochs before the first."""

SETTLE_S = 0.5
_STOPPED_S = 20.0


class Reach:
    """Waits until the job is where something is to fail.

    Args:
        job: whose drivers stop there.
        armed: the failpoints.
        progress: of the run.
        traffic: of the job, which pauses for requests of an idle job.
        end: of the run.
        proxy: of the object store; None for a checkpoint in a folder.
    """

    def __init__(
        self,
        job: LongLivedJob,
        armed: ArmedFailpoints,
        progress: Progress,
        traffic: SteadyTraffic,
        end: EndOfRun,
        proxy: S3Proxy | None,
    ) -> None:
        self._job, self._armed, self._progress = job, armed, progress
        self._traffic, self._end, self._proxy = traffic, end, proxy
        self.stopped: Sequence[Process] = ()
        """What was stopped at a failpoint last."""

    def wait(self, strike: Strike) -> bool:
        """Wait until the driver is stopped where a strike is to happen; return whether it is."""
        if strike.point == ANY_MOMENT:
            return True
        if strike.actor in STORE_EFFECTS:
            return self._await_request(strike)
        if strike.actor in ACTORS_OF[Matrix.MOVE]:
            strike = replace(strike, point=MOVED_FROM)
        self._armed.arm(strike)
        return self.wait_stopped(strike)

    def _await_request(self, strike: Strike) -> bool:
        """Let the next request of a kind fail, and wait for it; return whether there was one."""
        assert self._proxy is not None
        requests = STORE_REQUESTS[strike.point]
        fault = Fault(requests.kind, requests.name, STORE_EFFECTS[strike.actor])
        self._proxy.faults.append(fault)
        deadline = self._end.deadline(PRUNE_TIMEOUT_S if requests.prunes else REACH_TIMEOUT_S)
        with self._traffic.paused() if requests.idle else nullcontext():
            met = self._progress.until(lambda: bool(fault.met), deadline)
        self._proxy.faults.remove(fault)
        return met

    def wait_stopped(self, strike: Strike) -> bool:
        """Wait until a process is stopped at a failpoint; return whether one is.

        Raises:
            Stuck: none is, and then a sink shows no new rows: a driver that hangs must not be replaced by
                the strike.
        """
        deadline = self._end.deadline(REACH_TIMEOUT_S)
        if not self._progress.until(lambda: self._armed.reached(strike), deadline):
            self._armed.disarm(strike)
            with suppress(TooLate):  # the end of the run waits for rows too
                self._progress.await_rows(time.monotonic())
            return False
        self.stopped = self._job.driver.await_stopped(_STOPPED_S)
        # the process that was stopped may be a Python worker, and others still run
        self._job.driver.signal(signal.SIGSTOP)
        time.sleep(SETTLE_S)
        return True
