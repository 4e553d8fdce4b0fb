"""What a store must offer to be looked up in, and the adapter for a plain async function.

Not here: limits, repeats and caching (`asking`). Written by users; called on the event loop of a
worker process. Traps:

- A client is pickled on the driver and opened in each worker process: it must be picklable until
  `open`, and every worker has its own.
- `get_many` runs up to `capacity` times at once, and is cancelled at its timeout. It must not
  block: nothing else runs on the loop meanwhile, not even the timeout.
- A key may be asked again, and in any company: what `get_many` answers must not depend on it.
- `close` may never be called: worker processes are killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Key = str | int | bytes
Answer = Any
"""Whatever fits the client's `answer` type; None: the store has nothing under the key."""


class LookupClient(Protocol):
    """A store that answers by key.

    What stands for a server that is away for now is an OSError (so a ConnectionError, or a
    TimeoutError): it is asked again. Any other exception fails the epoch at once.
    """

    @property
    def answer(self) -> str:
        """The Spark type of an answer, such as 'string' or 'struct<name: string, hits: bigint>'."""

    @property
    def keys_per_request(self) -> int:
        """How many keys one `get_many` is given at most."""

    async def open(self) -> None:
        """Make ready to be asked; called again after it raised."""

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Return the answers in the order of the keys, None where there is nothing."""

    async def close(self) -> None:
        """Let go of all connections."""


@runtime_checkable
class CheckedClient(LookupClient, Protocol):
    """A client that can say beforehand that it cannot work."""

    async def check(self) -> None:
        """Look at the store; called once, on the driver, between `open` and `close`.

        Raises:
            PreflightFailed: or one of its kinds; the job does not start.
            OSError: the store does not answer.
        """


@dataclass(frozen=True)
class AskEach:
    """An async function of one key as a client: a request is a call.

    Args:
        function: returns the answer, None for nothing. Where it needs a connection pool it keeps
            its own.
        answer: the Spark type of an answer; default 'string'.
    """

    function: Callable[[Any], Awaitable[Answer]]
    answer: str = "string"
    keys_per_request: int = 1

    async def open(self) -> None:
        """Nothing to open."""

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Call the function for each key; see `LookupClient`."""
        return [await self.function(key) for key in keys]

    async def close(self) -> None:
        """Nothing to close."""
