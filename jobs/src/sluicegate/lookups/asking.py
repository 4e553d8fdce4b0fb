"""Asks a client for keys: each key once, in large requests, so many at a time, with patience.

Not here: rows (`batches`), the thread that this runs on (`loop`). One `Asker` a worker process
and lookup, used on one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass

from cachetools import TTLCache

from sluicegate.lookups.client import Answer, Key, LookupClient
from sluicegate.lookups.settings import LookupSettings
from sluicegate.protocol.errors import LookupUnanswered, SchemaMismatch

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True)
class NoAnswer:
    """Stands for the answer to a key whose every request failed. Not for 'there is nothing'."""

    reason: str


class Asker:
    """Asks one client.

    Args:
        client: not opened yet.
        settings: of the lookup.
        pause: waits between tries, in seconds; `asyncio.sleep`.
        clock: by which the cache forgets, in seconds; `time.monotonic`.
    """

    def __init__(
        self,
        client: LookupClient,
        settings: LookupSettings,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._settings, self._pause = client, settings, pause
        self._slots = asyncio.Semaphore(settings.capacity)
        self._opening = asyncio.Lock()
        self._is_open = False
        cache = settings.cache
        self._cache: MutableMapping[Key, Answer] = (
            TTLCache(cache.rows, cache.ttl_s, timer=clock) if cache else {}
        )

    async def ask(self, keys: Iterable[Key]) -> dict[Key, Answer | NoAnswer]:
        """Return what the store has under each key, None where it has nothing.

        Raises:
            LookupUnanswered: a key has no answer after all tries, and settings say 'fail'.
            SchemaMismatch: the client gave more or fewer answers than it was given keys.
        """
        answers: dict[Key, Answer | NoAnswer] = dict.fromkeys(keys)
        missing = []
        for key in answers:
            try:
                answers[key] = self._cache[key]
            except KeyError:
                missing.append(key)
        size = self._client.keys_per_request
        requests = [missing[i : i + size] for i in range(0, len(missing), size)]
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._request(request)) for request in requests]
        except ExceptionGroup as errors:  # the first one cancelled the others
            raise errors.exceptions[0] from None
        for task in asked:
            answers.update(task.result())
        return answers

    async def close(self) -> None:
        """Close the client."""
        if self._is_open:
            self._is_open = False
            await self._client.close()

    async def _request(self, keys: Sequence[Key]) -> dict[Key, Answer | NoAnswer]:
        """Ask for some keys until they are answered or the tries are used up."""
        settings = self._settings
        tries = settings.retries + 1
        last: OSError | None = None
        for number in range(tries):
            if number:
                await self._pause(pause_s(number))
            try:
                found = await self._try(keys)
            except OSError as error:  # TimeoutError is one
                last = error
                continue
            return self._remember(keys, found)
        why = f"{type(last).__name__}: {last}" if str(last) else "no answer in time"
        reason = (
            f"lookup into {settings.into}: unanswered after {tries} tries "
            f"of {settings.timeout_s:g} s ({why})"
        )
        if settings.on_timeout == "fail":
            raise LookupUnanswered(
                f"{reason}; {len(keys)} keys, the first: {keys[0]!r}",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="start the store, or give it more time: timeout_s=, retries=, or less to do at "
                "once: capacity=; on_timeout='null' or 'dead-letter' lets the epoch go on without",
            )
        return dict.fromkeys(keys, NoAnswer(reason))

    async def _try(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Make one request; the place among those in flight is free again afterwards."""
        async with self._slots, asyncio.timeout(self._settings.timeout_s):
            async with self._opening:
                if not self._is_open:
                    await self._client.open()
                    self._is_open = True
            return await self._client.get_many(keys)

    def _remember(self, keys: Sequence[Key], found: Sequence[Answer]) -> dict[Key, Answer]:
        if len(found) != len(keys):
            raise SchemaMismatch(
                f"lookup into {self._settings.into}: the client gave {len(found)} answers "
                f"to {len(keys)} keys",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="let get_many return one answer a key, in order, None where there is nothing",
            )
        answers = dict(zip(keys, found, strict=True))
        if self._settings.cache:
            self._cache.update(answers)
        return answers


def pause_s(failures: int, chance: Callable[[], float] = random.random) -> float:
    """Return how long to wait after so many failures: exponential, capped, with full jitter.

    As in Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    longest: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (failures - 1))
    return longest * chance()
