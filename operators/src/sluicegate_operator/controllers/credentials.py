"""Credentials of a volume, read from its Secrets whenever they are needed, and never kept."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate.errors import AccessDenied
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import CA_KEY, environment
from sluicegate_operator.controllers.limits import Limits
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import SECRETS
from sluicegate_operator.storage_tasks.runner import AUTHORITY_TEXT

_KEYS = ("accessKeyId", "secretAccessKey")


@dataclass(frozen=True)
class Access:
    """How a volume is reached.

    Args:
        versions: resourceVersions of its Secrets, as one text; another text means that they have changed.
        environment: the variables of a worker process (`storage_tasks.runner`).
    """

    versions: str
    environment: Mapping[str, str] = field(repr=False)


async def read_access(
    api: Api, namespace: str, volume: CheckpointVolumeSpec, limits: Limits
) -> Access:
    """Return how a volume is reached.

    Raises:
        AccessDenied: the limits do not permit it, or a Secret does not exist, lacks a key, or may not be
            read.
        ApiError: a request was not answered.
    """
    limits.check_volume(namespace, volume)
    versions, keys, ca_variables = [], ["", ""], {}
    if volume.credentials_secret:
        version, keys = await _read_keys(api, namespace, volume.credentials_secret, *_KEYS)
        versions.append(version)
    if volume.authority_secret:
        version, (text,) = await _read_keys(api, namespace, volume.authority_secret, CA_KEY)
        if "-----BEGIN CERTIFICATE-----" not in text:
            raise _denied(f"{CA_KEY} of Secret {volume.authority_secret} holds no PEM certificate")
        versions.append(version)
        ca_variables = {AUTHORITY_TEXT: text}
    return Access(".".join(versions), {**environment(volume, *keys), **ca_variables})


async def _read_keys(api: Api, namespace: str, name: str, *keys: str) -> tuple[str, list[str]]:
    """Return a Secret's version and the values of some keys."""
    try:
        found = await api.request("GET", SECRETS.path(namespace, name))
    except ApiError as error:
        if error.missing:
            raise _denied(f"there is no Secret {name} in namespace {namespace}") from error
        if error.forbidden:
            raise _denied(f"the operator may not read Secret {name}") from error
        raise
    data = found.get("data") or {}
    try:
        texts = [base64.b64decode(data[key], validate=True).decode().strip() for key in keys]
    except (KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise _denied(f"Secret {name} lacks {' or '.join(keys)}", keys) from error
    # an empty key must not count as no Secret: then the operator's own identity would be used
    for key, text in zip(keys, texts, strict=True):
        if not text:
            raise _denied(f"Secret {name} has an empty {key}", keys)
    return found["metadata"]["resourceVersion"], texts


def _denied(what: str, keys: tuple[str, ...] = ()) -> AccessDenied:
    named = f" with {' and '.join(keys)}" if keys else ""
    return AccessDenied(
        what,
        data="nothing was done on the volume",
        do=f"create or correct the Secret{named}, and let the operator read it",
    )
