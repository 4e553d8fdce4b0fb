"""A simulation of kubelet, scheduler and node controller on a real API server.

It binds pods to nodes that it registered, updates their status as a kubelet does, and ends them when
they are deleted. A script (`container_script`) decides how a container behaves, or it is a process of
this machine (`process_kubelet`). Each pod has one container, which is never restarted.

The order of events follows "Pod Lifecycle" in the documentation of Kubernetes (termination of pods,
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

from infra.local_services.kube_apiserver import KubernetesServer
from tests.integration.operator import pod_status
from tests.integration.operator.container_script import JOB, KILLED, Behavior, Script
from tests.integration.operator.fake_node import (
    NEVER_STARTED,
    CannotStart,
    ContainerEnd,
    NodeState,
    Sandbox,
)
from tests.integration.operator.rest_client import MERGE, STRATEGIC, ApiRejection, Object, Rest

_TIMEOUT_S: Final = 60.0
_UNREACHABLE_TAINT: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OUT_OF_SERVICE: Final = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


class Kubelet:
    """Nodes and the pods on them, in a thread of its own, for the duration of the `with` block.

    Args:
        server: a running API server.
        nodes: names of the nodes that it registers.
        namespace: whose pods it runs; empty: all.
        selector: labels of the pods that it runs.
        connections: maximum number of connections to the API server.
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
        """Prepare; nothing runs yet."""
        self.script: Final = Script()
        self.server: Final = server
        self._names = nodes
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._selector = selector
        self._connections = connections
        self._nodes: dict[str, NodeState] = {}
        self._round_robin = itertools.count()
        self._pods: dict[str, Sandbox] = {}
        self._failures: list[BaseException] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.plan: Final = self.script.plan

    # ---- called from the thread of the test

    def start(self) -> Self:
        """Register the nodes, list the pods, and return."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="kubelet")
        self._thread.start()
        ready.result(_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """End all containers without reporting it, and raise errors of the thread. May be repeated."""
        if self._thread and self._loop:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(_TIMEOUT_S)
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

    def disconnect(self, node: str) -> None:
        """Disconnect a node: its containers continue, and its condition Ready becomes Unknown."""
        self._call(self._disconnect(node))

    def reconnect(self, node: str) -> None:
        """Reconnect a node: it reports what happened in the meantime and handles deletions."""
        self._call(self._reconnect(node))

    def destroy(self, node: str) -> None:
        """Switch a node off for good: its containers end unreported, and Ready becomes Unknown."""
        self._call(self._destroy(node))

    def delete_node(self, node: str) -> None:
        """Destroy a node and delete its object, as a cloud controller does."""
        self._call(self._destroy(node))
        self._call(self._rest.request("DELETE", f"/api/v1/nodes/{node}"))

    def out_of_service(self, node: str) -> None:
        """Set the taint by which a person confirms that a node is shut down."""
        self._call(self._taint(node, OUT_OF_SERVICE))

    def _call(self, coroutine: Coroutine[Any, Any, object]) -> None:
        assert self._loop, "the kubelet is not started"
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT_S)

    # ---- the event loop

    def _serve(self, ready: "Future[None]") -> None:
        try:
            asyncio.run(self._run_all(ready))
        except BaseException as error:  # noqa: BLE001 - start or stop raises it
            if ready.done():
                self._failures.append(error)
            else:
                ready.set_exception(error)

    async def _run_all(self, ready: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._node_returned = asyncio.Condition()
        async with Rest(self.server, self._connections) as self._rest:
            for name in self._names:
                await self._register(name)
            watch = asyncio.create_task(self._watch_pods(ready))
            stopped = asyncio.create_task(self._stopped.wait())
            await asyncio.wait((watch, stopped), return_when=asyncio.FIRST_COMPLETED)
            running = [sandbox.task for sandbox in self._pods.values() if sandbox.task]
            for task in (stopped, *running, watch):
                task.cancel()
            # `_collect_error` has stored the errors of pods
            await asyncio.gather(stopped, *running, return_exceptions=True)
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _watch_pods(self, ready: "Future[None]") -> None:
        listed: set[str] = set()
        async for kind, pod in self._rest.watch(self._pods_path, {"labelSelector": self._selector}):
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
                self._pod_seen(pod)

    def _pod_seen(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            self._pods[uid].update(pod)
            return
        sandbox = self._pods[uid] = Sandbox(pod)
        sandbox.task = asyncio.create_task(self._run_pod(sandbox))
        sandbox.task.add_done_callback(self._collect_error)

    def _forget(self, uid: str) -> None:
        sandbox = self._pods.pop(uid, None)
        if sandbox and sandbox.task:
            sandbox.task.cancel()

    def _collect_error(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error and not (isinstance(error, ApiRejection) and error.status == 404):
            self._failures.append(error)

    # ---- nodes

    async def _register(self, name: str) -> None:
        self._nodes[name] = NodeState(name)
        self._nodes[name].connected.set()
        with contextlib.suppress(ApiRejection):  # it already exists
            await self._rest.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        await self._write_ready(name, "True")
        # the API server adds the taint not-ready to a new node
        await self._rest.request(
            "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE
        )

    async def _write_ready(self, name: str, ready: str) -> None:
        body = {"status": {"conditions": [pod_status.node_ready(ready)]}}
        await self._rest.request("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC)

    async def _taint(self, name: str, taint: Object) -> None:
        body = {"spec": {"taints": [taint]}}
        await self._rest.request("PATCH", f"/api/v1/nodes/{name}", body, STRATEGIC)

    async def _disconnect(self, name: str) -> None:
        self._nodes[name].connected.clear()
        await self._write_ready(name, "Unknown")
        await self._taint(name, _UNREACHABLE_TAINT)

    async def _reconnect(self, name: str) -> None:
        assert not self._nodes[name].destroyed, f"{name} was destroyed"
        await self._write_ready(name, "True")
        await self._rest.request(
            "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE
        )
        self._nodes[name].connected.set()
        async with self._node_returned:
            self._node_returned.notify_all()

    async def _destroy(self, name: str) -> None:
        self._nodes[name].destroyed = True
        if self._nodes[name].connected.is_set():
            await self._disconnect(name)
        for sandbox in self._pods.values():
            if sandbox.node and sandbox.node.name == name and sandbox.task:
                sandbox.task.cancel()

    async def _next_node(self) -> NodeState:
        """Return the next connected node, round-robin; wait if there is none."""
        async with self._node_returned:
            while True:
                connected = [node for node in self._nodes.values() if node.connected.is_set()]
                if connected:
                    return connected[next(self._round_robin) % len(connected)]
                await self._node_returned.wait()

    # ---- pods

    async def _run_pod(self, sandbox: Sandbox) -> None:
        """Run a pod from its creation to its end."""
        behavior = self.script.behavior_of(sandbox.pod)
        if not await self._bind(sandbox, behavior):
            return
        if not sandbox.ended:
            await self._write(sandbox, pod_status.creating(sandbox.pod))
            end = await self._run_container(sandbox, behavior)
            await self._write(
                sandbox, pod_status.ended(sandbox.pod, end.exit_code, end.message, end.reason)
            )
        await self._await_deletion(sandbox)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": sandbox.uid}}
        await self._rest.request("DELETE", sandbox.path, body)

    async def _bind(self, sandbox: Sandbox, behavior: Behavior) -> bool:
        """Bind a pod to a node; return False if it will never run on a node of this kubelet."""
        name = sandbox.pod["spec"].get("nodeName")
        if name:
            sandbox.node = self._nodes.get(name)
            return sandbox.node is not None
        if behavior.unschedulable or not any(n.connected.is_set() for n in self._nodes.values()):
            await self._patch(sandbox, pod_status.unschedulable())
        if behavior.unschedulable:
            return False
        node = await self._next_node()
        if sandbox.deleted.is_set():
            return False
        target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
        body = {
            "metadata": {"name": sandbox.pod["metadata"]["name"], "uid": sandbox.uid},
            "target": target,
        }
        try:
            await self._rest.request("POST", f"{sandbox.path}/binding", body)
        except ApiRejection as error:
            if error.status == 409:
                return False
            raise
        sandbox.pod["spec"]["nodeName"] = node.name
        sandbox.node = node
        return True

    async def _run_container(self, sandbox: Sandbox, behavior: Behavior) -> ContainerEnd:
        """Run a pod's container to its end."""
        if behavior.waiting:
            return await self._never_start(
                sandbox, behavior.waiting, behavior.message or behavior.waiting
            )
        stop = asyncio.create_task(self._send_sigterm(sandbox))
        try:
            return await self.run(sandbox, behavior)
        except CannotStart as error:
            return await self._never_start(sandbox, error.reason, str(error))
        finally:
            stop.cancel()

    async def _never_start(self, sandbox: Sandbox, reason: str, message: str) -> ContainerEnd:
        await self._write(sandbox, pod_status.waiting(sandbox.pod, reason, message))
        await self._await_deletion(sandbox)
        return NEVER_STARTED

    async def _send_sigterm(self, sandbox: Sandbox) -> None:
        await self._await_deletion(sandbox)
        sandbox.sigterm.set()

    async def _await_deletion(self, sandbox: Sandbox) -> None:
        """Wait until a connected node learns that a pod was deleted."""
        await sandbox.deleted.wait()
        await self._connected(sandbox)

    async def _connected(self, sandbox: Sandbox) -> None:
        assert sandbox.node
        await sandbox.node.connected.wait()

    async def _write(self, sandbox: Sandbox, status: Object) -> None:
        """Write a status once the pod's node is connected."""
        await self._connected(sandbox)
        await self._patch(sandbox, status)

    async def _patch(self, sandbox: Sandbox, status: Object) -> None:
        body = {"metadata": {"uid": sandbox.uid}, "status": status}
        sandbox.update(await self._rest.request("PATCH", f"{sandbox.path}/status", body, STRATEGIC))

    async def running(self, sandbox: Sandbox) -> None:
        """Report that a pod's container is running."""
        await self._write(sandbox, pod_status.running(sandbox.pod))

    async def run(self, sandbox: Sandbox, behavior: Behavior) -> ContainerEnd:
        """Run a container by its script: report that it is running, and return how it ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sandbox.sigterm.wait(), behavior.starts_after_s)
        if sandbox.sigterm.is_set():
            return NEVER_STARTED
        await self.running(sandbox)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._until_sigterm(sandbox, behavior), behavior.runs_s)
        if not sandbox.sigterm.is_set():
            return ContainerEnd(behavior.exit_code, behavior.message)
        if behavior.stops_after_s is None or behavior.stops_after_s > sandbox.grace_s:
            await asyncio.sleep(sandbox.grace_s)
            return ContainerEnd(KILLED)
        await asyncio.sleep(behavior.stops_after_s)
        return ContainerEnd(behavior.stop_exit_code, behavior.stop_message)

    async def _until_sigterm(self, sandbox: Sandbox, behavior: Behavior) -> None:
        """Wait for SIGTERM, and report epochs meanwhile if the script has an interval for them."""
        if behavior.progress_every_s is None:
            await sandbox.sigterm.wait()
            return
        for epoch in itertools.count():
            await self._connected(sandbox)
            body = {"metadata": {"annotations": pod_status.progress(epoch)}}
            await self._rest.request("PATCH", sandbox.path, body, MERGE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(sandbox.sigterm.wait(), behavior.progress_every_s)
                return
