"""Fetches keys from a client: each key once, in large concurrent requests, with retries.

Each worker process has one `KeyFetcher` per lookup, used on one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass

from cachetools import TTLCache

from sluicegate.errors import LookupUnanswered, SchemaMismatch
from sluicegate.lookups.client import Answer, Key, LookupClient
from sluicegate.lookups.settings import LookupSettings
from sluicegate.settings.backoff import backoff_s

_INITIAL_BACKOFF_S, _MAX_BACKOFF_S = 0.05, 2.0
_MISSING = object()


@dataclass(frozen=True)
class NoAnswer:
    """Replaces the answer for a key whose requests all failed. 'No value' is the answer None."""

    reason: str


class KeyFetcher:
    """Fetches keys from one client; tests replace `sleep` between attempts and the cache's `clock`."""

    def __init__(
        self,
        client: LookupClient,
        settings: LookupSettings,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._settings, self._sleep = client, settings, sleep
        self._slots = asyncio.Semaphore(settings.capacity)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._cache: MutableMapping[Key, Answer] = {}
        if settings.cache:
            self._cache = TTLCache(settings.cache.rows, settings.cache.ttl_s, clock)

    async def fetch(self, keys: Iterable[Key]) -> dict[Key, Answer | NoAnswer]:
        """Return the value of each key, None for a key without a value.

        Raises:
            LookupUnanswered: a key has no answer after all attempts, and `on_timeout` is 'fail'.
            SchemaMismatch: the client returned more or fewer answers than keys.
        """
        answers = {key: self._cache.get(key, _MISSING) for key in keys}
        missing = [key for key, answer in answers.items() if answer is _MISSING]
        size = self._client.keys_per_request
        requests = [missing[i : i + size] for i in range(0, len(missing), size)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._request(request)) for request in requests]
        except ExceptionGroup as errors:  # the first error cancelled the other requests
            raise errors.exceptions[0] from None
        for task in tasks:
            answers.update(task.result())
        return answers

    async def close(self) -> None:
        """Close the client."""
        if self._is_open:
            self._is_open = False
            await self._client.close()

    async def _request(self, keys: Sequence[Key]) -> dict[Key, Answer | NoAnswer]:
        """Request some keys until they are answered or all attempts are used."""
        settings = self._settings
        attempts, cause = settings.retries + 1, ""
        for attempt in range(attempts):
            if attempt:
                await self._sleep(jittered_backoff_s(attempt))
            try:
                answers = await self._get_many(keys)
            except OSError as error:  # including TimeoutError
                cause = f"{type(error).__name__}: {error}" if str(error) else "no answer in time"
            else:
                return self._cached(keys, answers)
        reason = (
            f"lookup into {settings.into}: unanswered after {attempts} attempts "
            f"of {settings.timeout_s:g} s ({cause})"
        )
        if settings.on_timeout == "fail":
            raise LookupUnanswered(
                f"{reason}; {len(keys)} keys, the first: {keys[0]!r}",
                data="the epoch is undecided; no sink shows any of it, and nothing is lost",
                do="start the store, give it more time with timeout_s= or retries=, or lower its load "
                "with capacity=; on_timeout='null' or 'dead-letter' continues without an answer",
            )
        return dict.fromkeys(keys, NoAnswer(reason))

    async def _get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Make one request, within the limits of time and concurrency."""
        async with self._slots, asyncio.timeout(self._settings.timeout_s):
            async with self._opening:
                if not self._is_open:
                    await self._client.open()
                    self._is_open = True
            return await self._client.get_many(keys)

    def _cached(self, keys: Sequence[Key], values: Sequence[Answer]) -> dict[Key, Answer]:
        """Return the answers by key, after caching them."""
        if len(values) != len(keys):
            raise SchemaMismatch(
                f"lookup into {self._settings.into}: the client returned {len(values)} answers "
                f"for {len(keys)} keys",
                data="the epoch is undecided; no sink shows any of it, and nothing is lost",
                do="return one answer per key from get_many, in order, None for no value",
            )
        answers = dict(zip(keys, values, strict=True))
        if self._settings.cache:
            self._cache.update(answers)
        return answers


def jittered_backoff_s(failures: int, rng: Callable[[], float] = random.random) -> float:
    """Return the seconds to wait after a number of failures: exponential, capped, with full jitter.

    As in Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    return backoff_s(failures, _INITIAL_BACKOFF_S, _MAX_BACKOFF_S) * rng()
