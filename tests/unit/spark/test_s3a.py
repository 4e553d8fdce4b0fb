"""The S3A settings of a checkpoint's bucket."""

from sluicegate.spark.s3a import TRUSTING_FACTORY, bucket_settings
from sluicegate.storage.s3_config import S3Config


def test_a_custom_endpoint_uses_path_style_and_its_keys() -> None:
    settings = bucket_settings(S3Config("http://127.0.0.1:9000", access_key="id", secret_key="s"))
    assert settings["endpoint"] == "http://127.0.0.1:9000"
    assert settings["endpoint.region"] == "us-east-1"
    assert settings["path.style.access"] == "true"
    assert settings["connection.ssl.enabled"] == "false"
    assert (settings["access.key"], settings["secret.key"]) == ("id", "s")


def test_s3a_keeps_its_defaults() -> None:
    settings = bucket_settings(S3Config())
    assert not {"endpoint", "endpoint.region", "access.key", "aws.credentials.provider"} & set(
        settings
    )


def test_a_web_identity_sets_its_credentials_provider() -> None:
    settings = bucket_settings(S3Config(web_identity=True))
    assert "WebIdentityToken" in settings["aws.credentials.provider"]


def test_files_are_created_without_checks_before() -> None:
    assert bucket_settings(S3Config())["performance.flags"] == "create,mkdir"


def test_a_store_that_is_out_of_reach_is_tried_again_within_the_timeout_of_an_epoch() -> None:
    """Hadoop's own times are 30 and 200 seconds."""
    settings = bucket_settings(S3Config())
    assert settings["connection.establish.timeout"] == "15s"
    assert settings["connection.timeout"] == "60s"


def test_only_a_custom_ca_needs_the_trusting_client_factory() -> None:
    settings = {"AWS_ENDPOINT": "https://store", "SSL_CERT_FILE": "ca.crt"}
    assert TRUSTING_FACTORY in bucket_settings(S3Config.read(settings)).values()
    plain = {**settings, "AWS_ENDPOINT": "http://store", "AWS_ALLOW_HTTP": "true"}
    for others in (plain, {"AWS_ENDPOINT": "https://store"}):
        assert "s3.client.factory.impl" not in bucket_settings(S3Config.read(others))
