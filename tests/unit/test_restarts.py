"""Restart strategies, and which errors a restart can help."""

from sluicegate.protocol import errors
from sluicegate.protocol.restarts import FixedDelay


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    strategy = FixedDelay(attempts=3, delay_s=10)
    assert [strategy.next_delay_s(n) for n in (1, 2, 3, 4)] == [10, 10, 10, None]


def test_no_attempts_means_no_restart() -> None:
    assert FixedDelay(attempts=0).next_delay_s(1) is None


def test_exit_codes_tell_whether_starting_again_can_help() -> None:
    """A supervisor sees only the code: 64 to 66 are final, and final errors have no other."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.SluicegateError):
            if kind.exit_code in (64, 65, 66):
                assert not kind.restartable, kind
            if kind.exit_code == 75:
                assert kind.restartable, kind
