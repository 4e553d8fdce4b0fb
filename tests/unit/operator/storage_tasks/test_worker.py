"""Storage tasks on a real object store (versitygw), each in its own worker process."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.local_services import S3Endpoint
from sluicegate.savepoints.catalog import list_savepoints
from sluicegate.savepoints.manifest import MANIFEST, TAKING, end_unfinished
from sluicegate.savepoints.stop_request import Answer, StopRequestInbox
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import open_store
from sluicegate.storage.owner import Owner, claim_owner
from sluicegate.storage.s3_config import bucket_of
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import environment
from sluicegate_operator.reconcile.storage_tasks import (
    COPY,
    REQUEST,
    SEAL,
    CheckVolume,
    Delete,
    Deleted,
    Dispose,
    Disposed,
    Measure,
    Measured,
    Prune,
    Pruned,
    SavepointTaken,
    TakeSavepoint,
    Task,
    VolumeChecked,
)
from sluicegate_operator.storage_tasks.runner import TaskFailed, run
from sluicegate_operator.storage_tasks.worker import prune as worker_prune
from tests.unit.savepoints.builders import checkpoint, restore, take

TIMEOUT_S = 120.0

RunTask = Callable[[Task], Any]


@pytest.fixture
def run_task(bucket: S3Endpoint) -> RunTask:
    """Return a function that runs a task in a worker process with the bucket's keys."""
    volume = CheckpointVolumeSpec(bucket=bucket_of(bucket.url), endpoint=bucket.endpoint)
    environment_of = environment(volume, bucket.access_key, bucket.secret_key)
    return lambda task: asyncio.run(run(task, environment_of, TIMEOUT_S))


@pytest.fixture
def volume(bucket: S3Endpoint) -> str:
    """Return the address of a volume that no other test uses."""
    return f"{bucket.url}/{uuid.uuid4().hex}"


@pytest.fixture
def job(volume: str, tmp_path: Path) -> str:
    """Return a checkpoint of three epochs on the volume."""
    return copy_checkpoint(checkpoint(tmp_path / "source", 3), f"{volume}/clicks/1")


def copy_checkpoint(source: str, url: str) -> str:
    """Copy a checkpoint to the store."""
    environment_of, target = open_store(source), open_store(url)
    for name in environment_of.names(""):
        target.put(name, environment_of.stream(name) or ())
    return url


def names(url: str) -> set[str]:
    return set(open_store(url).names(""))


# --- volumes --------------------------------------------------------------------------------------


def test_volume_with_a_bucket_passes_its_check(run_task: RunTask, volume: str) -> None:
    assert run_task(
        CheckVolume(volume, make_bucket=False, region="us-east-1", access="a")
    ) == VolumeChecked(bucket_created=False)
    assert any(name.startswith("preflight/") for name in names(volume))


def test_bucket_is_created_once(store_root: S3Endpoint) -> None:
    task = CheckVolume(
        f"s3://created-{uuid.uuid4().hex}/p", make_bucket=True, region="us-east-1", access="a"
    )
    answers = [asyncio.run(run(task, store_root.environment(), TIMEOUT_S)) for _ in range(2)]
    assert answers == [VolumeChecked(bucket_created=True), VolumeChecked(bucket_created=False)]


def test_a_user_of_a_prefix_cannot_create_a_bucket(run_task: RunTask) -> None:
    task = CheckVolume(
        f"s3://none-{uuid.uuid4().hex}/p", make_bucket=True, region="us-east-1", access="a"
    )
    with pytest.raises(TaskFailed) as caught:
        run_task(task)
    assert caught.value.kind == "AccessDenied"
    assert "create the bucket by hand" in caught.value.do


def test_bucket_that_disappeared_is_not_created_again(run_task: RunTask) -> None:
    task = CheckVolume(
        f"s3://gone-{uuid.uuid4().hex}/p", make_bucket=False, region="us-east-1", access="a"
    )
    with pytest.raises(TaskFailed) as caught:
        run_task(task)
    assert caught.value.kind == "TargetMissing"
    assert "it existed before" in caught.value.what


@pytest.mark.usefixtures("job")
def test_measuring_counts_objects_and_finds_the_newest_epoch(
    run_task: RunTask, volume: str
) -> None:
    found = run_task(Measure(volume))
    assert isinstance(found, Measured)
    assert found.objects == len(names(volume))
    assert found.bytes > 0
    assert found.last_epoch_time is not None


def test_empty_volume_has_no_epoch(run_task: RunTask, volume: str) -> None:
    assert run_task(Measure(volume)) == Measured(0, 0, None)


def test_deletion_removes_everything_below_the_folder_and_nothing_else(
    run_task: RunTask, volume: str, job: str
) -> None:
    open_store(f"{volume}/clicks2").create("x", b"x")
    count = len(names(job))
    task = Delete(f"{volume}/clicks")
    assert [run_task(task), run_task(task)] == [Deleted(count), Deleted(0)]
    assert names(volume) == {"clicks2/x"}


def test_deletion_handles_more_objects_than_fit_into_a_request(
    run_task: RunTask, volume: str
) -> None:
    objects = open_store(volume)
    for i in range(1050):
        objects.create(f"many/{i}", b"x")
    assert run_task(Delete(f"{volume}/many")) == Deleted(1050)


OWN = ("CheckpointVolume", "shop", "store", "u-1")


def test_a_volume_belongs_to_the_first_that_is_checked(run_task: RunTask, volume: str) -> None:
    def check(*owner: str) -> CheckVolume:
        return CheckVolume(volume, make_bucket=False, region="us-east-1", access="a", owner=owner)

    for _ in range(2):
        assert run_task(check(*OWN)) == VolumeChecked(bucket_created=False)
    with pytest.raises(TaskFailed) as caught:
        run_task(check("CheckpointVolume", "bank", "store", "u-2"))
    assert caught.value.kind == "OwnedByAnother"
    assert "belongs to CheckpointVolume shop/store" in caught.value.what


@pytest.mark.parametrize(
    ("owner", "permitted"),
    [
        (Owner("StreamingJob", "shop", "clicks"), True),
        (Owner("StreamingJob", "bank", "clicks"), False),
        (Owner("CheckpointVolume", "shop", "nested"), False),
    ],
    ids=str,
)
def test_deletion_of_a_volume_keeps_the_data_of_others(
    run_task: RunTask,
    volume: str,
    owner: Owner,
    permitted: bool,  # noqa: FBT001 - a table
) -> None:
    claim_owner(open_store(volume), Owner(*OWN))
    claim_owner(open_store(f"{volume}/clicks"), owner)
    if permitted:
        assert run_task(Delete(volume, OWN)) == Deleted(2)
        return
    with pytest.raises(TaskFailed) as caught:
        run_task(Delete(volume, OWN))
    assert caught.value.kind == "OwnedByAnother"
    assert names(volume) == {"owner.json", "clicks/owner.json"}


def test_whole_bucket_is_never_deleted(run_task: RunTask, bucket: S3Endpoint, job: str) -> None:
    root = "/".join(bucket.url.split("/")[:3])
    with pytest.raises(TaskFailed) as caught:
        run_task(Delete(f"{root}/"))
    assert caught.value.kind == "SettingsInvalid"
    assert names(job)


# --- savepoints --------------------------------------------------------------------------------------


def test_copying_a_checkpoint_takes_a_savepoint(run_task: RunTask, volume: str, job: str) -> None:
    result = run_task(TakeSavepoint(job, f"{volume}/savepoints/clicks/daily/u", COPY))
    assert isinstance(result, SavepointTaken)
    assert (result.epoch, result.sealed) == (2, False)
    assert f"{result.location}/{MANIFEST}".removeprefix(f"{volume}/") in names(volume)


def test_repeated_task_finds_the_savepoint(run_task: RunTask, volume: str, job: str) -> None:
    task = TakeSavepoint(job, f"{volume}/savepoints/clicks/daily/u", COPY)
    assert run_task(task) == run_task(task)
    assert len(list_savepoints(task.folder)) == 1


def test_sealed_job_can_be_moved(run_task: RunTask, volume: str, job: str) -> None:
    result = run_task(TakeSavepoint(job, f"{volume}/savepoints/clicks/move/u", SEAL))
    assert result.sealed
    assert StoredEpochLog(open_store(job)).seal() is not None
    assert restore(result.location, f"{volume}/clicks/2").moved


def test_unsealed_savepoint_does_not_replace_a_sealed_one(
    run_task: RunTask, volume: str, job: str
) -> None:
    folder = f"{volume}/savepoints/clicks/move/u"
    take(job, folder)
    assert run_task(TakeSavepoint(job, folder, SEAL)).sealed


def test_running_driver_takes_the_savepoint_on_request(
    run_task: RunTask, volume: str, job: str
) -> None:
    folder = f"{volume}/savepoints/clicks/move/u"
    objects = open_store(job)
    lineage = read_lineage(objects)
    assert lineage is not None
    ended = threading.Event()

    def drive() -> None:
        inbox = StopRequestInbox(objects, lineage.id, 0.1)
        while not ended.wait(0.1):
            request = inbox.poll()
            if request is not None:
                url = take(job, request.savepoint, seal=True).url
                inbox.answer(Answer(stopped=True, message="stopped", savepoint=url))
                return

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        result = run_task(TakeSavepoint(job, folder, REQUEST))
    finally:
        ended.set()
        driver.join()
    assert result.sealed
    assert result.location == list_savepoints(folder)[0].url


def test_request_without_a_driver_is_withdrawn(run_task: RunTask, volume: str, job: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        run_task(
            TakeSavepoint(job, f"{volume}/savepoints/clicks/move/u", REQUEST, accept_timeout_s=0.1)
        )
    assert caught.value.kind == "RequestNotAccepted"
    assert StoredEpochLog(open_store(job)).seal() is None


def test_sealed_checkpoint_needs_no_request(run_task: RunTask, volume: str, job: str) -> None:
    """A Savepoint of a job that failed with Sealed makes it movable."""
    take(job, f"{volume}/elsewhere", seal=True)
    assert run_task(TakeSavepoint(job, f"{volume}/savepoints/clicks/rescue/u", REQUEST)).sealed


def test_job_without_an_epoch_cannot_be_saved(run_task: RunTask, volume: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        run_task(TakeSavepoint(f"{volume}/clicks/1", f"{volume}/savepoints/clicks/s/u"))
    assert caught.value.kind == "SavepointRefused"


def test_disposal_deletes_addresses_and_folders_including_unfinished_savepoints(
    run_task: RunTask, volume: str, job: str
) -> None:
    first = take(job, f"{volume}/savepoints/clicks/s/u-1").url
    folder = f"{volume}/savepoints/clicks/s/u-2"
    take(job, folder)
    unfinished = open_store(f"{folder}/unfinished")
    unfinished.create(TAKING, b"{}")
    unfinished.create("offsets/1", b"x")
    task = Dispose((first,), folder)
    assert [run_task(task), run_task(task)] == [Disposed(3), Disposed(0)]
    assert not names(f"{volume}/savepoints")


def test_last_savepoint_of_a_sealed_job_is_kept_unless_forced(
    run_task: RunTask, volume: str, job: str
) -> None:
    url = take(job, f"{volume}/savepoints/clicks/s/u", seal=True).url
    with pytest.raises(TaskFailed) as caught:
        run_task(Dispose((url,)))
    assert caught.value.kind == "SavepointRefused"
    assert run_task(Dispose((url,), force=True)) == Disposed(1)


# --- pruning -----------------------------------------------------------------------------------------


def test_oldest_savepoints_beyond_the_retention_are_deleted(
    run_task: RunTask, volume: str, job: str
) -> None:
    urls = [take(job, f"{volume}/savepoints/clicks/daily/u-{i}").url for i in range(4)]
    other = take(job, f"{volume}/savepoints/orders/daily/u").url
    assert run_task(Prune(volume, 2, 100)).savepoints == 2
    left = {s.url for url in (*urls, other) for s in list_savepoints(url.rpartition("/")[0])}
    assert left == {*urls[2:], other}


def test_savepoints_in_use_are_retained(run_task: RunTask, volume: str, job: str) -> None:
    referenced, in_progress = (
        take(job, f"{volume}/savepoints/clicks/{n}/u").url for n in ("a", "b")
    )
    sealed = take(job, f"{volume}/savepoints/clicks/c/u", seal=True).url
    for i in range(2):
        take(job, f"{volume}/savepoints/clicks/d/u-{i}")
    before = names(volume)
    task = Prune(volume, 1, 100, (referenced,), (in_progress.rpartition("/")[0],))
    found = run_task(task)
    # the last two come from a sealed checkpoint, so each of them can move the job
    assert found == Pruned(0, 0, 0)
    assert names(volume) == before
    assert sealed


def test_savepoints_outside_the_layout_of_resources_are_retained(
    run_task: RunTask, volume: str, job: str
) -> None:
    for i in range(3):
        take(job, f"{volume}/savepoints/by-hand-{i}")
    assert run_task(Prune(volume, 1, 100)).savepoints == 0


def test_abandoned_savepoint_is_deleted(volume: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("busy/u", "dead/u"):
        open_store(f"{volume}/savepoints/clicks/{folder}/unfinished").create(TAKING, b"{}")
    task = Prune(volume, 1, 100, in_progress=(f"{volume}/savepoints/clicks/busy/u",))
    assert worker_prune.prune(task).unfinished == 0, "it is too recent"
    monkeypatch.setattr(worker_prune, "ABANDONED_S", -60.0)
    assert worker_prune.prune(task).unfinished == 1
    assert names(f"{volume}/savepoints") == {f"clicks/busy/u/unfinished/{TAKING}"}


def test_a_savepoint_whose_disposal_was_killed_is_deleted(volume: str) -> None:
    savepoint = open_store(f"{volume}/savepoints/clicks/s/u/unfinished")
    savepoint.create("offsets/1", b"x")
    assert end_unfinished(savepoint)
    worker_prune.prune(Prune(volume, 1, 100))
    assert not names(f"{volume}/savepoints")


def test_old_records_and_staged_data_of_lost_attempts_are_deleted(
    run_task: RunTask, volume: str, job: str
) -> None:
    objects = open_store(job)
    for name in ("staging/2/lost/x", "staging/2/a2/x", "staging/3/next/x"):
        objects.create(name, b"x")
    run_task(Prune(volume, 0, 2))
    assert StoredEpochLog(objects).epochs() == [1, 2]
    assert set(objects.names("staging/")) == {"staging/2/a2/x", "staging/3/next/x"}


def test_seal_is_never_pruned(run_task: RunTask, volume: str, job: str) -> None:
    take(job, f"{volume}/elsewhere", seal=True)
    run_task(Prune(volume, 0, 1))
    assert StoredEpochLog(open_store(job)).seal() is not None


def test_probe_is_deleted_only_after_a_later_preflight_succeeded(
    volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_store(volume)
    probe = f"preflight/probe-{uuid.uuid4().hex}"
    objects.create(probe, b"1")
    monkeypatch.setattr(worker_prune, "PROBE_S", -60.0)
    assert worker_prune.prune(Prune(volume, 0, 100)).objects == 0
    objects.create(f"preflight/{'0' * 16}", b"endpoint")
    assert worker_prune.prune(Prune(volume, 0, 100)).objects == 1
    assert names(volume) == {f"preflight/{'0' * 16}"}


def test_broken_checkpoint_does_not_prevent_the_pruning_of_others(
    run_task: RunTask, volume: str, job: str
) -> None:
    broken = open_store(f"{volume}/broken/1")
    broken.create("lineage.json", b"{}")
    broken.create("epochs/0", b"sluicegate-seal-1\nnone")
    with pytest.raises(TaskFailed) as caught:
        run_task(Prune(volume, 0, 2))
    assert caught.value.kind == "EpochLogBroken"
    assert StoredEpochLog(open_store(job)).epochs() == [1, 2]
