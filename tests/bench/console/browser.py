"""The first paint of a page in Chromium, by its own clock (Paint Timing)."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_START_S = 60.0
_PAINT = """
new Promise(done => {
  const look = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    paint ? requestAnimationFrame(() => done(paint.startTime)) : setTimeout(look, 10);
  };
  look();
})
"""


def installed() -> str:
    """Return the path of Chromium, empty if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


@contextmanager
def _chromium(binary: str) -> Iterator[Path]:
    """Run Chromium; yield the folder of its profile."""
    # ignoring errors: its processes may still write into the profile when the first of them has ended
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        process = subprocess.Popen(
            [binary, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield folder
        finally:
            process.terminate()
            process.wait()


async def first_paint_ms(binary: str, url: str) -> float:
    """Return the time from the start of a navigation to the first paint of content, in ms."""
    with _chromium(binary) as folder:
        port = _port(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                (page,) = (each for each in await answer.json() if each["type"] == "page")
            socket_url = page["webSocketDebuggerUrl"]
            async with session.ws_connect(socket_url, max_msg_size=0) as socket:
                await _call(socket, 1, "Page.enable")
                await _call(socket, 2, "Page.navigate", url=url)
                await asyncio.sleep(0.2)  # until the new document has replaced the old one
                evaluated = await _call(
                    socket, 3, "Runtime.evaluate", expression=_PAINT, awaitPromise=True
                )
                return float(evaluated["result"]["value"])


def _port(file: Path) -> str:
    """Return the port of the DevTools protocol, which Chromium writes to a file when it listens."""
    end_s = time.monotonic() + _START_S
    while not file.is_file() or not file.read_text(encoding="utf-8").strip():
        assert time.monotonic() < end_s, f"Chromium did not start within {_START_S:g} s"
        time.sleep(0.05)
    return file.read_text(encoding="utf-8").split()[0]


async def _call(
    socket: aiohttp.ClientWebSocketResponse,
    number: int,
    method: str,
    **params: Any,  # noqa: ANN401 - of the DevTools protocol
) -> dict[str, Any]:
    await socket.send_str(json.dumps({"id": number, "method": method, "params": params}))
    async for message in socket:
        answer = json.loads(message.data)
        if answer.get("id") == number:
            assert "result" in answer, answer
            return dict(answer["result"])
    raise AssertionError(f"Chromium ended before it answered {method}")
