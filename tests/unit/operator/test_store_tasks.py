"""Tasks on a real object store, each in its child process: versitygw, and a checkpoint made by hand."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.embedded import S3Endpoint
from sluicegate.checkpoint.manifest import MANIFEST, TAKING
from sluicegate.checkpoint.requests import Answer, StopDesk
from sluicegate.checkpoint.restoring import restore
from sluicegate.checkpoint.savepoints import listed, take
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import open_objects
from sluicegate.storage.s3 import bucket_of
from sluicegate_operator.resources.addresses import environment
from sluicegate_operator.resources.volume import CheckpointVolumeSpec
from sluicegate_operator.store.child import pruning
from sluicegate_operator.store.running import TaskFailed, run
from sluicegate_operator.volumes.tasks import (
    ASK,
    BESIDE,
    SEAL,
    Delete,
    Deleted,
    Dispose,
    Disposed,
    Exists,
    Found,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Prune,
    Pruned,
    SavepointTaken,
    Take,
    Task,
)
from tests.unit.checkpoint.made import checkpoint

PATIENCE_S = 120.0

Do = Callable[[Task], Any]


@pytest.fixture
def do(bucket: S3Endpoint) -> Do:
    """Give what does a task in a child process, with the bucket's keys."""
    volume = CheckpointVolumeSpec(bucket=bucket_of(bucket.url), endpoint=bucket.endpoint)
    given = environment(volume, bucket.access_key, bucket.secret_key)
    return lambda task: asyncio.run(run(task, given, PATIENCE_S))


@pytest.fixture
def volume(bucket: S3Endpoint) -> str:
    """Give the address of a volume that nobody else uses."""
    return f"{bucket.url}/{uuid.uuid4().hex}"


@pytest.fixture
def job(volume: str, tmp_path: Path) -> str:
    """Give a checkpoint of three epochs on the volume."""
    return copied(checkpoint(tmp_path / "made", 3), f"{volume}/clicks/1")


def copied(source: str, url: str) -> str:
    """Copy a checkpoint onto the store."""
    given, target = open_objects(source), open_objects(url)
    for name in given.names(""):
        target.put(name, given.chunks(name) or ())
    return url


def names(url: str) -> set[str]:
    return set(open_objects(url).names(""))


# --- the volume --------------------------------------------------------------------------------------


def test_a_volume_whose_bucket_is_there_is_fit(do: Do, volume: str) -> None:
    assert do(Prepare(volume, make_bucket=False, region="us-east-1", access="a")) == Prepared(
        made=False
    )
    assert any(name.startswith("preflight/") for name in names(volume))


def test_a_bucket_is_made_once(do: Do) -> None:
    task = Prepare(
        f"s3://made-{uuid.uuid4().hex}/p", make_bucket=True, region="us-east-1", access="a"
    )
    assert [do(task), do(task)] == [Prepared(made=True), Prepared(made=False)]


def test_a_bucket_that_has_gone_is_not_made_again(do: Do) -> None:
    task = Prepare(
        f"s3://gone-{uuid.uuid4().hex}/p", make_bucket=False, region="us-east-1", access="a"
    )
    with pytest.raises(TaskFailed) as caught:
        do(task)
    assert caught.value.kind == "TargetMissing"
    assert "it was there before" in caught.value.what


@pytest.mark.usefixtures("job")
def test_objects_are_counted_and_the_newest_epoch_found(do: Do, volume: str) -> None:
    found = do(Measure(volume))
    assert isinstance(found, Measured)
    assert found.objects == len(names(volume))
    assert found.bytes > 0
    assert found.last_epoch_time is not None


def test_an_empty_volume_has_no_epoch(do: Do, volume: str) -> None:
    assert do(Measure(volume)) == Measured(0, 0, None)


@pytest.mark.usefixtures("job")
def test_whether_there_is_anything_is_told_of_the_very_folder(do: Do, volume: str) -> None:
    assert do(Exists(f"{volume}/clicks")) == Found(exists=True)
    assert do(Exists(f"{volume}/click")) == Found(exists=False)


def test_everything_below_a_folder_is_deleted_and_nothing_beside(
    do: Do, volume: str, job: str
) -> None:
    open_objects(f"{volume}/clicks2").create("x", b"x")
    count = len(names(job))
    task = Delete(f"{volume}/clicks")
    assert [do(task), do(task)] == [Deleted(count), Deleted(0)]
    assert names(volume) == {"clicks2/x"}


def test_more_objects_than_a_request_takes_are_deleted(do: Do, volume: str) -> None:
    objects = open_objects(volume)
    for i in range(1050):
        objects.create(f"many/{i}", b"")
    assert do(Delete(f"{volume}/many")) == Deleted(1050)


def test_a_whole_bucket_is_never_deleted(do: Do, bucket: S3Endpoint, job: str) -> None:
    root = "/".join(bucket.url.split("/")[:3])
    with pytest.raises(TaskFailed) as caught:
        do(Delete(f"{root}/"))
    assert caught.value.kind == "SettingsInvalid"
    assert names(job)


# --- savepoints --------------------------------------------------------------------------------------


def test_a_savepoint_is_taken_beside_the_job(do: Do, volume: str, job: str) -> None:
    made = do(Take(job, f"{volume}/savepoints/clicks/daily/u", BESIDE))
    assert isinstance(made, SavepointTaken)
    assert (made.epoch, made.sealed) == (2, False)
    assert f"{made.location}/{MANIFEST}".removeprefix(f"{volume}/") in names(volume)


def test_who_takes_it_again_finds_it(do: Do, volume: str, job: str) -> None:
    task = Take(job, f"{volume}/savepoints/clicks/daily/u", BESIDE)
    assert do(task) == do(task)
    assert len(listed(task.folder)) == 1


def test_a_stopped_job_is_sealed_and_can_be_moved(do: Do, volume: str, job: str) -> None:
    made = do(Take(job, f"{volume}/savepoints/clicks/move/u", SEAL))
    assert made.sealed
    assert StoredEpochLog(open_objects(job)).seal() is not None
    assert restore(made.location, f"{volume}/clicks/2").moved


def test_a_savepoint_without_a_seal_does_not_stand_for_one(do: Do, volume: str, job: str) -> None:
    folder = f"{volume}/savepoints/clicks/move/u"
    take(job, folder)
    assert do(Take(job, folder, SEAL)).sealed


def test_a_running_driver_is_asked_and_takes_it_itself(do: Do, volume: str, job: str) -> None:
    folder = f"{volume}/savepoints/clicks/move/u"
    objects = open_objects(job)
    lineage = read_lineage(objects)
    assert lineage is not None
    ended = threading.Event()

    def drive() -> None:
        desk = StopDesk(objects, lineage.id, 0.1)
        while not ended.wait(0.1):
            request = desk.asked()
            if request is not None:
                url = take(job, request.savepoint, seal=True).url
                desk.answer(Answer(stopped=True, said="stopped", savepoint=url))
                return

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        made = do(Take(job, folder, ASK))
    finally:
        ended.set()
        driver.join()
    assert made.sealed
    assert made.location == listed(folder)[0].url


def test_a_driver_that_does_not_answer_leaves_the_job_as_it_is(
    do: Do, volume: str, job: str
) -> None:
    with pytest.raises(TaskFailed) as caught:
        do(Take(job, f"{volume}/savepoints/clicks/move/u", ASK, hold_s=0.1))
    assert caught.value.kind == "NotTakenUp"
    assert StoredEpochLog(open_objects(job)).seal() is None


def test_a_checkpoint_that_is_sealed_already_is_not_asked(do: Do, volume: str, job: str) -> None:
    """The job's failure Sealed is mended by a Savepoint of it."""
    take(job, f"{volume}/elsewhere", seal=True)
    assert do(Take(job, f"{volume}/savepoints/clicks/rescue/u", ASK)).sealed


def test_a_job_without_an_epoch_has_nothing_to_save(do: Do, volume: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        do(Take(f"{volume}/clicks/1", f"{volume}/savepoints/clicks/s/u"))
    assert caught.value.kind == "SavepointRefused"


def test_savepoints_are_removed_by_address_and_by_folder_also_half_ones(
    do: Do, volume: str, job: str
) -> None:
    first = take(job, f"{volume}/savepoints/clicks/s/u-1").url
    folder = f"{volume}/savepoints/clicks/s/u-2"
    take(job, folder)
    half = open_objects(f"{folder}/half")
    half.create(TAKING, b"{}")
    half.create("offsets/1", b"x")
    task = Dispose((first,), folder)
    assert [do(task), do(task)] == [Disposed(3), Disposed(0)]
    assert not names(f"{volume}/savepoints")


def test_the_only_way_on_of_a_sealed_job_is_kept_unless_forced(
    do: Do, volume: str, job: str
) -> None:
    url = take(job, f"{volume}/savepoints/clicks/s/u", seal=True).url
    with pytest.raises(TaskFailed) as caught:
        do(Dispose((url,)))
    assert caught.value.kind == "SavepointRefused"
    assert do(Dispose((url,), force=True)) == Disposed(1)


# --- pruning -----------------------------------------------------------------------------------------


def test_the_oldest_savepoints_over_the_retention_go(do: Do, volume: str, job: str) -> None:
    urls = [take(job, f"{volume}/savepoints/clicks/daily/u-{i}").url for i in range(4)]
    other = take(job, f"{volume}/savepoints/orders/daily/u").url
    assert do(Prune(volume, 2, 100)).savepoints == 2
    left = {s.url for url in (*urls, other) for s in listed(url.rpartition("/")[0])}
    assert left == {*urls[2:], other}


def test_savepoints_that_are_named_busy_or_the_only_way_on_stay(
    do: Do, volume: str, job: str
) -> None:
    named, busy = (take(job, f"{volume}/savepoints/clicks/{n}/u").url for n in ("a", "b"))
    sealed = take(job, f"{volume}/savepoints/clicks/c/u", seal=True).url
    for i in range(2):
        take(job, f"{volume}/savepoints/clicks/d/u-{i}")
    before = names(volume)
    task = Prune(volume, 1, 100, (named,), (busy.rpartition("/")[0],))
    found = do(task)
    # the last two are of a sealed checkpoint, so each of them moves the job too
    assert found == Pruned(0, 0, 0)
    assert names(volume) == before
    assert sealed


def test_what_people_put_beside_is_theirs(do: Do, volume: str, job: str) -> None:
    for i in range(3):
        take(job, f"{volume}/savepoints/by-hand-{i}")
    assert do(Prune(volume, 1, 100)).savepoints == 0


def test_an_unfinished_savepoint_goes_when_its_taker_must_be_dead(
    volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("busy/u", "dead/u"):
        open_objects(f"{volume}/savepoints/clicks/{folder}/half").create(TAKING, b"{}")
    task = Prune(volume, 1, 100, busy=(f"{volume}/savepoints/clicks/busy/u",))
    assert pruning.prune(task).unfinished == 0, "it is young"
    monkeypatch.setattr(pruning, "DEAD_S", -60.0)
    assert pruning.prune(task).unfinished == 1
    assert names(f"{volume}/savepoints") == {f"clicks/busy/u/half/{TAKING}"}


def test_records_over_the_retention_and_what_lost_tries_staged_go(
    do: Do, volume: str, job: str
) -> None:
    objects = open_objects(job)
    for name in ("staging/2/lost/x", "staging/2/a2/x", "staging/3/next/x"):
        objects.create(name, b"x")
    do(Prune(volume, 0, 2))
    assert StoredEpochLog(objects).epochs() == [1, 2]
    assert set(objects.names("staging/")) == {"staging/2/a2/x", "staging/3/next/x"}


def test_the_seal_is_never_pruned(do: Do, volume: str, job: str) -> None:
    take(job, f"{volume}/elsewhere", seal=True)
    do(Prune(volume, 0, 1))
    assert StoredEpochLog(open_objects(job)).seal() is not None


def test_a_probe_goes_only_when_a_later_preflight_has_passed(
    volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(volume)
    probe = f"preflight/probe-{uuid.uuid4().hex}"
    objects.create(probe, b"1")
    monkeypatch.setattr(pruning, "PROBE_S", -60.0)
    assert pruning.prune(Prune(volume, 0, 100)).objects == 0
    objects.create(f"preflight/{'0' * 16}", b"endpoint")
    assert pruning.prune(Prune(volume, 0, 100)).objects == 1
    assert names(volume) == {f"preflight/{'0' * 16}"}


def test_a_broken_checkpoint_does_not_keep_the_others_from_being_pruned(
    do: Do, volume: str, job: str
) -> None:
    broken = open_objects(f"{volume}/broken/1")
    broken.create("lineage.json", b"{}")
    broken.create("epochs/0", b"sluicegate-seal-1\nnone")
    with pytest.raises(TaskFailed) as caught:
        do(Prune(volume, 0, 2))
    assert caught.value.kind == "EpochLogBroken"
    assert StoredEpochLog(open_objects(job)).epochs() == [1, 2]
