"""What a task raised is found in Spark's text."""

from __future__ import annotations

import traceback

from sluicegate.protocol.errors import LookupUnanswered, SluicegateError
from sluicegate.spark.causes import raised_in_task


def as_spark_says(error: Exception) -> str:
    said = "".join(traceback.format_exception(error))
    return f"An exception was thrown from the Python worker:\n{said}\n\tat org.apache.spark.Task"


def test_an_error_of_ours_keeps_its_kind_and_its_three_sentences() -> None:
    error = LookupUnanswered("no answer: 3 tries", data="nothing is lost", do="start the store")
    found = raised_in_task(as_spark_says(error), "epoch 3")
    assert type(found) is LookupUnanswered
    assert (found.what, found.data, found.do) == (
        "epoch 3: no answer: 3 tries", "nothing is lost", "start the store",
    )  # fmt: skip


def test_an_error_of_one_sentence_is_found_too() -> None:
    found = raised_in_task(as_spark_says(LookupUnanswered("no answer")), "epoch 3")
    assert isinstance(found, SluicegateError)
    assert (found.data, found.do) == ("", "")


def test_any_other_error_is_not_taken_for_one() -> None:
    assert raised_in_task(as_spark_says(ValueError("broken")), "epoch 3") is None
    assert raised_in_task("sluicegate.protocol.errors.ClassVar: odd", "epoch 3") is None
