"""What a savepoint's manifest and a restored checkpoint say about the parent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.errors import SavepointFailed, SavepointInvalid
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import SinkBinding
from sluicegate.savepoints.manifest import (
    MANIFEST,
    TAKING,
    Ancestry,
    Manifest,
    SavedFile,
    check_not_disposed,
    end_unfinished,
    read_ancestry,
    read_manifest,
    write_ancestry,
    write_manifest,
)
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.savepoints.builders import SINK, record

OURS = record(0, "child").sinks[SINK]
PARENT = Ancestry("parent", 4, {SINK: OURS}, {SINK: {0: Marker(4, "a4")}}, rows={SINK: 50})
SAVEPOINT = Manifest(
    "id", "j", sealed=False, checkpoint="c", created_at_ms=7, version="1.0", ancestry=PARENT
)


def test_rows_are_inherited_in_the_sinks_that_were_the_parents_too() -> None:
    two = replace(record(5, "child"), sinks={SINK: OURS, "new": OURS})
    assert PARENT.inherited_rows(two) == {SINK: 50}


def test_no_rows_are_inherited_in_a_sink_that_writes_elsewhere_now() -> None:
    elsewhere = SinkBinding("memory", "store u", 1, OURS.marker_key)
    other = replace(record(5, "child"), sinks={SINK: elsewhere})
    assert PARENT.inherited_rows(other) == {}


def test_a_sink_of_which_the_parent_counted_nothing_begins_at_zero() -> None:
    assert replace(PARENT, rows={}).inherited_rows(record(5, "child")) == {SINK: 0}
    assert replace(PARENT, rows=None).inherited_rows(record(5, "child")) == {SINK: 0}


def test_the_size_of_a_savepoint_is_that_of_its_files() -> None:
    files = {"a": SavedFile(3, "x"), "b": SavedFile(4, "y")}
    assert replace(SAVEPOINT, files=files).size == 7


def test_a_manifest_and_an_ancestry_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    assert read_ancestry(store) is None
    store.create(TAKING, b"{}")
    write_manifest(store, SAVEPOINT)
    write_ancestry(store, PARENT)
    assert (read_manifest(store), read_ancestry(store)) == (SAVEPOINT, PARENT)


def test_a_manifest_of_a_format_that_is_not_supported_is_not_read(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    store.create(TAKING, b"{}")
    write_manifest(store, SAVEPOINT)
    later = json.loads((tmp_path / MANIFEST).read_bytes()) | {"format": 2}
    (tmp_path / MANIFEST).write_text(json.dumps(later))
    with pytest.raises(SavepointInvalid, match="its format is not supported"):
        read_manifest(store)


@pytest.mark.parametrize("begun", [False, True])
def test_only_the_error_about_an_incomplete_savepoint_says_how_to_delete_it(
    tmp_path: Path,
    begun: bool,  # noqa: FBT001
) -> None:
    store = LocalObjectStore(tmp_path)
    if begun:
        store.create(TAKING, b"{}")
    with pytest.raises(SavepointInvalid) as raised:
        read_manifest(store)
    assert ("is not a savepoint" in str(raised.value)) is not begun
    assert ("`dispose --unfinished`" in str(raised.value)) is begun


def test_a_savepoint_whose_disposal_has_begun_is_not_completed(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    store.create(TAKING, b"{}")
    check_not_disposed(store)
    assert end_unfinished(store)
    with pytest.raises(SavepointFailed, match="disposed of"):
        check_not_disposed(store)
    with pytest.raises(SavepointFailed, match="disposed of"):
        write_manifest(store, SAVEPOINT)


def test_a_savepoint_whose_disposal_has_ended_gets_no_manifest(tmp_path: Path) -> None:
    """It would be a savepoint without its files."""
    store = LocalObjectStore(tmp_path)
    with pytest.raises(SavepointFailed, match="disposed of"):
        check_not_disposed(store)
    with pytest.raises(SavepointFailed, match="disposed of"):
        write_manifest(store, SAVEPOINT)
    assert store.read(MANIFEST) is None
