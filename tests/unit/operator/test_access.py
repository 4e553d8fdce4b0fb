"""How a volume is reached, by what its Secrets hold."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from sluicegate.protocol.errors import AccessDenied
from sluicegate_operator.cluster.client import ApiError
from sluicegate_operator.resources.volume import CheckpointVolumeSpec
from sluicegate_operator.service.access import Access, read_access
from sluicegate_operator.store.running import AUTHORITY_TEXT

Held = dict[str, dict[str, str]]
"""Secrets by name."""

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
VOLUME = CheckpointVolumeSpec(
    bucket="streams",
    endpoint="https://store",
    credentials_secret="keys",
    authority_secret="authority",
)


class Secrets:
    """An API server with Secrets, each of the version 1, 2, ... in their order."""

    def __init__(self, held: Held) -> None:
        self.held = held

    async def request(self, _method: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name not in self.held:
            raise ApiError(404, "NotFound", f"secrets {name} not found")
        data = {k: base64.b64encode(v.encode()).decode() for k, v in self.held[name].items()}
        version = str(1 + list(self.held).index(name))
        return {"metadata": {"resourceVersion": version}, "data": data}


KEYS = {"accessKeyId": "id", "secretAccessKey": "secret"}


def read(held: Held, volume: CheckpointVolumeSpec = VOLUME) -> Access:
    return asyncio.run(read_access(Secrets(held), "shop", volume))  # type: ignore[arg-type]


def test_keys_and_authority_are_read_with_the_versions_of_both() -> None:
    found = read({"keys": KEYS, "authority": {"ca.crt": PEM}})
    assert found.versions == "1.2"
    assert found.environment["AWS_SECRET_ACCESS_KEY"] == "secret"
    assert found.environment[AUTHORITY_TEXT] == PEM
    assert "secret" not in repr(found)


def test_a_volume_that_names_no_secret_asks_for_none() -> None:
    assert read({}, CheckpointVolumeSpec(bucket="streams")).versions == ""


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"keys": KEYS}, "there is no Secret authority"),
        ({"keys": KEYS, "authority": {"tls.crt": PEM}}, "Secret authority lacks ca.crt"),
        ({"keys": KEYS, "authority": {"ca.crt": ""}}, "holds no PEM certificate"),
        ({"keys": {"accessKeyId": "id"}}, "lacks accessKeyId or secretAccessKey"),
    ],
)
def test_what_lacks_is_said(held: Held, said: str) -> None:
    with pytest.raises(AccessDenied, match=said):
        read(held)
