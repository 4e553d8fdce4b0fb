"""What the operator refuses to create for the author of a StreamingJob."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.labels import DRIVER_ACCOUNT
from sluicegate_operator.api.streaming_job_settings import ExecutorSettings, PodSettings
from sluicegate_operator.pods.driver import validate
from sluicegate_operator.pods.privileges import accounts_of, validate_account
from tests.unit.operator.builders import spec

OWN = ("sluicegate-operator", "operator")


def contained(part: str = "containers", **fields: Any) -> dict[str, Any]:
    """Return a pod's spec with one container."""
    return {part: [{"name": "x", **fields}]}


def secured(**security: Any) -> dict[str, Any]:
    return contained(securityContext=security)


REFUSED = [
    ({"hostNetwork": True}, "spec.hostNetwork"),
    ({"hostPID": True}, "spec.hostPID"),
    ({"hostIPC": True}, "spec.hostIPC"),
    ({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "spec.volumes[node].hostPath"),
    (secured(privileged=True), "spec.containers[x].securityContext.privileged"),
    (secured(allowPrivilegeEscalation=True), "securityContext.allowPrivilegeEscalation"),
    (secured(allowPrivilegeEscalation=None), "securityContext.allowPrivilegeEscalation"),
    (secured(capabilities={"add": ["SYS_ADMIN"]}), "securityContext.capabilities.add"),
    (secured(procMount="Unmasked"), "securityContext.procMount"),
    (secured(windowsOptions={"hostProcess": True}), "windowsOptions.hostProcess"),
    (contained("initContainers", securityContext={"privileged": True}), "spec.initContainers[x]"),
    (
        contained(ports=[{"containerPort": 80, "hostPort": 80}]),
        "spec.containers[x].ports[80].hostPort",
    ),
    ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "windowsOptions.hostProcess"),
]


@pytest.mark.parametrize(("pod", "named"), REFUSED, ids=[named for _, named in REFUSED])
@pytest.mark.parametrize("container", ["driver", "executor"])
def test_a_template_with_more_rights_than_a_job_needs_is_refused(
    pod: dict[str, Any], named: str, container: str
) -> None:
    template = {"spec": pod}
    kind = PodSettings if container == "driver" else ExecutorSettings
    error = validate("clicks", spec(**{container: kind(template=template)}))
    assert error is not None
    assert error.what.startswith(f"{container}.template: ")
    assert named in error.what


@pytest.mark.parametrize(
    "pod",
    [
        secured(privileged=False, allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]}),
        {"hostNetwork": False, "volumes": [{"name": "state", "ephemeral": {}}]},
        contained("initContainers", image="proxy", restartPolicy="Always"),
    ],
)
def test_an_ordinary_template_is_accepted(pod: dict[str, Any]) -> None:
    assert validate("clicks", spec(driver=PodSettings(template={"spec": pod}))) is None


def test_executors_get_no_token() -> None:
    """A token in an executor would be one more way to create pods as the driver's account."""
    template = {"spec": {"automountServiceAccountToken": True}}
    assert validate("clicks", spec(executor=ExecutorSettings(template=template))) is not None
    assert validate("clicks", spec(driver=PodSettings(template=template))) is None


def test_the_operators_own_account_is_refused_even_with_the_label() -> None:
    error = validate_account(*OWN, {DRIVER_ACCOUNT: "true"}, OWN)
    assert error is not None
    assert "is the operator's own" in error.what


@pytest.mark.parametrize("labels", [{}, {DRIVER_ACCOUNT: ""}, {DRIVER_ACCOUNT: "false"}])
def test_an_account_without_the_label_is_refused(labels: dict[str, str]) -> None:
    error = validate_account("shop", "admin", labels, OWN)
    assert error is not None
    assert "kubectl label serviceaccount admin -n shop" in error.do


def test_an_account_with_the_label_is_accepted() -> None:
    assert validate_account("shop", "operator", {DRIVER_ACCOUNT: "true"}, OWN) is None


def test_accounts_of_templates_are_found() -> None:
    """Both spellings: `serviceAccount` is the deprecated alias that the API server still honors."""
    driver = PodSettings(template={"spec": {"serviceAccountName": "a"}})
    executor = ExecutorSettings(template={"spec": {"serviceAccount": "b"}})
    assert accounts_of(spec(driver=driver, executor=executor)) == ("sluicegate-driver", "a", "b")
    assert accounts_of(spec(service_account="mine", driver=driver)) == ("mine",)


@pytest.mark.parametrize("nothing", ["", None])
def test_a_template_that_names_no_account_gets_the_one_of_the_namespace(nothing: object) -> None:
    """It replaces ours, and the API server fills in `default`, which must be labelled like any other."""
    driver = PodSettings(template={"spec": {"serviceAccountName": nothing}})
    assert "default" in accounts_of(spec(driver=driver))
