"""Addresses on a CheckpointVolume, and the environment variables for access to it."""

from __future__ import annotations

import pytest

from sluicegate_operator.api import locations
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings

TICK = 1_800_000_000.0
"""2027-01-15, 08:00 UTC."""

VOLUME = CheckpointVolumeSpec(bucket="data", prefix="sluice/")


def spec(path: str = "") -> StreamingJobSpec:
    checkpoint = CheckpointSettings(volume="store", path=path)
    return StreamingJobSpec(image="jobs:1", main_module="clicks", checkpoint=checkpoint)


@pytest.mark.parametrize(("prefix", "url"), [("", "s3://data"), ("a/b/", "s3://data/a/b")])
def test_an_empty_prefix_is_left_out(prefix: str, url: str) -> None:
    assert locations.volume_address(CheckpointVolumeSpec(bucket="data", prefix=prefix)) == url


def test_a_checkpoint_is_stored_below_the_jobs_name_or_path() -> None:
    assert locations.checkpoint_address(VOLUME, "clicks", spec(), 2) == "s3://data/sluice/clicks/2"
    assert (
        locations.job_address(VOLUME, "clicks", spec("old/place")) == "s3://data/sluice/old/place"
    )


def test_a_savepoint_folder_is_unique_by_uid_and_scheduled_time() -> None:
    folder = locations.savepoint_folder(VOLUME, "clicks", "daily", "0123456789", TICK)
    assert folder == "s3://data/sluice/savepoints/clicks/daily/01234567-20270115T0800Z"


def test_keys_are_left_out_without_a_credentials_secret() -> None:
    assert locations.environment(VOLUME) == {"AWS_REGION": "us-east-1"}
    plain = CheckpointVolumeSpec(bucket="data", endpoint="http://s3:1")
    assert locations.environment(plain, "k", "s") == {
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://s3:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
