"""Restart strategies: whether and when a failed driver is started again. Pure functions.

Names and semantics are Flink's (its documentation, "Task Failure Recovery"). `sluicegate run` and
the operator decide by the same function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sluicegate.settings.formats import SETTINGS
from sluicegate.settings.schema import option

EXPONENTIAL = "exponential-delay"
FIXED = "fixed-delay"
FAILURE_RATE = "failure-rate"
NONE = "none"
STRATEGIES = (EXPONENTIAL, FIXED, FAILURE_RATE, NONE)


@dataclass(frozen=True)
class RestartSettings:
    """When a failed driver is started again.

    Args:
        restart: the strategy. 'exponential-delay' (default) always restarts, each time after a
            longer delay. 'fixed-delay' restarts a limited number of times, always after the same
            delay. 'failure-rate' restarts unless too many failures fall within an interval.
            'none' never restarts.
        restart_attempts: fixed-delay: number of restarts, default 3.
        restart_delay_s: fixed-delay and failure-rate: delay before each restart, default 10.
        restart_max_failures: failure-rate: failures allowed within the interval, default 3.
        restart_interval_s: failure-rate: the interval, default 300.
        restart_initial_delay_s: exponential-delay: the first delay, default 1.
        restart_max_delay_s: exponential-delay: the longest delay, default 60.
        restart_multiplier: exponential-delay: factor by which each delay grows, default 2.
        restart_jitter: exponential-delay: random deviation of a delay, as a fraction of it from 0
            to 1, so that many jobs do not restart at the same moment; default 0.1.
        restart_reset_s: a driver that ran this long was healthy, so earlier failures no longer
            count. Default 600; 0 counts all failures.

    Raises:
        SettingsInvalid: a value is invalid.
    """

    restart: str = option(
        EXPONENTIAL,
        "Restart strategy. exponential-delay: always restart, each time after a longer delay. "
        "fixed-delay: restart a limited number of times, always after the same delay. "
        "failure-rate: restart unless too many failures fall within an interval. none: never "
        "restart.",
        choices=STRATEGIES,
    )
    restart_attempts: int = option(3, "fixed-delay: number of restarts in total.", at_least=0)
    restart_delay_s: float = option(
        10.0, "fixed-delay and failure-rate: delay before each restart, in seconds.", at_least=0
    )
    restart_max_failures: int = option(
        3, "failure-rate: number of failures allowed within the interval.", at_least=0
    )
    restart_interval_s: float = option(
        300.0, "failure-rate: length in seconds of the interval in which failures count.", above=0
    )
    restart_initial_delay_s: float = option(
        1.0, "exponential-delay: delay before the first restart, in seconds.", at_least=0
    )
    restart_max_delay_s: float = option(
        60.0, "exponential-delay: longest delay, in seconds.", at_least=0
    )
    restart_multiplier: float = option(
        2.0, "exponential-delay: factor by which each delay grows.", at_least=1
    )
    restart_jitter: float = option(
        0.1,
        "exponential-delay: random deviation of a delay, as a fraction of it.",
        at_least=0,
        at_most=1,
    )
    restart_reset_s: float = option(
        600.0,
        "Run time in seconds after which a driver counts as healthy and its earlier failures no "
        "longer count. 0: all failures count.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        """Reject invalid values."""
        SETTINGS.check_fields(self)


@dataclass(frozen=True)
class Failure:
    """One failed run.

    Args:
        at_s: when it ended, in seconds on a monotonic clock.
        ran_s: how long it had run, in seconds.
    """

    at_s: float
    ran_s: float


@dataclass(frozen=True)
class Restart:
    """The decision after a failure.

    Args:
        delay_s: seconds to wait before the restart; None: no restart.
        why: the strategy's reason, for people.
    """

    delay_s: float | None
    why: str


def next_restart(
    settings: RestartSettings, failures: Sequence[Failure], random: Callable[[], float]
) -> Restart:
    """Decide what to do after the last of these failures.

    Args:
        settings: the strategy.
        failures: all known failures of this job, oldest first; at least one.
        random: returns a number from 0 to 1, such as random.random.
    """
    counted = _since_healthy(settings, failures)
    return _STRATEGIES[settings.restart](settings, counted, random)


def _since_healthy(settings: RestartSettings, failures: Sequence[Failure]) -> Sequence[Failure]:
    """Return the failures since the last healthy run, whose own failure is the first of them."""
    for i in range(len(failures) - 1, -1, -1):
        if 0 < settings.restart_reset_s <= failures[i].ran_s:
            return failures[i:]
    return failures


def _never(
    _settings: RestartSettings, _failures: Sequence[Failure], _random: Callable[[], float]
) -> Restart:
    return Restart(None, "none: a failed driver is not restarted")


def _fixed(
    settings: RestartSettings, failures: Sequence[Failure], _random: Callable[[], float]
) -> Restart:
    attempt, attempts = len(failures), settings.restart_attempts
    if attempt > attempts:
        return Restart(None, f"fixed-delay: all {attempts} restarts are used up")
    return Restart(settings.restart_delay_s, f"fixed-delay: restart {attempt} of {attempts}")


def _failure_rate(
    settings: RestartSettings, failures: Sequence[Failure], _random: Callable[[], float]
) -> Restart:
    since = failures[-1].at_s - settings.restart_interval_s
    recent = sum(failure.at_s > since for failure in failures)
    allowed = settings.restart_max_failures
    why = (
        f"failure-rate: {recent} failures in {settings.restart_interval_s:g} s, "
        f"{allowed} are allowed"
    )
    return Restart(settings.restart_delay_s if recent <= allowed else None, why)


def _exponential(
    settings: RestartSettings, failures: Sequence[Failure], random: Callable[[], float]
) -> Restart:
    longest, first = settings.restart_max_delay_s, settings.restart_initial_delay_s
    # in logarithms: a job that has failed for months must not overflow
    steps = (len(failures) - 1) * math.log(settings.restart_multiplier)
    delay = 0.0
    if first and longest:
        delay = math.exp(min(math.log(longest), math.log(first) + steps))
    jitter = delay * settings.restart_jitter * (2 * random() - 1)
    delay = max(0.0, min(longest, delay + jitter))
    return Restart(delay, f"exponential-delay: failure {len(failures)} since the last healthy run")


_STRATEGIES: dict[
    str, Callable[[RestartSettings, Sequence[Failure], Callable[[], float]], Restart]
] = {
    EXPONENTIAL: _exponential,
    FIXED: _fixed,
    FAILURE_RATE: _failure_rate,
    NONE: _never,
}
