"""Storage tasks and their results as the operator and a worker process exchange them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from sluicegate_operator.reconcile.storage_tasks import (
    TASKS,
    CheckVolume,
    Delete,
    Deleted,
    Dispose,
    Disposed,
    FailedTask,
    Measure,
    Measured,
    Prune,
    Pruned,
    Result,
    SavepointTaken,
    TakeSavepoint,
    Task,
    VolumeChecked,
    parse_result,
    parse_task,
    task_name,
)
from tests.unit.operator.builders import NOW

OWNER = ("CheckpointVolume", "shop", "store", "u-1")
EXCHANGED: tuple[tuple[Task, Result], ...] = (
    (
        CheckVolume("s3://a", make_bucket=True, region="eu", access="digest", owner=OWNER),
        VolumeChecked(bucket_created=True),
    ),
    (Measure("s3://a"), Measured(7, 2, NOW)),
    (Delete("s3://a/b", OWNER), Deleted(2)),
    (TakeSavepoint("s3://a/b", "s3://a/c"), SavepointTaken("s3://a/c/d", 7, NOW, sealed=True)),
    (Dispose(("s3://a/c/d",), "s3://a/c", force=True), Disposed(1)),
    (Prune("s3://a", 5, 100, ("s3://a/c/d",), ("s3://a/e",)), Pruned(1, 0, 9)),
)


@pytest.mark.parametrize(("task", "result"), EXCHANGED, ids=TASKS)
def test_a_task_and_its_result_are_the_same_after_they_were_sent(
    task: Task, result: Result
) -> None:
    """Equal tasks are the same work."""
    name = task_name(task)
    assert parse_task(name, sent(task)) == task
    assert parse_result(name, sent(result)) == result


@pytest.mark.parametrize(("do", "summary"), [("mend it", "no; mend it"), ("", "no")])
def test_an_error_is_summarized_with_what_to_do_if_it_says_that(do: str, summary: str) -> None:
    assert FailedTask(NOW, "StoreUnavailable", "no", "nothing", do).summary == summary


def sent(value: Task | Result) -> dict[str, Any]:
    """Return the JSON object of a task or result as the other process reads it."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return found
