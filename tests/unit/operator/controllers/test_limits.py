"""What the platform's administrator permits in each namespace."""

from __future__ import annotations

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.codec import parse
from sluicegate_operator.controllers.limits import AmbientPlace, Limits, NotPermitted

LIMITS = Limits(
    account=("system", "operator"), ambient=(AmbientPlace.parse("shop=s3://data/shop"),)
)


def at(endpoint: str) -> CheckpointVolumeSpec:
    """Return a volume with a Secret at an endpoint."""
    return CheckpointVolumeSpec(bucket="b", endpoint=endpoint, credentials_secret="keys")


@pytest.mark.parametrize(
    ("namespace", "prefix", "permitted"),
    [
        ("shop", "shop", True),
        ("shop", "shop/a", True),
        ("shop", "shop2", False),
        ("shop", "", False),
        ("other", "shop", False),
    ],
)
def test_the_operators_identity_is_used_only_where_it_is_listed(
    namespace: str,
    prefix: str,
    permitted: bool,  # noqa: FBT001 - a table
) -> None:
    """Else a tenant's volume with reclaimPolicy Delete erases what the operator's role can reach (H3)."""
    volume = CheckpointVolumeSpec(bucket="data", prefix=prefix)
    if permitted:
        LIMITS.check_volume(namespace, volume)
        return
    with pytest.raises(NotPermitted, match=r"may not be accessed with the operator's own identity"):
        LIMITS.check_volume(namespace, volume)


def test_by_default_no_volume_uses_the_operators_identity() -> None:
    with pytest.raises(NotPermitted):
        Limits().check_volume("shop", CheckpointVolumeSpec(bucket="data"))


@pytest.mark.parametrize("text", ["shop", "=s3://b", "shop=", "shop=s3://", "shop=b/p"])
def test_an_option_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="does not say"):
        AmbientPlace.parse(text)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://[::ffff:169.254.169.254]",
        "http://[fd00:ec2::254]",
        "http://[fd20:ce::254]",
        "http://100.100.100.200",
        "http://127.0.0.1:8080",
        "http://127.1",
        "http://2852039166",
        "http://0x7f000001",
        "http://localhost:8080",
        "http://metadata.google.internal",
        "https://kubernetes.default.svc",
        "https://kubernetes.default.svc.cluster.local.",
    ],
)
def test_an_internal_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(NotPermitted, match="is not permitted"):
        Limits().check_volume("shop", at(endpoint))


@pytest.mark.parametrize(
    "endpoint",
    ["", "http://minio.store.svc:9000", "https://s3.example.com", "http://[fd00:10:96::7]:9000"],
)
def test_other_endpoints_are_permitted_without_a_list(endpoint: str) -> None:
    Limits().check_volume("shop", at(endpoint))


@pytest.mark.parametrize(
    ("endpoint", "permitted"),
    [
        ("http://minio:9000", True),
        ("http://minio:9001", False),
        ("http://MINIO:9000/", True),
        ("https://minio:9000", False),
        ("http://127.0.0.1:33333", True),
        ("https://s3.example.com", True),
        ("https://s3.example.com:443", True),
        ("https://s3.example.com.evil", False),
        ("", True),
    ],
)
def test_with_a_list_only_its_endpoints_are_permitted(endpoint: str, permitted: bool) -> None:  # noqa: FBT001 - a table
    limits = Limits(
        endpoints=("http://minio:9000", "http://127.0.0.1", "https://s3.example.com:443")
    )
    if permitted:
        limits.check_volume("shop", at(endpoint))
        return
    with pytest.raises(NotPermitted):
        limits.check_volume("shop", at(endpoint))


@pytest.mark.parametrize(
    "endpoint",
    ["http://minio@evil", "http://a/b", "http://a?b", "http://a#b", "ftp://a", "http://"],
)
def test_an_endpoint_is_only_scheme_host_and_port(endpoint: str) -> None:
    with pytest.raises(SettingsInvalid):
        parse(CheckpointVolumeSpec, {"bucket": "data", "endpoint": endpoint}, "spec")


def test_jobs_do_not_run_in_the_operators_namespace() -> None:
    """Their drivers may create pods there, which could run as the operator."""
    error = LIMITS.check_namespace("system")
    assert error is not None
    assert "is the operator's own" in error.what
    assert LIMITS.check_namespace("shop") is None
    assert (
        Limits(("system", "operator"), own_namespace_served=True).check_namespace("system") is None
    )
