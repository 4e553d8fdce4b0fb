"""Credentials of a volume, read from its Secrets."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from sluicegate.errors import AccessDenied
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.controllers.credentials import Access, read_access
from sluicegate_operator.controllers.limits import AmbientPlace, Limits, NotPermitted
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.storage_tasks.runner import AUTHORITY_TEXT

Secrets = dict[str, dict[str, str]]
"""Secrets by name."""

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
VOLUME = CheckpointVolumeSpec(
    bucket="streams",
    endpoint="https://store",
    credentials_secret="keys",
    authority_secret="authority",
)


class FakeApi:
    """An API server with Secrets; their versions are 1, 2, ... in order."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets

    async def request(self, _method: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name not in self.secrets:
            raise ApiError(404, "NotFound", f"secrets {name} not found")
        data = {k: base64.b64encode(v.encode()).decode() for k, v in self.secrets[name].items()}
        version = str(1 + list(self.secrets).index(name))
        return {"metadata": {"resourceVersion": version}, "data": data}


KEYS = {"accessKeyId": "id", "secretAccessKey": "secret"}


AMBIENT = Limits(ambient=(AmbientPlace("shop", "s3://streams"),))


def read(secrets: Secrets, volume: CheckpointVolumeSpec = VOLUME) -> Access:
    return asyncio.run(read_access(FakeApi(secrets), "shop", volume, AMBIENT))  # type: ignore[arg-type]


def test_keys_and_ca_are_read_with_the_versions_of_both() -> None:
    found = read({"keys": KEYS, "authority": {"ca.crt": PEM}})
    assert found.versions == "1.2"
    assert found.environment["AWS_SECRET_ACCESS_KEY"] == "secret"
    assert found.environment[AUTHORITY_TEXT] == PEM
    assert "secret" not in repr(found)


def test_volume_without_secrets_reads_none() -> None:
    assert read({}, CheckpointVolumeSpec(bucket="streams")).versions == ""


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        ({"keys": KEYS}, "there is no Secret authority"),
        ({"keys": KEYS, "authority": {"tls.crt": PEM}}, "Secret authority lacks ca.crt"),
        ({"keys": KEYS, "authority": {"ca.crt": "text"}}, "holds no PEM certificate"),
        ({"keys": {"accessKeyId": "id"}}, "lacks accessKeyId or secretAccessKey"),
    ],
)
def test_missing_secret_or_key_is_reported(secrets: Secrets, message: str) -> None:
    with pytest.raises(AccessDenied, match=message):
        read(secrets)


@pytest.mark.parametrize("empty", KEYS)
def test_security_h3_an_empty_key_is_not_the_operators_identity(empty: str) -> None:
    """Without a key a worker process got the operator's own identity, for any bucket that a tenant named."""
    with pytest.raises(AccessDenied, match=f"Secret keys has an empty {empty}"):
        read({"keys": {**KEYS, empty: " \n"}, "authority": {"ca.crt": PEM}})


def test_a_volume_that_is_not_permitted_has_no_access() -> None:
    """Every storage task gets its environment here, so none can run for such a volume."""
    with pytest.raises(NotPermitted, match="operator's own identity"):
        read({}, CheckpointVolumeSpec(bucket="others"))
