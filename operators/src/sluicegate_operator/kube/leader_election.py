"""Leader election by a Lease, as in client-go.

Another's Lease counts as expired when it was not renewed for its duration by this process's own clock, so
clocks may differ and jump. The official client compares the times in the Lease with the local clock, and
does not release the Lease at a shutdown. Two processes may still consider themselves the leader for a
moment; callers must make that harmless, for example by conditional writes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import LEASES, Json
from sluicegate_operator.kube.timestamps import to_text

log = logging.getLogger(__name__)

DURATION_S = 4.0
"""A Lease that was not renewed for this long may be acquired by another candidate."""
RENEW_S = 3.0
"""A leader that could not renew its Lease for this long steps down, before another may take over."""
RETRY_S = 1.0
"""Pause between two renewals."""
WATCH_S = 0.5
"""Pause between two reads of another's Lease: a candidate learns of a renewal that much later."""
RELEASE_S = 5.0
"""How long a shutdown waits until the Lease is released."""


@dataclass
class LeaderElector:
    """One candidate for the Lease with this namespace and name.

    Args:
        identity: of this candidate, unique among running processes. A later process with the same
            identity, such as the next container of the same pod, acquires the Lease at once.
        changed: called with whether this candidate is the leader, when that changes.
    """

    api: Api
    namespace: str
    name: str
    identity: str
    changed: Callable[[bool], None]
    _holds_lease: bool = False
    _released: bool = False
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _renewed: float = -1e9
    _observed: Json = field(default_factory=dict)
    """The spec of another's Lease. A renewal changes it, and a change of the metadata is none."""
    _observed_at: float = 0.0
    _expires_at: float = 0.0
    """When another's Lease expires unless it is renewed."""

    @property
    def is_leader(self) -> bool:
        """Whether this candidate may act now."""
        return self._holds_lease and time.monotonic() - self._renewed < RENEW_S

    async def run(self) -> None:
        """Acquire and renew the Lease until cancelled."""
        while not self._released:
            await self.renew()
            await asyncio.sleep(self._pause_s)

    async def observe(self) -> None:
        """Read the Lease until cancelled, without acquiring it.

        The duration of another's Lease counts from then on.
        """
        while True:
            try:
                async with asyncio.timeout(RENEW_S / 2):
                    began, found = time.monotonic(), await self._read()
                self._note((found or {}).get("spec") or {}, began)
            except (ApiError, TimeoutError) as error:
                log.warning("Lease %s could not be read: %s", self.name, _why(error))
            await asyncio.sleep(WATCH_S)

    async def renew(self) -> None:
        """Try once to acquire or renew the Lease, unless it was released.

        `changed` is called when the deadline of the last renewal has passed, even if the Lease is renewed
        after that: what was skipped in between would be lost otherwise.
        """
        self._notify_lapse()
        limit = RENEW_S / 2
        if self._holds_lease:
            limit = min(limit, self._remaining_s)
        try:
            async with asyncio.timeout(limit), self._writing:
                if self._released:
                    return
                held = await self._acquire_or_renew()
        except (ApiError, TimeoutError) as error:
            log.warning("Lease %s could not be renewed: %s", self.name, _why(error))
            held = self.is_leader
        self._notify(held and not self._released)

    async def release(self) -> None:
        """Give the Lease up at a shutdown, so that another candidate can acquire it at once.

        This candidate does not acquire it again.
        """
        self._released = True
        self._notify(held=False)
        try:
            # after a renewal in progress, which would acquire it again
            async with asyncio.timeout(RELEASE_S), self._writing:
                while not await self._release_once():
                    pass
        except (ApiError, TimeoutError) as error:
            log.warning("Lease %s was not released; it expires: %s", self.name, _why(error))

    @property
    def _remaining_s(self) -> float:
        """Seconds until a leader that does not renew the Lease steps down."""
        return max(0.0, self._renewed + RENEW_S - time.monotonic())

    @property
    def _pause_s(self) -> float:
        """Seconds until the next try: another candidate tries as soon as the Lease expires."""
        if self.is_leader:
            return min(RETRY_S, self._remaining_s)
        left = self._expires_at - time.monotonic()
        return left if 0 < left < WATCH_S else WATCH_S

    def _notify_lapse(self) -> None:
        if self._holds_lease and not self.is_leader:
            self._notify(held=False)

    @property
    def _path(self) -> str:
        return LEASES.path(self.namespace, self.name)

    def _notify(self, held: bool) -> None:  # noqa: FBT001 - the only argument
        if held != self._holds_lease:
            self._holds_lease = held
            log.info("%s %s Lease %s", self.identity, "acquired" if held else "lost", self.name)
            self.changed(held)

    async def _release_once(self) -> bool:
        """Clear the holder if it is this candidate; return False if the Lease changed meanwhile."""
        try:
            found = await self.api.request("GET", self._path)
            if (found.get("spec") or {}).get("holderIdentity") == self.identity:
                version = {"resourceVersion": found["metadata"]["resourceVersion"]}
                body = {"metadata": version, "spec": {"holderIdentity": None}}
                await self.api.patch(self._path, body)
        except ApiError as error:
            if error.conflict:
                return False
            if not error.missing:
                raise
        return True

    async def _acquire_or_renew(self) -> bool:
        """Write the Lease if it is free, expired or ours; return whether it is ours now."""
        began = time.monotonic()
        found = await self._read()
        if found is None:
            body = {"metadata": {"name": self.name, "namespace": self.namespace}}
            return await self._write("POST", LEASES.path(self.namespace), body, began)
        spec = found.get("spec") or {}
        if (spec.get("holderIdentity") or "") not in ("", self.identity):
            self._note(spec, began)
            if began < self._expires_at:
                return False
        return await self._write("PUT", self._path, found, began)

    async def _read(self) -> Json | None:
        """Return the Lease; None if there is none."""
        try:
            return await self.api.request("GET", self._path)
        except ApiError as error:
            if not error.missing:
                raise
            return None

    def _note(self, spec: Json, began: float) -> None:
        """Note another's Lease, from a read that began at a time: it expires unless its spec changes."""
        if spec != self._observed:
            self._observed, self._observed_at = spec, began
        duration = float(spec.get("leaseDurationSeconds") or DURATION_S)
        self._expires_at = self._observed_at + duration

    async def _write(self, method: str, path: str, body: Json, began: float) -> bool:
        """Write the Lease with our identity; return whether it is ours now.

        After a conflict it is still ours if the Lease that was read is: another may acquire it only after its
        duration, and what has changed is read by the next try.
        """
        now = to_text(time.time()).replace("Z", "000Z")  # a MicroTime
        spec = body.get("spec") or {}
        ours = spec.get("holderIdentity") == self.identity
        written = {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(DURATION_S),
            "acquireTime": spec.get("acquireTime", now) if ours else now,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (not ours),
        }
        lease = {**LEASES.type_meta, "metadata": body["metadata"], "spec": written}
        try:
            await self.api.request(method, path, lease)
        except ApiError as error:
            if error.conflict:
                return ours and self.is_leader
            raise
        self._notify_lapse()  # the answer may have come too late
        self._renewed = began
        return True


def _why(error: Exception) -> str:
    """Return why a request failed; a TimeoutError has no text."""
    return str(error) or "no answer in time"
