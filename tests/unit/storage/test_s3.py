"""The AWS_* variables, as Sluicegate reads them for Spark."""

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.storage.s3 import S3Environment, bucket_of, is_s3

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_nothing_set_is_amazons_endpoint_and_the_machines_role() -> None:
    assert S3Environment.read({}) == S3Environment()


def test_either_name_of_the_endpoint_and_of_the_region_counts() -> None:
    read = S3Environment.read(
        {"AWS_ENDPOINT_URL": "https://s3.example/", "AWS_DEFAULT_REGION": "r"}
    )
    assert (read.endpoint, read.region) == ("https://s3.example", "r")


def test_two_endpoints_are_refused_because_spark_and_we_might_take_each_another() -> None:
    with pytest.raises(SettingsInvalid, match="two different"):
        S3Environment.read({"AWS_ENDPOINT": "https://a", "AWS_ENDPOINT_URL": "https://b"})


@pytest.mark.parametrize("name", KEYS)
def test_half_a_pair_of_keys_is_refused(name: str) -> None:
    with pytest.raises(SettingsInvalid, match="only one"):
        S3Environment.read({name: "x"})


def test_an_endpoint_without_encryption_must_be_allowed() -> None:
    plain = {"AWS_ENDPOINT": "http://127.0.0.1:1"}
    with pytest.raises(SettingsInvalid, match="AWS_ALLOW_HTTP"):
        S3Environment.read(plain)
    assert S3Environment.read({**plain, "AWS_ALLOW_HTTP": "true"}).endpoint == plain["AWS_ENDPOINT"]


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(S3Environment.read(KEYS)).replace("secret_key", "")


@pytest.mark.parametrize(("url", "s3"), [("s3://b/p", True), ("s3a://b", True), ("/s3/b", False)])
def test_a_url_of_s3_is_known_by_its_scheme(url: str, s3: bool) -> None:  # noqa: FBT001 - a parameter
    assert is_s3(url) == s3
    assert not s3 or bucket_of(url) == "b"
