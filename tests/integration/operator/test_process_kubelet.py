"""The simulated kubelet that runs containers as processes: their environment, and how they end."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate_operator.api.labels import DRIVER_FINALIZER
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.process_kubelet import ProcessKubelet
from tests.integration.operator.test_kubelet import phase, state, waits

Object = dict[str, Any]


@pytest.fixture
def kubelet(api: Api, namespace: str, tmp_path: Path) -> Iterator[ProcessKubelet]:
    with ProcessKubelet(
        api.server, tmp_path, nodes=[f"{namespace}-1"], namespace=namespace
    ) as running:
        yield running


ACCOUNT = "drivers"


def create_driver(api: Api, namespace: str, code: str, **container: object) -> Object:
    api.create_core(namespace, "serviceaccounts", {"metadata": {"name": ACCOUNT}})
    body = {
        "metadata": {
            "name": "one",
            "labels": {"sluicegate.dev/job": "orders"},
            "finalizers": [DRIVER_FINALIZER],
        },
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": ACCOUNT,
            "containers": [
                {"name": "driver", "image": "none", "command": ["python", "-c", code], **container}
            ],
        },
    }
    return api.create_core(namespace, "pods", body)


@pytest.mark.usefixtures("kubelet")
def test_status_has_exit_code_and_message_of_the_process(api: Api, namespace: str) -> None:
    code = "import os,sys; open(os.environ['SLUICEGATE_TERMINATION_FILE'], 'w').write('{}'); sys.exit(7)"
    create_driver(api, namespace, code)
    pod = api.pod_when(namespace, "one", phase("Failed"))
    assert state(pod)["terminated"]["exitCode"] == 7
    assert state(pod)["terminated"]["message"] == "{}"


def test_environment_is_like_in_a_cluster(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    secret = {"metadata": {"name": "keys"}, "data": {"id": base64.b64encode(b"me").decode()}}
    api.create_core(namespace, "secrets", secret)
    fields = {"NAME": "metadata.name", "UID": "metadata.uid", "IP": "status.podIP"}
    env: list[Object] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    label = "metadata.labels['sluicegate.dev/job']"
    env += [
        {"name": "JOB", "valueFrom": {"fieldRef": {"fieldPath": label}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "id"}}},
        {"name": "BOTH", "value": "$(NAME)/$(JOB) $(NOBODY)"},
    ]
    created = create_driver(
        api, namespace, "import json,os; print(json.dumps(dict(os.environ)))", env=env
    )
    pod = api.pod_when(namespace, "one", phase("Succeeded"))
    variables = json.loads(kubelet.log_of(pod))
    assert (variables["NAME"], variables["UID"]) == ("one", created["metadata"]["uid"])
    assert (variables["IP"], variables["JOB"], variables["KEY"]) == ("127.0.0.1", "orders", "me")
    assert variables["BOTH"] == "one/orders $(NOBODY)"
    assert variables["KUBERNETES_SERVICE_PORT"] == str(api.server.port)


WHO_AM_I = """
import json, os, ssl, urllib.request
folder = os.environ["SLUICEGATE_SERVICEACCOUNT"]
token = open(folder + "/token").read()
where = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
request = urllib.request.Request(
    where + "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    data=json.dumps(body).encode(),
    headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"},
)
context = ssl.create_default_context(cafile=folder + "/ca.crt")
print(urllib.request.urlopen(request, context=context).read().decode())
"""


def test_process_acts_as_the_service_account_of_its_pod(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    create_driver(api, namespace, WHO_AM_I)
    pod = api.pod_when(namespace, "one", lambda p: phase("Succeeded")(p) or phase("Failed")(p))
    assert phase("Succeeded")(pod), kubelet.log_of(pod)
    user = json.loads(kubelet.log_of(pod))["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:{ACCOUNT}"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["one"]


EXITS_ON_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(%s))
print("ready", flush=True)
while True: time.sleep(0.05)
"""


def deleted_process(
    api: Api, namespace: str, kubelet: ProcessKubelet, code: str, grace_s: int
) -> Object:
    pod = create_driver(api, namespace, code)
    api.pod_when(namespace, "one", phase("Running"))
    eventually(lambda: "ready" in kubelet.log_of(pod))
    api.delete_pod(namespace, "one", grace_s)
    return api.pod_when(namespace, "one", lambda p: "terminated" in state(p))


def test_process_receives_sigterm_when_its_pod_is_deleted(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    pod = deleted_process(api, namespace, kubelet, EXITS_ON_SIGTERM % "0", 30)
    assert (pod["status"]["phase"], state(pod)["terminated"]["exitCode"]) == ("Succeeded", 0)


def test_process_that_does_not_stop_is_killed(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    code = EXITS_ON_SIGTERM.replace("lambda *_: sys.exit(%s)", "signal.SIG_IGN")
    pod = deleted_process(api, namespace, kubelet, code, 1)
    assert state(pod)["terminated"]["exitCode"] == 137


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        ({"command": ["no-such-program"]}, "RunContainerError"),
        (
            {"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k"}}}]},
            "CreateContainerConfigError",
        ),
    ],
)
@pytest.mark.usefixtures("kubelet")
def test_container_that_cannot_start_waits_with_the_reason(
    api: Api, namespace: str, container: Object, reason: str
) -> None:
    create_driver(api, namespace, "pass", **container)
    pod = api.pod_when(namespace, "one", waits)
    assert state(pod)["waiting"]["reason"] == reason
