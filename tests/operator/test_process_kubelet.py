"""The kubelet that runs containers as processes: what they are given, and how they end."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate_operator.resources.marks import DRIVER_FINALIZER
from tests.operator.api import Api, eventually
from tests.operator.process_kubelet import ProcessKubelet
from tests.operator.test_kubelet import phase, state, waits

Object = dict[str, Any]


@pytest.fixture
def kubelet(api: Api, namespace: str, tmp_path: Path) -> Iterator[ProcessKubelet]:
    with ProcessKubelet(
        api.server, tmp_path, nodes=[f"{namespace}-1"], namespace=namespace
    ) as running:
        yield running


ACCOUNT = "drivers"


def driver(api: Api, namespace: str, code: str, **container: object) -> Object:
    api.make(namespace, "serviceaccounts", {"metadata": {"name": ACCOUNT}})
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
    return api.make(namespace, "pods", body)


@pytest.mark.usefixtures("kubelet")
def test_a_process_s_exit_code_and_message_are_in_the_status(api: Api, namespace: str) -> None:
    code = "import os,sys; open(os.environ['SLUICEGATE_OUTCOME'], 'w').write('{}'); sys.exit(7)"
    driver(api, namespace, code)
    pod = api.pod_when(namespace, "one", phase("Failed"))
    assert state(pod)["terminated"]["exitCode"] == 7
    assert state(pod)["terminated"]["message"] == "{}"


def test_the_environment_is_what_a_pod_of_a_cluster_has(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    secret = {"metadata": {"name": "keys"}, "data": {"id": base64.b64encode(b"me").decode()}}
    api.make(namespace, "secrets", secret)
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
    made = driver(api, namespace, "import json,os; print(json.dumps(dict(os.environ)))", env=env)
    pod = api.pod_when(namespace, "one", phase("Succeeded"))
    given = json.loads(kubelet.log_of(pod))
    assert (given["NAME"], given["UID"]) == ("one", made["metadata"]["uid"])
    assert (given["IP"], given["JOB"], given["KEY"]) == ("127.0.0.1", "orders", "me")
    assert given["BOTH"] == "one/orders $(NOBODY)"
    assert given["KUBERNETES_SERVICE_PORT"] == str(api.server.port)


ASKS = """
import json, os, ssl, urllib.request
folder = os.environ["SLUICEGATE_SERVICEACCOUNT"]
token = open(folder + "/token").read()
where = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
asked = urllib.request.Request(
    where + "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    data=json.dumps(body).encode(),
    headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"},
)
context = ssl.create_default_context(cafile=folder + "/ca.crt")
print(urllib.request.urlopen(asked, context=context).read().decode())
"""


def test_a_process_is_its_pod_s_service_account_to_the_api(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    driver(api, namespace, ASKS)
    pod = api.pod_when(namespace, "one", lambda p: phase("Succeeded")(p) or phase("Failed")(p))
    assert phase("Succeeded")(pod), kubelet.log_of(pod)
    user = json.loads(kubelet.log_of(pod))["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:{ACCOUNT}"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["one"]


STOPS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(%s))
print("ready", flush=True)
while True: time.sleep(0.05)
"""


def stopped(api: Api, namespace: str, kubelet: ProcessKubelet, code: str, grace_s: int) -> Object:
    made = driver(api, namespace, code)
    api.pod_when(namespace, "one", phase("Running"))
    eventually(lambda: "ready" in kubelet.log_of(made))
    api.delete_pod(namespace, "one", grace_s)
    return api.pod_when(namespace, "one", lambda p: "terminated" in state(p))


def test_a_process_is_asked_to_stop_when_its_pod_is_deleted(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    pod = stopped(api, namespace, kubelet, STOPS % "0", 30)
    assert (pod["status"]["phase"], state(pod)["terminated"]["exitCode"]) == ("Succeeded", 0)


def test_a_process_that_does_not_stop_is_killed(
    api: Api, namespace: str, kubelet: ProcessKubelet
) -> None:
    code = STOPS.replace("lambda *_: sys.exit(%s)", "signal.SIG_IGN")
    pod = stopped(api, namespace, kubelet, code, 1)
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
def test_what_cannot_start_waits_and_says_why(
    api: Api, namespace: str, container: Object, reason: str
) -> None:
    driver(api, namespace, "pass", **container)
    pod = api.pod_when(namespace, "one", waits)
    assert state(pod)["waiting"]["reason"] == reason
