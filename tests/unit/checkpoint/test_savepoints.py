"""Taking, listing, restoring and removing savepoints, of a checkpoint made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.checkpoint import copying, savepoints
from sluicegate.checkpoint.manifest import MANIFEST, read_ancestry, read_manifest
from sluicegate.checkpoint.restoring import Wish, restore
from sluicegate.checkpoint.savepoints import Savepoint, dispose, listed, take
from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import (
    CheckpointOfAnotherJob,
    EpochUnfinished,
    NoSavepoint,
    OffsetLogDiverged,
    SavepointRefused,
)
from sluicegate.protocol.failpoints import FailpointHit, arm
from sluicegate.protocol.markers import Marker
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import claim_lineage, read_lineage
from sluicegate.storage.objects import LocalObjects, open_objects

from .made import SINK, STORE, checkpoint, offsets, run_epoch


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Leave no failpoint armed."""
    yield
    arm("")
    failpoints._hooks.clear()


@pytest.fixture
def parent(tmp_path: Path) -> str:
    """Give a checkpoint on which epochs 0 to 4 are done."""
    return checkpoint(tmp_path / "parent", 5)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Give the folder of savepoints."""
    return str(tmp_path / "savepoints")


def epoch_of(made: Savepoint) -> int:
    assert made.manifest is not None
    return made.manifest.epoch


# --- taking ----------------------------------------------------------------------------------------


def test_a_savepoint_holds_the_newest_epoch_that_is_done(parent: str, folder: str) -> None:
    run_epoch(Path(parent), 5, committed=False)
    assert epoch_of(take(parent, folder)) == 4


@pytest.mark.parametrize(
    ("then", "epoch"), [("", 3), ("epochs/4.applied", 4), ("the next decision", 4)]
)
def test_an_overlapped_epoch_is_done_when_it_is_surely_in_every_sink(
    tmp_path: Path, folder: str, then: str, epoch: int
) -> None:
    root = tmp_path / "parent"
    checkpoint(root, 4)
    run_epoch(root, 4, overlapped=True)
    if then == "the next decision":
        run_epoch(root, 5, committed=False, overlapped=True)
    elif then:
        LocalObjects(root).create(then, b"applied")
    assert epoch_of(take(str(root), folder)) == epoch


def test_a_checkpoint_without_a_finished_epoch_has_nothing_to_save(
    tmp_path: Path, folder: str
) -> None:
    run_epoch(tmp_path / "parent", 0, committed=False)
    with pytest.raises(SavepointRefused, match="no epoch"):
        take(str(tmp_path / "parent"), folder)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(SavepointRefused, match="no lineage"):
        take(str(tmp_path), folder)


def test_a_file_that_is_pruned_meanwhile_begins_it_again_at_a_newer_epoch(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark does: epoch 5 is done, and offsets that epoch 4 needs are gone."""

    def prune() -> None:
        arm("")
        run_epoch(Path(parent), 5)
        (Path(parent) / "offsets/3").unlink()

    failpoints.hook("prune", prune)
    arm("savepoint-copying@4=prune")
    monkeypatch.setattr(copying, "_AT_ONCE", 1)
    monkeypatch.setattr(savepoints, "_PAUSE_S", 0.0)
    made = take(parent, folder)
    assert epoch_of(made) == 5
    assert [s.url for s in listed(folder)] == [made.url]


def test_one_that_never_finds_a_file_gives_up_and_leaves_nothing(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(parent) / STORE / "3.delta").unlink()
    monkeypatch.setattr(savepoints, "_PAUSE_S", 0.0)
    with pytest.raises(SavepointRefused, match="state/0/0/3"):
        take(parent, folder)
    assert listed(folder) == []


@pytest.mark.parametrize("point", ["savepoint-copying", "before-manifest"])
def test_one_whose_taker_ends_is_no_savepoint(parent: str, folder: str, point: str) -> None:
    arm(f"{point}=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder)
    assert [s for s in listed(folder) if s.manifest] == []


def test_offsets_that_are_not_those_of_the_decision_are_not_saved(parent: str, folder: str) -> None:
    (Path(parent) / "offsets/4").write_bytes(offsets(9))
    with pytest.raises(OffsetLogDiverged):
        take(parent, folder)
    assert listed(folder) == []


def test_a_folder_inside_the_checkpoint_is_refused(parent: str) -> None:
    with pytest.raises(SavepointRefused, match="inside"):
        take(parent, f"{parent}/savepoints")


def test_the_manifest_says_what_every_sink_held(parent: str, folder: str) -> None:
    manifest = take(parent, folder).manifest
    assert manifest is not None
    assert manifest.ancestry.chain == {SINK: {0: Marker(4, "a4")}}
    assert manifest.ancestry.rows == {SINK: 50}


def test_rows_are_not_counted_where_the_oldest_records_are_pruned(parent: str, folder: str) -> None:
    LocalObjects(Path(parent)).delete("epochs/0")
    manifest = take(parent, folder).manifest
    assert manifest is not None
    assert manifest.ancestry.rows is None


# --- sealing ---------------------------------------------------------------------------------------


def test_a_seal_stands_after_the_saved_epoch(parent: str, folder: str) -> None:
    made = take(parent, folder, seal=True)
    seal = StoredEpochLog(open_objects(parent)).seal()
    assert seal is not None
    assert seal.epoch == epoch_of(made) + 1
    assert made.manifest is not None
    assert made.manifest.sealed


def test_a_decided_epoch_that_is_unfinished_is_not_sealed_off(parent: str, folder: str) -> None:
    run_epoch(Path(parent), 5, committed=False)
    with pytest.raises(EpochUnfinished):
        take(parent, folder, seal=True)
    assert StoredEpochLog(open_objects(parent)).seal() is None
    assert listed(folder) == []


def test_a_taker_that_dies_after_the_seal_is_made_good_by_the_next(
    parent: str, folder: str
) -> None:
    arm("before-manifest=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder, seal=True)
    arm("")
    made = take(parent, folder)
    assert made.manifest is not None
    assert made.manifest.sealed


# --- restoring -------------------------------------------------------------------------------------


def test_a_restored_checkpoint_is_a_new_lineage_from_the_next_epoch(
    parent: str, folder: str, tmp_path: Path
) -> None:
    new = str(tmp_path / "new")
    lineage = restore(take(parent, folder).url, new)
    assert lineage == read_lineage(open_objects(new))
    old = claim_lineage(open_objects(parent), "j")
    assert (lineage.parent, lineage.first_epoch, lineage.job) == (old.id, 5, "j")
    assert lineage.id != old.id


def test_a_restored_checkpoint_holds_sparks_files_and_none_of_the_lineage(
    parent: str, folder: str, tmp_path: Path
) -> None:
    restore(take(parent, folder).url, str(tmp_path / "new"))
    there = set(open_objects(str(tmp_path / "new")).names(""))
    logs = {f"{log}/{n}" for log in ("offsets", "commits") for n in (3, 4)}
    assert there == logs | {f"sources/0/{n}" for n in range(5)} | {
        f"{STORE}{v}.delta" for v in range(1, 6)
    } | {"metadata", "lineage.json", "ancestry.json", "parent/epoch"}
    assert json.loads((tmp_path / "new/metadata").read_bytes())["id"] != "parent"


def test_what_the_parent_wrote_is_known_to_the_restored_job(
    parent: str, folder: str, tmp_path: Path
) -> None:
    made = take(parent, folder)
    restore(made.url, str(tmp_path / "new"))
    assert made.manifest is not None
    assert read_ancestry(open_objects(str(tmp_path / "new"))) == made.manifest.ancestry


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_savepoint_with_a_damaged_file_makes_no_checkpoint(
    parent: str, folder: str, tmp_path: Path, how: str
) -> None:
    made = take(parent, folder)
    file = Path(made.url) / STORE / "2.delta"
    file.write_bytes(b"delta X") if how == "changed" else file.unlink()
    with pytest.raises(NoSavepoint, match=r"2\.delta"):
        restore(made.url, str(tmp_path / "new"))
    with pytest.raises(CheckpointOfAnotherJob, match="not finished"):
        claim_lineage(open_objects(str(tmp_path / "new")), "j")


def test_a_checkpoint_that_is_not_empty_is_refused(
    parent: str, folder: str, tmp_path: Path
) -> None:
    made = take(parent, folder)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").touch()
    with pytest.raises(SavepointRefused, match="not empty"):
        restore(made.url, str(tmp_path / "new"))


def test_a_restore_that_was_killed_goes_on_when_it_is_run_again(
    parent: str, folder: str, tmp_path: Path
) -> None:
    made, new = take(parent, folder, seal=True), str(tmp_path / "new")
    arm("restore-copying=raise")
    with pytest.raises(FailpointHit):
        restore(made.url, new)
    arm("")
    assert restore(made.url, new).moved
    with pytest.raises(SavepointRefused, match="not empty"):
        restore(made.url, new)


def test_a_sealed_savepoint_moves_once_and_branches_when_told(
    parent: str, folder: str, tmp_path: Path
) -> None:
    made = take(parent, folder, seal=True)
    assert restore(made.url, str(tmp_path / "moved")).moved
    with pytest.raises(SavepointRefused, match="moved"):
        restore(made.url, str(tmp_path / "again"))
    assert not restore(made.url, str(tmp_path / "branch"), Wish(branch=True)).moved


def test_a_restored_job_that_has_not_run_has_nothing_new_to_save(
    parent: str, folder: str, tmp_path: Path
) -> None:
    restore(take(parent, folder).url, str(tmp_path / "new"))
    with pytest.raises(SavepointRefused, match="no epoch"):
        take(str(tmp_path / "new"), folder)


# --- removing --------------------------------------------------------------------------------------


def test_a_removed_savepoint_is_gone_and_the_others_stay(parent: str, folder: str) -> None:
    one, other = take(parent, folder), take(parent, folder)
    dispose(one.url)
    assert [s.url for s in listed(folder)] == [other.url]
    assert list(open_objects(one.url).names("")) == []


def test_the_manifest_goes_first(parent: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, gone = take(parent, folder), []
    delete = LocalObjects.delete

    def noted(self: LocalObjects, name: str) -> None:
        gone.append(name)
        delete(self, name)

    monkeypatch.setattr(LocalObjects, "delete", noted)
    dispose(made.url)
    assert gone[0] == MANIFEST


def test_what_is_no_savepoint_is_not_removed(parent: str) -> None:
    with pytest.raises(NoSavepoint):
        dispose(parent)
    assert (Path(parent) / "offsets/4").exists()
    with pytest.raises(NoSavepoint):
        dispose(parent, unfinished=True)


def test_an_unfinished_one_is_listed_and_removed_only_when_told(parent: str, folder: str) -> None:
    arm("before-manifest=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder)
    (half,) = listed(folder)
    assert half.manifest is None
    with pytest.raises(NoSavepoint, match="never finished"):
        dispose(half.url)
    dispose(half.url, unfinished=True)
    assert listed(folder) == []


def test_the_only_way_on_of_a_sealed_job_is_not_removed_unless_forced(
    parent: str, folder: str
) -> None:
    made = take(parent, folder, seal=True)
    with pytest.raises(SavepointRefused, match="never restored"):
        dispose(made.url)
    assert dispose(made.url, force=True)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"format": 2}', b"[]"])
def test_a_torn_manifest_is_no_savepoint(parent: str, folder: str, body: bytes) -> None:
    made = take(parent, folder)
    (Path(made.url) / MANIFEST).write_bytes(body)
    with pytest.raises(NoSavepoint):
        read_manifest(open_objects(made.url), made.url)
    assert [s.manifest for s in listed(folder)] == [None]
