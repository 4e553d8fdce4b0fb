"""Lookups in Redis or Valkey: a field of a hash (HMGET), or a key of its own (MGET).

One server or proxy at a URL; a Redis Cluster's slots are not known here. Called by `asking`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sluicegate.lookups.client import Answer, Key
from sluicegate.protocol.errors import AccessDenied, SchemaMismatch, SettingsInvalid, TargetMissing

REDIS_VARIABLE = "SLUICEGATE_REDIS"

_DENIED = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_AWAY = (exceptions.ConnectionError, exceptions.TimeoutError)


@dataclass
class _RedisClient(ABC):
    """What both kinds share.

    Answers are decoded from UTF-8 where `answer` is 'string', and left alone where it is 'binary'.
    """

    name: str
    url: str | None = field(default=None, repr=False)
    answer: str = "string"
    keys_per_request: int = 500
    _redis: Redis | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the server's address here, on the driver: executors may have other variables."""
        self.url = self.url or os.environ.get(REDIS_VARIABLE)
        for wrong, what, do in (
            (
                not self.url,
                "does not know where Redis is",
                f"give url='redis://host:port', or set {REDIS_VARIABLE}",
            ),
            (
                self.answer not in ("string", "binary"),
                f"has answer={self.answer!r}",
                "use 'string' or 'binary'",
            ),
            (
                self.keys_per_request < 1,
                f"has keys_per_request={self.keys_per_request}",
                "set it to 1 or more",
            ),
        ):
            if wrong:
                raise SettingsInvalid(
                    f"{type(self).__name__}({self.name!r}) {what}", data="nothing was read", do=do
                )

    async def open(self) -> None:
        """Make the connection pool; it connects when it is asked."""
        assert self.url is not None
        # the asker repeats and limits, so that both are the same for every client
        self._redis = Redis.from_url(
            self.url, retry=Retry(NoBackoff(), 0), socket_timeout=None, protocol=2
        )

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Return the answers in the order of the keys; see `client.LookupClient`."""
        with self._translated():
            found = await self._ask(self._open_redis(), keys)
        if self.answer == "binary":
            return found
        return [self._decoded(key, value) for key, value in zip(keys, found, strict=True)]

    async def close(self) -> None:
        """Close the pool."""
        if self._redis is not None:
            await self._redis.aclose()
            self._redis = None

    @abstractmethod
    async def _ask(self, redis: Redis, keys: Sequence[Key]) -> list[bytes | None]: ...

    def _open_redis(self) -> Redis:
        assert self._redis is not None, "open() comes first"
        return self._redis

    def _decoded(self, key: Key, value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError as error:
            raise SchemaMismatch(
                f"{self._where}: the answer to {key!r} is no UTF-8 text",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="correct the value in the store, or ask for answer='binary'",
            ) from error

    @property
    def _where(self) -> str:
        parts = urlsplit(self.url or "")  # the URL may hold a password
        return f"Redis at {parts.hostname}:{parts.port or 6379}, {self.name!r}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Say in our terms what Redis said.

        Raises:
            AccessDenied: no retry can help.
            SchemaMismatch: the key holds another type.
            ConnectionError: it is away, or still loading its data.
        """
        try:
            yield
        except (
            _DENIED
        ) as error:  # before _AWAY: a refused password is a ConnectionError to redis-py
            raise AccessDenied(
                f"{self._where}: {error}",
                data="nothing was read; no row was written",
                do=f"correct the user and the password in url= or {REDIS_VARIABLE}, or the ACL",
            ) from error
        except _AWAY as error:
            raise ConnectionError(f"{self._where}: {error}") from error
        except exceptions.ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            raise SchemaMismatch(
                f"{self._where}: {error}",
                data="nothing was read; no row was written",
                do="name a key of the right type: RedisHash a hash, RedisKeys the prefix of strings",
            ) from error


@dataclass
class RedisHash(_RedisClient):
    """The fields of one Redis hash: the key is the field, the answer its value.

    Args:
        name: the hash's key in Redis.
        url: redis://user:password@host:port/db, or rediss:// for TLS; default SLUICEGATE_REDIS.
        answer: 'string' (UTF-8, the default) or 'binary'.
        keys_per_request: fields in one HMGET at most; default 500.

    Raises:
        SettingsInvalid: there is no URL, or a value that cannot work.
    """

    async def check(self) -> None:
        """See that the hash is there; see `client.CheckedClient`.

        Raises:
            TargetMissing: there is no such key: Redis has no empty hashes.
            SchemaMismatch: it is no hash.
        """
        with self._translated():
            there = await self._open_redis().hlen(self.name)
        if not there:
            raise TargetMissing(
                f"{self._where}: there is no such hash",
                data="nothing was read or written",
                do="fill it first, or correct its name or the database's number in the URL",
            )

    async def _ask(self, redis: Redis, keys: Sequence[Key]) -> list[bytes | None]:
        return await cast("Awaitable[list[Any]]", redis.hmget(self.name, list(keys)))


@dataclass
class RedisKeys(_RedisClient):
    """Redis strings: the answer to key k is the value of `<name>k`.

    Args:
        name: the prefix of the keys, such as 'city:'; may be empty.
        url: as of RedisHash.
        answer: 'string' (UTF-8, the default) or 'binary'.
        keys_per_request: keys in one MGET at most; default 500.

    Raises:
        SettingsInvalid: there is no URL, or a value that cannot work.
    """

    async def check(self) -> None:
        """See that the server lets us in; see `client.CheckedClient`."""
        with self._translated():
            await self._open_redis().ping()

    async def _ask(self, redis: Redis, keys: Sequence[Key]) -> list[bytes | None]:
        prefix = self.name.encode()
        names = [prefix + (key if isinstance(key, bytes) else str(key).encode()) for key in keys]
        return await cast("Awaitable[list[Any]]", redis.mget(names))
