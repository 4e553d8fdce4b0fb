"""How a page is served: made once for all viewers, compressed, and as a stream of its changes."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from cachetools import TTLCache
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sluicegate.errors import SluicegateError

EVENTS = "text/event-stream"
_PAGES = 64
"""How many pages are remembered while they are fresh."""
_COMPRESSED_FROM = 1_000
"""The size in bytes from which a page is compressed."""


@dataclass(frozen=True)
class _Page:
    """A response that was made, as it is and compressed; `compressed` is empty for a small one."""

    response: Response
    compressed: bytes

    @property
    def etag(self) -> str:
        return self.response.headers["etag"]

    @classmethod
    def of(cls, response: Response) -> _Page:
        body = bytes(response.body)
        # the fastest level: pages of many jobs are mostly markup, which shrinks fiftyfold anyway
        return cls(response, gzip.compress(body, 1) if len(body) >= _COMPRESSED_FROM else b"")

    def answer(self, accepted: str) -> Response:
        """Return the response to a browser that accepts some encodings of content."""
        headers = {"etag": self.etag, "vary": "accept-encoding"}
        body = bytes(self.response.body)
        if self.compressed and "gzip" in accepted:
            body, headers["content-encoding"] = self.compressed, "gzip"
        return Response(body, self.response.status_code, headers, self.response.media_type)


class Pages:
    """Turns what makes a page into an endpoint.

    A request that accepts EVENTS, as a browser's EventSource does, gets the page's ETag, and another one
    whenever the page has changed; the browser then fetches the page.

    Args:
        refresh_s: how often a page is made again while somebody views it.
    """

    def __init__(self, refresh_s: float) -> None:
        self._refresh_s = refresh_s
        self._pages: TTLCache[str, _Page] = TTLCache(_PAGES, refresh_s / 2)
        self._making: dict[str, asyncio.Task[_Page]] = {}

    def __call__(
        self, make: Callable[[Request], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers with a page that was made before, if it is fresh."""

        async def endpoint(request: Request) -> Response:
            if request.headers.get("accept") == EVENTS:
                return StreamingResponse(self._events(make, request), media_type=EVENTS)
            page = await self._page(make, request)
            if request.headers.get("if-none-match") == page.etag:
                return Response(status_code=304, headers={"etag": page.etag})
            return page.answer(request.headers.get("accept-encoding", ""))

        return endpoint

    async def _page(self, make: Callable[[Request], Response], request: Request) -> _Page:
        """Return a fresh page. All who wait for it wait for the same one, in a single thread."""
        path = request.url.path
        known = self._pages.get(path)
        if known is not None:
            return known
        making = self._making.get(path)
        if making is None:
            making = asyncio.create_task(
                run_in_threadpool(lambda: _Page.of(make(request))), name=f"console {path}"
            )
            self._making[path] = making
            making.add_done_callback(lambda made: self._made(path, made))
        return await asyncio.shield(making)  # a viewer who leaves takes it from nobody

    def _made(self, path: str, made: asyncio.Task[_Page]) -> None:
        del self._making[path]
        if not made.cancelled() and made.exception() is None:
            self._pages[path] = made.result()

    async def _events(
        self, make: Callable[[Request], Response], request: Request
    ) -> AsyncIterator[str]:
        """Yield the ETag at each change, and a comment otherwise, which shows that the console is alive."""
        last = ""
        while True:
            try:
                etag = (await self._page(make, request)).etag
            except (SluicegateError, HTTPException) as error:
                etag = f"{type(error).__name__}: the page itself says what happened"
            yield f"data: {etag}\n\n" if etag != last else ": alive\n\n"
            last = etag
            await asyncio.sleep(self._refresh_s)
