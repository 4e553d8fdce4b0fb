"""Lookup clients for Redis and Valkey: fields of a hash (HMGET), or separate keys (MGET).

They connect to one server or proxy and do not support the slots of a Redis Cluster.
"""

from __future__ import annotations

import os
import sys
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

from sluicegate.errors import AccessDenied, SchemaMismatch, SettingsInvalid, TargetMissing
from sluicegate.lookups.client import Answer, Key

REDIS_VARIABLE = "SLUICEGATE_REDIS"

_DENIED = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)


@dataclass
class _RedisClient(ABC):
    """The common part of both clients.

    Answers are decoded from UTF-8 if `answer` is 'string', and unchanged if it is 'binary'.
    """

    name: str
    url: str | None = field(default=None, repr=False)
    answer: str = "string"
    keys_per_request: int = 500
    _redis: Redis | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Resolve the server's address on the driver: executors may have other variables."""
        self.url = self.url or os.environ.get(REDIS_VARIABLE)
        if not self.url:
            what, do = "no address of Redis", f"set url='redis://host:port' or {REDIS_VARIABLE}"
        elif self.answer not in ("string", "binary"):
            what, do = f"answer={self.answer!r}", "use 'string' or 'binary'"
        elif self.keys_per_request < 1:
            what, do = f"keys_per_request={self.keys_per_request}", "set it to 1 or more"
        else:
            return
        raise SettingsInvalid(
            f"{type(self).__name__}({self.name!r}) has {what}", data="nothing was read", do=do
        )

    async def open(self) -> None:
        """Create the connection pool; it connects at the first request."""
        assert self.url is not None
        # `KeyFetcher` handles retries, timeouts and the number of concurrent requests, the same way
        # for every client. A pool of redis-py 8 has a limit of its own, 100 connections by default.
        self._redis = Redis.from_url(
            self.url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            protocol=2,
            max_connections=sys.maxsize,
        )

    async def get_many(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Return the answers in the order of the keys; see `client.LookupClient`."""
        with self._translate_errors():
            values = await self._fetch(self._open_redis(), keys)
        if self.answer == "binary":
            return values
        return [self._decode(key, value) for key, value in zip(keys, values, strict=True)]

    async def close(self) -> None:
        """Close the pool."""
        if self._redis is not None:
            await self._redis.aclose()
            self._redis = None

    @abstractmethod
    async def _fetch(self, redis: Redis, keys: Sequence[Key]) -> list[bytes | None]: ...

    def _open_redis(self) -> Redis:
        assert self._redis is not None, "open() comes first"
        return self._redis

    def _decode(self, key: Key, value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError as error:
            raise SchemaMismatch(
                f"{self._where}: the value of {key!r} is not UTF-8",
                data="the epoch is undecided; no sink shows any of it, and nothing is lost",
                do="correct the value in the store, or use answer='binary'",
            ) from error

    @property
    def _where(self) -> str:
        parts = urlsplit(self.url or "")  # the URL may contain a password
        return f"Redis at {parts.hostname}:{parts.port or 6379}, {self.name!r}"

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors; a ConnectionError: the server is unavailable, or still loading its data."""
        try:
            yield
        except _DENIED as error:  # first: in redis-py a refused password is a ConnectionError
            raise AccessDenied(
                f"{self._where}: {error}",
                data="nothing was read; no row was written",
                do=f"correct the user and the password in url= or {REDIS_VARIABLE}, or the ACL",
            ) from error
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise ConnectionError(f"{self._where}: {error}") from error
        except exceptions.ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            raise SchemaMismatch(
                f"{self._where}: {error}",
                data="nothing was read; no row was written",
                do="use RedisHash for a hash, RedisKeys for strings",
            ) from error


@dataclass
class RedisHash(_RedisClient):
    """Looks up the fields of one Redis hash.

    Args:
        name: the hash's key in Redis.
        url: redis://user:password@host:port/db, or rediss:// for TLS; default: SLUICEGATE_REDIS.
        answer: 'string' (UTF-8, the default) or 'binary'.
        keys_per_request: most fields in one HMGET; default 500.

    Raises:
        SettingsInvalid: there is no URL, or a value is invalid.
    """

    async def check(self) -> None:
        """Check that the key exists (Redis has no empty hashes) and is a hash."""
        with self._translate_errors():
            fields = await self._open_redis().hlen(self.name)
        if not fields:
            raise TargetMissing(
                f"{self._where}: the hash does not exist",
                data="nothing was read or written",
                do="fill it first, or correct its name or the database number in the URL",
            )

    async def _fetch(self, redis: Redis, keys: Sequence[Key]) -> list[bytes | None]:
        return await cast("Awaitable[list[Any]]", redis.hmget(self.name, list(keys)))


@dataclass
class RedisKeys(_RedisClient):
    """Looks up Redis strings: the answer for key k is the value of `<name>k`.

    Args:
        name: the prefix of the keys, such as 'city:'; may be empty.
        url: as for RedisHash, like the other arguments and the error.
    """

    async def check(self) -> None:
        """Check that the login works."""
        with self._translate_errors():
            await self._open_redis().ping()

    async def _fetch(self, redis: Redis, keys: Sequence[Key]) -> list[bytes | None]:
        prefix = self.name.encode()
        names = [prefix + (key if isinstance(key, bytes) else str(key).encode()) for key in keys]
        return await cast("Awaitable[list[Any]]", redis.mget(names))
