"""The error that a task raised is found in Spark's message."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.errors import (
    ExecutorStopping,
    Fenced,
    LookupUnanswered,
    SluicegateError,
    StageFailed,
)
from sluicegate.spark.errors import cause_of, raised_in_task, stage_failure, translate_failure

OVERFLOW = """An error occurred while calling o95.getResult.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (host executor driver): \
java.lang.ArithmeticException: long overflow
\tat java.base/java.lang.Math.multiplyExact(Math.java:1004)
\tat org.apache.spark.sql.catalyst.util.SparkDateTimeUtils.millisToMicros(SparkDateTimeUtils.scala:107)
\tat org.apache.spark.sql.catalyst.util.DateTimeUtils$.fromJavaTimestamp(DateTimeUtils.scala:41)
\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.$anonfun$toInternalRowWithoutHeaders$1(\
KafkaRecordToRowConverter.scala:42)
\tat org.apache.spark.scheduler.Task.run(Task.scala:147)
"""


REJECTED = """An error occurred while calling o95.getResult.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 2 in stage 35.0 failed 4 times, \
most recent failure: Lost task 2.3 in stage 35.0 (TID 116) (10.0.0.22 executor 1): \
java.util.concurrent.RejectedExecutionException: Task org.apache.spark.executor.{} rejected from \
java.util.concurrent.ThreadPoolExecutor@a1ab7f5[Terminated, pool size = 0, active threads = 0]
"""


def spark_message(error: Exception) -> str:
    text = "".join(traceback.format_exception(error))
    return f"An exception was thrown from the Python worker:\n{text}\n\tat org.apache.spark.Task"


def test_an_error_of_ours_keeps_its_type_and_its_three_parts() -> None:
    error = LookupUnanswered("no answer: 3 tries", data="nothing is lost", do="start the store")
    found = raised_in_task(spark_message(error), "epoch 3")
    assert type(found) is LookupUnanswered
    assert (found.what, found.data, found.do) == (
        "epoch 3: no answer: 3 tries", "nothing is lost", "start the store",
    )  # fmt: skip


def test_an_error_with_one_part_is_found_too() -> None:
    found = raised_in_task(spark_message(LookupUnanswered("no answer")), "epoch 3")
    assert isinstance(found, SluicegateError)
    assert (found.data, found.do) == ("", "")


def test_the_cause_of_a_failure_in_another_thread_is_found() -> None:
    text = (
        "An error occurred while calling o74.getResult.\n"
        ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
        "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult\n"
        "Caused by: org.apache.spark.SparkException: Job aborted: the disk is full\n"
    )
    assert cause_of(text) == "org.apache.spark.SparkException: Job aborted: the disk is full"


def test_any_other_error_is_ignored() -> None:
    assert raised_in_task(spark_message(ValueError("broken")), "epoch 3") is None
    assert raised_in_task("sluicegate.errors.ClassVar: odd", "epoch 3") is None


def test_a_record_whose_time_spark_cannot_represent_is_named() -> None:
    found = stage_failure(OVERFLOW, 3)
    assert "Kafka record whose timestamp is later than 9223372036854775 ms" in found.what
    assert "startingOffsets after the record" in found.do


@pytest.mark.parametrize(
    ("pool", "stops"), [("Executor$TaskRunner@6faac4a3", True), ("x.Y@1", False)]
)
def test_a_task_that_a_stopping_executor_rejects_is_no_failure_of_the_job(
    pool: str,
    stops: bool,  # noqa: FBT001
) -> None:
    """SPARK-57465: it rejects all four tries within milliseconds."""
    found = stage_failure(REJECTED.format(pool), 3)
    assert isinstance(found, StageFailed)
    assert isinstance(found, ExecutorStopping) == stops


def test_another_overflow_is_not_blamed_on_a_record() -> None:
    found = stage_failure(OVERFLOW.replace("KafkaRecordToRowConverter", "UsersFunction"), 3)
    assert "java.lang.ArithmeticException: long overflow" in found.what


def ended(cause: str, *, plan: str = "Relation", trace: str = "") -> SluicegateError:
    """Return our error for a query that Spark ended with a cause."""
    message = f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {cause}"
    text = f"{message}\n=== Streaming Query ===\nLogical Plan:\n{plan}\n\nJVM stacktrace:\n{trace}"
    return translate_failure(StreamingQueryException(text))


@pytest.mark.parametrize(
    "cause",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected",
        "Multiple streaming queries are concurrently using file:/checkpoint/offsets",
    ],
)
def test_a_file_of_sparks_log_that_exists_already_means_another_driver(cause: str) -> None:
    assert isinstance(ended(cause), Fenced)


def test_a_cause_in_another_thread_of_java_does_not_mean_another_driver() -> None:
    """It is final, and a source that is used by two threads works again after a restart."""
    error = ended(
        "KafkaConsumer is not safe for multi-threaded access",
        trace="Caused by: java.util.ConcurrentModificationException: KafkaConsumer is not safe",
    )
    assert isinstance(error, StageFailed)


def test_what_a_job_reads_does_not_mean_another_driver() -> None:
    error = ended(
        "java.net.SocketTimeoutException: read timed out",
        plan="Filter Contains(line, Multiple streaming queries are concurrently using)",
        trace="a line with CONCURRENT_STREAM_LOG_UPDATE",
    )
    assert isinstance(error, StageFailed)
