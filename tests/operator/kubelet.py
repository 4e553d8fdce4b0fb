"""A stand-in for kubelet, scheduler and node controller on a real API server.

It binds pods to nodes that it registered, moves their status as a kubelet does, and ends them when
they are deleted. How a container goes is said by a script (`behaviours`), or it is run as a process
of this machine (`process_kubelet`). One container a pod is run, and never restarted (restartPolicy
Never). Not here: tolerations, affinities, resources, probes, volumes, leases. Called by tests and
benchmarks.

Source of the order of things: "Pod Lifecycle" in Kubernetes' documentation (termination of pods,
non-graceful node shutdown).
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from infra.embedded.kubernetes import KubernetesServer
from tests.operator import status
from tests.operator.behaviours import JOB, KILLED, Behaviour, Script
from tests.operator.rest import MERGE, STRATEGIC, Object, Refused, Rest
from tests.operator.sandbox import NEVER_RAN, CannotStart, Ended, NodeState, Sandbox

_PATIENCE_S: Final = 60.0
_SILENT_TAINT: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OUT_OF_SERVICE: Final = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


class Kubelet:
    """Nodes and the pods on them, in a thread of its own, for as long as the `with` block lasts.

    Args:
        server: a running API server.
        nodes: names of the nodes that it registers and is.
        namespace: whose pods it takes; empty: all.
        selector: labels of the pods that it takes.
        connections: to the API server, at a time.
    """

    def __init__(
        self,
        server: KubernetesServer,
        *,
        nodes: Sequence[str] = ("node-1",),
        namespace: str = "",
        selector: str = JOB,
        connections: int = 32,
    ) -> None:
        """Nothing starts yet."""
        self.script: Final = Script()
        self.server: Final = server
        self._names = nodes
        self._where = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._selector = selector
        self._connections = connections
        self._nodes: dict[str, NodeState] = {}
        self._turn = itertools.count()
        self._pods: dict[str, Sandbox] = {}
        self._failures: list[BaseException] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.plan: Final = self.script.plan

    # ---- what a test calls, from its own thread

    def start(self) -> Self:
        """Register the nodes, see the pods that are there, and return."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="kubelet")
        self._thread.start()
        ready.result(_PATIENCE_S)
        return self

    def stop(self) -> None:
        """End all containers without a word, and raise what went wrong. Safe to repeat."""
        if self._thread and self._loop:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_PATIENCE_S)
            self._thread = None
        if self._failures:
            raise BaseExceptionGroup("in the kubelet", self._failures)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def silence(self, node: str) -> None:
        """Cut a node off: its containers run on; Ready is Unknown, as its controller says then."""
        self._call(self._silence(node))

    def answer(self, node: str) -> None:
        """Let a silent node be heard again: what happened meanwhile is reported, deletions are done."""
        self._call(self._answer(node))

    def destroy(self, node: str) -> None:
        """Switch a node off for good: its containers end and nobody says so; Ready is Unknown."""
        self._call(self._destroy(node))

    def delete_node(self, node: str) -> None:
        """Destroy a node and delete its object, as a cloud's controller does."""
        self._call(self._destroy(node))
        self._call(self._rest.ask("DELETE", f"/api/v1/nodes/{node}"))

    def out_of_service(self, node: str) -> None:
        """Give a node the taint by which a person says that it is shut down."""
        self._call(self._taint(node, OUT_OF_SERVICE))

    def _call(self, work: Coroutine[Any, Any, object]) -> None:
        assert self._loop, "the kubelet is not started"
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    # ---- the loop

    def _serve(self, ready: "Future[None]") -> None:
        try:
            asyncio.run(self._run_all(ready))
        except BaseException as error:  # noqa: BLE001 - raised by start, or by stop
            if ready.done():
                self._failures.append(error)
            else:
                ready.set_exception(error)

    async def _run_all(self, ready: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._free = asyncio.Condition()
        async with Rest(self.server, self._connections) as self._rest:
            for name in self._names:
                await self._register(name)
            seeing = asyncio.create_task(self._see_pods(ready))
            over = asyncio.create_task(self._over.wait())
            await asyncio.wait((seeing, over), return_when=asyncio.FIRST_COMPLETED)
            living = [box.task for box in self._pods.values() if box.task]
            for task in (over, *living, seeing):
                task.cancel()
            await asyncio.gather(over, *living, return_exceptions=True)  # judged when they ended
            with contextlib.suppress(asyncio.CancelledError):
                await seeing

    async def _see_pods(self, ready: "Future[None]") -> None:
        listed: set[str] = set()
        async for kind, pod in self._rest.watch(self._where, {"labelSelector": self._selector}):
            if kind == "LISTED":
                for uid in self._pods.keys() - listed:
                    self._forget(uid)
                listed = set()
                if not ready.done():
                    ready.set_result(None)
            elif kind == "DELETED":
                self._forget(pod["metadata"]["uid"])
            else:
                listed.add(pod["metadata"]["uid"])
                self._take_in(pod)

    def _take_in(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            self._pods[uid].see(pod)
            return
        box = self._pods[uid] = Sandbox(pod)
        box.task = asyncio.create_task(self._live(box))
        box.task.add_done_callback(self._judge)

    def _forget(self, uid: str) -> None:
        box = self._pods.pop(uid, None)
        if box and box.task:
            box.task.cancel()

    def _judge(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error and not (isinstance(error, Refused) and error.status == 404):
            self._failures.append(error)

    # ---- nodes

    async def _register(self, name: str) -> None:
        self._nodes[name] = NodeState(name)
        self._nodes[name].answers.set()
        with contextlib.suppress(Refused):  # it is there from before
            await self._rest.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        await self._say_ready(name, "True")
        # the API server gives a new node the taint not-ready
        await self._rest.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)

    async def _say_ready(self, name: str, ready: str) -> None:
        body = {"status": {"conditions": [status.node_ready(ready)]}}
        await self._rest.ask("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC)

    async def _taint(self, name: str, taint: Object) -> None:
        body = {"spec": {"taints": [taint]}}
        await self._rest.ask("PATCH", f"/api/v1/nodes/{name}", body, STRATEGIC)

    async def _silence(self, name: str) -> None:
        self._nodes[name].answers.clear()
        await self._say_ready(name, "Unknown")
        await self._taint(name, _SILENT_TAINT)

    async def _answer(self, name: str) -> None:
        assert not self._nodes[name].destroyed, f"{name} was destroyed"
        await self._say_ready(name, "True")
        await self._rest.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)
        self._nodes[name].answers.set()
        async with self._free:
            self._free.notify_all()

    async def _destroy(self, name: str) -> None:
        self._nodes[name].destroyed = True
        if self._nodes[name].answers.is_set():
            await self._silence(name)
        for box in self._pods.values():
            if box.node and box.node.name == name and box.task:
                box.task.cancel()

    async def _a_node(self) -> NodeState:
        """Return a node that answers, in turn; wait for one."""
        async with self._free:
            while True:
                there = [node for node in self._nodes.values() if node.answers.is_set()]
                if there:
                    return there[next(self._turn) % len(there)]
                await self._free.wait()

    # ---- one pod

    async def _live(self, box: Sandbox) -> None:
        """Take a pod from its creation to its end."""
        how = self.script.of(box.pod)
        if not await self._bind(box, how):
            return
        if not box.over:
            await self._write(box, status.creating(box.pod))
            end = await self._contain(box, how)
            await self._write(box, status.ended(box.pod, end.exit_code, end.message, end.reason))
        await self._deleted(box)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": box.uid}}
        await self._rest.ask("DELETE", box.path, body)

    async def _bind(self, box: Sandbox, how: Behaviour) -> bool:
        """Bring a pod onto a node; False: it will never be on one of ours."""
        name = box.pod["spec"].get("nodeName")
        if name:
            box.node = self._nodes.get(name)
            return box.node is not None
        if how.unschedulable or not any(n.answers.is_set() for n in self._nodes.values()):
            await self._patch(box, status.unschedulable())
        if how.unschedulable:
            return False
        node = await self._a_node()
        if box.deleted.is_set():
            return False
        target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
        body = {"metadata": {"name": box.pod["metadata"]["name"], "uid": box.uid}, "target": target}
        try:
            await self._rest.ask("POST", f"{box.path}/binding", body)
        except Refused as refused:
            if refused.status == 409:
                return False
            raise
        box.pod["spec"]["nodeName"] = node.name
        box.node = node
        return True

    async def _contain(self, box: Sandbox, how: Behaviour) -> Ended:
        """Run a pod's container to its end."""
        if how.waiting:
            return await self._never_ran(box, how.waiting, how.message or how.waiting)
        stop = asyncio.create_task(self._ask_to_stop(box))
        try:
            return await self.run(box, how)
        except CannotStart as error:
            return await self._never_ran(box, error.reason, str(error))
        finally:
            stop.cancel()

    async def _never_ran(self, box: Sandbox, reason: str, message: str) -> Ended:
        await self._write(box, status.waiting(box.pod, reason, message))
        await self._deleted(box)
        return NEVER_RAN

    async def _ask_to_stop(self, box: Sandbox) -> None:
        await self._deleted(box)
        box.sigterm.set()

    async def _deleted(self, box: Sandbox) -> None:
        """Wait until a node that answers hears that a pod was deleted."""
        await box.deleted.wait()
        await self._heard(box)

    async def _heard(self, box: Sandbox) -> None:
        assert box.node
        await box.node.answers.wait()

    async def _write(self, box: Sandbox, change: Object) -> None:
        """Write a status as the pod's node does: as soon as it answers."""
        await self._heard(box)
        await self._patch(box, change)

    async def _patch(self, box: Sandbox, change: Object) -> None:
        body = {"metadata": {"uid": box.uid}, "status": change}
        box.see(await self._rest.ask("PATCH", f"{box.path}/status", body, STRATEGIC))

    async def running(self, box: Sandbox) -> None:
        """Report that a pod's container runs."""
        await self._write(box, status.running(box.pod))

    async def run(self, box: Sandbox, how: Behaviour) -> Ended:
        """Run a container: report that it runs, and return how it ended. By script, here."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(box.sigterm.wait(), how.starts_after_s)
        if box.sigterm.is_set():
            return NEVER_RAN
        await self.running(box)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._until_sigterm(box, how), how.runs_s)
        if not box.sigterm.is_set():
            return Ended(how.exit_code, how.message)
        if how.stops_after_s is None or how.stops_after_s > box.grace_s:
            await asyncio.sleep(box.grace_s)
            return Ended(KILLED)
        await asyncio.sleep(how.stops_after_s)
        return Ended(how.stop_exit_code, how.stop_message)

    async def _until_sigterm(self, box: Sandbox, how: Behaviour) -> None:
        """Wait, and report epochs meanwhile if the script says so."""
        if how.progress_every_s is None:
            await box.sigterm.wait()
            return
        for epoch in itertools.count():
            await self._heard(box)
            body = {"metadata": {"annotations": status.progress(epoch)}}
            await self._rest.ask("PATCH", box.path, body, MERGE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(box.sigterm.wait(), how.progress_every_s)
                return
