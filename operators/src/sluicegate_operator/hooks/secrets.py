"""Creates the Secrets of the bundled servers, once: passwords, keys and certificates.

A chart cannot generate them, because it is rendered again for each upgrade, and by tools such as Argo CD
without a cluster. It lists them instead, the same at each rendering, and a hook Job creates what is missing.
A value that exists is never changed; a certificate is renewed by its authority.
"""

from __future__ import annotations

import base64
import datetime as dt
import logging
import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluicegate_operator.hooks.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    Pair,
    create_authority,
    issue,
    usable,
)
from sluicegate_operator.hooks.requests import Requests
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.resource import Json

log = logging.getLogger(__name__)

_REFERENCE: Final = re.compile(r"\$\{(?:([a-z0-9.-]+)/)?([A-Za-z0-9._-]+)\}")
_ALPHABET: Final = string.ascii_letters + string.digits

Data = dict[str, bytes]


@dataclass(frozen=True)
class SecretSpec:
    """One Secret, as a chart lists it."""

    name: str
    type: str = "Opaque"
    namespace: str = ""
    """Empty: that of the release."""
    random: Mapping[str, int] = field(default_factory=dict)
    """Keys with the number of letters and digits of their values, which are generated once."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """Keys that take the value of SECRET/KEY, in the namespace of the release, if it exists and they do not."""
    text: Mapping[str, str] = field(default_factory=dict)
    """Keys with their values, which follow the chart. `${KEY}` is a key of this Secret, `${SECRET/KEY}` one
    of another in the namespace of the release."""
    authority: bool = False
    """Whether it is the certificate and the key of an authority."""
    issuer: str = ""
    """The Secret of the authority that issues its certificate; empty: it has none."""
    hosts: tuple[str, ...] = ()
    days: int = 0
    """Names and lifetime of its certificate."""


class SecretStore:
    """Secrets in the cluster.

    Args:
        requests: as an account that may get, create and patch the listed Secrets.
        namespace: of the release.
        metadata: labels and annotations of each Secret.
    """

    def __init__(self, requests: Requests, namespace: str, metadata: Json) -> None:
        self._requests, self._namespace, self._metadata = requests, namespace, metadata

    async def create(self, specs: list[SecretSpec]) -> None:
        """Create what is missing, in this order; a Secret may refer to earlier ones.

        Raises:
            SettingsInvalid: a Secret that one of them refers to does not exist, or the API server refuses.
        """
        for spec in specs:
            while not await self._apply(spec):
                pass

    async def _apply(self, spec: SecretSpec) -> bool:
        """Create or complete a Secret; return False if somebody else changed it meanwhile."""
        path = self._path(spec.namespace, spec.name)
        found = await self._requests.find(path)
        before = _decoded(found)
        after = await self._completed(spec, before)
        changed = {key: _encode(value) for key, value in after.items() if before.get(key) != value}
        try:
            if found is None:
                metadata = {**self._metadata, "name": spec.name}
                body = {"metadata": metadata, "type": spec.type, "data": changed}
                await self._requests.api.request("POST", path.rpartition("/")[0], body)
            else:
                # a conflict, if it changed since it was read
                version = found["metadata"]["resourceVersion"]
                metadata = {**self._metadata, "resourceVersion": version}
                await self._requests.api.patch(path, {"metadata": metadata, "data": changed})
        except ApiError as error:
            if error.conflict:
                return False
            await self._requests.pause(error, f"the Secret {spec.name} cannot be written: {error}")
            return False
        done = "is created" if found is None else "is complete"
        log.info("Secret %s %s; set: %s", spec.name, done, ", ".join(sorted(changed)) or "nothing")
        return True

    async def _completed(self, spec: SecretSpec, before: Data) -> Data:
        after = dict(before)
        for key, source in spec.inherited.items():
            secret, _, earlier = source.partition("/")
            found = _decoded(await self._requests.find(self._path("", secret)))
            if earlier in found:
                after.setdefault(key, found[earlier])
        for key, length in spec.random.items():
            after.setdefault(key, _random(length))
        if spec.authority and CERTIFICATE not in after:
            made = create_authority(spec.name, _now())
            after |= {CERTIFICATE: made.certificate, KEY: made.key}
        if spec.issuer:
            after |= await self._certificate(spec, after)
        for key, template in spec.text.items():
            after[key] = (await self._expanded(template, after)).encode()
        return after

    async def _certificate(self, spec: SecretSpec, data: Data) -> Data:
        """Return a certificate by the authority: the present one, unless it must be renewed."""
        issuer = await self._values(spec.issuer, (CERTIFICATE, KEY))
        authority = Pair(issuer[CERTIFICATE], issuer[KEY])
        hosts, now = list(spec.hosts), _now()
        if CERTIFICATE in data and usable(data[CERTIFICATE], authority.certificate, hosts, now):
            return {}
        made = issue(authority, spec.name, hosts, spec.days, now)
        return {CERTIFICATE: made.certificate, KEY: made.key, AUTHORITY: authority.certificate}

    async def _expanded(self, template: str, own: Data) -> str:
        parts, position = [], 0
        for reference in _REFERENCE.finditer(template):
            secret, key = reference.groups()
            values = await self._values(secret, (key,)) if secret else own
            parts += [template[position : reference.start()], values[key].decode()]
            position = reference.end()
        return "".join([*parts, template[position:]])

    async def _values(self, name: str, keys: tuple[str, ...]) -> Data:
        """Return keys of a Secret of the release's namespace; waits until they exist."""
        path = self._path("", name)
        while True:
            data = _decoded(await self._requests.find(path))
            missing = [key for key in keys if key not in data]
            if not missing:
                return data
            await self._requests.pause(None, f"the Secret {name} lacks {', '.join(missing)}")

    def _path(self, namespace: str, name: str) -> str:
        return f"/api/v1/namespaces/{namespace or self._namespace}/secrets/{name}"


def spec_of(values: Mapping[str, Any]) -> SecretSpec:
    """Return a Secret's specification from its JSON object.

    Raises:
        TypeError: it has an unknown field.
    """
    return SecretSpec(**{**values, "hosts": tuple(values.get("hosts", ()))})


def _random(length: int) -> bytes:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length)).encode()


def _decoded(secret: Json | None) -> Data:
    data = (secret or {}).get("data") or {}
    return {key: base64.b64decode(value) for key, value in data.items()}


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)
