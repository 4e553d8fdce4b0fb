"""kubectl and helm, as a user calls them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Object = dict[str, Any]
T = TypeVar("T")


class CommandFailed(AssertionError):
    """kubectl or helm failed; the message has its output."""


@dataclass(frozen=True)
class Cluster:
    """A cluster and one of its namespaces.

    Args:
        kubeconfig: path of the kubeconfig file.
        kubectl: path of kubectl.
        helm: path of helm.
        namespace: namespace of all commands.
    """

    kubeconfig: Path
    kubectl: Path
    helm_: Path
    namespace: str

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = 120.0) -> str:
        """Run kubectl; return what it printed.

        Raises:
            CommandFailed: it did not exit 0.
        """
        return _run(self.command(*arguments), stdin, timeout_s)

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs kubectl."""
        options = ["--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace]
        return [str(self.kubectl), *options, *arguments]

    def helm(self, *arguments: str, timeout_s: float = 900.0) -> str:
        """Run helm; return what it printed.

        Raises:
            CommandFailed: it did not exit 0.
        """
        options = ["--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace]
        return _run([str(self.helm_), *arguments, *options], b"", timeout_s)

    def apply(self, *objects: Object) -> str:
        """Apply manifests."""
        manifest_list = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.run("apply", "-f", "-", stdin=json.dumps(manifest_list).encode())

    def get(self, kind: str, name: str) -> Object | None:
        """Return an object, or None."""
        text = self.run("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def list_objects(self, kind: str, selector: str = "") -> list[Object]:
        """Return the objects of a kind."""
        options = ["-l", selector] if selector else []
        items: list[Object] = json.loads(self.run("get", kind, *options, "-o", "json"))["items"]
        return items

    def patch(self, kind: str, name: str, change: Object) -> None:
        """Merge a change into an object."""
        self.run("patch", kind, name, "--type", "merge", "-p", json.dumps(change))

    def wait_rollout(self, workload: str, *, within_s: float) -> None:
        """Wait until all pods of a workload, such as `deployment/operator`, are new and available.

        Raises:
            CommandFailed: they were not in time.
        """
        limit = f"--timeout={within_s:.0f}s"
        self.run("rollout", "status", workload, limit, timeout_s=within_s + 10)

    def kill(self, pod: str) -> None:
        """Delete a pod at once, with grace period 0."""
        self.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def execute(self, pod: str, *command: str, stdin: bytes = b"", timeout_s: float = 300.0) -> str:
        """Run a command in a pod's first container; return what it printed.

        Raises:
            CommandFailed: it did not exit 0.
        """
        options = ["-i"] if stdin else []
        return self.run("exec", *options, pod, "--", *command, stdin=stdin, timeout_s=timeout_s)

    def succeeds(self, pod: str, *command: str) -> bool:
        """Return whether a command in a pod exits 0."""
        try:
            self.execute(pod, *command, timeout_s=30.0)
        except CommandFailed:
            return False
        return True


def _run(command: Sequence[str], stdin: bytes, timeout_s: float) -> str:
    result = subprocess.run(
        command, input=stdin, capture_output=True, timeout=timeout_s, check=False
    )
    if result.returncode != 0:
        output = (result.stdout + result.stderr).decode(errors="replace")
        raise CommandFailed(f"{' '.join(command)} ended with {result.returncode}: {output[-4000:]}")
    return result.stdout.decode()


def eventually(
    poll: Callable[[], T | None], what: str, *, within_s: float, every_s: float = 0.5
) -> T:
    """Return what `poll` returns once it is true.

    Raises:
        AssertionError: it was not true in time; has `what` and the last value.
    """
    deadline = time.monotonic() + within_s
    while not (value := poll()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}; seen: {value!r}"
        time.sleep(every_s)
    return value
