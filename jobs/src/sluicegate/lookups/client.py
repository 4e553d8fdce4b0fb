"""The contract of a lookup client, and an adapter for a plain async function.

Users write clients; they run on the event loop of a worker process. `KeyFetcher` adds limits, retries
and caching. Traps:

- A client is pickled on the driver and opened in each worker process: it must be picklable before
  `open`, and each worker has its own copy.
- `get_many` runs up to `capacity` times concurrently, and is cancelled at its timeout. It must not
  block: a blocked loop runs nothing else, not even the timeout.
- A key may be fetched again, together with any other keys: its answer must not depend on them.
- `close` may never be called, because worker processes are killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Key = str | int | bytes
Answer = Any
"""A value of the client's `answer` type; None: the store has no value for the key."""


class LookupClient(Protocol):
    """A store that returns values by key.

    An OSError, such as a ConnectionError or TimeoutError, means that the server is temporarily
    unavailable: the request is retried. Any other exception fails the epoch at once.
    """

    @property
    def answer(self) -> str:
        """The Spark type of an answer, such as 'string' or 'struct<name: string, hits: bigint>'."""

    @property
    def keys_per_request(self) -> int:
        """The maximum number of keys in one `get_many`."""

    async def open(self) -> None:
        """Prepare for requests; called again if it raised."""

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Return the answers in the order of the keys, None for a key without a value."""

    async def close(self) -> None:
        """Close all connections."""


@runtime_checkable
class CheckedClient(LookupClient, Protocol):
    """A client with a preflight check."""

    async def check(self) -> None:
        """Check the store; called once, on the driver, between `open` and `close`.

        Raises:
            PreflightFailed: or a subclass; the job does not start.
            OSError: the store does not answer.
        """


@dataclass(frozen=True)
class AskEach:
    """An async function of one key as a client; each key is a request.

    Args:
        function: returns the answer, None for no value. It manages its own connection pool.
        answer: the Spark type of an answer; default 'string'.
    """

    function: Callable[[Any], Awaitable[Answer]]
    answer: str = "string"
    keys_per_request: int = 1

    async def open(self) -> None:
        """Do nothing."""

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Call the function for each key; see `LookupClient`."""
        return [await self.function(key) for key in keys]

    async def close(self) -> None:
        """Do nothing."""
