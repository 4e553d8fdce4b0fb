"""Where things are on a CheckpointVolume, and the variables by which a process reaches it."""

from __future__ import annotations

import pytest

from sluicegate_operator.resources import addresses
from sluicegate_operator.resources.job import CheckpointSettings
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

from .made import NOW, spec

VOLUME = CheckpointVolumeSpec(bucket="data", prefix="sluice/")


@pytest.mark.parametrize(("prefix", "url"), [("", "s3://data"), ("a/b/", "s3://data/a/b")])
def test_a_prefix_is_left_out_if_it_is_empty(prefix: str, url: str) -> None:
    assert addresses.volume_address(CheckpointVolumeSpec(bucket="data", prefix=prefix)) == url


def test_a_checkpoint_is_below_the_jobs_name_or_its_path() -> None:
    other = spec(checkpoint=CheckpointSettings(volume="store", path="old/place"))
    assert addresses.checkpoint_address(VOLUME, "clicks", spec(), 2) == "s3://data/sluice/clicks/2"
    assert addresses.job_address(VOLUME, "clicks", other) == "s3://data/sluice/old/place"


def test_a_savepoints_folder_is_its_own_by_uid_and_tick() -> None:
    folder = addresses.savepoint_folder(VOLUME, "clicks", "daily", "0123456789", NOW)
    assert folder == "s3://data/sluice/savepoints/clicks/daily/01234567-20270115T0800Z"


def test_keys_are_left_out_where_the_pod_has_an_identity() -> None:
    assert addresses.environment(VOLUME) == {"AWS_REGION": "us-east-1"}
    plain = CheckpointVolumeSpec(bucket="data", endpoint="http://s3:1")
    assert addresses.environment(plain, "k", "s") == {
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://s3:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
