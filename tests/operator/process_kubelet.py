"""A kubelet whose containers are processes of this machine.

What a container gets here: its environment (downward API, Secrets and ConfigMaps read from the API),
a token of its service account, a file for its termination message, SIGTERM, and SIGKILL when its
grace is over. What it does not: an image, a file system or volumes of its own, limits. `python` is
the one that runs the tests. Called by tests and benchmarks.
"""

import asyncio
import base64
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

from infra.embedded.kubernetes import KubernetesServer
from tests.operator.behaviours import Behaviour
from tests.operator.kubelet import Kubelet
from tests.operator.rest import Object, Refused
from tests.operator.sandbox import NEVER_RAN, CannotStart, Ended, Sandbox

_MESSAGE_BYTES: Final = 4096
"""Of a termination message, as a kubelet cuts it."""
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class ProcessKubelet(Kubelet):
    """A kubelet that runs each pod's first container as a process.

    Args:
        folder: a folder a pod in it, named by the pod's uid: `log`, `outcome`, `account/`, and `work/`,
            where the process runs.
        environment: of every process, over this one's, and under the container's own.
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
        """Nothing starts yet."""
        super().__init__(server, nodes=nodes, namespace=namespace)
        self._folder = folder
        self._environment = dict(environment or {})

    def folder_of(self, pod: Object) -> Path:
        """Return where a pod's files are."""
        return self._folder / str(pod["metadata"]["uid"])

    def log_of(self, pod: Object) -> str:
        """Return what a pod's container has printed."""
        return (self.folder_of(pod) / "log").read_text(encoding="utf-8", errors="replace")

    async def run(self, box: Sandbox, how: Behaviour) -> Ended:  # noqa: ARG002 - the script's only
        """Run the container as a process; return how it ended."""
        container = box.pod["spec"]["containers"][0]
        environment = await self._environment_of(box, container)
        argv = _command(container, environment)
        if box.sigterm.is_set():
            return NEVER_RAN
        process = await self._begin(box, container, argv, environment)
        try:
            await self.running(box)
            code = await self._until_end(box, process)
        finally:
            # with its first process a container ends
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        outcome = self.folder_of(box.pod) / "outcome"
        said = outcome.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
        return Ended(128 - code if code < 0 else code, said)

    async def _begin(
        self, box: Sandbox, container: Object, argv: Sequence[str], environment: Mapping[str, str]
    ) -> Process:
        folder = self.folder_of(box.pod)
        work = folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        (folder / "outcome").touch()
        base = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        with (folder / "log").open("ab") as log:
            try:
                return await asyncio.create_subprocess_exec(
                    *argv,
                    cwd=container.get("workingDir", work),
                    env={**base, **self._environment, **environment},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise CannotStart("RunContainerError", str(error)) from error

    async def _until_end(self, box: Sandbox, process: Process) -> int:
        """Return a process's exit code as Python says it; SIGTERM when its pod is deleted."""
        ended = asyncio.create_task(process.wait())
        asked = asyncio.create_task(box.sigterm.wait())
        await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ended.done():
            return ended.result()
        process.terminate()
        done, _ = await asyncio.wait((ended,), timeout=box.grace_s)
        if not done:
            process.kill()
        return await ended

    # ---- the environment

    async def _environment_of(self, box: Sandbox, container: Object) -> dict[str, str]:
        account = await self._account(box)
        found = {
            "KUBERNETES_SERVICE_HOST": self.server.host,
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
            "SLUICEGATE_SERVICEACCOUNT": str(account),
            "SLUICEGATE_OUTCOME": str(self.folder_of(box.pod) / "outcome"),
        }
        given: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            values = await self._values(box, source)
            given |= {source.get("prefix", "") + name: text for name, text in values.items()}
        for variable in container.get("env", ()):
            text = await self._text_of(box, variable, {**found, **given})
            if text is not None:
                given[variable["name"]] = text
        return {**given, **found}

    async def _text_of(
        self, box: Sandbox, variable: Object, known: Mapping[str, str]
    ) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return _expanded(variable.get("value", ""), known)
        if "fieldRef" in source:
            return _field(box.pod, source["fieldRef"]["fieldPath"])
        for kind in ("secretKeyRef", "configMapKeyRef"):
            if kind in source:
                reference = source[kind]
                values = await self._values(box, {kind.replace("KeyRef", "Ref"): reference})
                if reference["key"] in values or reference.get("optional"):
                    return values.get(reference["key"])
                msg = f"couldn't find key {reference['key']} in {kind[:-6]} {reference['name']}"
                raise CannotStart("CreateContainerConfigError", msg)
        raise CannotStart("CreateContainerConfigError", f"{variable} is not known to this stand-in")

    async def _values(self, box: Sandbox, source: Object) -> dict[str, str]:
        """Return what a Secret or ConfigMap holds."""
        secret = "secretRef" in source
        reference = source["secretRef" if secret else "configMapRef"]
        kind = "secrets" if secret else "configmaps"
        namespace = box.pod["metadata"]["namespace"]
        try:
            path = f"/api/v1/namespaces/{namespace}/{kind}/{reference['name']}"
            data: dict[str, str] = (await self._rest.ask("GET", path)).get("data", {})
        except Refused as refused:
            if reference.get("optional"):
                return {}
            raise CannotStart("CreateContainerConfigError", str(refused)) from refused
        if not secret:
            return data
        return {name: base64.b64decode(text).decode() for name, text in data.items()}

    async def _account(self, box: Sandbox) -> Path:
        """Put a token of the pod's service account, bound to the pod, where its process looks."""
        there = box.pod["metadata"]
        name = box.pod["spec"].get("serviceAccountName") or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": there["name"], "uid": there["uid"]}
        body = {"spec": {"expirationSeconds": 3607, "boundObjectRef": bound}}
        path = f"/api/v1/namespaces/{there['namespace']}/serviceaccounts/{name}/token"
        try:
            made = await self._rest.ask("POST", path, body)
        except Refused as refused:
            raise CannotStart("CreateContainerConfigError", str(refused)) from refused
        folder = self.folder_of(box.pod) / "account"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(made["status"]["token"], encoding="utf-8")
        (folder / "namespace").write_text(there["namespace"], encoding="utf-8")
        shutil.copyfile(self.server.certificate, folder / "ca.crt")
        return folder


def _command(container: Object, environment: Mapping[str, str]) -> list[str]:
    argv = [*container.get("command", ()), *container.get("args", ())]
    if not container.get("command"):
        raise CannotStart("RunContainerError", "it names no command, and there is no image here")
    found = [_expanded(word, environment) for word in argv]
    if found[0] in ("python", "python3"):
        found[0] = sys.executable
    return found


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Replace $(NAME) by what is known, as Kubernetes does; what is not known stays."""
    return _REFERENCE.sub(lambda match: known.get(match[1], match[0]), text)


def _field(pod: Mapping[str, Any], path: str) -> str:
    """Return a field of a pod by its downward API path."""
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if keyed:
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    found: Any = pod
    for step in path.split("."):
        found = found.get(step, {})
    return found if isinstance(found, str) else ""
