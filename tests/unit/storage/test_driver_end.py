"""How drivers ended in order, as it is written into a checkpoint."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sluicegate.storage.driver_end import FOLDER, DriverEnd, Why, read_end, write_end
from sluicegate.storage.driver_failure import RETAINED
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore

STOPPED = DriverEnd(1_800_000_000_000, 4.5, Why.STOPPED)


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path)
    create_lineage(store, Lineage("l", "orders"))
    return store


def test_an_end_is_read_as_it_was_written(checkpoint: LocalObjectStore) -> None:
    write_end(checkpoint.url, STOPPED)
    (name,) = checkpoint.entries(FOLDER)
    assert read_end(checkpoint, name) == STOPPED


def test_only_the_newest_ends_are_retained(checkpoint: LocalObjectStore) -> None:
    for number in range(RETAINED + 3):
        write_end(checkpoint.url, replace(STOPPED, ended_at_ms=number))
    assert len(list(checkpoint.entries(FOLDER))) == RETAINED


@pytest.mark.parametrize("stopped", [False, True])
def test_an_end_says_whether_a_signal_requested_it(
    monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_999_999)
    why = Why.STOPPED if stopped else Why.FINISHED
    assert DriverEnd.now(4.50049, stopped=stopped) == replace(STOPPED, why=why)


@pytest.mark.parametrize("damage", [(b'"stopped"', b"1"), (b"4.5", b"NaN"), (b"{", b"[")])
def test_a_damaged_end_is_named(checkpoint: LocalObjectStore, damage: tuple[bytes, bytes]) -> None:
    checkpoint.put(f"{FOLDER}1", [json.dumps(asdict(STOPPED)).encode().replace(*damage)])
    with pytest.raises(ValueError, match=f"{FOLDER}1 is damaged"):
        read_end(checkpoint, f"{FOLDER}1")


def test_an_end_for_a_reason_of_a_newer_version_is_read(checkpoint: LocalObjectStore) -> None:
    drained = replace(STOPPED, why="drained")
    write_end(checkpoint.url, drained)
    (name,) = checkpoint.entries(FOLDER)
    assert read_end(checkpoint, name) == drained


def test_an_end_that_was_deleted_meanwhile_is_none(checkpoint: LocalObjectStore) -> None:
    assert read_end(checkpoint, f"{FOLDER}1") is None
