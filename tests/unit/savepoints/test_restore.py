"""Restoring savepoints of a checkpoint built by the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluicegate import failpoints
from sluicegate.errors import CheckpointOfAnotherJob, SavepointInvalid, SavepointRefused
from sluicegate.failpoints import FailpointHit, arm
from sluicegate.savepoints import copy
from sluicegate.savepoints import restore as savepoints_restore
from sluicegate.savepoints.manifest import MANIFEST, read_ancestry
from sluicegate.storage.lineage import (
    RESTORING,
    Lineage,
    claim_lineage,
    create_lineage,
    read_lineage,
)
from sluicegate.storage.object_store import LocalObjectStore, open_store
from tests.unit.savepoints.builders import STORE, restore, take


def test_a_restored_checkpoint_is_a_new_lineage_from_the_next_epoch(
    parent: str, folder: str, tmp_path: Path
) -> None:
    new = str(tmp_path / "new")
    lineage = restore(take(parent, folder).url, new)
    assert lineage == read_lineage(open_store(new))
    old = claim_lineage(open_store(parent), "j")
    assert (lineage.parent, lineage.first_epoch, lineage.job) == (old.id, 5, "j")
    assert lineage.id != old.id


def test_a_restored_checkpoint_has_sparks_files_but_none_of_the_lineage(
    parent: str, folder: str, tmp_path: Path
) -> None:
    restore(take(parent, folder).url, str(tmp_path / "new"))
    names = set(open_store(str(tmp_path / "new")).names(""))
    logs = {f"{log}/{n}" for log in ("offsets", "commits") for n in (3, 4)}
    assert names == logs | {f"sources/0/{n}" for n in range(5)} | {
        f"{STORE}{v}.delta" for v in range(1, 6)
    } | {"metadata", "lineage.json", "ancestry.json", "parent/epoch"}
    assert json.loads((tmp_path / "new/metadata").read_bytes())["id"] != "parent"


def test_a_restored_checkpoint_knows_what_its_parent_wrote(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint = take(parent, folder)
    restore(savepoint.url, str(tmp_path / "new"))
    assert savepoint.manifest is not None
    assert read_ancestry(open_store(str(tmp_path / "new"))) == savepoint.manifest.ancestry


def test_a_manifest_that_names_a_file_outside_of_the_checkpoint_is_not_restored(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint = take(parent, folder)
    stored = Path(savepoint.url) / MANIFEST
    body = json.loads(stored.read_text())
    body["files"]["../.profile"] = next(iter(body["files"].values()))
    stored.write_text(json.dumps(body))
    with pytest.raises(SavepointInvalid, match="would be outside of the checkpoint"):
        restore(savepoint.url, str(tmp_path / "restored" / "1"))
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_damaged_savepoint_is_not_restored(
    parent: str, folder: str, tmp_path: Path, how: str
) -> None:
    savepoint = take(parent, folder)
    file = Path(savepoint.url) / STORE / "2.delta"
    file.write_bytes(b"delta X") if how == "changed" else file.unlink()
    with pytest.raises(SavepointInvalid, match=r"2\.delta"):
        restore(savepoint.url, str(tmp_path / "new"))
    with pytest.raises(CheckpointOfAnotherJob, match="is incomplete"):
        claim_lineage(open_store(str(tmp_path / "new")), "j")


def test_a_restore_into_a_folder_that_is_not_empty_is_rejected(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint = take(parent, folder)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").touch()
    with pytest.raises(SavepointRefused, match="not empty"):
        restore(savepoint.url, str(tmp_path / "new"))


def test_an_interrupted_restore_is_resumed(parent: str, folder: str, tmp_path: Path) -> None:
    savepoint, new = take(parent, folder, seal=True), str(tmp_path / "new")
    arm("restore-copying=raise")
    with pytest.raises(FailpointHit):
        restore(savepoint.url, new)
    arm("")
    assert restore(savepoint.url, new).moved
    with pytest.raises(SavepointRefused, match="not empty"):
        restore(savepoint.url, new)


def test_an_interrupted_restore_is_not_resumed_from_another_savepoint(
    parent: str, folder: str, tmp_path: Path
) -> None:
    first, other, new = take(parent, folder), take(parent, folder), str(tmp_path / "new")
    arm("restore-copying=raise")
    with pytest.raises(FailpointHit):
        restore(first.url, new)
    arm("")
    with pytest.raises(SavepointRefused, match="not empty"):
        restore(other.url, new)


def test_a_move_that_was_interrupted_is_not_resumed_as_a_branch(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint, new = take(parent, folder, seal=True), str(tmp_path / "new")
    arm("restore-copying=raise")
    with pytest.raises(FailpointHit):
        restore(savepoint.url, new)
    arm("")
    with pytest.raises(SavepointRefused, match="not empty"):
        restore(savepoint.url, new, branch=True)


def test_a_sealed_savepoint_moves_once_and_branches_on_request(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint = take(parent, folder, seal=True)
    assert restore(savepoint.url, str(tmp_path / "moved")).moved
    with pytest.raises(SavepointRefused, match="was moved already: it was restored into"):
        restore(savepoint.url, str(tmp_path / "again"))
    assert not (tmp_path / "again").exists()
    assert not restore(savepoint.url, str(tmp_path / "branch"), branch=True).moved


def test_of_two_moves_at_the_same_time_one_succeeds(
    parent: str, folder: str, tmp_path: Path
) -> None:
    """The other copies its files meanwhile, and no job starts on them."""
    savepoint = take(parent, folder, seal=True).url
    first, other = str(tmp_path / "first"), str(tmp_path / "other")

    def move() -> None:
        arm("")
        assert restore(savepoint, first).moved

    failpoints.hook("move", move)
    arm("restore-copying=move")
    with pytest.raises(SavepointRefused, match=f"it was restored into {first}"):
        restore(savepoint, other)
    with pytest.raises(CheckpointOfAnotherJob, match="is incomplete"):
        claim_lineage(open_store(other), "j")


@pytest.mark.parametrize("same_sinks", [False, True])
def test_the_last_attempt_of_a_restore_says_whether_a_branch_may_use_the_same_sinks(
    parent: str,
    folder: str,
    tmp_path: Path,
    same_sinks: bool,  # noqa: FBT001
) -> None:
    savepoint, new = take(parent, folder).url, str(tmp_path / "new")
    arm("restore-copying=raise")
    with pytest.raises(FailpointHit):
        restore(savepoint, new, same_sinks=not same_sinks)
    arm("")
    assert restore(savepoint, new, same_sinks=same_sinks).same_sinks is same_sinks
    assert claim_lineage(open_store(new), "j").same_sinks is same_sinks


def test_a_restored_job_that_has_not_run_cannot_be_saved(
    parent: str, folder: str, tmp_path: Path
) -> None:
    restore(take(parent, folder).url, str(tmp_path / "new"))
    with pytest.raises(SavepointRefused, match="no epoch"):
        take(str(tmp_path / "new"), folder)


def test_a_restore_that_is_killed_before_its_last_step_is_finished_by_the_next(
    parent: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied or changed: the job may have started meanwhile."""
    savepoint, new = take(parent, folder, seal=True).url, tmp_path / "new"
    delete = LocalObjectStore.delete

    def killed(self: LocalObjectStore, name: str) -> None:
        if name == RESTORING:
            raise KeyboardInterrupt
        delete(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalObjectStore, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            restore(savepoint, str(new))
    (new / "offsets/4").write_bytes(b"of the job")
    restored = restore(savepoint, str(new), same_sinks=True)
    assert restored == read_lineage(open_store(str(new)))
    assert not restored.same_sinks
    assert (new / "offsets/4").read_bytes() == b"of the job"
    assert not (new / RESTORING).exists()


@contextmanager
def job_started_during_a_restore_into(checkpoint: str) -> Iterator[None]:
    """Start a job on the checkpoint once the files of a savepoint are copied."""

    def copied_and_started(*given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        copy.copy_verified(*given, **named)
        create_lineage(open_store(checkpoint), Lineage("of a driver", "j"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(savepoints_restore, "copy_verified", copied_and_started)
        yield


def test_a_restore_fails_if_a_job_was_started_on_the_checkpoint_meanwhile(
    parent: str, folder: str, tmp_path: Path
) -> None:
    """The savepoint can still be restored elsewhere, but not there."""
    savepoint, new = take(parent, folder, seal=True).url, str(tmp_path / "new")
    with (
        job_started_during_a_restore_into(new),
        pytest.raises(SavepointRefused, match="a job was started on"),
    ):
        restore(savepoint, new)
    with pytest.raises(SavepointRefused, match="is not empty"):
        restore(savepoint, new)
    assert restore(savepoint, str(tmp_path / "another")).moved


def test_a_branch_that_fails_does_not_let_the_job_move_again(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint, branch = take(parent, folder, seal=True).url, str(tmp_path / "branch")
    restore(savepoint, str(tmp_path / "moved"))
    with (
        job_started_during_a_restore_into(branch),
        pytest.raises(SavepointRefused, match="a job was started on"),
    ):
        restore(savepoint, branch, branch=True)
    with pytest.raises(SavepointRefused, match="was moved already"):
        restore(savepoint, str(tmp_path / "again"))
