"""The reader ends when it has seen all measured records, whatever else goes on arriving."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.bench import reader
from tests.bench.figures import percentile
from tests.bench.paced import MEASURED, WARM_UP, Arrived, arrived, value
from tests.bench.reader import Seen

UNMEASURED = value(WARM_UP, 7, 0)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_AFTER_S", 0.05)
    monkeypatch.setattr(reader, "_SILENCE_S", 1.0)


class Polls:
    """Answers one by one, then with records that are not measured."""

    def __init__(self, *answers: list[bytes]) -> None:
        self._answers = list(answers)

    def __call__(self) -> Arrived:
        time.sleep(0.01)
        return arrived(self._answers.pop(0) if self._answers else [UNMEASURED], time.time_ns())


def measured(number: int, due_ns: int = 0) -> bytes:
    return value(MEASURED, number, due_ns)


def test_records_that_are_not_measured_do_not_count(tmp_path: Path) -> None:
    seen = reader.read(Polls([UNMEASURED, measured(0)], [measured(1)]), 2, tmp_path / "s")
    assert (seen.missing, seen.repeated) == (0, 0)


def test_a_record_that_arrives_again_is_seen_after_the_last_one(tmp_path: Path) -> None:
    seen = reader.read(Polls([measured(0)], [measured(0)]), 1, tmp_path / "s")
    assert (seen.missing, seen.repeated) == (0, 1)


def test_a_record_that_arrives_twice_at_once_is_a_repeat(tmp_path: Path) -> None:
    seen = reader.read(Polls([measured(0), measured(0)]), 1, tmp_path / "s")
    assert (seen.missing, seen.repeated) == (0, 1)


def test_a_missing_record_ends_the_wait_though_others_arrive(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.touch()
    assert reader.read(Polls([measured(0)]), 2, sent).missing == 1


def test_latency_is_counted_from_when_a_record_was_due(tmp_path: Path) -> None:
    due_ns = time.time_ns() - 3_000_000_000
    seen = reader.read(Polls([measured(0, due_ns)]), 1, tmp_path / "s")
    assert 3000 <= (seen.summary()["p50_ms"] or 0) < 5000


def test_percentiles_are_those_of_the_other_figures() -> None:
    seen = Seen(250)
    latencies_ms = [float(number * number % 251) for number in range(250)]
    for number, ms in enumerate(latencies_ms):
        seen.add(arrived([measured(number)], int(ms * 1e6)))
    summary = seen.summary()
    assert summary["p50_ms"] == percentile(latencies_ms, 50)
    assert summary["p99_ms"] == percentile(latencies_ms, 99)
    assert summary["max_ms"] == max(latencies_ms)


def test_nothing_seen_has_no_percentile() -> None:
    assert Seen(3).summary() == {
        "missing": 3,
        "repeated": 0,
        "p50_ms": None,
        "p99_ms": None,
        "max_ms": None,
    }
