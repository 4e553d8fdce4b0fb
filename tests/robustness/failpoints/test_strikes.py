"""Which process an actor of a long run ends."""

from __future__ import annotations

import signal
from unittest.mock import Mock, call

import pytest

from tests.robustness.failpoints.actors import Actor
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, Strike
from tests.robustness.failpoints.strikes import Parts, Strikes
from tests.robustness.traffic.long_lived_job import Process

DRIVER, JVM, FIRST, SECOND, DAEMON = range(100, 105)


def process(pid: int, parent: int, name: str = "java") -> Process:
    return Process(pid, parent, DRIVER, DRIVER, name, stopped=True)


@pytest.mark.parametrize(
    ("at_failpoint", "struck"),
    [
        ([process(DAEMON, SECOND, "python"), process(DAEMON + 1, DAEMON, "python")], SECOND),
        ([process(DRIVER, 1, "python"), process(JVM, DRIVER), process(FIRST, JVM)], FIRST),
        ([], FIRST),
    ],
    ids=["a worker", "the driver", "nothing"],
)
@pytest.mark.parametrize(
    ("actor", "number"),
    [(Actor.EXECUTOR, signal.SIGKILL), (Actor.EXECUTOR_STOPPED, signal.SIGTERM)],
)
def test_the_executor_whose_worker_stands_at_the_failpoint_is_ended(
    at_failpoint: list[Process], struck: int, actor: Actor, number: int
) -> None:
    """Another one would have no part in what happens there."""
    executors = [process(FIRST, JVM), process(SECOND, JVM)]
    driver = Mock(code=None, **{"executors.return_value": executors})
    strikes = Strikes(Mock(), Mock(driver=driver), Parts())
    strikes.strike(Strike(ANY_MOMENT, "", actor, 1.0), at_failpoint)
    (ended,) = (one for one in executors if one.pid == struck)
    assert driver.signal.call_args_list == [call(number, [ended]), call(signal.SIGCONT)]
