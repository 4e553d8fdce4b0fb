"""How a query ends, and what it does while it idles: with a fake in place of Spark's query."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.errors import Fenced, SluicegateError, StageFailed, StoreUnavailable, Stuck
from sluicegate.settings.epoch import EpochSettings
from sluicegate.spark import pacing, shutdown, watch
from sluicegate.spark.apply import BackgroundApply
from sluicegate.spark.pacing import Pace, TriggerClock
from sluicegate.spark.query import EpochsQuery
from sluicegate.spark.watch import ProgressLimit


@dataclass
class IdleQuery:
    """A query of Spark that has nothing to do; waiting for its end takes longer than it should."""

    isActive: bool = True  # noqa: N815 - Spark's name
    lastProgress: None = None  # noqa: N815
    status: dict[str, Any] = field(
        default_factory=lambda: {"message": "Waiting for data to arrive", "isTriggerActive": False}
    )

    def awaitTermination(self, timeout_s: float) -> bool:  # noqa: N802
        time.sleep(timeout_s + 0.002)
        return not self.isActive

    def stop(self) -> None:
        self.isActive = False


@dataclass
class Receiver:
    """A service that fails when it writes its last lines."""

    error: SluicegateError | None = None

    def failure(self) -> SluicegateError | None:
        return self.error

    def stop(self) -> None:
        self.error = StoreUnavailable("the last lines were not logged")


@dataclass
class Query:
    """A query with what a test can see of it."""

    services: tuple[Receiver, ...] = ()
    read: Callable[[str], bytes | None] = lambda _name: b"committed"
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spark, self.background = IdleQuery(), BackgroundApply()
        self.query = query = EpochsQuery.__new__(EpochsQuery)
        query._query, query._services = self.spark, self.services  # type: ignore[assignment]
        query._epoch_lock, query._error = threading.Lock(), None
        query._clock = TriggerClock(EpochSettings())
        query._progress_limit = ProgressLimit(0)
        query._stopping = query._canceled = query._first_idle = False
        query._last_epoch, query._first_epoch_s, query._has_planned = 3, 1.0, True
        query._spark = SimpleNamespace(  # type: ignore[assignment]
            sparkContext=SimpleNamespace(cancelJobGroup=lambda _id: self.done.append("cancel"))
        )
        self.spark.runId = "id"  # type: ignore[attr-defined]
        query._context = SimpleNamespace(  # type: ignore[assignment]
            job=SimpleNamespace(name="j", lineage="l"),
            store=SimpleNamespace(read=self.read),
            metrics=SimpleNamespace(sample=lambda _sample: None),
            progress=SimpleNamespace(due=lambda: False),
            close=lambda: self.done.append("close"),
        )
        query._runner = SimpleNamespace(  # type: ignore[assignment]
            background=self.background,
            drain=lambda: self.done.append("drain"),
            has_unmarked_epoch=lambda: "mark" not in self.done,
            mark_applied=lambda: self.done.append("mark"),
        )
        query._stop_handler = SimpleNamespace(  # type: ignore[assignment]
            requested=lambda: False, complete=lambda error: error
        )


def no_reply(_name: str) -> bytes | None:
    raise StoreUnavailable("no reply")


def test_a_stop_while_the_store_does_not_answer_stops_and_closes_everything() -> None:
    """That Spark has committed the last epoch only spares the next start a replay."""
    seen = Query(read=no_reply)
    seen.query.stop()
    assert not seen.spark.isActive
    assert seen.done == ["drain", "close"]


def lost_the_log(_timeout_s: float) -> bool:
    raise StreamingQueryException(
        "[STREAM_FAILED] Query terminated with exception: Multiple streaming queries are concurrently "
        "using /checkpoint/offsets"
    )


def test_a_stop_raises_the_error_with_which_spark_has_ended_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Query()
    seen.spark.isActive = False
    monkeypatch.setattr(seen.spark, "awaitTermination", lost_the_log)
    with pytest.raises(Fenced):
        seen.query.stop()
    assert seen.done == ["drain", "close"]


def test_a_cancel_keeps_the_checkpoint_of_a_query_that_spark_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Query()
    deleted: list[object] = []
    monkeypatch.setattr(seen.spark, "awaitTermination", lost_the_log)
    monkeypatch.setattr("sluicegate.spark.query.delete_checkpoint", deleted.append)
    seen.query._settings = EpochSettings(on_cancel="delete")
    with pytest.raises(Fenced):
        seen.query.cancel()
    assert not deleted


def test_what_a_service_could_not_write_when_it_was_stopped_fails_the_query() -> None:
    with pytest.raises(StoreUnavailable, match="last lines"):
        Query((Receiver(),)).query.stop()


def test_the_last_epoch_is_marked_although_each_wait_is_as_short_as_a_poll() -> None:
    """`sluicegate run` waits like that between its checks for signals."""
    seen = Query()
    assert not seen.query.await_end(0.01)
    assert seen.done == ["mark"]


def test_a_query_that_a_request_stops_has_not_read_all_that_is_available() -> None:
    """The operator must not take its job for finished."""
    seen = Query()
    assert not seen.query._should_stop()
    seen.query._stop_handler = SimpleNamespace(requested=lambda: True)  # type: ignore[assignment]
    try:
        assert seen.query._should_stop()
        assert shutdown.stopped()
        assert not shutdown.requested()
    finally:
        shutdown.reset()


def test_an_apply_that_failed_fails_the_query_although_a_retry_has_applied_the_epoch() -> None:
    """Otherwise a job that reads what is available ends with 0, and its input is not read to the end."""
    seen = Query()

    def stuck() -> int:
        raise Stuck("a sink refuses the rows")

    seen.background.start(stuck)
    while seen.background.is_running():
        time.sleep(0.001)
    assert seen.query._should_stop()
    with pytest.raises(Stuck):
        seen.background.wait()  # as the retry does
    with pytest.raises(Stuck):
        seen.query.stop()


def failing_epochs(seen: Query, settings: EpochSettings) -> tuple[list[float], threading.Thread]:
    """Run an epoch whose attempts fail, in Spark's thread; return when each attempt began."""
    tries: list[float] = []

    def fail(_batch: Any, _epoch: int) -> None:  # noqa: ANN401 - unused
        tries.append(time.monotonic())
        raise StageFailed("the broker is down")

    def callback() -> None:
        with contextlib.suppress(StageFailed):
            seen.query._run_epoch(cast("Any", None), 4)

    seen.query._runner.run = fail  # type: ignore[assignment,method-assign]
    seen.query._pace, seen.query._settings = Pace(settings), settings
    thread = threading.Thread(target=callback)
    thread.start()
    while not tries:
        time.sleep(0.001)
    return tries, thread


def test_a_stop_does_not_wait_for_the_retries_of_a_failed_epoch() -> None:
    seen = Query()
    tries, callback = failing_epochs(seen, EpochSettings(tolerated_failures=99))
    with pytest.raises(StageFailed):
        seen.query.stop()
    callback.join()
    assert len(tries) == 1


def test_a_stop_ends_the_retries_of_an_apply_in_the_background() -> None:
    seen, tries = Query(), [0]
    seen.query._pace = Pace(EpochSettings(tolerated_failures=99))

    def attempt() -> None:
        tries[0] += 1
        raise Stuck("the sink is down")

    def work() -> int:
        seen.query._retry(3, attempt)
        return 3

    seen.background.start(work)
    while not tries[0]:
        time.sleep(0.001)
    seen.query.stop()
    with pytest.raises(Stuck):
        seen.background.wait()
    assert tries == [1]


def test_a_stage_ends_when_the_apply_before_it_fails_during_a_stop() -> None:
    """What holds the apply up may hold up the stage too, for as long as the timeouts of its source."""
    seen, staging = Query(), threading.Event()

    def work() -> int:
        while not seen.query._stopping:
            time.sleep(0.001)
        raise Stuck("the sink is down")

    def stage() -> None:
        with seen.query._epoch_lock:
            staging.set()
            while "cancel" not in seen.done:
                time.sleep(0.001)

    seen.background.start(work)
    threading.Thread(target=stage, daemon=True).start()
    assert staging.wait(5)
    seen.query.stop()
    assert seen.done.count("cancel") == 1


def test_rule_18_the_time_limit_of_an_epoch_covers_its_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, expired = Query(), threading.Event()
    monkeypatch.setattr(watch, "_end_process", lambda *_: expired.set())
    monkeypatch.setattr(pacing, "_RETRY_PAUSE_S", 0.05)
    tries, callback = failing_epochs(seen, EpochSettings(timeout_s=0.3, tolerated_failures=999))
    assert expired.wait(5), "each attempt is much shorter than the limit"
    assert len(tries) > 1
    with pytest.raises(StageFailed):
        seen.query.stop()
    callback.join()
