"""Two parts of a Kubernetes object made one, as a strategic merge patch does it.

Mappings are merged key by key; a null takes a key away. Lists of things that have a name are merged
by it: whole containers are merged in turn, smaller things (a variable, a volume) are replaced, or
one that had a `value` and gets a `valueFrom` would have both. Other lists are replaced. Unlike a
patch, what is laid over comes first in a list, because Kubernetes resolves `$(NAME)` in a variable
from those before it. Not here: what is laid over what. Called by `driver` and `executors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CONTAINERS: Mapping[str, str] = {"containers": "name", "initContainers": "name"}
"""Lists whose things are merged in turn, and the field that names them."""

THINGS: Mapping[str, str] = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists whose things are replaced, and the field that names them (as Kubernetes' API has it)."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with another laid over it; neither is changed."""
    found: dict[str, Any] = {key: value for key, value in base.items() if value is not None}
    for key, value in over.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _one(key, found.get(key), value)
    return found


def _one(key: str, base: Any, over: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(over, Mapping):
        return merged(base if isinstance(base, Mapping) else {}, over)
    name = CONTAINERS.get(key) or THINGS.get(key)
    if name is None or not isinstance(base, list):
        return over
    return _list(base, over, name, deep=key in CONTAINERS)


def _list(
    base: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]], name: str, *, deep: bool
) -> list[Any]:
    before = {thing.get(name): thing for thing in base}
    laid = {thing.get(name) for thing in over}
    first = [merged(before.get(thing.get(name), {}), thing) if deep else thing for thing in over]
    return [*first, *(thing for thing in base if thing.get(name) not in laid)]
