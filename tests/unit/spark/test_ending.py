"""A process that is asked to end: by its query while one runs, else at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluicegate.spark import ending


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    ending.forget()
    yield
    ending.forget()


def test_without_a_query_the_process_ends_at_once_with_0() -> None:
    with pytest.raises(SystemExit) as ended:
        ending.ask()
    assert ended.value.code == 0


def test_with_a_query_nothing_is_interrupted() -> None:
    query = object()
    ending.enter(query)
    assert not ending.asked()
    ending.ask()
    assert ending.asked()


def test_a_query_that_has_ended_holds_nothing_up() -> None:
    query = object()
    ending.enter(query)
    ending.leave(query)
    ending.leave(query)
    with pytest.raises(ending.Ended):
        ending.ask()


def test_a_process_that_was_asked_starts_no_query() -> None:
    """Whatever the code made of the first exception."""
    with pytest.raises(ending.Ended):
        ending.ask()
    with pytest.raises(ending.Ended):
        ending.enter(object())
