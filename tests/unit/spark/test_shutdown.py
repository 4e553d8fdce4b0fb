"""A requested shutdown: at the end of an epoch while a query runs, otherwise at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluicegate.spark import shutdown


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    shutdown.reset()
    yield
    shutdown.reset()


def test_without_a_query_the_process_exits_at_once_with_0() -> None:
    with pytest.raises(SystemExit) as ended:
        shutdown.request()
    assert ended.value.code == 0


def test_with_a_query_nothing_is_interrupted() -> None:
    query = object()
    shutdown.register(query)
    assert not shutdown.requested()
    shutdown.request()
    assert shutdown.requested()


def test_a_query_that_has_ended_does_not_delay_the_exit() -> None:
    query = object()
    shutdown.register(query)
    shutdown.unregister(query)
    shutdown.unregister(query)
    with pytest.raises(shutdown.Ended):
        shutdown.request()


def test_no_query_starts_after_the_request() -> None:
    """Even if the code caught the first exception."""
    with pytest.raises(shutdown.Ended):
        shutdown.request()
    with pytest.raises(shutdown.Ended):
        shutdown.register(object())


def test_a_query_that_follows_a_stopped_one_counts_for_itself() -> None:
    """Otherwise it would stop too, or its job would count as stopped."""
    shutdown.query_stopped()
    assert shutdown.stopped()
    query = object()
    shutdown.register(query)
    shutdown.unregister(query)
    assert not shutdown.stopped()
