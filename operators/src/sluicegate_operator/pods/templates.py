"""The user's pod templates: what they may say, and how they become part of a pod.

A template is the base. Ours is laid over it where exactly-once or ownership rests on it (names,
labels, finalizer, variables, command, restart policy); elsewhere the template is laid over our
defaults. A template that contradicts what is ours is refused where the spec is read, so that
nobody wonders; a pod that is made of one nevertheless has ours. Called by `checks`, `driver` and
`executors`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.pods.merging import CONTAINERS, THINGS, merged
from sluicegate_operator.resources.declaring import GROUP, LEFT_ALONE

RESERVED_ENV = frozenset(
    {
        *(
            f"SLUICEGATE_{name}"
            for name in (
                "ATTEMPT",
                "CHECKPOINT",
                "DEAD_LETTER_TOPIC",
                "DRIVER_MEMORY",
                "EPOCHS",
                "JOB",
                "MASTER",
                "OUTCOME",
                "POD_IP",
                "POD_NAME",
                "POD_NAMESPACE",
                "POD_UID",
                "PURPOSE",
                "NEWEST_CHECKPOINT",
                "RESTORE_FROM",
                "SPARK_CONF",
            )
        ),
        "AWS_ALLOW_HTTP",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_REGION",
    }
)
"""Variables that only the operator sets, in driver and executors. Those that it sets only at times
are here too: a savepoint to restore from is no matter of a template. `envFrom` is not looked into."""

_OURS_IN_CONTAINER: Mapping[str, str] = {
    "image": "spec.image says it",
    "imagePullPolicy": "spec.imagePullPolicy says it",
    "restartPolicy": "a driver is replaced by a new pod",
    "restartPolicyRules": "a driver is replaced by a new pod",
}
_OURS_IN_DRIVER: Mapping[str, str] = {
    **_OURS_IN_CONTAINER,
    "command": "mainFile or mainModule says it",
    "args": "spec.arguments says it",
    "terminationMessagePath": "the driver writes there why it ended",
    "terminationMessagePolicy": "the driver writes why it ended",
}
_OURS_IN_SPEC: Mapping[str, str] = {"terminationGracePeriodSeconds": "spec.graceS says it"}

_MAPPINGS = ("labels", "annotations", "resources", "requests", "limits", "securityContext")


def refused_template(
    template: Mapping[str, Any], container: str, where: str, *, driver: bool
) -> SettingsInvalid | None:
    """Return why a template cannot be used, or None.

    Args:
        template: a PodTemplateSpec.
        container: the name of our container in it.
        where: what it is of, for the error.
        driver: whether it is the driver's; of an executor Spark decides some of this.
    """
    contradictions = _contradictions(template, container, driver=driver)
    for said in itertools.chain(_misshapen(template), contradictions):  # the second needs the shape
        return SettingsInvalid(
            f"{where}: {said}", data=LEFT_ALONE, do="take it out of the template and apply it again"
        )
    return None


def built(
    defaults: Mapping[str, Any],
    template: Mapping[str, Any],
    ours: Mapping[str, Any],
    container: str,
) -> dict[str, Any]:
    """Return metadata and spec of a pod.

    Args:
        defaults: metadata and spec where the template has the last word.
        template: the user's.
        ours: metadata and spec where we have it.
        container: the name of our container.

    Raises:
        SettingsInvalid: the template is not shaped like one.
    """
    for said in _misshapen(template):
        raise SettingsInvalid(
            f"a pod's template cannot be read: {said}", data=LEFT_ALONE, do="correct the template"
        )
    base = _without_ours(template, container)
    default = _without_requests(defaults, base, container)
    return copy.deepcopy(merged(merged(default, base), ours))


def _without_ours(template: Mapping[str, Any], container: str) -> dict[str, Any]:
    """Return a template without what only we may say, also where we say nothing."""
    metadata, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    kept = {
        part: {key: value for key, value in (metadata.get(part) or {}).items() if not _is_ours(key)}
        for part in ("labels", "annotations")
    }
    containers = []
    for one in spec.get("containers") or ():
        if one["name"] == container:
            env = [e for e in one.get("env") or () if e["name"] not in RESERVED_ENV]
            one = {key: v for key, v in one.items() if key not in _OURS_IN_CONTAINER}  # noqa: PLW2901 - a part of it
            one["env"] = env
        containers.append(one)
    spec["containers"] = containers
    return {"metadata": kept, "spec": spec}


def _without_requests(
    defaults: Mapping[str, Any], template: Mapping[str, Any], container: str
) -> Mapping[str, Any]:
    """Return defaults without those requests and limits that a template's own would contradict.

    A template that gives only a limit means the request too, as Kubernetes reads it.
    """
    mine: Mapping[str, Any] = next(
        (c for c in template["spec"]["containers"] if c["name"] == container), {}
    )
    given = mine.get("resources") or {}
    named = {*(given.get("requests") or {}), *(given.get("limits") or {})}
    if not named:
        return defaults
    spec = dict(defaults["spec"])
    spec["containers"] = [
        {
            **one,
            "resources": {
                part: {name: amount for name, amount in amounts.items() if name not in named}
                for part, amounts in one.get("resources", {}).items()
            },
        }
        for one in spec["containers"]
    ]
    return {**defaults, "spec": spec}


def _contradictions(template: Mapping[str, Any], container: str, *, driver: bool) -> Iterator[str]:
    yield from _in_metadata(template.get("metadata") or {})
    spec = template.get("spec") or {}
    if spec.get("restartPolicy") not in (None, "Never"):
        yield "spec.restartPolicy must be Never: a new pod is a new attempt, a restarted container is none"
    if driver:
        yield from _given(spec, _OURS_IN_SPEC, "spec")
    ours = _OURS_IN_DRIVER if driver else _OURS_IN_CONTAINER
    for one in spec.get("containers") or ():
        if one["name"] != container:
            continue
        inside = f"spec.containers[{container}]"
        yield from _given(one, ours, inside)
        for variable in one.get("env") or ():
            if variable["name"] in RESERVED_ENV:
                yield f"{inside}.env[{variable['name']}] is the operator's"


def _in_metadata(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, value in metadata.items():
        if key not in ("labels", "annotations") and value is not None:
            yield f"metadata.{key} is the operator's; only labels and annotations can be given"
    for part in ("labels", "annotations"):
        for key in filter(_is_ours, metadata.get(part) or {}):
            yield f"metadata.{part}[{key}] is the operator's"


def _given(part: Mapping[str, Any], ours: Mapping[str, str], where: str) -> Iterator[str]:
    for key, why in ours.items():
        if part.get(key) is not None:
            yield f"{where}.{key} cannot be given: {why}"


def _is_ours(key: str) -> bool:
    return key.startswith(f"{GROUP}/")


def _misshapen(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in a template is no mapping or list where Kubernetes has one, outermost first."""
    for part in ("metadata", "spec"):
        value = template.get(part)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            yield f"{part} must be a mapping"
            return
        yield from _misshapen_part(value, part)
    for key in template:
        if key not in ("metadata", "spec"):
            yield f"there is no {key} in a PodTemplateSpec, only metadata and spec"


def _misshapen_part(part: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, value in part.items():
        inside = f"{where}.{key}"
        if value is None:
            continue
        if key in _MAPPINGS:
            if not isinstance(value, Mapping):
                yield f"{inside} must be a mapping"
                return
            yield from _misshapen_part(value, inside) if key == "resources" else ()
        named = CONTAINERS.get(key) or THINGS.get(key)
        if named is None:
            continue
        if not isinstance(value, list):
            yield f"{inside} must be a list"
            return
        for number, thing in enumerate(value):
            if not isinstance(thing, Mapping) or not isinstance(thing.get(named), str | int):
                yield f"{inside}[{number}] must be a mapping with {named}"
                return
            if key in CONTAINERS:
                yield from _misshapen_part(thing, f"{inside}[{thing[named]}]")
