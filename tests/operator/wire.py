"""A wire between the operator and the API server that a test can freeze without anyone being told.

Called by tests.
"""

import asyncio
import json
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self


class Wire:
    """A TCP proxy on loopback, for as long as the `with` block lasts.

    Args:
        port: that it leads to.
    """

    def __init__(self, port: int) -> None:
        """Nothing listens yet."""
        self._to = port
        self.port = 0
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._serve, name="wire")
        self._ready: Final[Future[int]] = Future()
        self._over: asyncio.Event | None = None

    def freeze(self) -> None:
        """Let nothing more through on connections that are open; new ones work."""

        def stop() -> None:
            for pump in list(self._pumps):
                pump.cancel()

        self._loop.call_soon_threadsafe(stop)

    def kubeconfig(self, given: Path, folder: Path) -> Path:
        """Write a kubeconfig that leads through the wire; return its path."""
        content = json.loads(given.read_text(encoding="utf-8"))
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        made = folder / "kubeconfig"
        made.touch(mode=0o600)
        made.write_text(json.dumps(content), encoding="utf-8")
        return made

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        self.port = self._ready.result(10.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        assert self._over
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10.0)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._ready.set_result(server.sockets[0].getsockname()[1])
        await self._over.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await asyncio.sleep(0.1)  # what was aborted is closed by the loop

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, there_writer]
        for source, target in ((reader, there_writer), (there_reader, writer)):
            pump = asyncio.create_task(_pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Hand on what comes; a cancelled pump leaves both ends open, and hands nothing on."""
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    except OSError:
        pass  # one end is gone: the other is told by its close
    target.close()
