"""The health checks of operators/argocd, run in Lua as Argo CD runs them."""

from typing import Any

import lupa
import pytest
import yaml

from infra.workspace import CHECKOUT

CHECKS = yaml.safe_load((CHECKOUT / "operators" / "argocd" / "health.yaml").read_text())["data"]


def health(kind: str, **status: object) -> tuple[str, str]:
    """Return the health and its message of a resource of generation 2."""
    lua = lupa.LuaRuntime()
    obj = {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, **status}}
    lua.globals().obj = lua.table_from(obj, recursive=True)
    check = CHECKS[f"resource.customizations.health.sluicegate.dev_{kind}"]
    found = lua.execute(check)
    return found.status, found.message


def condition(
    kind: str, status: str, reason: str = "Because", message: str = "why"
) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


READY = condition("Ready", "True")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Running", "conditions": [READY]}, "Healthy"),
        ({"phase": "Finished", "conditions": [READY]}, "Healthy"),
        ({"phase": "Waiting", "conditions": [condition("Ready", "False")]}, "Healthy"),
        ({"phase": "Starting", "conditions": [condition("Ready", "False")]}, "Progressing"),
        ({"phase": "Running", "conditions": [READY], "observedGeneration": 1}, "Progressing"),
        ({"phase": "Suspended", "conditions": [condition("Ready", "False")]}, "Suspended"),
        ({"phase": "Running", "conditions": [READY, condition("Paused", "True")]}, "Suspended"),
        ({"phase": "Running", "conditions": [READY, condition("Paused", "False")]}, "Healthy"),
        ({"phase": "Failed", "conditions": [condition("Failed", "True")]}, "Degraded"),
        ({"phase": "Running", "conditions": [READY, condition("RolledBack", "True")]}, "Degraded"),
        ({"observedGeneration": 1, "conditions": [condition("Accepted", "False")]}, "Degraded"),
    ],
)  # fmt: skip
def test_health_of_a_job(status: dict[str, Any], expected: str) -> None:
    assert health("StreamingJob", **status)[0] == expected


def test_a_job_without_a_status_is_progressing() -> None:
    assert health("StreamingJob", observedGeneration=None)[0] == "Progressing"


def test_the_message_says_why() -> None:
    refused = condition("Ready", "False", "QuotaExceeded", "exceeded quota: cpu")
    assert health("StreamingJob", phase="Starting", conditions=[refused])[1] == (
        "QuotaExceeded: exceeded quota: cpu"
    )


@pytest.mark.parametrize("kind", ["CheckpointVolume", "Savepoint"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Ready", "conditions": [READY]}, "Healthy"),
        ({"phase": "Failed", "conditions": [condition("Ready", "False")]}, "Degraded"),
        ({"phase": "Pending", "conditions": [condition("Accepted", "False")]}, "Degraded"),
        ({"phase": "Taking"}, "Progressing"),
        ({"phase": "Ready", "conditions": [condition("Paused", "True"), READY]}, "Suspended"),
    ],
)
def test_health_of_volumes_and_savepoints(kind: str, status: dict[str, Any], expected: str) -> None:
    assert health(kind, **status)[0] == expected
