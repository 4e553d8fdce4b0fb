"""Runs the hook Jobs that create Secrets and CRDs as a cluster does, with the permissions of their charts."""

import base64
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from unittest.mock import patch

from sluicegate_operator.hooks.__main__ import main
from tests.integration.charts.rendering import Document, hooks_of, of_kind
from tests.integration.operator.api import Api
from tests.integration.operator.rest_client import ApiRejection, Object

_RIGHTS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
_POLL_S = 0.2


def run_hook_jobs(
    api: Api, documents: Sequence[Document], *, event: str = "pre-install", timeout_s: float = 10.0
) -> None:
    """Run each rendered Job of `sluicegate_operator.hooks`, and remove its rights, as Helm does."""
    created = []
    for document in documents:
        if document["kind"] in _RIGHTS and event in hooks_of(document):
            metadata = document["metadata"]
            path = _RIGHTS[document["kind"]].format(metadata.get("namespace"))
            api.request("POST", path, document)
            created.append(f"{path}/{metadata['name']}")
    try:
        for job in of_kind(documents, "Job"):
            if event in hooks_of(job) and is_ours(job):
                assert run_job(api, job, timeout_s) == 0, job["metadata"]["name"]
    finally:
        for path in created:
            api.request("DELETE", path)


def secrets_in(api: Api, namespace: str) -> dict[str, dict[str, str]]:
    """Return the data of all Secrets of a namespace as pods see them."""
    return {
        secret["metadata"]["name"]: {
            key: base64.b64decode(text).decode() for key, text in secret["data"].items()
        }
        for secret in api.request("GET", f"/api/v1/namespaces/{namespace}/secrets")["items"]
        if "data" in secret
    }


def with_secrets(api: Api, documents: Sequence[Document], namespace: str) -> list[Document]:
    """Return a release's manifests and the Secrets that its Jobs create, in a new namespace."""
    try:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    except ApiRejection as error:
        if error.status != HTTPStatus.CONFLICT:  # an earlier test created it
            raise
    run_hook_jobs(api, documents)
    listed = api.request("GET", f"/api/v1/namespaces/{namespace}/secrets")["items"]
    return [*documents, *({**secret, "kind": "Secret"} for secret in listed)]


def is_ours(job: Object) -> bool:
    """Return whether it is a Job of `common.hookJob`."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return "sluicegate_operator.hooks" in container.get("command", ())


def run_job(api: Api, job: Object, timeout_s: float = 10.0) -> int:
    """Run a Job's command as its ServiceAccount; return the exit code."""
    pod, namespace = job["spec"]["template"]["spec"], job["metadata"]["namespace"]
    (container,) = pod["containers"]
    _python, _m, _module, *command = container["command"]
    assert container["args"][0].startswith("--timeout-s=")
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    kubeconfig = _kubeconfig(api, namespace, pod["serviceAccountName"])
    with patch.dict(os.environ, variables):
        return main([*command, f"--kubeconfig={kubeconfig}", f"--timeout-s={timeout_s}"])


def _kubeconfig(api: Api, namespace: str, account: str) -> Path:
    """Write a kubeconfig for a ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = api.request("POST", path, body)["status"]["token"]
    file = api.server.kubeconfig()
    content = json.loads(file.read_text())
    content["users"][0]["user"] = {"token": token}
    own = file.with_name(f"kubeconfig-{account}")
    own.write_text(json.dumps(content))
    return own


@contextmanager
def job_controller(api: Api, namespace: str) -> Iterator[list[str]]:
    """Run the Jobs of a namespace until the block ends; yields the names of those that ran."""
    ran: list[str] = []
    stop = threading.Event()
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def work() -> None:
        while not stop.wait(_POLL_S):
            for job in api.request("GET", path)["items"]:
                if job.get("status", {}).get("conditions"):
                    continue
                name = job["metadata"]["name"]
                succeeded = run_job(api, job) == 0
                ran.append(name)
                api.request(
                    "PUT", f"{path}/{name}/status", {**job, "status": _status(job, succeeded)}
                )

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield ran
    finally:
        stop.set()
        thread.join(30)


def _status(job: Object, succeeded: bool) -> Object:  # noqa: FBT001 - a result, not an option
    """Return the status of a Job that has ended."""
    time = job["metadata"]["creationTimestamp"]
    types = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": time} for kind in types]
    ended = {"succeeded": 1, "completionTime": time} if succeeded else {"failed": 1}
    return {"startTime": time, "conditions": conditions, **ended}
