"""A view of one kind of object, kept by a list and a watch, and made anew when the watch ends badly.

A list replaces the view, so what vanished while nothing was watched vanishes from it too: an
operator that misses a deletion would wait for ever. kopf, whose watches were looked at, hands on
what a list holds and not what it lacks. Not here: what objects mean (`objects`). Called by
`service`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of

log = logging.getLogger(__name__)

T = TypeVar("T")

Key = tuple[str, str]
"""Namespace and name."""

_PAGE = 500
_WATCH_S = 300
"""The server ends a watch after this; a random part is added, or all would end together."""
_LONGEST_PAUSE_S = 10.0
_REMEMBERED = 10_000


@dataclass(frozen=True)
class Entry(Generic[T]):
    """An object in view, as what it was made into."""

    version: int
    uid: str
    value: T


@dataclass
class Informer(Generic[T]):
    """A view of the objects of one kind, everywhere or in one namespace.

    Args:
        api: the API server.
        plural: the kind, as in its path.
        convert: what is kept of an object.
        changed: told after a value has changed, appeared (`old` is None) or vanished (`new`).
        namespace: empty: all.
        selector: labels that the server chooses by.
    """

    api: Api
    plural: str
    convert: Callable[[Json], T]
    changed: Callable[[Key, T | None, T | None], None]
    namespace: str = ""
    selector: str = ""
    entries: dict[Key, Entry[T]] = field(default_factory=dict)
    listed_at: float | None = None
    """Seconds since 1970: the view was complete then; None before the first list."""
    heard_at: float = field(default_factory=time.monotonic)
    """When the server was last heard of, by this process's own clock."""
    refused: str = ""
    """Why the server does not let us look, empty if it does."""
    _gone: dict[str, None] = field(default_factory=dict)
    """Uids of what vanished: the late answer of a write must not bring it back."""

    def get(self, key: Key) -> T | None:
        """Return an object's value, or None."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def items(self) -> Iterator[tuple[Key, T]]:
        """Yield all that is in view."""
        for key, entry in self.entries.items():
            yield key, entry.value

    def take(self, thing: Json) -> None:
        """Take in an object as a write or a read has returned it, if it is newer than the view."""
        meta = thing["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        version, before = int(meta["resourceVersion"]), self.entries.get(key)
        if meta["uid"] in self._gone or (before is not None and version <= before.version):
            return
        value = self.convert(thing)
        self.entries[key] = Entry(version, meta["uid"], value)
        old = None if before is None else before.value
        if old != value:
            self.changed(key, old, value)

    def drop(self, key: Key, uid: str) -> None:
        """Forget an object that is known to be gone, unless it has been made again."""
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        before = self.entries.get(key)
        if before is not None and before.uid == uid:
            del self.entries[key]
            self.changed(key, before.value, None)

    async def run(self) -> None:
        """List and watch for ever."""
        pause = 0.0
        while True:
            try:
                version = await self._list()
                pause = 0.0
                while True:
                    version = await self._watch(version)
            except ApiError as error:
                # said once: a right or a kind that is missing is a person's to give. A server that has
                # just begun does not know them yet, so this is asked again as soon as anything else
                before, self.refused = self.refused, self._lacking(error)
                if not error.expired:
                    pause = min(_LONGEST_PAUSE_S, max(0.5, pause * 2))
                if not (error.expired or (before and before == self.refused)):
                    said = self.refused or error
                    log.warning("watching %s: %s; again in %.1f s", self.plural, said, pause)
            # spread, so that all views of all operators do not come back at once
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - a pause

    def _lacking(self, error: ApiError) -> str:
        """Return what a person has to give before it is of use to ask again, or nothing."""
        if error.missing:
            return (
                f"the cluster knows no {self.plural}, so nothing is done with any; apply the operator's"
                " definitions (operators/crds, or crds.install of its chart)"
            )
        return str(error) if error.forbidden else ""

    async def refresh(
        self, namespace: str, selector: str, chosen: Callable[[Key, T], bool]
    ) -> float:
        """Make the view of some objects agree with what the server itself has now.

        Args:
            namespace: where they are.
            selector: labels that choose them, for the server.
            chosen: the same choice among what is in view.

        Returns:
            The time, in seconds since 1970, at which the view of them was complete.

        Raises:
            ApiError: the server could not be asked.
        """
        asked, path = time.time(), path_of(self.plural, namespace)
        found = await self.api.request("GET", path, query={"labelSelector": selector})
        there = {thing["metadata"]["uid"] for thing in found["items"]}
        for thing in found["items"]:
            self.take(thing)
        self._drop_older(
            int(found["metadata"]["resourceVersion"]),
            lambda key, entry: chosen(key, entry.value) and entry.uid not in there,
        )
        return asked

    def _drop_older(self, version: int, what: Callable[[Key, Entry[T]], bool]) -> None:
        for key, entry in list(self.entries.items()):
            if entry.version <= version and what(key, entry):
                self.drop(key, entry.uid)

    @property
    def _path(self) -> str:
        return path_of(self.plural, self.namespace)

    async def _list(self) -> str:
        """Make the view that of a whole list; return the version that it is of."""
        asked, seen, token = time.time(), set[Key](), ""
        while True:
            query = {"limit": str(_PAGE)}
            if self.selector:
                query["labelSelector"] = self.selector
            if token:
                query["continue"] = token
            page = await self.api.request("GET", self._path, query=query)
            self.heard_at = time.monotonic()
            for thing in page["items"]:
                meta = thing["metadata"]
                seen.add((meta.get("namespace", ""), meta["name"]))
                self.take(thing)
            token = page["metadata"].get("continue", "")
            if not token:
                break
            await asyncio.sleep(0)
        version = str(page["metadata"]["resourceVersion"])
        self._drop_older(int(version), lambda key, _: key not in seen)
        self.listed_at, self.refused = asked, ""
        return version

    async def _watch(self, version: str) -> str:
        """Take in changes until the server ends the watch; return the version to go on from."""
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S + random.randrange(60)),  # noqa: S311 - a pause
        }
        if self.selector:
            query["labelSelector"] = self.selector
        async with self.api.watch(self._path, query) as events:
            self.heard_at = time.monotonic()
            async for event in _until_silent(events):
                self.heard_at = time.monotonic()
                thing = event["object"]
                version = thing["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self.drop(
                        (thing["metadata"].get("namespace", ""), thing["metadata"]["name"]),
                        thing["metadata"]["uid"],
                    )
                elif event["type"] != "BOOKMARK":
                    self.take(thing)
        return version


async def _until_silent(events: AsyncIterator[Json]) -> AsyncIterator[Json]:
    """Yield a watch's events until it ends, or may be dead: the next one goes on from there."""
    try:
        async for event in events:
            yield event
    except ApiError as error:
        if not error.silent:
            raise
        log.debug("%s: watching anew", error.message)
