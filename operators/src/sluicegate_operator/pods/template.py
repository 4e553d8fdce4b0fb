"""The user's pod templates: which fields they may set, and how they become part of a pod.

A template is laid over our defaults, and what we reserve is laid over the template: names, labels,
finalizer, variables, command and restart policy, on which exactly-once or ownership depends. A template
that sets a reserved field is rejected when the spec is read; a pod built from it still has our values.

Parts are merged like a strategic merge patch: mappings by key, where null removes a key, and lists of
named items by name. Of these, containers are merged recursively, and smaller items are replaced, because
a variable with a `value` that gets a `valueFrom` would have both. Other lists are replaced. Unlike in a
patch, the items of the upper layer come first, because Kubernetes resolves `$(NAME)` in a variable from
the variables before it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.fields import GROUP, SPEC_REJECTED
from sluicegate_operator.api.labels import DRIVER
from sluicegate_operator.kube.resource import PODS

MERGED_LISTS: Mapping[str, str] = {"containers": "name", "initContainers": "name"}
"""Lists whose items are merged recursively, and the field that names an item."""

REPLACED_LISTS: Mapping[str, str] = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists whose items are replaced, and the field that names an item in Kubernetes' API."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with another laid over it; neither is changed."""
    found: dict[str, Any] = {key: value for key, value in base.items() if value is not None}
    for key, value in over.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merge_value(key, found.get(key), value)
    return found


def _merge_value(key: str, base: Any, over: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(over, Mapping):
        return merge(base if isinstance(base, Mapping) else {}, over)
    name = MERGED_LISTS.get(key) or REPLACED_LISTS.get(key)
    if name is None or not isinstance(base, list):
        return over
    return _merge_list(base, over, name, deep=key in MERGED_LISTS)


def _merge_list(
    base: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]], name: str, *, deep: bool
) -> list[Any]:
    before = {item.get(name): item for item in base}
    replaced = {item.get(name) for item in over}
    first = [merge(before.get(item.get(name), {}), item) if deep else item for item in over]
    return [*first, *(item for item in base if item.get(name) not in replaced)]


RESERVED_ENV = frozenset(
    {
        *map(str, DriverVariable),
        "AWS_ALLOW_HTTP",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_REGION",
    }
)
"""Variables of driver and executors that only the operator sets, even if it sets some of them only at times:
a template must not choose a savepoint to restore from. `envFrom` is not inspected."""

_RESERVED_IN_CONTAINER: Mapping[str, str] = {
    "image": "set spec.image",
    "imagePullPolicy": "set spec.imagePullPolicy",
    "restartPolicy": "a driver is replaced by a new pod",
    "restartPolicyRules": "a driver is replaced by a new pod",
}
_RESERVED_IN_DRIVER: Mapping[str, str] = {
    **_RESERVED_IN_CONTAINER,
    "command": "set mainFile or mainModule",
    "args": "set spec.arguments",
    "terminationMessagePath": "the driver reports there why it ended",
    "terminationMessagePolicy": "the driver reports why it ended",
}
_RESERVED_IN_SPEC: Mapping[str, str] = {
    "terminationGracePeriodSeconds": "set spec.terminationGracePeriodSeconds"
}

_MAPPING_FIELDS = ("labels", "annotations", "resources", "requests", "limits", "securityContext")


def validate_template(template: Mapping[str, Any], container: str) -> SettingsInvalid | None:
    """Return why a PodTemplateSpec cannot be used for the pod with our container, or None."""
    # conflicts need the shape
    problems = itertools.chain(_shape_errors(template), _conflicts(template, container))
    problem = next(problems, None)
    if problem is None:
        return None
    do = "remove it from the template and apply the resource again"
    return SettingsInvalid(f"{container}.template: {problem}", data=SPEC_REJECTED, do=do)


def build_pod(
    defaults: Mapping[str, Any],
    template: Mapping[str, Any],
    ours: Mapping[str, Any],
    container: str,
) -> dict[str, Any]:
    """Return a pod.

    Args:
        defaults: metadata and spec that the template may change.
        template: the user's.
        ours: metadata and spec that the template cannot change.
        container: the name of our container.

    Raises:
        SettingsInvalid: the template does not have the shape of a pod template.
    """
    for problem in _shape_errors(template):
        what = f"a pod template is invalid: {problem}"
        raise SettingsInvalid(what, data=SPEC_REJECTED, do="correct the template")
    base = _without_reserved(template, container)
    default = _without_overridden_resources(defaults, base, container)
    return {**PODS.type_meta, **copy.deepcopy(merge(merge(default, base), ours))}


def _without_reserved(template: Mapping[str, Any], container: str) -> dict[str, Any]:
    """Return a template without reserved fields, including those that we leave unset."""
    metadata, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    kept = {}
    for part in ("labels", "annotations"):
        given = (metadata.get(part) or {}).items()
        kept[part] = {key: value for key, value in given if not _is_reserved(key)}
    containers = []
    for one in spec.get("containers") or ():
        if one["name"] == container:
            env = [e for e in one.get("env") or () if e["name"] not in RESERVED_ENV]
            one = {key: v for key, v in one.items() if key not in _RESERVED_IN_CONTAINER}  # noqa: PLW2901 - a part of it
            one["env"] = env
        containers.append(one)
    spec["containers"] = containers
    return {"metadata": kept, "spec": spec}


def _without_overridden_resources(
    defaults: Mapping[str, Any], template: Mapping[str, Any], container: str
) -> Mapping[str, Any]:
    """Return the defaults without requests and limits for resources that the template sets.

    A template that sets only a limit also sets the request, by the rule of Kubernetes.
    """
    ours = [one for one in template["spec"]["containers"] if one["name"] == container]
    given = (ours[0].get("resources") if ours else None) or {}
    named = {*(given.get("requests") or {}), *(given.get("limits") or {})}
    kept = copy.deepcopy(dict(defaults))
    for one in kept["spec"]["containers"]:
        for amounts in one.get("resources", {}).values():
            for name in named & amounts.keys():
                del amounts[name]
    return kept


def _conflicts(template: Mapping[str, Any], container: str) -> Iterator[str]:
    driver = container == DRIVER  # for an executor Spark sets some of the fields
    yield from _metadata_conflicts(template.get("metadata") or {})
    spec = template.get("spec") or {}
    if spec.get("restartPolicy") not in (None, "Never"):
        yield "spec.restartPolicy must be Never: each attempt needs a new pod"
    if driver:
        yield from _field_conflicts(spec, _RESERVED_IN_SPEC, "spec")
    ours = _RESERVED_IN_DRIVER if driver else _RESERVED_IN_CONTAINER
    for one in spec.get("containers") or ():
        if one["name"] != container:
            continue
        inside = f"spec.containers[{container}]"
        yield from _field_conflicts(one, ours, inside)
        for variable in one.get("env") or ():
            if variable["name"] in RESERVED_ENV:
                yield f"{inside}.env[{variable['name']}] is reserved for the operator"


def _metadata_conflicts(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, value in metadata.items():
        if key not in ("labels", "annotations") and value is not None:
            yield f"metadata.{key} is reserved for the operator; only labels and annotations can be set"
    for part in ("labels", "annotations"):
        for key in filter(_is_reserved, metadata.get(part) or {}):
            yield f"metadata.{part}[{key}] is reserved for the operator"


def _field_conflicts(part: Mapping[str, Any], ours: Mapping[str, str], where: str) -> Iterator[str]:
    for key, why in ours.items():
        if part.get(key) is not None:
            yield f"{where}.{key} cannot be set: {why}"


def _is_reserved(key: str) -> bool:
    return key.startswith(f"{GROUP}/")


def _shape_errors(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not a mapping or list although Kubernetes requires one, outermost first."""
    for part, value in template.items():
        if part not in ("metadata", "spec"):
            yield f"a PodTemplateSpec has no {part}, only metadata and spec"
        elif isinstance(value, Mapping):
            yield from _shape_errors_of(value, part)
        elif value is not None:
            yield f"{part} must be a mapping"


def _shape_errors_of(part: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, value in part.items():
        inside = f"{where}.{key}"
        if value is None:
            continue
        if key in _MAPPING_FIELDS:
            if not isinstance(value, Mapping):
                yield f"{inside} must be a mapping"
                return
            yield from _shape_errors_of(value, inside) if key == "resources" else ()
        named = MERGED_LISTS.get(key) or REPLACED_LISTS.get(key)
        if named is None:
            continue
        if not isinstance(value, list):
            yield f"{inside} must be a list"
            return
        for number, item in enumerate(value):
            if not isinstance(item, Mapping) or not isinstance(item.get(named), str | int):
                yield f"{inside}[{number}] must be a mapping with {named}"
                return
            if key in MERGED_LISTS:
                yield from _shape_errors_of(item, f"{inside}[{item[named]}]")
