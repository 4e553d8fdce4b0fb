"""The text of `kubectl sluicegate status` and `why`, from resources as the API server returns them."""

import datetime as dt
from typing import Any

import pytest

from sluicegate.cli.job_report import console_page, describe, spark_ui_port, table, why

NOW = dt.datetime(2026, 1, 31, 12, 0, tzinfo=dt.UTC)


def job(name: str = "clicks", **status: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {}, "status": status}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


RUNNING = job(
    phase="Running",
    attempt=3,
    restarts=2,
    checkpoint={"number": 1, "lastEpoch": 118, "lastEpochTime": "2026-01-31T11:59:58Z"},
    conditions=[condition("Accepted", "True", "SpecValid"), condition("Ready", "True", "Running")],
)
REFUSED = job(
    "orders",
    phase="Starting",
    conditions=[condition("Ready", "False", "QuotaExceeded", "exceeded quota: cpu")],
)


def test_jobs_with_a_problem_come_first_and_say_it() -> None:
    assert table([RUNNING, REFUSED], NOW, namespaces=False) == [
        "JOB      PHASE      EPOCH   SEEN   RESTARTS   WHY",
        "orders   Starting   -       -      0          QuotaExceeded: exceeded quota: cpu",
        "clicks   Running    118     2s     2",
    ]


def test_a_table_of_all_namespaces_names_them() -> None:
    assert table([RUNNING], NOW, namespaces=True)[1].startswith("shop        clicks")


def test_a_running_job_says_what_bounds_it() -> None:
    message = "Bound by the plan: its stage takes 100 ms of 170 ms (59%)."
    bound = job(phase="Running", verdict={"reason": "BoundByPlan", "message": message})
    assert f"  {message}" in describe(bound, [], NOW)


def test_a_job_says_how_many_of_its_executors_run() -> None:
    assert "  1 of 2 executors run" in describe(
        job(phase="Running", executors={"running": 1, "wanted": 2}), [], NOW
    )


@pytest.mark.parametrize(
    ("conf", "port"),
    [
        ({}, None),
        ({"spark.ui.enabled": "false"}, None),
        ({"spark.ui.enabled": "true"}, 4040),
        ({"spark.ui.enabled": "true", "spark.ui.port": "4100"}, 4100),
    ],
)
def test_the_port_of_sparks_ui_is_that_of_the_spec(conf: dict[str, str], port: int | None) -> None:
    assert spark_ui_port({"metadata": {"name": "clicks"}, "spec": {"sparkConf": conf}}) == port


def test_no_job_is_a_header_alone() -> None:
    assert len(table([], NOW, namespaces=True)) == 1


def test_a_suspended_job_has_no_problem() -> None:
    conditions = [condition("Ready", "False", "Suspended")]
    assert why(job(phase="Suspended", conditions=conditions)) == ""


def test_the_cause_comes_before_what_follows_from_it() -> None:
    conditions = [
        condition("Ready", "False", "DriverFailed", "MarkerMismatch"),
        condition("Failed", "True", "DriverFailed", "MarkerMismatch"),
        condition("Accepted", "False", "SpecInvalid", "no such volume"),
    ]
    failed = job(phase="Failed", conditions=conditions)
    lines = describe(failed, [], NOW)
    at = lines.index("  problems:")
    assert lines[at + 1 :] == [
        "    SpecInvalid: no such volume",
        "    DriverFailed: MarkerMismatch",
    ]


def test_a_job_that_no_operator_has_seen_says_so() -> None:
    new = {"metadata": {"name": "clicks"}, "spec": {}}
    assert why(new).startswith("no operator has written a status yet")


def test_failures_and_the_last_error_explain_the_restarts() -> None:
    restarting = job(
        phase="Restarting",
        attempt=4,
        restarts=3,
        nextStartTime="2026-01-31T12:00:10Z",
        allEpochsApplied=False,
        lastError="attempt 4: SinkUnavailable: no broker answers",
        failures=[
            {"kind": "Application", "time": "2026-01-31T09:00:00Z", "count": 2, "runSeconds": 7300},
            {"kind": "Disrupted", "time": "2026-01-31T11:58:00Z", "runSeconds": 31.4},
        ],
        conditions=[condition("Ready", "False", "BackingOff", "attempt 4: SinkUnavailable")],
    )
    text = "\n".join(describe(restarting, [], NOW))
    assert "the next driver starts at 2026-01-31T12:00:10Z" in text
    assert "Application: 2 of them, the last 3h ago, after 2h" in text
    assert "Disrupted: 2m ago, after 31s" in text
    assert "SinkUnavailable: no broker answers" in text
    assert "a decided epoch may not be in every sink yet" in text


def test_the_newest_events_end_the_text() -> None:
    events = [
        {"metadata": {}, "reason": "Started", "message": "old", "lastTimestamp": "2026-01-31T10:00:00Z"},
        {"metadata": {}, "reason": "Restarting", "message": "new", "eventTime": "2026-01-31T11:59:00.5Z"},
    ]  # fmt: skip
    assert describe(RUNNING, events, NOW)[-2:] == [
        "    2h ago  Started: old",
        "    60s ago  Restarting: new",
    ]


@pytest.mark.parametrize(
    ("name", "path"),
    [("", "/"), ("clicks", "/find?job=shop/clicks"), ("till/clicks", "/find?job=till/clicks")],
)
def test_a_jobs_page_in_the_console_is_found_by_namespace_and_name(name: str, path: str) -> None:
    assert console_page("http://127.0.0.1:8321", name, "shop") == f"http://127.0.0.1:8321{path}"
