"""The report of a long run says what its history says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.robustness.history.recorder import Event, Recorder, read_history
from tests.robustness.report.run_report import ELSEWHERE, RunReport, as_markdown, summarize

RUN: Event = {
    "at_s": 0.0,
    "event": "run",
    "seed": 5,
    "job": "two_sinks",
    "delivery": "exactly-once",
    "rate": 40,
}
JUDGED: Event = {"at_s": 60.0, "event": "judged", "rows": 900}
END: Event = {"at_s": 61.0, "event": "end", "drivers": 3, "taken_over": 1}


def fault(number: int, recovery_s: float, **fields: object) -> Event:
    """Return the event of a fault at `after-commit:topic`."""
    return {
        "at_s": number * 10.0,
        "event": "fault",
        "number": number,
        "failpoint": "after-commit:topic",
        "actor": "driver killed",
        "second": None,
        "changed": False,
        "moved": False,
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
    assert report.recovery_s == {"driver killed": {"single": [3.0, 5.0, 0.1]}}
    assert "| driver killed | single | 3 | 3.0 | 5.0 | 5.0 |" in as_markdown(report)


def test_a_double_fault_counts_in_both_of_its_cells_and_its_recovery_apart() -> None:
    second = {"failpoint": "before-stage", "actor": "JVM killed", "reached": True}
    report = summarize([RUN, fault(1, 3.0), fault(2, 5.0, second=second), JUDGED, END])
    assert report.cells == {
        "driver killed": {"after-commit:topic": 2},
        "JVM killed": {"before-stage": 1},
    }
    assert (report.single, report.double, report.missed) == (1, 1, 0)
    assert report.recovery_s == {"driver killed": {"single": [3.0], "double": [5.0]}}
    assert "| after-commit:topic |  | 2 |" in as_markdown(report)


def test_a_failure_elsewhere_does_not_count_in_the_cell_that_was_planned() -> None:
    second = {"failpoint": "before-stage", "actor": "JVM killed", "reached": False}
    report = summarize([RUN, fault(1, 3.0, reached=False, second=second), JUDGED, END])
    assert report.cells == {"driver killed": {ELSEWHERE: 1}, "JVM killed": {ELSEWHERE: 1}}
    assert report.missed == 2


def test_only_a_change_that_a_driver_got_counts() -> None:
    plans = ["", "overlap=True", "savepoint=after-seal", "overlap=False"]
    begun = [{"at_s": 1.0, "event": "begin", "change": plan} for plan in plans]
    faults = [fault(n, 3.0, changed=n in {1, 2}) for n in range(4)]
    events = [event for pair in zip(begun, faults, strict=True) for event in pair]
    report = summarize([RUN, *events, JUDGED, END])
    assert report.changes == {"overlap=True": 1, "savepoint=after-seal": 1}
    assert (report.changed, report.moved) == (2, 1)
    page = as_markdown(report)
    assert "| `overlap=True` | 1 |" in page
    assert "| moved by a savepoint, with a kill at `after-seal` | 1 |" in page


def test_a_planned_fault_that_did_not_happen_is_no_fault() -> None:
    skipped = {"at_s": 5.0, "event": "skipped", "failpoint": "decide", "actor": "store slow"}
    report = summarize([RUN, skipped, JUDGED, END])
    assert (report.faults, report.skipped, report.cells) == (0, 1, {})
    assert not report.passed
    assert "proves nothing" in as_markdown(report)


def test_a_fault_without_recovery_is_named_and_has_no_time() -> None:
    """Its time to recover is unknown, so it must not make the median smaller."""
    report = summarize([RUN, fault(1, 3.0), {**fault(2, 0.0), "recovery_s": {}}, JUDGED, END])
    assert (report.unfinished, report.recovery_s) == (1, {"driver killed": {"single": [3.0]}})
    assert "before 1 of them had recovered" in as_markdown(report)


def test_the_report_is_json_that_can_be_read_again() -> None:
    report = summarize([RUN, fault(1, 3.0), JUDGED, END])
    assert RunReport.from_json(json.loads(json.dumps(report.as_json()))) == report


def test_a_report_of_another_version_is_refused() -> None:
    values = summarize([RUN, fault(1, 3.0), JUDGED, END]).as_json()
    del values["skipped"]
    with pytest.raises(ValueError, match="differs in: skipped"):
        RunReport.from_json(values)


@pytest.mark.parametrize("rest", ["", '{"at_s": 1, "ev'])
def test_the_history_of_a_killed_run_is_readable(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "history.jsonl"
    recorder = Recorder(file)
    recorder.add("run", seed=5)
    recorder.close()
    file.write_text(file.read_text() + rest)
    assert [(event["event"], event["seed"]) for event in read_history(file)] == [("run", 5)]
