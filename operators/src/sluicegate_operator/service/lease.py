"""Who of several operators acts: the one whose name is in a Lease that it keeps renewing.

As client-go's leader election: another's lease counts as run out when it was not renewed for its
duration by our own clock, never by the times written in it, so clocks may differ and jump. Two may
believe to lead for a moment all the same; that is harmless, because each write is made under the
version that was read (`reconcile`). Not here: what a leader does. Called by `service.operator`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.resources.parsing import to_text

log = logging.getLogger(__name__)

DURATION_S = 15.0
RENEW_S = 10.0
"""A leader that could not renew for so long stops acting, before another may begin."""
RETRY_S = 2.0


@dataclass
class Lease:
    """A Lease that several compete for.

    Args:
        api: the API server.
        namespace: of the Lease.
        name: of the Lease.
        identity: ours; no other process that lives may have it. One that comes after us under our
            name, such as our pod's next container, takes the Lease at once.
        changed: told whether we lead, when that changes.
    """

    api: Api
    namespace: str
    name: str
    identity: str
    changed: Callable[[bool], None]
    _leads: bool = False
    _renewed: float = -1e9
    _seen: tuple[str, str] = ("", "")
    """Of another's lease: who, and its version."""
    _seen_at: float = field(default=0.0)

    @property
    def leads(self) -> bool:
        """Whether we may act now."""
        return self._leads and time.monotonic() - self._renewed < RENEW_S

    async def run(self) -> None:
        """Compete, and renew, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RENEW_S / 2):
                    held = await self._try()
            except (ApiError, TimeoutError) as error:
                log.warning("lease %s could not be renewed: %s", self.name, error)
                held = self.leads
            self._tell(held)
            await asyncio.sleep(RETRY_S)

    async def release(self) -> None:
        """Let another have it at once; for a shutdown."""
        if not self._leads:
            return
        self._tell(leads=False)
        try:
            found = await self.api.request("GET", self._path)
            if (found.get("spec") or {}).get("holderIdentity") == self.identity:
                version = {"resourceVersion": found["metadata"]["resourceVersion"]}
                body = {"metadata": version, "spec": {"holderIdentity": None}}
                await self.api.patch(self._path, body)
        except ApiError as error:
            log.warning("lease %s was not released, and runs out: %s", self.name, error)

    @property
    def _path(self) -> str:
        return path_of("leases", self.namespace, self.name)

    def _tell(self, leads: bool) -> None:  # noqa: FBT001 - the one thing that is told
        if leads != self._leads:
            self._leads = leads
            log.info("%s %s the lease %s", self.identity, "has" if leads else "lost", self.name)
            self.changed(leads)

    async def _try(self) -> bool:
        """Take or renew the lease if we may; True if it is ours now."""
        began = time.monotonic()
        try:
            found = await self.api.request("GET", self._path)
        except ApiError as error:
            if not error.missing:
                raise
            body = {"metadata": {"name": self.name, "namespace": self.namespace}}
            return await self._write("POST", path_of("leases", self.namespace), body, began)
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity):
            seen = (holder, found["metadata"]["resourceVersion"])
            if seen != self._seen:
                self._seen, self._seen_at = seen, began
            duration = float(spec.get("leaseDurationSeconds") or DURATION_S)
            if began - self._seen_at < duration:
                return False
        return await self._write("PUT", self._path, found, began)

    async def _write(self, method: str, path: str, body: Json, began: float) -> bool:
        """Write our name; False if another was faster."""
        now = _micro_time()
        spec = body.get("spec") or {}
        mine = spec.get("holderIdentity") == self.identity
        written = {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(DURATION_S),
            "acquireTime": spec.get("acquireTime", now) if mine else now,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (not mine),
        }
        thing = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": body["metadata"],
            "spec": written,
        }
        try:
            await self.api.request(method, path, thing)
        except ApiError as error:
            if error.conflict:
                return False
            raise
        self._renewed = began
        return True


def _micro_time() -> str:
    return to_text(time.time()).replace("Z", "000Z")
