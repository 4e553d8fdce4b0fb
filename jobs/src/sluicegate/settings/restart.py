"""Restart strategies: whether and when a driver that failed is started again. Pure.

The names and their meaning are Flink's (its documentation, "Task Failure Recovery"). Callers:
`sluicegate run`; the operator decides by the same function. Not here: starting anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sluicegate.settings.schema import check_bounds, check_choices, option

EXPONENTIAL = "exponential-delay"
FIXED = "fixed-delay"
FAILURE_RATE = "failure-rate"
NONE = "none"
STRATEGIES = (EXPONENTIAL, FIXED, FAILURE_RATE, NONE)


@dataclass(frozen=True)
class RestartSettings:
    """When a driver that failed is started again.

    Args:
        restart: 'exponential-delay' (default): for ever, each delay longer than the last.
            'fixed-delay': a number of times, each after the same delay. 'failure-rate': unless it
            fails too often in a time. 'none': never.
        restart_attempts: of fixed-delay: restarts in all, default 3.
        restart_delay_s: of fixed-delay and failure-rate: seconds before each, default 10.
        restart_max_failures: of failure-rate: failures within the interval that are borne, default 3.
        restart_interval_s: of failure-rate: the interval, default 300.
        restart_initial_delay_s: of exponential-delay: the first delay, default 1.
        restart_max_delay_s: of exponential-delay: the longest delay, default 60.
        restart_multiplier: of exponential-delay: each delay to the one before, default 2.
        restart_jitter: of exponential-delay: a delay is drawn from this part around it, so that
            many jobs do not start at once; default 0.1, at most 1.
        restart_reset_s: a driver that ran this long was healthy: earlier failures are forgotten.
            Default 600; 0 never forgets.

    Raises:
        SettingsInvalid: a value cannot work.
    """

    restart: str = option(
        EXPONENTIAL,
        "when a failed driver is started again",
        choices=STRATEGIES,
    )
    restart_attempts: int = option(3, "fixed-delay: restarts in all", at_least=0)
    restart_delay_s: float = option(
        10.0, "fixed-delay, failure-rate: seconds before each", at_least=0
    )
    restart_max_failures: int = option(
        3, "failure-rate: failures in the interval that are borne", at_least=0
    )
    restart_interval_s: float = option(300.0, "failure-rate: the interval in seconds", above=0)
    restart_initial_delay_s: float = option(
        1.0, "exponential-delay: the first delay in seconds", at_least=0
    )
    restart_max_delay_s: float = option(
        60.0, "exponential-delay: the longest delay in seconds", at_least=0
    )
    restart_multiplier: float = option(
        2.0, "exponential-delay: a delay to the one before", at_least=1
    )
    restart_jitter: float = option(
        0.1, "exponential-delay: the random part of a delay, 0 to 1", at_least=0, at_most=1
    )
    restart_reset_s: float = option(
        600.0, "a run this long forgets earlier failures; 0: none does", at_least=0
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        check_choices(self)
        check_bounds(self)


@dataclass(frozen=True)
class Failure:
    """One run that failed.

    Args:
        at_s: when it ended, on any clock that only goes forward.
        ran_s: how long it had run.
    """

    at_s: float
    ran_s: float


@dataclass(frozen=True)
class Restart:
    """What comes next.

    Args:
        delay_s: seconds to wait; None: not started again.
        why: the strategy's reason, for people.
    """

    delay_s: float | None
    why: str


def next_restart(
    settings: RestartSettings, failures: Sequence[Failure], chance: Callable[[], float]
) -> Restart:
    """Say what comes after the last of these failures.

    Args:
        settings: the strategy.
        failures: all of this job that are known, oldest first; at least one.
        chance: returns a number from 0 to 1, such as random.random.
    """
    counted = _since_healthy(settings, failures)
    return _DECIDE[settings.restart](settings, counted, chance)


def _since_healthy(settings: RestartSettings, failures: Sequence[Failure]) -> Sequence[Failure]:
    """Return the failures since a run was healthy; that one's own failure is the first of them."""
    for i in range(len(failures) - 1, -1, -1):
        if 0 < settings.restart_reset_s <= failures[i].ran_s:
            return failures[i:]
    return failures


def _never(
    _settings: RestartSettings, _failures: Sequence[Failure], _chance: Callable[[], float]
) -> Restart:
    return Restart(None, "none: a failed driver is not started again")


def _fixed(
    settings: RestartSettings, failures: Sequence[Failure], _chance: Callable[[], float]
) -> Restart:
    attempt, attempts = len(failures), settings.restart_attempts
    if attempt > attempts:
        return Restart(None, f"fixed-delay: all {attempts} restarts are spent")
    return Restart(settings.restart_delay_s, f"fixed-delay: restart {attempt} of {attempts}")


def _rate(
    settings: RestartSettings, failures: Sequence[Failure], _chance: Callable[[], float]
) -> Restart:
    since = failures[-1].at_s - settings.restart_interval_s
    recent = sum(failure.at_s > since for failure in failures)
    borne = settings.restart_max_failures
    said = (
        f"failure-rate: {recent} failures in {settings.restart_interval_s:g} s, {borne} are borne"
    )
    return Restart(settings.restart_delay_s if recent <= borne else None, said)


def _exponential(
    settings: RestartSettings, failures: Sequence[Failure], chance: Callable[[], float]
) -> Restart:
    longest, first = settings.restart_max_delay_s, settings.restart_initial_delay_s
    # in logarithms: a job that has failed for months must not overflow
    steps = (len(failures) - 1) * math.log(settings.restart_multiplier)
    delay = 0.0
    if first and longest:
        delay = math.exp(min(math.log(longest), math.log(first) + steps))
    jitter = delay * settings.restart_jitter * (2 * chance() - 1)
    delay = max(0.0, min(longest, delay + jitter))
    return Restart(delay, f"exponential-delay: failure {len(failures)} since it was healthy")


_DECIDE: dict[str, Callable[[RestartSettings, Sequence[Failure], Callable[[], float]], Restart]] = {
    EXPONENTIAL: _exponential,
    FIXED: _fixed,
    FAILURE_RATE: _rate,
    NONE: _never,
}
