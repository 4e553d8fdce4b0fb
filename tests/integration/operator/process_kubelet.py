"""A simulated kubelet whose containers are processes of this machine.

A container gets its environment (downward API, Secrets and ConfigMaps read from the API), a token of its
service account, a file for its termination message, SIGTERM, and SIGKILL after its grace period. It has
no image, no file system or volumes of its own, and no limits. `python` is the interpreter of the tests.
"""

import asyncio
import base64
import math
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kubernetes.utils import parse_quantity

from infra.local_services.kube_apiserver import KubernetesServer
from tests.integration.operator.container_script import Behavior
from tests.integration.operator.fake_node import NEVER_STARTED, CannotStart, ContainerEnd, Sandbox
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.rest_client import ApiRejection, Object

_MESSAGE_BYTES: Final = 4096
"""Limit of a termination message, as in a kubelet."""
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class ProcessKubelet(Kubelet):
    """A kubelet that runs each pod's first container as a process.

    Args:
        folder: has a folder for each pod, named by its uid: `log`, `outcome`, `account/`, and `work/`,
            where the process runs.
        environment: of every process, over this one's and under the container's own.
    """

    def __init__(
        self,
        server: KubernetesServer,
        folder: Path,
        *,
        nodes: Sequence[str] = ("node-1",),
        namespace: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(server, nodes=nodes, namespace=namespace)
        self._folder = folder
        self._environment = dict(environment or {})
        self._groups: dict[str, int] = {}

    def folder_of(self, pod: Object) -> Path:
        """Return the folder of a pod."""
        return self._folder / str(pod["metadata"]["uid"])

    def kill(self, pod: Object) -> None:
        """Kill all processes of a pod's container with SIGKILL."""
        os.killpg(self._groups[pod["metadata"]["uid"]], signal.SIGKILL)

    def log_of(self, pod: Object) -> str:
        """Return the output of a pod's container."""
        return (self.folder_of(pod) / "log").read_text(encoding="utf-8", errors="replace")

    async def run(self, sandbox: Sandbox, behavior: Behavior) -> ContainerEnd:  # noqa: ARG002 - for scripts only
        """Run the container as a process; return how it ended."""
        container = sandbox.pod["spec"]["containers"][0]
        environment = await self._environment_of(sandbox, container)
        argv = _command(container, environment)
        if sandbox.sigterm.is_set():
            return NEVER_STARTED
        process = await self._start_process(sandbox, container, argv, environment)
        self._groups[sandbox.pod["metadata"]["uid"]] = process.pid
        try:
            await self.running(sandbox)
            code = await self._until_end(sandbox, process)
        finally:
            # a container ends with its first process
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        outcome = self.folder_of(sandbox.pod) / "outcome"
        message = outcome.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
        return ContainerEnd(128 - code if code < 0 else code, message)

    async def _start_process(
        self,
        sandbox: Sandbox,
        container: Object,
        argv: Sequence[str],
        environment: Mapping[str, str],
    ) -> Process:
        folder = self.folder_of(sandbox.pod)
        working_folder = folder / "work"
        working_folder.mkdir(parents=True, exist_ok=True)
        (folder / "outcome").touch()
        base = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        with (folder / "log").open("ab") as log:
            try:
                return await asyncio.create_subprocess_exec(
                    *argv,
                    cwd=container.get("workingDir", working_folder),
                    env={**base, **self._environment, **environment},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise CannotStart("RunContainerError", str(error)) from error

    async def _until_end(self, sandbox: Sandbox, process: Process) -> int:
        """Return a process's exit code as Python reports it; send SIGTERM when its pod is deleted."""
        exit_task = asyncio.create_task(process.wait())
        sigterm_task = asyncio.create_task(sandbox.sigterm.wait())
        await asyncio.wait((exit_task, sigterm_task), return_when=asyncio.FIRST_COMPLETED)
        sigterm_task.cancel()
        if exit_task.done():
            return exit_task.result()
        process.terminate()
        finished, _ = await asyncio.wait((exit_task,), timeout=sandbox.grace_s)
        if not finished:
            process.kill()
        return await exit_task

    # --- the environment

    async def _environment_of(self, sandbox: Sandbox, container: Object) -> dict[str, str]:
        account = await self._account(sandbox)
        platform_variables = {
            "KUBERNETES_SERVICE_HOST": self.server.host,
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
            "SLUICEGATE_SERVICEACCOUNT": str(account),
            "SLUICEGATE_TERMINATION_FILE": str(self.folder_of(sandbox.pod) / "outcome"),
        }
        variables: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            values = await self._values(sandbox, source)
            variables |= {source.get("prefix", "") + name: text for name, text in values.items()}
        for variable in container.get("env", ()):
            text = await self._text_of(sandbox, variable, {**platform_variables, **variables})
            if text is not None:
                variables[variable["name"]] = text
        return {**variables, **platform_variables}

    async def _text_of(
        self, sandbox: Sandbox, variable: Object, variables: Mapping[str, str]
    ) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return _expand(variable.get("value", ""), variables)
        if "fieldRef" in source:
            return _field(sandbox.pod, source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            return _request(sandbox.pod, source["resourceFieldRef"])
        for kind in ("secretKeyRef", "configMapKeyRef"):
            if kind in source:
                reference = source[kind]
                values = await self._values(sandbox, {kind.replace("KeyRef", "Ref"): reference})
                if reference["key"] in values or reference.get("optional"):
                    return values.get(reference["key"])
                msg = f"couldn't find key {reference['key']} in {kind[:-6]} {reference['name']}"
                raise CannotStart("CreateContainerConfigError", msg)
        raise CannotStart(
            "CreateContainerConfigError", f"{variable} is not supported by this kubelet"
        )

    async def _values(self, sandbox: Sandbox, source: Object) -> dict[str, str]:
        """Return the contents of a Secret or ConfigMap."""
        secret = "secretRef" in source
        reference = source["secretRef" if secret else "configMapRef"]
        kind = "secrets" if secret else "configmaps"
        namespace = sandbox.pod["metadata"]["namespace"]
        try:
            path = f"/api/v1/namespaces/{namespace}/{kind}/{reference['name']}"
            data: dict[str, str] = (await self._rest.request("GET", path)).get("data", {})
        except ApiRejection as error:
            if reference.get("optional"):
                return {}
            raise CannotStart("CreateContainerConfigError", str(error)) from error
        if not secret:
            return data
        return {name: base64.b64decode(text).decode() for name, text in data.items()}

    async def _account(self, sandbox: Sandbox) -> Path:
        """Write a token of the pod's service account to the folder that the process reads."""
        metadata = sandbox.pod["metadata"]
        request: Object = {"expirationSeconds": 3607}
        name = sandbox.pod["spec"].get("serviceAccountName")
        if name:
            kind = {"apiVersion": "v1", "kind": "Pod"}
            request["boundObjectRef"] = {**kind, "name": metadata["name"], "uid": metadata["uid"]}
        else:
            name = "default"  # the ServiceAccount admission plugin, which sets this, is disabled
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{name}/token"
        try:
            token = await self._rest.request("POST", path, {"spec": request})
        except ApiRejection as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from error
        folder = self.folder_of(sandbox.pod) / "account"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(token["status"]["token"], encoding="utf-8")
        (folder / "namespace").write_text(metadata["namespace"], encoding="utf-8")
        shutil.copyfile(self.server.certificate, folder / "ca.crt")
        return folder


def _command(container: Object, environment: Mapping[str, str]) -> list[str]:
    argv = [*container.get("command", ()), *container.get("args", ())]
    if not container.get("command"):
        raise CannotStart(
            "RunContainerError", "the container has no command, and there are no images"
        )
    expanded = [_expand(argument, environment) for argument in argv]
    if expanded[0] in ("python", "python3"):
        expanded[0] = sys.executable
    return expanded


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by the variable's value, as Kubernetes does; unknown names stay."""
    return _REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)


def _field(pod: Mapping[str, Any], path: str) -> str:
    """Return a field of a pod by its downward API path."""
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if match:
        return str(pod["metadata"].get(match[1], {}).get(match[2], ""))
    value: Any = pod
    for key in path.split("."):
        value = value.get(key, {})
    return value if isinstance(value, str) else ""


def _request(pod: Mapping[str, Any], field: Mapping[str, str]) -> str:
    """Return a request of a container in units of the divisor, rounded up; 0 without one."""
    containers = pod["spec"]["containers"]
    container = next(each for each in containers if each["name"] == field["containerName"])
    name = field["resource"].removeprefix("requests.")
    given = container.get("resources", {}).get("requests", {}).get(name, "0")
    amount = parse_quantity(given) / parse_quantity(field["divisor"])  # type: ignore[no-untyped-call]
    return str(math.ceil(amount))
