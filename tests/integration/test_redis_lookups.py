"""Lookups in a real server: the commands that it receives, and its failures."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from infra.local_services import RedisEndpoint, RedisServer
from infra.local_services.process import free_ports
from sluicegate.errors import AccessDenied, LookupUnanswered, SchemaMismatch, TargetMissing
from sluicegate.lookups.client import LookupClient
from sluicegate.lookups.fetcher import KeyFetcher, NoAnswer
from sluicegate.lookups.redis import RedisHash, RedisKeys
from sluicegate.lookups.settings import LookupSettings

SETTINGS = LookupSettings("city", timeout_s=30.0, retries=0)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@asynccontextmanager
async def fetcher(
    client: LookupClient, settings: LookupSettings = SETTINGS
) -> AsyncIterator[KeyFetcher]:
    fetcher = KeyFetcher(client, settings)
    yield fetcher
    await fetcher.close()


@pytest.fixture
def cities(redis: RedisEndpoint) -> RedisHash:
    """Create a hash of 1,200 cities with a unique name."""
    name = f"cities-{uuid.uuid4().hex[:8]}"
    with redis.connect() as client:
        client.hset(name, mapping={str(i): f"Zürich {i}" for i in range(1200)})
    return RedisHash(name, url=redis.url)


def command_count(redis: RedisEndpoint, name: str) -> int:
    """Return how many calls of a command the server has counted."""
    with redis.connect() as client:
        statistics: Any = client.info("commandstats")
        return int(statistics.get(f"cmdstat_{name}", {"calls": 0})["calls"])


def test_hash_fields_are_found_by_number_text_and_bytes(cities: RedisHash) -> None:
    async def work() -> None:
        async with fetcher(cities) as key_fetcher:
            assert await key_fetcher.fetch([7, "8", b"9", "nowhere"]) == {
                7: "Zürich 7", "8": "Zürich 8", b"9": "Zürich 9", "nowhere": None,
            }  # fmt: skip

    run(work())


def test_separate_keys_are_found_by_prefix(redis: RedisEndpoint) -> None:
    prefix = f"city-{uuid.uuid4().hex[:8]}:"
    with redis.connect() as client:
        client.set(f"{prefix}7", "Kyiv")

    async def work() -> None:
        async with fetcher(RedisKeys(prefix, url=redis.url)) as key_fetcher:
            assert await key_fetcher.fetch([7, "7", 8]) == {7: "Kyiv", "7": "Kyiv", 8: None}

    run(work())


def test_1200_keys_are_three_commands(cities: RedisHash, redis: RedisEndpoint) -> None:
    """1,200 keys in requests of 500."""

    async def work() -> None:
        async with fetcher(cities) as key_fetcher:
            answers = await key_fetcher.fetch(range(1200))
            assert answers == {i: f"Zürich {i}" for i in range(1200)}

    before = command_count(redis, "hmget")
    run(work())
    assert command_count(redis, "hmget") - before == 3


def test_binary_answers_are_not_decoded(redis: RedisEndpoint) -> None:
    name = f"blobs-{uuid.uuid4().hex[:8]}"
    with redis.connect() as client:
        client.hset(name, "a", b"\xff\xfe")

    async def work() -> None:
        async with fetcher(RedisHash(name, url=redis.url, answer="binary")) as key_fetcher:
            assert await key_fetcher.fetch(["a"]) == {"a": b"\xff\xfe"}
        async with fetcher(RedisHash(name, url=redis.url)) as key_fetcher:
            with pytest.raises(SchemaMismatch, match="'a' is not UTF-8"):
                await key_fetcher.fetch(["a"])

    run(work())


def test_a_key_of_another_type_is_an_error(redis: RedisEndpoint) -> None:
    name = f"text-{uuid.uuid4().hex[:8]}"
    with redis.connect() as client:
        client.set(name, "no hash")

    async def work() -> None:
        async with fetcher(RedisHash(name, url=redis.url)) as key_fetcher:
            with pytest.raises(SchemaMismatch, match=f"'{name}': WRONGTYPE"):
                await key_fetcher.fetch([1])

    run(work())


def test_a_refused_password_is_reported_and_not_shown(redis: RedisEndpoint) -> None:
    wrong_url = redis.url.replace("redis://", "redis://me:opensesame@")

    async def work() -> None:
        async with fetcher(RedisHash("cities", url=wrong_url)) as key_fetcher:
            with pytest.raises(AccessDenied, match="Redis at 127") as error_info:
                await key_fetcher.fetch([1])
            assert "opensesame" not in str(error_info.value)

    run(work())


def test_the_check_finds_a_missing_hash(redis: RedisEndpoint) -> None:
    async def work() -> None:
        client = RedisHash("no-such-hash", url=redis.url)
        await client.open()
        with pytest.raises(TargetMissing, match="no-such-hash"):
            await client.check()
        await client.close()

    run(work())


def test_a_closed_port_is_an_unavailable_store() -> None:
    url = f"redis://127.0.0.1:{free_ports(1)[0]}"

    async def work() -> None:
        async with fetcher(RedisHash("cities", url=url)) as key_fetcher:
            with pytest.raises(LookupUnanswered, match="unanswered after 1 attempts"):
                await key_fetcher.fetch([1])

    run(work())


# --- a server that hangs or dies -----------------------------------------------------------------


def fill_hash(server: RedisServer) -> RedisHash:
    with server.endpoint.connect() as client:
        client.hset("cities", mapping={str(i): f"city {i}" for i in range(2000)})
    return RedisHash("cities", url=server.endpoint.url, keys_per_request=10)


@pytest.mark.faults
def test_late_answers_are_never_mistaken_for_those_of_other_keys(own_redis: RedisServer) -> None:
    """A server is frozen during requests and continues: no other request reads its late answers."""
    client = fill_hash(own_redis)
    settings = LookupSettings("city", timeout_s=0.2, retries=0, on_timeout="null")

    async def work() -> None:
        async with fetcher(client, settings) as key_fetcher:
            await key_fetcher.fetch(range(100))
            pid = own_redis.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            unanswered = await key_fetcher.fetch(range(100, 300))
            assert all(isinstance(answer, NoAnswer) for answer in unanswered.values())
            os.kill(pid, signal.SIGCONT)
            second_fetcher = KeyFetcher(client, SETTINGS)
            second_fetcher._is_open = True  # the same connections
            assert await second_fetcher.fetch(range(1000, 1400)) == {
                i: f"city {i}" for i in range(1000, 1400)
            }

    run(work())


@pytest.mark.faults
def test_requests_to_a_server_that_is_killed_and_restarted_are_retried(
    own_redis: RedisServer,
) -> None:
    """The server starts between two attempts; dead connections of the pool use up no attempt."""
    client = fill_hash(own_redis)
    sleeps = 0

    async def sleep(_seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        own_redis.start()

    async def work() -> None:
        key_fetcher = KeyFetcher(
            client, LookupSettings("city", timeout_s=30.0, retries=1), sleep=sleep
        )
        assert len(await key_fetcher.fetch(range(200))) == 200
        own_redis.kill()
        answers = await key_fetcher.fetch(range(200, 400))
        assert answers == {i: f"city {i}" for i in range(200, 400)}
        await key_fetcher.close()

    run(work())
    assert sleeps > 0


@pytest.mark.faults
def test_a_killed_server_is_unavailable(own_redis: RedisServer) -> None:
    """'fail' raises an error; 'null' continues without an answer."""
    client = fill_hash(own_redis)

    async def work() -> None:
        async with fetcher(client) as key_fetcher:
            await key_fetcher.fetch([1])
            own_redis.kill()
            with pytest.raises(LookupUnanswered):
                await key_fetcher.fetch([1])
        null = LookupSettings("city", retries=1, on_timeout="null")
        async with fetcher(client, null) as key_fetcher:
            assert isinstance((await key_fetcher.fetch([1]))[1], NoAnswer)

    run(work())
