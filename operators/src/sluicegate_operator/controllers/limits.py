"""What the platform's administrator permits in each namespace: ambient identity, endpoints, accounts.

The operator works for all tenants with one identity and from one place in the network. These limits keep a
tenant from using either for what it could not do itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from sluicegate.errors import AccessDenied, SettingsInvalid
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import is_reserved_address, volume_address

_PORTS = {"http": 80, "https": 443}
_INTERNAL_NAMES = ("localhost", "kubernetes", "metadata")
"""Hosts, and beginnings of host names, that are never an object store: this pod, the API server, and the
metadata server of a cloud."""

_NOTHING_DONE = "nothing was done on the volume; no driver is started on it"


class NotPermitted(AccessDenied):
    """Raised when a volume needs what the platform's administrator has not permitted."""


@dataclass(frozen=True)
class AmbientPlace:
    """A namespace whose volumes may use the operator's own cloud identity below an address."""

    namespace: str
    address: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `NAMESPACE=s3://BUCKET[/PREFIX]`; raises SettingsInvalid for anything else."""
        namespace, _, address = text.partition("=")
        if not namespace or not address.removeprefix("s3://").strip("/") or "s3://" not in address:
            raise SettingsInvalid(
                f"{text!r} does not say whose volumes may use the operator's identity, and where",
                data="nothing was started",
                do="pass --ambient-identity NAMESPACE=s3://BUCKET/PREFIX",
            )
        return cls(namespace, address)

    def contains(self, namespace: str, address: str) -> bool:
        """Return whether the volume at an address may use the identity."""
        inside = f"{address}/".startswith(f"{self.address.rstrip('/')}/")
        return namespace == self.namespace and inside


@dataclass(frozen=True)
class Limits:
    """Limits of an operator.

    Args:
        account: namespace and name of the operator's own ServiceAccount; two empty texts: unknown.
        ambient: where volumes without a Secret may use the operator's cloud identity; nowhere else.
        endpoints: `scheme://host[:port]` of the stores that volumes may name. Without a port any port is
            meant. Empty: any host, except addresses of the operator's pod, of its node's network link,
            and of the API server. Amazon S3, which needs no endpoint, is always permitted.
        own_namespace_served: whether jobs may run in the operator's own namespace.
        job_network_policies: whether each job gets a NetworkPolicy.
        upgrades: how many running jobs may be upgraded at a time; 0: all. The default keeps the queue of
            savepoints filled, and an edit of all jobs does not stop all drivers at once.
    """

    account: tuple[str, str] = ("", "")
    ambient: tuple[AmbientPlace, ...] = ()
    endpoints: tuple[str, ...] = ()
    own_namespace_served: bool = False
    job_network_policies: bool = True
    upgrades: int = 20

    def check_volume(self, namespace: str, volume: CheckpointVolumeSpec) -> None:
        """Raise NotPermitted if the operator must not access a volume for its namespace."""
        if volume.endpoint and not self._permits_endpoint(volume.endpoint):
            raise NotPermitted(
                f"the endpoint {volume.endpoint} is not permitted",
                data=_NOTHING_DONE,
                do="use a permitted store, or let the platform's administrator add it to the operator's "
                "--store-endpoint (value storeEndpoints)",
            )
        if volume.credentials_secret:
            return
        address = volume_address(volume)
        if not any(place.contains(namespace, address) for place in self.ambient):
            raise NotPermitted(
                f"{address} may not be accessed with the operator's own identity from namespace {namespace}",
                data=_NOTHING_DONE,
                do="set credentialsSecret, or let the platform's administrator add "
                f"{namespace}={address} to the operator's --ambient-identity (value ambientIdentity)",
            )

    def check_namespace(self, namespace: str) -> SettingsInvalid | None:
        """Return why no driver may run in a namespace, or None."""
        if namespace != self.account[0] or self.own_namespace_served:
            return None
        return SettingsInvalid(
            f"namespace {namespace} is the operator's own",
            data="no driver is started: it could create pods that run as the operator",
            do="create the job in another namespace, or let the platform's administrator permit this one "
            "(--serve-own-namespace, value watch.ownNamespace)",
        )

    def _permits_endpoint(self, endpoint: str) -> bool:
        parts = urlsplit(endpoint)
        host = (parts.hostname or "").rstrip(".")
        port = parts.port or _PORTS.get(parts.scheme, 0)
        if parts.username is not None or not host:
            return False
        if self.endpoints:
            named = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}"
            permitted = {one.rstrip("/").lower() for one in self.endpoints}
            return bool({named, f"{named}:{port}"} & permitted)
        return not _is_internal(host)


def _is_internal(host: str) -> bool:
    """Return whether a host is this pod, a link-local address such as a cloud's metadata, or the API server.

    A name that resolves to such an address is not recognized: only a list of endpoints excludes it.
    """
    try:
        return is_reserved_address(host)
    except ValueError:
        # '2852039166' and '0x7f.1' are addresses for a resolver, though not for ipaddress
        numeric = re.fullmatch("[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]) is not None
        return numeric or host.partition(".")[0] in _INTERNAL_NAMES
