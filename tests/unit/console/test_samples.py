"""Dead letters are read at most once in half a minute, even if that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from cachetools import TTLCache

from sluicegate.console import samples
from sluicegate.console.samples import Samples
from sluicegate.dead_letters.topic import DeadLetter
from sluicegate.errors import SinkUnavailable
from tests.unit.console.builders import epoch, job

JOB = job(epoch(0))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the topics that are read, from brokers that do not answer."""
    topics: list[str] = []

    def read(_connection: object, topic: str, _since_ms: int) -> Iterator[DeadLetter]:
        topics.append(topic)
        raise SinkUnavailable("no broker answers", data="nothing was read", do="start one")

    monkeypatch.setattr(samples, "read_dead_letters", read)
    return topics


def fail(of: Samples, topic: str) -> None:
    with pytest.raises(SinkUnavailable, match="no broker answers"):
        of.read(JOB, topic)


def test_a_read_that_failed_is_remembered_so_that_no_viewer_waits_for_the_brokers_again(
    reads: list[str],
) -> None:
    of = Samples("broker:9092")
    for _ in range(3):
        fail(of, "letters")
    assert reads == ["letters"]


def test_a_failed_read_says_nothing_about_another_topic_or_job(reads: list[str]) -> None:
    of = Samples("broker:9092")
    fail(of, "letters")
    fail(of, "others")
    with pytest.raises(SinkUnavailable):
        of.read(replace(JOB, address="elsewhere"), "letters")
    assert reads == ["letters", "others", "letters"]


def test_a_failed_read_is_repeated_after_half_a_minute(reads: list[str]) -> None:
    of, now = Samples("broker:9092"), [0.0]
    of._read = TTLCache(16, samples._MAX_AGE_S, timer=lambda: now[0])
    fail(of, "letters")
    now[0] = 29.0
    fail(of, "letters")
    now[0] = 31.0
    fail(of, "letters")
    assert reads == ["letters", "letters"]
