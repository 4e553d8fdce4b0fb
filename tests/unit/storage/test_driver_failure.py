"""Why drivers failed, as it is written into a checkpoint."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sluicegate.deployment.termination import Reason
from sluicegate.errors import StoreUnavailable
from sluicegate.storage import driver_failure
from sluicegate.storage.driver_failure import (
    FOLDER,
    RETAINED,
    DriverFailure,
    name_of,
    read_failure,
    write_failure,
)
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore

FENCED = DriverFailure(1_800_000_000_000, 4.5, 65, "Fenced", "overtaken", "nothing", "keep one")


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path)
    create_lineage(store, Lineage("l", "orders"))
    return store


def test_a_failure_is_read_as_it_was_written(checkpoint: LocalObjectStore) -> None:
    failure = replace(FENCED, then="waits", next_try_ms=FENCED.ended_at_ms + 9_500)
    write_failure(checkpoint.url, failure)
    (name,) = checkpoint.entries(FOLDER)
    assert name == name_of(FENCED.ended_at_ms)
    assert read_failure(checkpoint, name) == failure


def test_only_the_newest_failures_are_retained(checkpoint: LocalObjectStore) -> None:
    for number in range(RETAINED + 3):
        write_failure(checkpoint.url, replace(FENCED, ended_at_ms=number))
    read = [read_failure(checkpoint, name) for name in sorted(checkpoint.entries(FOLDER))]
    assert [failure.ended_at_ms for failure in read if failure] == list(range(3, RETAINED + 3))


def test_nothing_is_written_into_the_checkpoint_of_another_job(
    checkpoint: LocalObjectStore,
) -> None:
    write_failure(checkpoint.url, replace(FENCED, kind="CheckpointOfAnotherJob"))
    assert list(checkpoint.names(FOLDER)) == []


def test_nothing_is_written_where_no_job_has_run(tmp_path: Path) -> None:
    write_failure(str(tmp_path / "new"), FENCED)
    assert not (tmp_path / "new").exists()


WRITTEN = json.dumps(asdict(FENCED)).encode()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b'{"ended_at_ms": 1}',
        WRITTEN.replace(b"4.5", b"NaN"),
        WRITTEN.replace(b"1800000000000", b"Infinity"),
        WRITTEN.replace(b"4.5", b"null"),
    ],
)
def test_a_damaged_failure_is_named(checkpoint: LocalObjectStore, damage: bytes) -> None:
    checkpoint.put(f"{FOLDER}1", [damage])
    with pytest.raises(ValueError, match=f"{FOLDER}1 is damaged"):
        read_failure(checkpoint, f"{FOLDER}1")


def test_a_checkpoint_that_cannot_be_written_is_only_logged(
    checkpoint: LocalObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.put("failures", [b"a file in the place of the folder"])
    write_failure(checkpoint.url, FENCED)
    assert "was not recorded" in caplog.text


def test_a_store_that_does_not_answer_soon_is_a_warning_of_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restart waits for it."""
    asked: list[float] = []

    def unreachable(_address: str, *, retry_timeout_s: float) -> LocalObjectStore:
        asked.append(retry_timeout_s)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(driver_failure, "open_store", unreachable)
    write_failure("s3://b/x", FENCED)
    assert asked == [3.0]
    (logged,) = caplog.records
    assert (logged.levelname, logged.exc_info) == ("WARNING", None)


def test_a_damaged_lineage_is_only_logged(
    checkpoint: LocalObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The next driver reports it, and must be started for that."""
    checkpoint.put("lineage.json", [b"{"])
    write_failure(checkpoint.url, FENCED)
    assert "was not recorded" in caplog.text


def test_a_failure_that_was_deleted_meanwhile_is_none(checkpoint: LocalObjectStore) -> None:
    assert read_failure(checkpoint, f"{FOLDER}1") is None


def test_a_failure_has_the_time_of_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    assert DriverFailure.now(75, 1.0, None, delay_s=9.5).next_try_ms == 1_800_000_009_500
    assert DriverFailure.now(75, 1.0, None, delay_s=None).next_try_ms == 0


def test_a_failure_of_an_earlier_version_has_no_time_of_the_next_try(
    checkpoint: LocalObjectStore,
) -> None:
    fields = {name: value for name, value in asdict(FENCED).items() if name != "next_try_ms"}
    checkpoint.put(f"{FOLDER}1", [json.dumps(fields).encode()])
    assert read_failure(checkpoint, f"{FOLDER}1") == FENCED


def test_a_failure_has_the_reason_that_the_driver_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_999_999)
    reason = Reason("Fenced", "overtaken", "nothing", "keep one")
    assert DriverFailure.now(65, 4.50049, reason, then="ended") == replace(FENCED, then="ended")
    killed = DriverFailure.now(-9, 4.5, None)
    assert killed == DriverFailure(FENCED.ended_at_ms, 4.5, -9)
