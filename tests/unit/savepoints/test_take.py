"""Taking savepoints of a checkpoint built by the test."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluicegate import failpoints
from sluicegate.errors import (
    EpochUnfinished,
    OffsetLogDiverged,
    SavepointFailed,
    SavepointRefused,
    StoreUnavailable,
)
from sluicegate.failpoints import FailpointHit, arm
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.savepoints import copy
from sluicegate.savepoints import take as savepoints_take
from sluicegate.savepoints.catalog import Savepoint, list_savepoints
from sluicegate.savepoints.manifest import TAKING, end_unfinished
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import LocalObjectStore, open_store
from tests.unit.savepoints.builders import (
    SINK,
    STORE,
    checkpoint,
    offsets,
    restore,
    run_epoch,
    take,
    write,
)


def epoch_of(savepoint: Savepoint) -> int:
    assert savepoint.manifest is not None
    return savepoint.manifest.epoch


def test_a_savepoint_contains_the_newest_completed_epoch(parent: str, folder: str) -> None:
    run_epoch(Path(parent), 5, committed=False)
    assert epoch_of(take(parent, folder)) == 4


def test_a_file_whose_name_is_no_epoch_is_no_commit(parent: str, folder: str) -> None:
    write(Path(parent), "commits/9.tmp")
    assert epoch_of(take(parent, folder)) == 4


@pytest.mark.parametrize(
    ("then", "epoch"), [("", 3), ("epochs/4.applied", 4), ("the next decision", 4)]
)
def test_an_overlapped_epoch_is_saved_only_if_it_is_certainly_in_every_sink(
    tmp_path: Path, folder: str, then: str, epoch: int
) -> None:
    root = tmp_path / "parent"
    checkpoint(root, 4)
    run_epoch(root, 4, overlapped=True)
    if then == "the next decision":
        run_epoch(root, 5, committed=False, overlapped=True)
    elif then:
        LocalObjectStore(root).create(then, b"applied")
    assert epoch_of(take(str(root), folder)) == epoch


def test_a_checkpoint_without_a_completed_epoch_is_rejected(tmp_path: Path, folder: str) -> None:
    run_epoch(tmp_path / "parent", 0, committed=False)
    with pytest.raises(SavepointRefused, match="no epoch"):
        take(str(tmp_path / "parent"), folder)


def test_a_folder_without_a_lineage_is_rejected(tmp_path: Path, folder: str) -> None:
    with pytest.raises(SavepointRefused, match="no lineage"):
        take(str(tmp_path), folder)


def test_a_file_pruned_meanwhile_restarts_with_a_newer_epoch(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark completes epoch 5 and prunes offsets that a savepoint of epoch 4 needs."""

    def prune() -> None:
        arm("")
        run_epoch(Path(parent), 5)
        (Path(parent) / "offsets/3").unlink()

    failpoints.hook("prune", prune)
    arm("savepoint-copying@4=prune")
    monkeypatch.setattr(copy, "_THREADS", 1)
    monkeypatch.setattr(savepoints_take, "_PAUSE_S", 0.0)
    savepoint = take(parent, folder)
    assert epoch_of(savepoint) == 5
    assert [s.url for s in list_savepoints(folder)] == [savepoint.url]


def test_spark_has_time_to_complete_an_epoch_between_two_attempts(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(parent) / STORE / "3.delta").unlink()

    def complete(_seconds: float) -> None:
        run_epoch(Path(parent), 5)
        write(Path(parent), f"{STORE}6.snapshot")

    monkeypatch.setattr(savepoints_take, "time", SimpleNamespace(sleep=complete))
    assert epoch_of(take(parent, folder)) == 5


def test_a_file_that_stays_missing_fails_and_leaves_nothing(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(parent) / STORE / "3.delta").unlink()
    monkeypatch.setattr(savepoints_take, "_PAUSE_S", 0.0)
    with pytest.raises(SavepointRefused, match="state/0/0/3"):
        take(parent, folder)
    assert list_savepoints(folder) == []


@pytest.mark.parametrize("point", ["savepoint-copying", "before-manifest"])
def test_an_interrupted_copy_is_not_a_savepoint(parent: str, folder: str, point: str) -> None:
    arm(f"{point}=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder)
    assert [s for s in list_savepoints(folder) if s.manifest] == []


def test_offsets_that_differ_from_the_decision_are_not_saved(parent: str, folder: str) -> None:
    (Path(parent) / "offsets/4").write_bytes(offsets(9))
    with pytest.raises(OffsetLogDiverged):
        take(parent, folder)
    assert list_savepoints(folder) == []


@pytest.mark.parametrize("name", ["commits/4", "offsets/4"])
def test_a_log_that_a_power_cut_left_empty_is_not_saved(
    parent: str, folder: str, name: str
) -> None:
    """No job could start from it, and with a seal the original could not either."""
    (Path(parent) / name).write_bytes(b"")
    with pytest.raises(SavepointRefused, match=f"{name} of the checkpoint is empty"):
        take(parent, folder, seal=True)
    assert list_savepoints(folder) == []
    assert StoredEpochLog(LocalObjectStore(Path(parent))).seal() is None


def test_what_a_sealed_checkpoint_needs_is_synced_before_the_seal(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing starts on it again, so nothing would repair a commit that a power cut has emptied."""
    synced: set[int] = set()
    commit = (Path(parent) / "commits/4").stat().st_ino
    sealed_with: list[bool] = []
    create = LocalObjectStore.create

    def creating(self: LocalObjectStore, name: str, content: bytes) -> bool:
        if name == "epochs/5":
            sealed_with.append(commit in synced)
        return create(self, name, content)

    monkeypatch.setattr(os, "fsync", lambda one: synced.add(os.fstat(one).st_ino))
    monkeypatch.setattr(LocalObjectStore, "create", creating)
    take(parent, folder, seal=True)
    assert sealed_with == [True]


@pytest.mark.parametrize("spelling", ["{}/savepoints", "./{}/savepoints", "file://{}/savepoints"])
def test_a_folder_inside_the_checkpoint_is_rejected(
    parent: str, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is spelled: the next savepoint would copy it."""
    monkeypatch.chdir("/")
    with pytest.raises(SavepointRefused, match="inside"):
        take(parent, spelling.format(parent))


def test_a_savepoint_is_named_after_its_job_and_epoch(tmp_path: Path, folder: str) -> None:
    """A character that could change the meaning of an address is replaced."""
    run_epoch(tmp_path / "parent", 0, job="../j 1")
    url = take(str(tmp_path / "parent"), folder).url
    assert re.fullmatch(r"\.\.-j-1-0-[0-9a-f]{8}", url.removeprefix(f"{folder}/"))


def test_a_copy_that_cannot_be_deleted_after_an_error_is_listed_as_incomplete(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it can be disposed of, and the error is raised, not that of the deletion."""
    (Path(parent) / "offsets/4").write_bytes(offsets(9))
    delete = LocalObjectStore.delete

    def unavailable(self: LocalObjectStore, name: str) -> None:
        if name != TAKING:
            raise StoreUnavailable(name)
        delete(self, name)

    monkeypatch.setattr(LocalObjectStore, "delete", unavailable)
    with pytest.raises(OffsetLogDiverged):
        take(parent, folder)
    assert [s.manifest for s in list_savepoints(folder)] == [None]


def test_the_manifest_says_how_the_parent_delivered(tmp_path: Path, folder: str) -> None:
    run_epoch(tmp_path / "parent", 0, delivery="at-least-once")
    manifest = take(str(tmp_path / "parent"), folder).manifest
    assert manifest is not None
    assert manifest.ancestry.delivery == "at-least-once"


def test_the_manifest_has_the_marker_and_the_rows_of_every_sink(parent: str, folder: str) -> None:
    """As of its epoch, although the next one is decided."""
    run_epoch(Path(parent), 5, committed=False)
    manifest = take(parent, folder).manifest
    assert manifest is not None
    assert manifest.ancestry.chain == {SINK: {0: Marker(4, "a4")}}
    assert manifest.ancestry.rows == {SINK: 50}


def test_rows_that_were_given_up_are_not_counted(parent: str, folder: str) -> None:
    StoredEpochLog(LocalObjectStore(Path(parent))).discard(2, SINK, "test")
    manifest = take(parent, folder).manifest
    assert manifest is not None
    assert manifest.ancestry.rows == {SINK: 40}


def test_rows_of_the_parent_count_in_a_savepoint_of_its_branch(
    parent: str, folder: str, tmp_path: Path
) -> None:
    branch = tmp_path / "branch"
    restore(take(parent, folder).url, str(branch))
    run_epoch(branch, 5)
    manifest = take(str(branch), folder).manifest
    assert manifest is not None
    assert manifest.ancestry.rows == {SINK: 60}


def test_rows_stay_unknown_after_a_parent_that_did_not_know_them(
    parent: str, folder: str, tmp_path: Path
) -> None:
    LocalObjectStore(Path(parent)).delete("epochs/0")
    branch = tmp_path / "branch"
    restore(take(parent, folder).url, str(branch))
    run_epoch(branch, 5)
    manifest = take(str(branch), folder).manifest
    assert manifest is not None
    assert manifest.ancestry.rows is None


def test_rows_are_unknown_if_the_oldest_records_are_pruned(parent: str, folder: str) -> None:
    LocalObjectStore(Path(parent)).delete("epochs/0")
    manifest = take(parent, folder).manifest
    assert manifest is not None
    assert manifest.ancestry.rows is None


def test_rows_are_unknown_if_a_record_is_pruned_while_they_are_counted(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StoredEpochLog.read_any

    def pruned(self: StoredEpochLog, epoch: int) -> Seal | EpochRecord | None:
        return None if epoch == 1 else read(self, epoch)

    monkeypatch.setattr(StoredEpochLog, "read_any", pruned)
    manifest = take(parent, folder).manifest
    assert manifest is not None
    assert manifest.ancestry.rows is None


# --- sealing ---------------------------------------------------------------------------------------


def test_the_seal_follows_the_saved_epoch(parent: str, folder: str) -> None:
    savepoint = take(parent, folder, seal=True)
    seal = StoredEpochLog(open_store(parent)).seal()
    assert seal is not None
    assert seal.epoch == epoch_of(savepoint) + 1
    assert savepoint.manifest is not None
    assert savepoint.manifest.sealed


def test_a_lineage_with_an_unapplied_epoch_is_not_sealed(parent: str, folder: str) -> None:
    run_epoch(Path(parent), 5, committed=False)
    with pytest.raises(EpochUnfinished):
        take(parent, folder, seal=True)
    assert StoredEpochLog(open_store(parent)).seal() is None
    assert list_savepoints(folder) == []


def test_a_lineage_that_cannot_be_sealed_is_refused_before_a_file_is_copied(
    parent: str, folder: str
) -> None:
    run_epoch(Path(parent), 5, committed=False)
    arm("savepoint-copying=raise")
    with pytest.raises(EpochUnfinished):
        take(parent, folder, seal=True)


def test_the_commit_of_a_sealed_epoch_is_not_saved(parent: str, folder: str) -> None:
    """The seal stands in the place of its decision."""
    take(parent, folder, seal=True)
    write(Path(parent), "commits/5")
    write(Path(parent), "offsets/5")
    assert epoch_of(take(parent, folder)) == 4


def test_a_take_deletes_its_copy_if_a_disposal_of_it_was_killed(parent: str, folder: str) -> None:
    def begin_to_dispose() -> None:
        (unfinished,) = list_savepoints(folder)
        assert end_unfinished(open_store(unfinished.url))

    failpoints.hook("dispose", begin_to_dispose)
    arm("before-manifest=dispose")
    with pytest.raises(SavepointFailed):
        take(parent, folder)
    assert list(open_store(folder).names("")) == []


def test_a_crash_after_the_seal_is_recovered_by_the_next_attempt(parent: str, folder: str) -> None:
    arm("before-manifest=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder, seal=True)
    arm("")
    savepoint = take(parent, folder)
    assert savepoint.manifest is not None
    assert savepoint.manifest.sealed


def test_a_savepoint_of_a_sealed_job_is_sealed_and_needs_the_files_of_its_last_epoch(
    parent: str, folder: str
) -> None:
    """Its seal stays where it is; without Spark's commit the last epoch would be repeated."""
    take(parent, folder, seal=True)
    again = take(parent, folder, seal=True).manifest
    assert again is not None
    assert (again.sealed, again.epoch) == (True, 4)
    (Path(parent) / "commits/4").unlink()
    with pytest.raises(SavepointRefused, match="sealed after epoch 4"):
        take(parent, folder)
