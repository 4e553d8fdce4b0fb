"""Lookups in a real server: what is asked of it, and what its failures become."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from infra.embedded import RedisEndpoint, RedisServer
from infra.embedded.process import free_ports
from sluicegate.lookups.asking import Asker, NoAnswer
from sluicegate.lookups.client import LookupClient
from sluicegate.lookups.redis_store import RedisHash, RedisKeys
from sluicegate.lookups.settings import LookupSettings
from sluicegate.protocol.errors import AccessDenied, LookupUnanswered, SchemaMismatch, TargetMissing

SETTINGS = LookupSettings("city", timeout_s=30.0, retries=0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def asker(client: LookupClient, settings: LookupSettings = SETTINGS) -> AsyncIterator[Asker]:
    made = Asker(client, settings)
    yield made
    await made.close()


@pytest.fixture
def cities(redis: RedisEndpoint) -> RedisHash:
    """Give a hash of 1,200 cities, of a name that no other test has."""
    name = f"cities-{uuid.uuid4().hex[:8]}"
    with redis.connect() as client:
        client.hset(name, mapping={str(i): f"Zürich {i}" for i in range(1200)})
    return RedisHash(name, url=redis.url)


def commands(redis: RedisEndpoint, name: str) -> int:
    """Return how often a command was called since the server started."""
    with redis.connect() as client:
        found: Any = client.info("commandstats")
        return int(found.get(f"cmdstat_{name}", {"calls": 0})["calls"])


def test_fields_of_a_hash_by_number_text_and_bytes(cities: RedisHash) -> None:
    async def work() -> None:
        async with asker(cities) as one:
            assert await one.ask([7, "8", b"9", "nowhere"]) == {
                7: "Zürich 7", "8": "Zürich 8", b"9": "Zürich 9", "nowhere": None,
            }  # fmt: skip

    run(work())


def test_keys_of_their_own(redis: RedisEndpoint) -> None:
    prefix = f"city-{uuid.uuid4().hex[:8]}:"
    with redis.connect() as client:
        client.set(f"{prefix}7", "Kyiv")

    async def work() -> None:
        async with asker(RedisKeys(prefix, url=redis.url)) as one:
            assert await one.ask([7, "7", 8]) == {7: "Kyiv", "7": "Kyiv", 8: None}

    run(work())


def test_a_thousand_keys_are_three_commands(cities: RedisHash, redis: RedisEndpoint) -> None:
    """1,200 keys in requests of 500."""

    async def work() -> None:
        async with asker(cities) as one:
            found = await one.ask(range(1200))
            assert found == {i: f"Zürich {i}" for i in range(1200)}

    before = commands(redis, "hmget")
    run(work())
    assert commands(redis, "hmget") - before == 3


def test_binary_answers_are_left_alone(redis: RedisEndpoint) -> None:
    name = f"blobs-{uuid.uuid4().hex[:8]}"
    with redis.connect() as client:
        client.hset(name, "a", b"\xff\xfe")

    async def work() -> None:
        async with asker(RedisHash(name, url=redis.url, answer="binary")) as one:
            assert await one.ask(["a"]) == {"a": b"\xff\xfe"}
        async with asker(RedisHash(name, url=redis.url)) as one:
            with pytest.raises(SchemaMismatch, match="'a' is no UTF-8"):
                await one.ask(["a"])

    run(work())


def test_a_key_of_another_type_is_said_and_not_repeated(redis: RedisEndpoint) -> None:
    name = f"text-{uuid.uuid4().hex[:8]}"
    with redis.connect() as client:
        client.set(name, "no hash")

    async def work() -> None:
        async with asker(RedisHash(name, url=redis.url)) as one:
            with pytest.raises(SchemaMismatch, match=f"'{name}': WRONGTYPE"):
                await one.ask([1])

    run(work())


def test_a_refused_password_is_said_and_not_shown(redis: RedisEndpoint) -> None:
    wrong = redis.url.replace("redis://", "redis://me:opensesame@")

    async def work() -> None:
        async with asker(RedisHash("cities", url=wrong)) as one:
            with pytest.raises(AccessDenied, match="Redis at 127") as raised:
                await one.ask([1])
            assert "opensesame" not in str(raised.value)

    run(work())


def test_a_hash_that_is_not_there_is_missing_when_checked(redis: RedisEndpoint) -> None:
    async def work() -> None:
        client = RedisHash("no-such-hash", url=redis.url)
        await client.open()
        with pytest.raises(TargetMissing, match="no-such-hash"):
            await client.check()
        await client.close()

    run(work())


def test_nobody_listens_is_a_store_that_is_away() -> None:
    url = f"redis://127.0.0.1:{free_ports(1)[0]}"

    async def work() -> None:
        async with asker(RedisHash("cities", url=url)) as one:
            with pytest.raises(LookupUnanswered, match="unanswered after 1 tries"):
                await one.ask([1])

    run(work())


# --- a server that hangs or dies -----------------------------------------------------------------


def filled(server: RedisServer) -> RedisHash:
    with server.endpoint.connect() as client:
        client.hset("cities", mapping={str(i): f"city {i}" for i in range(2000)})
    return RedisHash("cities", url=server.endpoint.url, keys_per_request=10)


@pytest.mark.faults
def test_late_answers_are_never_taken_for_those_of_other_keys(own_redis: RedisServer) -> None:
    """A server is stopped amid requests and goes on: what it answers then is not read by others."""
    client = filled(own_redis)
    settings = LookupSettings("city", timeout_s=0.2, retries=0, on_timeout="null")

    async def work() -> None:
        async with asker(client, settings) as one:
            await one.ask(range(100))
            pid = own_redis.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            hung = await one.ask(range(100, 300))
            assert all(isinstance(answer, NoAnswer) for answer in hung.values())
            os.kill(pid, signal.SIGCONT)
            patient = Asker(client, SETTINGS)
            patient._is_open = True  # the same connections
            assert await patient.ask(range(1000, 1400)) == {
                i: f"city {i}" for i in range(1000, 1400)
            }

    run(work())


@pytest.mark.faults
def test_a_server_that_is_killed_and_comes_back_is_asked_again(own_redis: RedisServer) -> None:
    """The pool's dead connections do not use up the tries: it starts between a try and the next."""
    client = filled(own_redis)
    pauses = 0

    async def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        own_redis.start()

    async def work() -> None:
        one = Asker(client, LookupSettings("city", timeout_s=30.0, retries=1), pause=pause)
        assert len(await one.ask(range(200))) == 200
        own_redis.kill()
        found = await one.ask(range(200, 400))
        assert found == {i: f"city {i}" for i in range(200, 400)}
        await one.close()

    run(work())
    assert pauses > 0


@pytest.mark.faults
def test_a_server_that_was_killed_is_away(own_redis: RedisServer) -> None:
    """'fail' says so; 'null' goes on without."""
    client = filled(own_redis)

    async def work() -> None:
        async with asker(client) as one:
            await one.ask([1])
            own_redis.kill()
            with pytest.raises(LookupUnanswered):
                await one.ask([1])
        null = LookupSettings("city", retries=1, on_timeout="null")
        async with asker(client, null) as one:
            assert isinstance((await one.ask([1]))[1], NoAnswer)

    run(work())
