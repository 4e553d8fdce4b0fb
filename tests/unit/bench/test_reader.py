"""The reader ends when it has seen all measured records, whatever else goes on arriving."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench import reader
from tests.bench.reader import MEASURED, WARM_UP, Arrived

UNMEASURED: Arrived = (WARM_UP, 7, 0)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_AFTER_S", 0.05)
    monkeypatch.setattr(reader, "_SILENCE_S", 0.1)


class Polls:
    """Answers one by one, then with records that are not measured."""

    def __init__(self, *answers: Sequence[Arrived]) -> None:
        self._answers = list(answers)

    def __call__(self) -> Sequence[Arrived]:
        time.sleep(0.01)
        return self._answers.pop(0) if self._answers else [UNMEASURED]


def test_records_that_are_not_measured_do_not_count(tmp_path: Path) -> None:
    seen = reader.read(Polls([UNMEASURED, (MEASURED, 0, 0)], [(MEASURED, 1, 0)]), 2, tmp_path / "s")
    assert [number for number, _ in seen] == [0, 1]


def test_a_record_that_arrives_again_is_seen_after_the_last_one(tmp_path: Path) -> None:
    seen = reader.read(Polls([(MEASURED, 0, 0)], [(MEASURED, 0, 0)]), 1, tmp_path / "s")
    assert [number for number, _ in seen] == [0, 0]


def test_a_missing_record_ends_the_wait_though_others_arrive(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.touch()
    assert len(reader.read(Polls([(MEASURED, 0, 0)]), 2, sent)) == 1


def test_latency_is_counted_from_when_a_record_was_due(tmp_path: Path) -> None:
    due_ns = time.time_ns() - 3_000_000_000
    ((_, latency_ms),) = reader.read(Polls([(MEASURED, 0, due_ns)]), 1, tmp_path / "s")
    assert 3000 <= latency_ms < 5000
