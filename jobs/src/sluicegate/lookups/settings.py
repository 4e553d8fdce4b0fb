"""The settings of a lookup: limits, retries, rows without an answer, and the cache. Travels to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sluicegate.errors import SettingsInvalid

Mode = Literal["ordered", "unordered"]
OnTimeout = Literal["null", "fail", "dead-letter"]


@dataclass(frozen=True)
class Cache:
    """Answers that a worker process caches, including 'no value'.

    The least recently used are evicted first. Changes of the store become visible after `ttl_s`.

    Args:
        rows: maximum number of keys; default 10,000.
        ttl_s: lifetime of an answer in seconds; default 60.

    Raises:
        SettingsInvalid: a value is not above 0.
    """

    rows: int = 10_000
    ttl_s: float = 60.0

    def __post_init__(self) -> None:
        if self.rows < 1 or self.ttl_s <= 0:
            raise SettingsInvalid(
                f"Cache(rows={self.rows}, ttl_s={self.ttl_s:g}) caches nothing",
                data="nothing was started",
                do="set both above 0, or omit the cache",
            )


@dataclass(frozen=True)
class LookupSettings:
    """The arguments of `sluicegate.lookup`; see there. SettingsInvalid names an invalid one."""

    into: str
    mode: Mode = "ordered"
    capacity: int = 8
    timeout_s: float = 1.0
    retries: int = 2
    on_timeout: OnTimeout = "fail"
    cache: Cache | None = None

    def __post_init__(self) -> None:
        modes, outcomes = get_args(Mode), get_args(OnTimeout)
        for wrong, what in (
            (self.mode not in modes, f"mode={self.mode!r}; use {_either(modes)}"),
            (
                self.on_timeout not in outcomes,
                f"on_timeout={self.on_timeout!r}; use {_either(outcomes)}",
            ),
            (self.capacity < 1, f"capacity={self.capacity} is not 1 or more"),
            (self.timeout_s <= 0, f"timeout_s={self.timeout_s:g} is not above 0"),
            (self.retries < 0, f"retries={self.retries} is below 0"),
        ):
            if wrong:
                raise SettingsInvalid(
                    f"lookup into {self.into}: {what}",
                    data="nothing was started",
                    do="correct the argument",
                )


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(map(repr, choices))
