"""The parent process of Spark's Python workers."""

from __future__ import annotations

import pytest

from sluicegate.spark.worker_daemon import ended_by_the_jvm


def test_a_worker_whose_connection_the_jvm_closed_ends_without_a_traceback() -> None:
    def worker(*_: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    assert ended_by_the_jvm(worker)() == 1


def test_any_other_exception_of_a_worker_is_raised() -> None:
    def worker(*_: object) -> int:
        raise EOFError

    with pytest.raises(EOFError):
        ended_by_the_jvm(worker)()
