"""What S3A is told of a checkpoint's bucket."""

from sluicegate.spark.s3 import TRUSTING_FACTORY, bucket_settings
from sluicegate.storage.s3 import S3Environment


def test_an_endpoint_of_ones_own_is_reached_by_path_with_its_keys() -> None:
    told = bucket_settings(S3Environment("http://127.0.0.1:9000", access_key="id", secret_key="s"))
    assert told["endpoint"] == "http://127.0.0.1:9000"
    assert told["endpoint.region"] == "us-east-1"
    assert told["path.style.access"] == "true"
    assert told["connection.ssl.enabled"] == "false"
    assert (told["access.key"], told["secret.key"]) == ("id", "s")


def test_what_is_not_named_is_left_to_s3a() -> None:
    told = bucket_settings(S3Environment())
    assert not {"endpoint", "endpoint.region", "access.key", "aws.credentials.provider"} & set(told)


def test_a_role_by_token_needs_its_provider_named() -> None:
    told = bucket_settings(S3Environment(web_identity=True))
    assert "WebIdentityToken" in told["aws.credentials.provider"]


def test_no_file_is_looked_for_before_it_is_created() -> None:
    assert bucket_settings(S3Environment())["performance.flags"] == "create,mkdir"


def test_only_authorities_of_ones_own_need_a_maker_of_clients() -> None:
    told = {"AWS_ENDPOINT": "https://store", "SSL_CERT_FILE": "ca.crt"}
    assert TRUSTING_FACTORY in bucket_settings(S3Environment.read(told)).values()
    plain = {**told, "AWS_ENDPOINT": "http://store", "AWS_ALLOW_HTTP": "true"}
    for others in (plain, {"AWS_ENDPOINT": "https://store"}):
        assert "s3.client.factory.impl" not in bucket_settings(S3Environment.read(others))
