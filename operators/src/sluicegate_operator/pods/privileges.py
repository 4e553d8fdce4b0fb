"""What a job's pods must not have, because the operator would create them with its own permissions.

The author of a StreamingJob need not be allowed to create pods, so the operator refuses what would give a
pod rights on its node or those of another ServiceAccount. It refuses what Kubernetes' `baseline` standard
forbids of that kind; for all of `restricted`, label the namespace (`pod-security.kubernetes.io/enforce`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.labels import DRIVER_ACCOUNT, EXECUTOR
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods.names import DEFAULT_SERVICE_ACCOUNT

_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_ACCOUNTS = ("serviceAccountName", "serviceAccount")
_UNNAMED = "default"
"""The account that the API server gives to a pod that names none."""


def validate_privileges(template: Mapping[str, Any], container: str) -> SettingsInvalid | None:
    """Return why the pod template for our container asks for too much, or None.

    `template` has the shape of a pod template (`pods.template.validate_template`).
    """
    problem = next(_privileges(template.get("spec") or {}, container), None)
    if problem is None:
        return None
    return SettingsInvalid(
        f"{container}.template: {problem}",
        data=SPEC_REJECTED,
        do="remove it from the template; a pod that needs it must be created by somebody who may "
        "create such pods, not by the operator",
    )


def accounts_of(spec: StreamingJobSpec) -> tuple[str, ...]:
    """Return the names of the ServiceAccounts that the pods of a job would run as."""
    if spec.service_account:
        return (spec.service_account,)
    templates = (spec.driver.template, spec.executor.template)
    pods = [template.get("spec") or {} for template in templates]
    named = [str(pod[key] or _UNNAMED) for pod in pods for key in _ACCOUNTS if key in pod]
    return tuple(dict.fromkeys([DEFAULT_SERVICE_ACCOUNT, *named]))


def validate_account(
    namespace: str, name: str, labels: Mapping[str, str], own: tuple[str, str]
) -> SettingsInvalid | None:
    """Return why the pods of a job cannot run as a ServiceAccount with these labels, or None.

    `own` is namespace and name of the operator's ServiceAccount; two empty texts: it has none.
    """
    if (namespace, name) == own:
        return SettingsInvalid(
            f"ServiceAccount {name} is the operator's own",
            data="no driver is started: it would have the permissions of the operator",
            do=f"use an account for drivers, such as {DEFAULT_SERVICE_ACCOUNT}, in another namespace",
        )
    if labels.get(DRIVER_ACCOUNT) != "true":
        return SettingsInvalid(
            f"ServiceAccount {name} is not marked as an account for drivers",
            data="no driver is started: a job must not get the permissions of any account",
            do="if jobs may have its permissions, let somebody who may change the account run "
            f"`kubectl label serviceaccount {name} -n {namespace} {DRIVER_ACCOUNT}=true`",
        )
    return None


def _privileges(pod: Mapping[str, Any], container: str) -> Iterator[str]:
    for field in _HOST_NAMESPACES:
        if pod.get(field):
            yield f"spec.{field} is not permitted: it shares the node's namespace"
    if container == EXECUTOR and pod.get("automountServiceAccountToken", False) is not False:
        yield "spec.automountServiceAccountToken is not permitted: executors need no token"
    yield from _windows_host(pod, "spec")
    for volume in _items(pod, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"spec.volumes[{volume.get('name')}].hostPath is not permitted: it is the node's disk"
    for part in _CONTAINERS:
        for one in _items(pod, part):
            yield from _container_privileges(one, f"spec.{part}[{one.get('name')}]")


def _container_privileges(container: Mapping[str, Any], where: str) -> Iterator[str]:
    security = _mapping(container, "securityContext")
    inside = f"{where}.securityContext"
    if security.get("privileged"):
        yield f"{inside}.privileged is not permitted: the container would have all rights on its node"
    if security.get("allowPrivilegeEscalation", False) is not False:
        yield f"{inside}.allowPrivilegeEscalation must be false"
    if _mapping(security, "capabilities").get("add"):
        yield f"{inside}.capabilities.add is not permitted"
    if security.get("procMount") not in (None, "Default"):
        yield f"{inside}.procMount must be Default"
    yield from _windows_host(container, where)
    for port in _items(container, "ports"):
        if port.get("hostPort"):
            yield f"{where}.ports[{port.get('containerPort')}].hostPort is not permitted"


def _windows_host(part: Mapping[str, Any], where: str) -> Iterator[str]:
    windows = _mapping(_mapping(part, "securityContext"), "windowsOptions")
    if windows.get("hostProcess"):
        yield f"{where}.securityContext.windowsOptions.hostProcess is not permitted"


def _mapping(part: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = part.get(key)
    return value if isinstance(value, Mapping) else {}


def _items(part: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = part.get(key)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
