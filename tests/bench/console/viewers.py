"""Open pages of the console, as its script keeps them current: server-sent events and fetches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp

UNREAD = 'id="unread"'
"""In the start page while some jobs are not read."""

_EVENTS = {"Accept": "text/event-stream"}


async def fetch(session: aiohttp.ClientSession, url: str, etag: str = "") -> tuple[str, str, int]:
    """Return a page, its ETag and the number of bytes that its body had on the network."""
    headers = {"If-None-Match": etag} if etag else {}
    async with session.get(url, headers=headers) as answer:
        text = await answer.text()
        assert answer.status in (200, 304), (answer.status, text[:500])
        size = int(answer.headers.get("Content-Length", len(text)))
        return text, answer.headers["ETag"], size


async def until_read(session: aiohttp.ClientSession, url: str) -> float:
    """Fetch the start page until every job is on it; return the seconds that took."""
    start_s = time.monotonic()
    while UNREAD in (await fetch(session, url))[0]:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.1)
    return time.monotonic() - start_s


class Viewer:
    """An open page: it fetches itself again at each event. `fetched_s` has the times of the fetches."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.fetched_s: list[float] = []
        self.bytes = 0

    async def watch(self) -> None:
        """Follow the page until it is cancelled."""
        etag = ""
        async with self._session.get(self._url, headers=_EVENTS) as events:
            async for line in events.content:
                if not line.startswith(b"data: "):
                    continue
                start_s = time.monotonic()
                _, etag, size = await fetch(self._session, self._url, etag)
                self.fetched_s.append(time.monotonic() - start_s)
                self.bytes += size


async def watched(
    url: str, count: int, seconds: float, every_s: Callable[[], None]
) -> list[Viewer]:
    """Keep a page open for a number of viewers; call a function each second meanwhile."""
    no_limit = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120.0)
    async with aiohttp.ClientSession(connector=no_limit, timeout=timeout) as session:
        viewers = [Viewer(session, url) for _ in range(count)]
        tasks = [asyncio.create_task(viewer.watch()) for viewer in viewers]
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(every_s)
            for task in tasks:
                if task.done():
                    task.result()  # raises what ended it
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return viewers
