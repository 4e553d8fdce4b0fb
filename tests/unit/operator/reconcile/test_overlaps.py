"""Folders that two resources would share: the older one has it."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.reconcile.observed import Job, Volume
from sluicegate_operator.reconcile.overlaps import job_with_path, overlapping
from tests.unit.operator import builders, volume_builders
from tests.unit.operator.builders import NOW


def volume(prefix: str, age: int, endpoint: str = "", **changes: Any) -> Volume:
    """Return a volume of some age in seconds."""
    spec = CheckpointVolumeSpec(bucket="data", prefix=prefix, endpoint=endpoint)
    changes = {"uid": f"u-{age}", "created_at": NOW - age, **changes}
    return volume_builders.volume(spec, **changes)


def job(path: str, age: int, of: str = "store", **changes: Any) -> Job:
    """Return a job of some age in seconds, on a volume."""
    spec = builders.spec(checkpoint=CheckpointSettings(volume=of, path=path))
    made = builders.job(spec, created_at=NOW - age, **changes)
    return Job(**{**vars(made), "uid": f"u-{age}", "name": f"job-{age}"})


@pytest.mark.parametrize("prefix", ["streams/a", "streams/a/", "streams", "", "streams/a/b"])
def test_the_younger_of_two_volumes_is_refused(prefix: str) -> None:
    older, younger = volume("streams/a", 20), volume(prefix, 10)
    assert overlapping(younger, [older, younger]) is older
    assert overlapping(older, [older, younger]) is None


def test_data_is_not_deleted_while_another_volume_has_a_part_of_it() -> None:
    """Both may exist since before the operator refused that."""
    older, younger = volume("streams", 20, deleted_at=NOW), volume("streams/a", 10)
    assert overlapping(older, [older, younger]) is younger


@pytest.mark.parametrize(
    "other",
    [volume("streams2", 20), volume("streams", 20, "http://other:7070")],
    ids=["name", "store"],
)
def test_other_volumes_do_not_overlap(other: Volume) -> None:
    assert overlapping(volume("streams", 10), [other]) is None


@pytest.mark.parametrize("path", ["team", "team/clicks", "team/clicks/1", "/team/clicks/"])
def test_the_younger_of_two_jobs_is_refused(path: str) -> None:
    """`team` with onCancel Delete would delete `team/clicks`; two equal paths run two drivers on one."""
    older, younger = job("team/clicks", 20), job(path, 10)
    both = [older, younger]
    assert job_with_path(younger, both) is older
    assert job_with_path(older, both) is None


def test_a_checkpoint_is_not_deleted_while_another_job_has_a_part_of_it() -> None:
    older, younger = job("team", 20, deleted=True), job("team/clicks", 10)
    assert job_with_path(older, [older, younger]) is younger


def test_a_job_that_has_had_a_driver_keeps_its_path_whatever_its_age() -> None:
    """Creation times are in whole seconds, and a resource that was restored from a backup is younger."""
    used, older = job("team", 10, status=builders.ended()), job("team", 20)
    assert job_with_path(older, [used, older]) is used
    assert job_with_path(used, [used, older]) is None


def test_a_volume_that_was_checked_keeps_its_folder_whatever_its_age() -> None:
    used, older = volume("a", 10, status=volume_builders.healthy()), volume("a", 20)
    assert overlapping(older, [used, older]) is used
    assert overlapping(used, [used, older]) is None


def test_jobs_on_different_volumes_may_have_the_same_path() -> None:
    assert job_with_path(job("team", 10, of="archive"), [job("team", 20)]) is None


def test_a_job_without_a_path_has_its_name_as_path() -> None:
    older, younger = job("", 20), job("job-20/a", 10)
    assert job_with_path(younger, [older, younger]) is older
    assert job_with_path(job("", 5), [older, younger]) is None
