"""Restart strategies, and the errors that a restart can help against."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import errors
from sluicegate.errors import SettingsInvalid
from sluicegate.settings.restart import Failure, RestartSettings, next_restart


def middle() -> float:
    """Return the random number that means no jitter."""
    return 0.5


def delays(settings: RestartSettings, *failures: Failure) -> list[float | None]:
    """Return the delay after each of these failures, in order."""
    return [next_restart(settings, failures[: n + 1], middle).delay_s for n in range(len(failures))]


def often(count: int, *, every_s: float = 1.0, ran_s: float = 1.0) -> list[Failure]:
    """Return failures of short runs, evenly spaced."""
    return [Failure(at_s=i * every_s, ran_s=ran_s) for i in range(count)]


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    settings = RestartSettings(restart="fixed-delay", restart_attempts=3, restart_delay_s=10)
    assert delays(settings, *often(4)) == [10, 10, 10, None]


def test_no_attempts_means_no_restart() -> None:
    settings = RestartSettings(restart="fixed-delay", restart_attempts=0)
    assert delays(settings, *often(1)) == [None]


def test_none_never_restarts() -> None:
    assert delays(RestartSettings(restart="none"), *often(1)) == [None]


def test_failure_rate_restarts_after_failures_that_are_far_apart() -> None:
    settings = RestartSettings(
        restart="failure-rate",
        restart_max_failures=2,
        restart_interval_s=60,
        restart_delay_s=5,
        restart_reset_s=0,
    )
    assert delays(settings, *often(6, every_s=40)) == [5] * 6


def test_failure_rate_gives_up_when_failures_are_close() -> None:
    settings = RestartSettings(
        restart="failure-rate", restart_max_failures=2, restart_interval_s=60, restart_delay_s=5
    )
    assert delays(settings, *often(3, every_s=10)) == [5, 5, None]


def test_exponential_delay_doubles_up_to_its_longest() -> None:
    settings = RestartSettings(restart_initial_delay_s=1, restart_max_delay_s=6)
    assert delays(settings, *often(5)) == pytest.approx([1, 2, 4, 6, 6])


def test_the_default_is_exponential_delay_and_never_gives_up() -> None:
    assert None not in delays(RestartSettings(), *often(200))


@settings(deadline=None)  # not a claim about speed
@given(
    failures=st.integers(1, 3000),
    chance=st.floats(0, 1),
    jitter=st.floats(0, 1),
    first=st.floats(0, 100),
    longest=st.floats(0, 1000),
)
def test_exponential_delay_stays_within_its_bounds(
    failures: int, chance: float, jitter: float, first: float, longest: float
) -> None:
    """For any number of failures: no overflow, nothing negative, nothing above the maximum."""
    settings = RestartSettings(
        restart_initial_delay_s=first, restart_max_delay_s=longest, restart_jitter=jitter
    )
    delay = next_restart(settings, often(failures), lambda: chance).delay_s
    assert delay is not None
    assert math.isfinite(delay)
    assert 0 <= delay <= longest


def test_jitter_spreads_delays_around_their_middle() -> None:
    settings = RestartSettings(restart_initial_delay_s=10, restart_jitter=0.2)
    spread = [next_restart(settings, often(1), lambda c=c: c).delay_s for c in (0.0, 1.0)]  # type: ignore[misc]
    assert spread == pytest.approx([8, 12])


@pytest.mark.parametrize("restart", ["fixed-delay", "exponential-delay"])
def test_a_healthy_run_resets_earlier_failures(restart: str) -> None:
    settings = RestartSettings(restart=restart, restart_attempts=2, restart_reset_s=100)
    healthy = Failure(at_s=500, ran_s=100)
    assert delays(settings, *often(2), healthy)[2] == delays(settings, *often(1))[0]


def test_a_strategy_states_its_reason() -> None:
    settings = RestartSettings(restart="fixed-delay", restart_attempts=2)
    assert next_restart(settings, often(1), middle).why == "fixed-delay: restart 1 of 2"
    assert next_restart(settings, often(3), middle).why == "fixed-delay: all 2 restarts are used up"


@pytest.mark.parametrize(
    "wrong",
    [{"restart_jitter": 1.5}, {"restart_multiplier": 0.5}, {"restart_attempts": -1}],
)
def test_invalid_values_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsInvalid):
        RestartSettings(**wrong)  # type: ignore[arg-type]


def test_exit_codes_tell_whether_a_restart_can_help() -> None:
    """A supervisor sees only the exit code: 64 to 66 are final."""
    for kind in vars(errors).values():
        is_error = isinstance(kind, type) and issubclass(kind, errors.SluicegateError)
        if is_error and kind.exit_code in (64, 65, 66):
            assert not kind.retryable, kind
