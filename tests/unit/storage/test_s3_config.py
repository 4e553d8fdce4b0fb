"""The AWS_* variables as Sluicegate reads them for Spark."""

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate.storage.s3_config import S3Config, bucket_of, is_s3

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_an_empty_environment_means_amazons_endpoint_and_the_machines_role() -> None:
    assert S3Config.read({}) == S3Config()


def test_endpoint_and_region_are_read_from_either_name() -> None:
    config = S3Config.read({"AWS_ENDPOINT_URL": "https://s3.example/", "AWS_DEFAULT_REGION": "r"})
    assert (config.endpoint, config.region) == ("https://s3.example", "r")


def test_two_different_endpoints_are_rejected() -> None:
    with pytest.raises(SettingsInvalid, match="name different S3 endpoints"):
        S3Config.read({"AWS_ENDPOINT": "https://a", "AWS_ENDPOINT_URL": "https://b"})


def test_an_endpoint_of_s3_alone_counts_too() -> None:
    """Obstore prefers it: Spark would use another store."""
    only = {"AWS_ENDPOINT_URL_S3": "https://a"}
    assert S3Config.read(only).endpoint == "https://a"
    with pytest.raises(SettingsInvalid, match="name different S3 endpoints"):
        S3Config.read(only | {"AWS_ENDPOINT": "https://b"})


@pytest.mark.parametrize("name", KEYS)
def test_one_key_without_the_other_is_rejected(name: str) -> None:
    with pytest.raises(SettingsInvalid, match="only one"):
        S3Config.read({name: "x"})


def test_plain_http_must_be_allowed() -> None:
    plain = {"AWS_ENDPOINT": "http://127.0.0.1:1"}
    with pytest.raises(SettingsInvalid, match="AWS_ALLOW_HTTP"):
        S3Config.read(plain)
    assert S3Config.read({**plain, "AWS_ALLOW_HTTP": "true"}).endpoint == plain["AWS_ENDPOINT"]


def test_every_setting_is_read() -> None:
    environment = {
        **KEYS,
        "AWS_ENDPOINT": "https://s3.example",
        "AWS_REGION": "r",
        "AWS_SESSION_TOKEN": "token",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/token",
        "SSL_CERT_FILE": "/ca.pem",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    }
    keys = ("id", "secret", "token")
    everything = S3Config(
        "https://s3.example", "r", *keys, web_identity=True, ca_file="/ca.pem", virtual_hosts=True
    )
    assert S3Config.read(environment) == everything


def test_an_endpoint_without_tls_needs_no_authorities() -> None:
    plain = {"AWS_ENDPOINT": "http://h", "AWS_ALLOW_HTTP": "1", "SSL_CERT_FILE": "/ca.pem"}
    assert S3Config.read(plain).ca_file == ""


@pytest.mark.parametrize("url", ["s3://b/a\x07", "s3:///a", "s3://b/a//c", "s3://b/a\\c"])
def test_an_address_that_clients_read_differently_is_refused(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="is not an S3 URL"):
        bucket_of(url)


def test_secrets_are_not_in_the_repr() -> None:
    assert "secret" not in repr(S3Config.read(KEYS)).replace("secret_key", "")


@pytest.mark.parametrize(("url", "s3"), [("s3://b/p", True), ("s3a://b", True), ("/s3/b", False)])
def test_an_address_on_s3_is_recognized_by_its_scheme(url: str, s3: bool) -> None:  # noqa: FBT001 - a parameter
    assert is_s3(url) == s3
    assert not s3 or bucket_of(url) == "b"
