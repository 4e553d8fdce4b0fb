"""How a volume is reached: what its Secrets hold, read when it is needed and not kept.

Not here: what is done with it (`store.running`). Called by `places`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate.protocol.errors import AccessDenied
from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.resources.addresses import AUTHORITY, environment
from sluicegate_operator.resources.volume import CheckpointVolumeSpec
from sluicegate_operator.store.running import AUTHORITY_TEXT

_KEYS = ("accessKeyId", "secretAccessKey")


@dataclass(frozen=True)
class Access:
    """How a volume is reached.

    Args:
        versions: of its Secrets, as one text; another text means that they have changed.
        environment: the variables of a process of `store.running`.
    """

    versions: str
    environment: Mapping[str, str] = field(repr=False)


async def read_access(api: Api, namespace: str, volume: CheckpointVolumeSpec) -> Access:
    """Return how a volume is reached.

    Raises:
        AccessDenied: a Secret is not there, or lacks a key.
        ApiError: one could not be read.
    """
    versions, keys, authority = [], ["", ""], {}
    if volume.credentials_secret:
        version, keys = await _secret(api, namespace, volume.credentials_secret, *_KEYS)
        versions.append(version)
    if volume.authority_secret:
        version, (text,) = await _secret(api, namespace, volume.authority_secret, AUTHORITY)
        if "-----BEGIN CERTIFICATE-----" not in text:
            raise _denied(
                f"{AUTHORITY} of Secret {volume.authority_secret} holds no PEM certificate"
            )
        versions.append(version)
        authority = {AUTHORITY_TEXT: text}
    return Access(".".join(versions), {**environment(volume, *keys), **authority})


async def _secret(api: Api, namespace: str, name: str, *keys: str) -> tuple[str, list[str]]:
    """Return a Secret's version, and what it holds under the keys."""
    found = await _found(api, namespace, name)
    data = found.get("data") or {}
    try:
        texts = [base64.b64decode(data[key], validate=True).decode().strip() for key in keys]
    except (KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise _denied(f"Secret {name} lacks {' or '.join(keys)}", keys) from error
    return found["metadata"]["resourceVersion"], texts


async def _found(api: Api, namespace: str, name: str) -> Json:
    try:
        return await api.request("GET", path_of("secrets", namespace, name))
    except ApiError as error:
        if error.missing:
            raise _denied(f"there is no Secret {name} in namespace {namespace}") from error
        if error.forbidden:
            raise _denied(f"the operator may not read Secret {name}") from error
        raise


def _denied(what: str, keys: tuple[str, ...] = ()) -> AccessDenied:
    named = f" with {' and '.join(keys)}" if keys else ""
    return AccessDenied(
        what,
        data="nothing was done on the volume",
        do=f"correct or create the Secret{named}, and let the operator read it",
    )
