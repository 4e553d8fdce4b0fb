"""A proxy between the operator and the API server that a test can freeze without closing a connection."""

import asyncio
import json
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self


class FreezableProxy:
    """A TCP proxy on loopback, for the duration of the `with` block.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        """Prepare; nothing listens yet."""
        self._target_port = port
        self.port = 0
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._serve, name="wire")
        self._ready: Final[Future[int]] = Future()
        self._stopped: asyncio.Event | None = None

    def freeze(self) -> None:
        """Stop forwarding on all open connections; new connections work."""

        def stop() -> None:
            for pump in list(self._pumps):
                pump.cancel()

        self._loop.call_soon_threadsafe(stop)

    def kubeconfig(self, original: Path, folder: Path) -> Path:
        """Write a kubeconfig that uses the proxy; return its path."""
        content = json.loads(original.read_text(encoding="utf-8"))
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path = folder / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def __enter__(self) -> Self:
        """Start listening."""
        self._thread.start()
        self.port = self._ready.result(10.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        assert self._stopped
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10.0)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._ready.set_result(server.sockets[0].getsockname()[1])
        await self._stopped.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await asyncio.sleep(0.1)  # the loop closes the aborted connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers += [writer, server_writer]
        for source, target in ((reader, server_writer), (server_reader, writer)):
            pump = asyncio.create_task(_pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Forward data; a cancelled pump leaves both ends open."""
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    except OSError:
        pass  # one end was closed, so the other is closed too
    target.close()
