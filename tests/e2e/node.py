"""The only node of the cluster, a container."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from infra.kind import cluster
from tests.e2e.cluster import CommandFailed


def on_node(script: str) -> None:
    """Run a shell script on the node.

    Raises:
        CommandFailed: it did not exit 0.
    """
    _run(["docker", "exec", cluster.NODE, "sh", "-c", script])


def restart() -> None:
    """Kill the node with all that runs on it, start it again, and wait until the cluster is ready."""
    _run(["docker", "kill", cluster.NODE])
    cluster.up()


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if result.returncode != 0:
        raise CommandFailed(f"{command} ended with {result.returncode}: {result.stderr.strip()}")
