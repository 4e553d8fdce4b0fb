"""A cache of the objects of one type, kept up to date by a list and a watch.

After a watch that cannot continue, the objects are listed again. The list replaces the cache, so an object
that was deleted while nothing was watched disappears from it: a controller that missed a deletion would
wait forever. kopf reports what such a list contains and not what it lacks.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import Json, Key, ResourceType

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE = 500
_WATCH_S = 300
"""The server ends a watch after this time plus a random part, so that not all watches end together."""
_MAX_PAUSE_S = 10.0
"""Longest pause between two attempts to list."""
_EXPIRES_AGAIN_S = 30.0
"""Two answers of 410 within this time count as a repetition."""
_REMEMBERED_UIDS = 10_000


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A cached object, as its converted value."""

    version: int
    uid: str
    value: T


@dataclass
class Informer(Generic[T]):
    """A cache of the objects of one type in all namespaces or in one.

    Args:
        convert: returns the part of an object that is cached.
        changed: called with key, old and new value after a change; None for a value that did not or
            does not exist.
        namespace: empty for all.
        selector: label selector, evaluated by the server.
        install_hint: what to do if the server does not serve the type; part of the error.
    """

    api: Api
    resource_type: ResourceType
    convert: Callable[[Json], T]
    changed: Callable[[Key, T | None, T | None], None]
    namespace: str = ""
    selector: str = ""
    install_hint: str = ""
    entries: dict[Key, Entry[T]] = field(default_factory=dict)
    listed_at: float | None = None
    """Seconds since 1970 at which the cache was last complete for certain; None before the first list."""
    _listed_monotonic: float = math.inf
    heard_at: float = field(default_factory=time.monotonic)
    """Monotonic time of the server's last answer or event."""
    list_error: str = ""
    """Why the objects may not be listed; empty if they may."""
    errors: int = 0
    """How often a list or a watch failed since the start."""
    unreadable: set[Key] = field(default_factory=set)
    """Objects whose newest version `convert` could not read; the cache keeps their last readable value."""
    _deleted: dict[str, None] = field(default_factory=dict)
    """UIDs of deleted objects: the late answer of a write must not bring one back."""

    def complete_at(self) -> float | None:
        """Return `listed_at` by the clock as it is now, which may have been set back since."""
        if self.listed_at is None:
            return None
        age = time.monotonic() - self._listed_monotonic
        return min(self.listed_at, time.time() - age)

    def get(self, key: Key) -> T | None:
        """Return the value of an object, or None."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def put(self, body: Json) -> None:
        """Cache an object that a list, a watch or a write has returned, if it is newer.

        An object that `convert` cannot read must not end the informer: anyone who may create objects could
        stop the controllers of all. It keeps its last readable value, because an object that exists must
        not look deleted. It is left out if there is none.
        """
        meta, key = body["metadata"], _key_of(body)
        version, before = int(meta["resourceVersion"]), self.entries.get(key)
        if meta["uid"] in self._deleted or (before is not None and version <= before.version):
            return
        if before is not None and before.uid != meta["uid"]:
            # it was deleted and created again while nothing was watched
            self.remove(key, before.uid)
            before = None
        try:
            value = self.convert(body)
        except Exception as error:  # noqa: BLE001 - it is logged, and counted as unreadable
            self._set_unreadable(key, error)
            return
        self.unreadable.discard(key)
        self.entries[key] = Entry(version, meta["uid"], value)
        old = None if before is None else before.value
        if old != value:
            self.changed(key, old, value)

    def remove(self, key: Key, uid: str) -> None:
        """Remove a deleted object, unless another one with its name has replaced it."""
        self._deleted[uid] = None
        if len(self._deleted) > _REMEMBERED_UIDS:
            del self._deleted[next(iter(self._deleted))]
        before = self.entries.get(key)
        if before is None or before.uid == uid:
            self.unreadable.discard(key)
        if before is not None and before.uid == uid:
            del self.entries[key]
            self.changed(key, before.value, None)

    def _set_unreadable(self, key: Key, error: Exception) -> None:
        if key in self.unreadable:
            return
        self.unreadable.add(key)
        kept = "its last readable state is used" if key in self.entries else "it is ignored"
        log.error(
            "%s %s cannot be read: %s: %s; %s until it changes, correct or delete it",
            self.resource_type.kind,
            "/".join(key),
            type(error).__name__,
            str(error)[:500],
            kept,
        )

    async def run(self) -> None:
        """List and watch until cancelled."""
        pause, expired_at = 0.0, -math.inf
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
                    pause = 0.0
            except ApiError as error:
                self.errors += 1
                # A missing permission or resource type is logged once, because a person has to
                # provide it. It is retried as often as any other error, because a server that has
                # just started does not know its permissions and types yet.
                before, self.list_error = self.list_error, self._list_error_of(error)
                now = time.monotonic()
                # the first list after a 410 follows at once, but not if watches keep expiring
                again = now - expired_at < _EXPIRES_AGAIN_S
                if error.expired:
                    expired_at = now
                    pause = pause if again else 0.0
                if again or not error.expired:
                    pause = min(_MAX_PAUSE_S, max(0.5, pause * 2))
                if not (error.expired or (before and before == self.list_error)):
                    text = self.list_error or error
                    plural = self.resource_type.plural
                    log.warning("watching %s: %s; retry in %.1f s", plural, text, pause)
            # with jitter, so that not all informers of all processes come back at once
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - a pause

    def _list_error_of(self, error: ApiError) -> str:
        """Return an error that only a person can correct; empty for all others."""
        if error.missing:
            hint = f"; {self.install_hint}" if self.install_hint else ""
            return f"the cluster does not serve {self.resource_type.plural}{hint}"
        return str(error) if error.forbidden else ""

    async def refresh(self, namespace: str, selector: str, matches: Callable[[T], bool]) -> float:
        """List some objects again, and return when the cache of these was complete (seconds since 1970).

        The server evaluates the label selector; `matches` is the same selection for cached objects.

        Raises:
            ApiError: the list was refused or not answered.
        """
        began, path = time.time(), self.resource_type.path(namespace)
        found = await self.api.request("GET", path, query={"labelSelector": selector})
        existing = {body["metadata"]["uid"] for body in found["items"]}
        for body in found["items"]:
            self.put(body)
        self._remove_older(
            int(found["metadata"]["resourceVersion"]),
            lambda key, entry: (
                key[0] == namespace and matches(entry.value) and entry.uid not in existing
            ),
        )
        return began

    def _remove_older(self, version: int, absent: Callable[[Key, Entry[T]], bool]) -> None:
        """Remove entries that are absent from a list, unless they are newer than it."""
        for key, entry in list(self.entries.items()):
            if entry.version <= version and absent(key, entry):
                self.remove(key, entry.uid)

    @property
    def _path(self) -> str:
        return self.resource_type.path(self.namespace)

    async def _list(self) -> str:
        """Replace the cache by a complete list; return the list's resourceVersion."""
        began, monotonic, seen, token = time.time(), time.monotonic(), set[Key](), ""
        while True:
            query = {"limit": str(_PAGE), "labelSelector": self.selector, "continue": token}
            page = await self.api.request("GET", self._path, query=query)
            self.heard_at = time.monotonic()
            for body in page["items"]:
                seen.add(_key_of(body))
                self.put(body)
            token = page["metadata"].get("continue", "")
            if not token:
                break
            await asyncio.sleep(0)
        version = str(page["metadata"]["resourceVersion"])
        self._remove_older(int(version), lambda key, _: key not in seen)
        self.unreadable &= seen
        self.listed_at, self._listed_monotonic, self.list_error = began, monotonic, ""
        return version

    async def _watch(self, version: str) -> str:
        """Apply changes until the server ends the watch; return the version to continue from."""
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S + random.randrange(60)),  # noqa: S311 - a pause
            "labelSelector": self.selector,
        }
        async with self.api.watch(self._path, query) as events:
            self.heard_at = time.monotonic()
            try:
                async for event in events:
                    version = self._apply(event)
            except ApiError as error:
                if not error.silent:
                    raise
                # it may be dead; the next watch continues from here
                log.debug("%s; opening a new watch", error.message)
        return version

    def _apply(self, event: Json) -> str:
        """Apply one event of a watch; return its resourceVersion."""
        self.heard_at = time.monotonic()
        body = event["object"]
        if event["type"] == "DELETED":
            self.remove(_key_of(body), body["metadata"]["uid"])
        elif event["type"] != "BOOKMARK":
            self.put(body)
        return str(body["metadata"]["resourceVersion"])


def _key_of(body: Json) -> Key:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
