"""Events, as `kubectl describe` shows them: one that repeats is counted, not made again.

Not here: when there is one (`reconcile`). Called by `cluster.performing`.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass

from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.cluster.objects import Meta
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.parsing import to_text

log = logging.getLogger(__name__)

_LONGEST = 1000
"""Characters of a message; the API server takes 1,024."""


@dataclass(frozen=True)
class Recorder:
    """Writes events under our name."""

    api: Api
    reporter: str

    async def record(
        self, kind: str, meta: Meta, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Write an event about a resource. One that cannot be written is logged: nobody acts on it."""
        level = logging.WARNING if warning else logging.INFO
        log.log(level, "%s %s/%s: %s: %s", kind, meta.namespace, meta.name, reason, message)
        message = message[:_LONGEST]
        digest = hashlib.sha256(f"{meta.uid}{reason}{message}".encode()).hexdigest()[:16]
        name, now = f"{meta.name[:200]}.{digest}", to_text(time.time())[:-5] + "Z"
        path = path_of("events", meta.namespace)
        try:
            try:
                await self.api.request("POST", path, self._event(kind, meta, name, now) | {
                    "reason": reason, "message": message, "type": "Warning" if warning else "Normal",
                })  # fmt: skip
            except ApiError as error:
                if not error.conflict:
                    raise
                there = path_of("events", meta.namespace, name)
                count = (await self.api.request("GET", there)).get("count") or 1
                await self.api.patch(there, {"count": count + 1, "lastTimestamp": now})
        except ApiError as error:
            log.warning("an event was not written: %s", error)

    def _event(self, kind: str, meta: Meta, name: str, now: str) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.version,
            },
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "sluicegate-operator"},
            "reportingComponent": f"{GROUP}/operator",
            "reportingInstance": self.reporter,
        }
