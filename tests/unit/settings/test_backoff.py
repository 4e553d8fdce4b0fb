"""The pause between attempts: doubled up to a maximum."""

from sluicegate.settings.backoff import backoff_s


def test_the_pause_doubles_up_to_the_maximum() -> None:
    assert [backoff_s(n, first_s=0.5, max_s=3.0) for n in range(1, 6)] == [0.5, 1, 2, 3, 3]


def test_many_attempts_do_not_overflow() -> None:
    assert backoff_s(10**6, first_s=0.2, max_s=60.0) == 60.0
