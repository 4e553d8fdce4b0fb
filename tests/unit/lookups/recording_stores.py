"""A lookup client for tests that records its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sluicegate.lookups.client import Answer, Key


@dataclass
class Store:
    """A store in memory that can be slow, unavailable or wrong, and records its requests.

    Args:
        data: key -> answer.
        failures: raised by the next requests, in order.
        blocked: keys whose requests wait until `gate` is set.
    """

    data: dict[Key, Answer] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    blocked: set[Key] = field(default_factory=set)
    answer: str = "string"
    keys_per_request: int = 2
    requests: list[list[Key]] = field(default_factory=list)
    opened: int = 0
    in_flight: int = 0
    max_in_flight: int = 0

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()

    async def open(self) -> None:
        self.opened += 1

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        self.requests.append(list(keys))
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            if self.blocked & set(keys):
                await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            return [self.data.get(key) for key in keys]
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        self.opened -= 1
