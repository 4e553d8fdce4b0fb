"""Kubernetes Events, as `kubectl describe` shows them. A repeated Event is counted, not created again."""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass

from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import EVENTS, Json, Meta, ResourceType
from sluicegate_operator.kube.timestamps import to_text

log = logging.getLogger(__name__)

MAX_LENGTH = 1000
"""Characters of a message; the API server accepts 1,024."""


@dataclass(frozen=True)
class EventRecorder:
    """Creates Events in the name of a component and its controller, such as 'example.com/operator'."""

    api: Api
    component: str
    controller: str
    instance: str
    """Identity of the reporting process."""

    async def record(
        self,
        resource_type: ResourceType,
        meta: Meta,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        """Create an Event about an object. A failure is logged only: nothing depends on Events."""
        level = logging.WARNING if warning else logging.INFO
        kind = resource_type.kind
        log.log(level, "%s %s/%s: %s: %s", kind, meta.namespace, meta.name, reason, message)
        message = message[:MAX_LENGTH]
        digest = hashlib.sha256(f"{meta.uid}{reason}{message}".encode()).hexdigest()[:16]
        name, now = f"{meta.name[:200]}.{digest}", to_text(time.time())[:-5] + "Z"
        body = {
            **EVENTS.type_meta,
            "metadata": {"name": name, "namespace": meta.namespace},
            "involvedObject": {**resource_type.type_meta, **meta.identity},
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": self.component},
            "reportingComponent": self.controller,
            "reportingInstance": self.instance,
        }
        try:
            await self._create_or_count(meta.namespace, name, body, now)
        except ApiError as error:
            log.warning("an Event was not created: %s", error)

    async def _create_or_count(self, namespace: str, name: str, body: Json, now: str) -> None:
        try:
            await self.api.request("POST", EVENTS.path(namespace), body)
        except ApiError as error:
            if not error.conflict:
                raise
            path = EVENTS.path(namespace, name)
            count = (await self.api.request("GET", path)).get("count") or 1
            await self.api.patch(path, {"count": count + 1, "lastTimestamp": now})
