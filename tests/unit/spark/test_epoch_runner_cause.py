"""The cause of a failed stage: the user's own error, not Spark's message around it."""

from sluicegate.spark.errors import cause_of

WORKER = """An error occurred while calling o1.getResult.
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed
Traceback (most recent call last):
  File "job.py", line 5, in checked
    raise SourceFailure("the source fails")
job.SourceFailure: the source fails

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_error_of_a_python_worker_is_the_cause() -> None:
    assert cause_of(WORKER) == "job.SourceFailure: the source fails"


def test_without_one_the_cause_is_the_first_line_with_an_error() -> None:
    assert cause_of("calling o1\norg.x.SomeException: no") == "org.x.SomeException: no"
    assert cause_of("nothing known") == "nothing known"
