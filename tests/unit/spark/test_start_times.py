"""How long the parts of a driver's start take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sluicegate.spark.start_times import StartPart, StartTimes


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second pass with each look at the clock."""
    seconds = iter(range(1000))
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr("sluicegate.spark.start_times.time", clock)


def test_a_part_that_is_done_twice_counts_twice_and_one_that_fails_once() -> None:
    times = StartTimes()
    for _ in range(2):
        with times.part(StartPart.STORE):
            pass
    with pytest.raises(ZeroDivisionError), times.part(StartPart.SINKS):
        raise ZeroDivisionError
    assert times.seconds == {"store": 2.0, "sinks": 1.0}


def test_a_query_has_the_parts_of_its_process_and_adds_none_to_it() -> None:
    process = StartTimes()
    with process.part(StartPart.SESSION):
        pass
    query = StartTimes(process.seconds)
    with query.part(StartPart.QUERY):
        pass
    assert (set(process.seconds), set(query.seconds)) == ({"session"}, {"session", "query"})
