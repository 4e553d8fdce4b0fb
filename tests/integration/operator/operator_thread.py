"""A real operator in a thread of the test process that can be stopped, and killed at any write."""

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

from sluicegate_operator.api.crds import STREAMING_JOB, Kind
from sluicegate_operator.controllers.limits import Limits
from sluicegate_operator.kube import client
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import Json
from sluicegate_operator.operator import Operator, OperatorSettings
from tests.integration.operator.api import eventually

_TIMEOUT_S: Final = 40.0

STORES: Final = tuple(f"{scheme}://127.0.0.1" for scheme in ("http", "https"))
"""Endpoints of the tests' stores: without a list the operator refuses addresses of its own machine."""

OWN_ACCOUNT: Final = ("sluicegate-system", "sluicegate-operator")

Events = AsyncIterator[Json]
EventFilter = Callable[[str, Events], Events]
"""Called with the path of a watch and its events; returns the events that the operator receives."""

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Killed(Exception):
    """The operator was killed here."""


class ObservedApi(Api):
    """An API client whose requests a test observes and can interrupt.

    Args:
        before: called before a request is sent, with method and path; returns the number of the write.
        after: called with that number after the answer.
        answers: collects the HTTP status of each refused request.
        event_filter: filters the events of watches.
    """

    def __init__(
        self,
        inner: Api,
        before: Callable[[str, str], int],
        after: Callable[[int], None],
        answers: list[int],
        event_filter: EventFilter | None,
    ) -> None:
        super().__init__(inner._client)
        self._before, self._after, self._answers = before, after, answers
        self._event_filter = event_filter

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a request of the operator."""
        number = self._before(method, path)
        try:
            return await super().request(method, path, body, query=query, content_type=content_type)
        except asyncio.CancelledError:
            number = 0  # it is not answered, and `Killed` must not replace the cancellation
            raise
        except ApiError as error:
            self._answers.append(error.status)
            raise
        finally:
            self._after(number)

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Events]:
        """Open a watch of the operator."""
        async with super().watch(path, query) as events:
            yield events if self._event_filter is None else self._event_filter(path, events)


class RunningOperator:
    """An operator that serves some namespaces, for the duration of the `with` block.

    Args:
        kubeconfig: of the API server, with the operator's user.
        namespaces: which it serves; the first one contains its Lease.
        clock: seconds since 1970, for its decisions.
        kill_at_write: number of the write at which it is killed; with `kill_after_answer` after the answer.
        before_write: called before each write with its method and path.
        event_filter: filters the events of watches; None: the operator receives them unchanged.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *namespaces: str,
        clock: Callable[[], float] | None = None,
        kill_at_write: int = 0,
        kill_after_answer: bool = False,
        before_write: Callable[[str, str], None] | None = None,
        event_filter: EventFilter | None = None,
    ) -> None:
        """Prepare; nothing runs yet."""
        self._before_write, self._event_filter = before_write, event_filter
        self.answers: Final[list[int]] = []
        """HTTP status of each refused request."""
        self._kubeconfig, self._namespaces = kubeconfig, namespaces
        self._clock = clock
        self._kill_at_write, self._kill_after_answer = kill_at_write, kill_after_answer
        self.writes: Final[list[tuple[str, str]]] = []
        """Method and path of each write, except those of leases and events."""
        self.killed: Final = threading.Event()
        self.operator: Operator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> Self:
        """Start the operator, and return when it serves /healthz."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="operator")
        self._thread.start()
        ready.result(_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """Stop it as SIGTERM does."""
        if self._alive() and self._loop and self._stop:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._join()

    def kill(self) -> None:
        """End it as SIGKILL does: it sends nothing more and releases nothing."""
        if self._alive() and self._loop and self._task:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._join()

    def reconcile_now(self, key: tuple[str, str], kind: Kind = STREAMING_JOB) -> None:
        """Trigger the reconciliation of a resource and wait until it is done."""
        assert self._loop
        assert self.operator
        before = self._reconciliations(kind)
        queues = (self.operator.jobs, self.operator.volumes, self.operator.savepoints)
        queue = next(
            controller.queue for controller in queues if controller.queue.name == kind.name
        )
        self._loop.call_soon_threadsafe(queue.add, key)
        eventually(lambda: self._reconciliations(kind) > before)

    def _reconciliations(self, kind: Kind) -> float:
        assert self.operator
        labels = {"kind": kind.name}
        registry = self.operator.metrics.registry
        return registry.get_sample_value("sluicegate_reconcile_seconds_count", labels) or 0.0

    @property
    def token(self) -> str:
        """The operator's token for the API server."""
        content = json.loads(self._kubeconfig.read_text(encoding="utf-8"))
        return str(content["users"][0]["user"]["token"])

    @property
    def port(self) -> int:
        """Port of its health and metrics."""
        assert self.operator
        return self.operator.health.bound_port

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill it; tests of a shutdown call `stop`."""
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
            self._thread.join(_TIMEOUT_S)
            assert not self._thread.is_alive(), f"the operator does not end: {self._tasks()}"
            self._thread = None
            with warnings.catch_warnings():  # a killed operator leaves connections open
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        if self._failure is not None:
            raise self._failure

    def _serve(self, ready: "Future[None]") -> None:
        try:
            asyncio.run(self._run(ready))
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - `_join` raises it
            if ready.done():
                self._failure = error
            else:
                ready.set_exception(error)

    async def _run(self, ready: "Future[None]") -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.current_task()
        inner = await client.connect(str(self._kubeconfig))
        api = ObservedApi(inner, self._before, self._after, self.answers, self._event_filter)
        settings = OperatorSettings(
            namespaces=self._namespaces,
            limits=Limits(account=OWN_ACCOUNT, endpoints=STORES),
            lease_namespace=self._namespaces[0],
            port=0,
        )
        self.operator = Operator(api, settings)
        if self._clock is not None:
            for controller in (self.operator.jobs, self.operator.volumes, self.operator.savepoints):
                controller.clock = self._clock
        task = asyncio.create_task(self.operator.run(self._stop))
        try:
            while not self.operator.health.bound_port:  # noqa: ASYNC110 - only while starting
                await asyncio.sleep(0.01)
            ready.set_result(None)
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()

    def _counts(self, method: str, path: str) -> bool:
        return method in WRITES and "/leases" not in path and "/events" not in path

    def _before(self, method: str, path: str) -> int:
        if self.killed.is_set():
            raise Killed
        if not self._counts(method, path):
            return 0
        self.writes.append((method, path))
        if self._before_write is not None:
            self._before_write(method, path)
        number = len(self.writes)
        if number == self._kill_at_write and not self._kill_after_answer:
            self._kill_here()
        return number

    def _after(self, number: int) -> None:
        if self.killed.is_set():
            return  # the cancellation of the task must not be replaced
        if number and number == self._kill_at_write and self._kill_after_answer:
            self._kill_here()

    def _kill_here(self) -> None:
        """Kill the operator at this request."""
        self.killed.set()
        assert self._task
        self._task.cancel()
        raise Killed


def spec_of(volume: str = "store", **changes: object) -> dict[str, Any]:
    """Return the spec of a StreamingJob whose driver is restarted almost at once."""
    return {
        "image": "jobs:1",
        "mainModule": "clicks",
        "checkpoint": {"volume": volume},
        "executor": {"instances": 0},
        "restart": {"strategy": "ExponentialDelay", "initialDelaySeconds": 0.1, "jitter": 0.0},
        **changes,
    }
