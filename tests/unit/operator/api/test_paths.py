"""Prefixes of volumes and paths of jobs: none can reach another folder than it says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import SettingsInvalid
from sluicegate.storage.s3_config import split_s3
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.locations import job_address, volume_address
from sluicegate_operator.api.paths import PATH_PATTERN, PREFIX_PATTERN, is_reserved, overlaps
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.pods.driver import validate
from tests.unit.operator.builders import spec

HOSTILE = [
    "#",
    "?",
    "..",
    ".",
    "a/../b",
    "shop#1",
    "shop?x",
    "a//b",
    "/",
    "a/./b",
    "a\\b",
    "a b",
    "%2e",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_prefix_or_path_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid):
        parse(CheckpointVolumeSpec, {"bucket": "data", "prefix": text}, "spec")
    with pytest.raises(SettingsInvalid):
        parse(CheckpointSettings, {"volume": "store", "path": text}, "spec.checkpoint")


@given(st.from_regex(PREFIX_PATTERN, fullmatch=True), st.from_regex(PATH_PATTERN, fullmatch=True))
def test_a_permitted_address_names_exactly_its_text(prefix: str, path: str) -> None:
    """What is read, written and deleted is the volume's prefix and the job's path, nothing above."""
    volume = CheckpointVolumeSpec(bucket="data", prefix=prefix)
    job_spec = spec(checkpoint=CheckpointSettings(volume="store", path=path))
    below = f"{prefix.strip('/')}/{path.strip('/')}"
    assert split_s3(volume_address(volume)) == ("data", prefix.strip("/"))
    assert split_s3(job_address(volume, "clicks", job_spec)) == ("data", below)


@given(st.text(alphabet="ab./#?\\ ", max_size=8))
def test_an_address_is_its_text_or_is_refused(text: str) -> None:
    """`urlsplit` ends a path at '#' or '?', so the rest would be a parent folder."""
    try:
        bucket, prefix = split_s3(f"s3://data/shop/{text}")
    except SettingsInvalid:
        return
    assert (bucket, prefix) == ("data", f"shop/{text}".strip("/"))
    assert not {"", ".", ".."} & set(prefix.split("/"))


@pytest.mark.parametrize("path", ["savepoints", "/savepoints/x", "preflight", "owner.json"])
def test_a_name_that_the_operator_uses_is_refused(path: str) -> None:
    assert is_reserved(path)
    with pytest.raises(SettingsInvalid, match="must not begin with savepoints"):
        parse(CheckpointSettings, {"volume": "store", "path": path}, "spec.checkpoint")


@pytest.mark.parametrize("path", ["savepoints2", "team/savepoints", "a.b/c-d"])
def test_other_names_are_permitted(path: str) -> None:
    assert not is_reserved(path)
    assert re.fullmatch(PATH_PATTERN, path)


def test_a_job_whose_name_is_reserved_needs_a_path() -> None:
    error = validate("savepoints", spec())
    assert error is not None
    assert "set checkpoint.path" in error.do
    named: StreamingJobSpec = spec(checkpoint=CheckpointSettings(volume="store", path="mine"))
    assert validate("savepoints", named) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("s3://b/team", "s3://b/team", True),
        ("s3://b/team", "s3://b/team/", True),
        ("s3://b/team", "s3://b/team/clicks", True),
        ("s3://b", "s3://b/team", True),
        ("s3://b/team", "s3://b/team2", False),
        ("s3://b/team", "s3://c/team", False),
    ],
)
def test_folders_overlap_if_one_contains_the_other(one: str, other: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert overlaps(one, other) is expected
    assert overlaps(other, one) is expected
