"""How a page is served: made once for all viewers, and as a stream of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from threading import Lock

from cachetools import TTLCache
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sluicegate.errors import SluicegateError

EVENTS = "text/event-stream"
_PAGES = 64
"""How many pages are remembered while they are fresh."""


class Pages:
    """Turns what makes a page into an endpoint.

    A request that accepts EVENTS, as a browser's EventSource does, gets the page's ETag, and another one
    whenever the page has changed; the browser then fetches the page.

    Args:
        refresh_s: how often a page is made again while somebody views it.
    """

    def __init__(self, refresh_s: float) -> None:
        self._refresh_s = refresh_s
        self._pages: TTLCache[str, Response] = TTLCache(_PAGES, refresh_s / 2)
        self._guard = Lock()
        self._locks = tuple(Lock() for _ in range(_PAGES))

    def __call__(
        self, make: Callable[[Request], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers with a page that was made before, if it is fresh."""

        def page(request: Request) -> Response:
            path = request.url.path
            with self._locks[hash(path) % _PAGES]:
                with self._guard:
                    known = self._pages.get(path)
                if known is None:
                    known = make(request)
                    with self._guard:
                        self._pages[path] = known
            return known

        async def endpoint(request: Request) -> Response:
            if request.headers.get("accept") == EVENTS:
                return StreamingResponse(self._events(page, request), media_type=EVENTS)
            made = await run_in_threadpool(page, request)
            etag = made.headers["etag"]
            if request.headers.get("if-none-match") == etag:
                return Response(status_code=304, headers={"etag": etag})
            return made

        return endpoint

    async def _events(
        self, page: Callable[[Request], Response], request: Request
    ) -> AsyncIterator[str]:
        """Yield the ETag at each change, and a comment otherwise, which shows that the console is alive."""
        last = ""
        while True:
            try:
                etag = (await run_in_threadpool(page, request)).headers["etag"]
            except (SluicegateError, HTTPException) as error:
                etag = f"{type(error).__name__}: the page itself says what happened"
            yield f"data: {etag}\n\n" if etag != last else ": alive\n\n"
            last = etag
            await asyncio.sleep(self._refresh_s)
