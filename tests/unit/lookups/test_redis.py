"""The clients for Redis, against a server in the test that answers each field with a city."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter

from sluicegate.lookups.fetcher import KeyFetcher
from sluicegate.lookups.redis import RedisHash
from sluicegate.lookups.settings import LookupSettings


async def _command(reader: StreamReader) -> list[bytes]:
    """Return a command of a client: an array of bulk strings; empty at the end of the connection."""
    words = []
    for _ in range(int((await reader.readline())[1:] or 0)):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


class _Server:
    """Holds back its answers until it has so many requests at once."""

    def __init__(self, requests: int) -> None:
        self._all_requests = asyncio.Barrier(requests)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        while words := await _command(reader):
            if words[0] == b"HMGET":
                await self._all_requests.wait()
                fields = words[2:]
                writer.write(b"*%d\r\n" % len(fields) + b"$4\r\nKyiv\r\n" * len(fields))
            else:
                writer.write(b"+OK\r\n")
        writer.close()


def test_as_many_requests_as_the_capacity_are_in_flight() -> None:
    """redis-py 8 limits a pool to 100 connections, and fails the request that needs another one."""

    async def work() -> None:
        capacity = 150
        server = await asyncio.start_server(_Server(capacity).serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = RedisHash("cities", url=f"redis://127.0.0.1:{port}/0", keys_per_request=1)
        settings = LookupSettings("city", capacity=capacity, timeout_s=30.0, retries=0)
        fetcher = KeyFetcher(client, settings)
        answers = await fetcher.fetch(range(capacity))
        assert set(answers.values()) == {"Kyiv"}
        await fetcher.close()
        server.close()

    asyncio.run(work())
