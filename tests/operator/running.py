"""A real operator in a thread of the test's own process: started, stopped, killed anywhere.

Not collected by itself. Called by the tests of this folder and by the benchmark.
"""

import asyncio
import gc
import json
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sluicegate_operator.cluster import client
from sluicegate_operator.cluster.client import Api, ApiError, Json
from sluicegate_operator.resources.kinds import STREAMING_JOB, Kind
from sluicegate_operator.service.operator import Operator, OperatorSettings
from tests.operator.api import eventually

_PATIENCE_S: Final = 40.0

Events = AsyncIterator[Json]
Between = Callable[[str, Events], Events]
"""Gets the path of a watch and its events, and returns what the operator sees of them."""

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Cut(Exception):
    """The operator was killed here."""


class WatchedApi(Api):
    """An API server whose requests a test sees, and can cut off.

    Args:
        before: called before a request is sent, with method and path; returns the number of the write.
        after: called with that number when it was answered.
        answers: gets the status of each that was refused.
        between: stands between the server's watches and the operator.
    """

    def __init__(
        self,
        inner: Api,
        before: Callable[[str, str], int],
        after: Callable[[int], None],
        answers: list[int],
        between: Between | None,
    ) -> None:
        super().__init__(inner._client)
        self._before, self._after, self._answers = before, after, answers
        self._between = between

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a request as the operator does."""
        number = self._before(method, path)
        try:
            return await super().request(method, path, body, query=query, content_type=content_type)
        except ApiError as error:
            self._answers.append(error.status)
            raise
        finally:
            self._after(number)

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Events]:
        """Open a watch as the operator does."""
        async with super().watch(path, query) as events:
            yield events if self._between is None else self._between(path, events)


class RunningOperator:
    """An operator that serves some namespaces, for as long as the `with` block lasts.

    Args:
        kubeconfig: of the API server, as the operator's user.
        namespaces: that it serves; the first has its lease.
        clock: seconds since 1970, for its decisions.
        cut_at: the number of the write at which it is killed; with `cut_after` once it was answered.
        before_write: called before each write with its method and path.
        between: stands between the server's watches and the operator; None: nothing does.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *namespaces: str,
        clock: Callable[[], float] | None = None,
        cut_at: int = 0,
        cut_after: bool = False,
        before_write: Callable[[str, str], None] | None = None,
        between: Between | None = None,
    ) -> None:
        """Nothing starts yet."""
        self._before_write, self._between = before_write, between
        self.answers: Final[list[int]] = []
        """HTTP's status of each write that was refused."""
        self._kubeconfig, self._namespaces = kubeconfig, namespaces
        self._clock = clock
        self._cut_at, self._cut_after = cut_at, cut_after
        self.writes: Final[list[tuple[str, str]]] = []
        """Of anything but leases and events."""
        self.cut: Final = threading.Event()
        self.operator: Operator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> Self:
        """Start it, and return when it serves health."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="operator")
        self._thread.start()
        ready.result(_PATIENCE_S)
        return self

    def stop(self) -> None:
        """Stop it as SIGTERM does."""
        if self._alive() and self._loop and self._stop:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._join()

    def kill(self) -> None:
        """End it as SIGKILL does: nothing more is sent, nothing is released."""
        if self._alive() and self._loop and self._task:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._join()

    def look(self, key: tuple[str, str], kind: Kind = STREAMING_JOB) -> None:
        """Have a resource looked at, and return when it was."""
        assert self._loop
        assert self.operator
        before = self._looks(kind)
        queues = (self.operator.jobs, self.operator.volumes, self.operator.savepoints)
        queue = next(one.queue for one in queues if one.queue.name == kind.name)
        self._loop.call_soon_threadsafe(queue.add, key)
        eventually(lambda: self._looks(kind) > before)

    def _looks(self, kind: Kind) -> float:
        assert self.operator
        labels = {"kind": kind.name}
        registry = self.operator.metrics.registry
        return registry.get_sample_value("sluicegate_reconcile_seconds_count", labels) or 0.0

    @property
    def token(self) -> str:
        """What the operator shows the API server."""
        content = json.loads(self._kubeconfig.read_text(encoding="utf-8"))
        return str(content["users"][0]["user"]["token"])

    @property
    def port(self) -> int:
        """Of its health and metrics."""
        assert self.operator
        return self.operator.health.bound

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill; `stop` is for tests of stopping."""
        self.kill()

    def _tasks(self) -> str:
        assert self._loop
        return "\n".join(
            f"{task.get_name()}: {task.get_stack(limit=3)}"
            for task in asyncio.all_tasks(self._loop)
        )

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _join(self) -> None:
        if self._thread:
            self._thread.join(_PATIENCE_S)
            assert not self._thread.is_alive(), f"the operator does not end: {self._tasks()}"
            self._thread = None
            with warnings.catch_warnings():  # one that is killed closes nothing
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        if self._failure is not None:
            raise self._failure

    def _serve(self, ready: "Future[None]") -> None:
        try:
            asyncio.run(self._run(ready))
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by whoever joins
            if ready.done():
                self._failure = error
            else:
                ready.set_exception(error)

    async def _run(self, ready: "Future[None]") -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.current_task()
        inner = await client.connect(str(self._kubeconfig))
        api = WatchedApi(inner, self._before, self._after, self.answers, self._between)
        settings = OperatorSettings(
            namespaces=self._namespaces,
            lease_namespace=self._namespaces[0],
            port=0,
        )
        self.operator = Operator(api, settings)
        if self._clock is not None:
            for one in (self.operator.jobs, self.operator.volumes, self.operator.savepoints):
                one.clock = self._clock
        running = asyncio.create_task(self.operator.run(self._stop))
        try:
            while not self.operator.health.bound:  # noqa: ASYNC110 - at a start only
                await asyncio.sleep(0.01)
            ready.set_result(None)
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await api.close()

    def _counts(self, method: str, path: str) -> bool:
        return method in WRITES and "/leases" not in path and "/events" not in path

    def _before(self, method: str, path: str) -> int:
        if self.cut.is_set():
            raise Cut
        if not self._counts(method, path):
            return 0
        self.writes.append((method, path))
        if self._before_write is not None:
            self._before_write(method, path)
        number = len(self.writes)
        if number == self._cut_at and not self._cut_after:
            self._end()
        return number

    def _after(self, number: int) -> None:
        if self.cut.is_set():
            return  # it is being cancelled: that must come through
        if number and number == self._cut_at and self._cut_after:
            self._end()

    def _end(self) -> None:
        """Die here: this request is the last, or was."""
        self.cut.set()
        assert self._task
        self._task.cancel()
        raise Cut


def spec_of(volume: str = "store", **changes: object) -> dict[str, Any]:
    """Return a StreamingJob's spec whose driver starts again at once."""
    return {
        "image": "jobs:1",
        "mainModule": "clicks",
        "checkpoint": {"volume": volume},
        "executor": {"instances": 0},
        "restart": {"strategy": "exponential-delay", "initialDelayS": 0.1, "jitter": 0.0},
        **changes,
    }
