"""The report of a long run says what its history says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.robustness.history.recorder import Event, Recorder, read_history
from tests.robustness.report.run_report import as_markdown, summarize

RUN: Event = {
    "at_s": 0.0,
    "event": "run",
    "seed": 5,
    "job": "two_sinks",
    "delivery": "exactly-once",
    "rate": 40,
}
JUDGED: Event = {"at_s": 60.0, "event": "judged", "rows": 900}
END: Event = {"at_s": 61.0, "event": "end", "drivers": 3}


def fault(number: int, recovery_s: float, **fields: object) -> Event:
    """Return the event of a fault at `after-commit:topic`."""
    return {
        "at_s": number * 10.0,
        "event": "fault",
        "number": number,
        "place": "after-commit:topic",
        "actor": "driver killed",
        "second": "",
        "change": "",
        "reached": True,
        "recovery_s": {"topic": recovery_s, "table": 0.1},
        "reader_wait_s": 1.5,
        **fields,
    }


def anomaly(text: str) -> Event:
    """Return the event of an anomaly."""
    return {"at_s": 60.0, "event": "anomaly", "text": text}


def test_a_run_without_anomalies_that_was_judged_has_passed() -> None:
    assert summarize([RUN, fault(1, 3.0), JUDGED, END]).passed


def test_a_run_with_an_anomaly_has_failed_and_its_report_names_it() -> None:
    report = summarize([RUN, fault(1, 3.0), anomaly("repeated: 7 in topic"), JUDGED, END])
    assert not report.passed
    assert "repeated: 7 in topic" in as_markdown(report)


def test_a_run_that_ended_before_the_judgment_has_failed() -> None:
    """However few anomalies it has: its rows are not judged."""
    report = summarize([RUN, fault(1, 3.0), END])
    assert not report.passed
    assert "not judged" in as_markdown(report)


def test_the_recovery_of_a_fault_is_that_of_its_slowest_sink() -> None:
    report = summarize([RUN, fault(1, 3.0), fault(2, 5.0), fault(3, 0.0), JUDGED, END])
    assert report.recovery["driver killed"].longest == 5.0
    assert report.recovery["driver killed"].median == 3.0


def test_faults_are_counted_by_cell_and_kind() -> None:
    second = fault(
        2, 5.0, second="JVM killed at before-stage", change="overlap=True", reached=False
    )
    report = summarize([RUN, fault(1, 3.0), second, JUDGED, END])
    assert report.cells == {"driver killed": {"after-commit:topic": 2}}
    assert (report.single, report.double, report.changed, report.missed) == (1, 1, 1, 1)
    assert "| after-commit:topic | 2 |" in as_markdown(report)


def test_the_report_is_json() -> None:
    report = summarize([RUN, fault(1, 3.0), JUDGED, END])
    assert json.loads(json.dumps(report.as_json()))["passed"] is True


@pytest.mark.parametrize("rest", ["", '{"at_s": 1, "ev'])
def test_the_history_of_a_killed_run_is_readable(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "history.jsonl"
    recorder = Recorder(file)
    recorder.add("run", seed=5)
    recorder.close()
    file.write_text(file.read_text() + rest)
    assert [(event["event"], event["seed"]) for event in read_history(file)] == [("run", 5)]
