"""Creates and upgrades the CustomResourceDefinitions, and never downgrades them.

An older schema would drop fields that newer objects have. Helm cannot compare: its rollback applies what an
older release contained, so the definitions are no part of a release.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.crds import KINDS
from sluicegate_operator.hooks.requests import Requests
from sluicegate_operator.kube.resource import Json

log = logging.getLogger(__name__)

VERSION: Final = "sluicegate.dev/version"
"""Annotation with the version of Sluicegate that a definition belongs to."""

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_APPLY: Final = {"fieldManager": "sluicegate", "force": "true"}


async def upgrade(requests: Requests, metadata: Json, version: str) -> None:
    """Create what is missing, and upgrade what is not of a newer version.

    Args:
        requests: as an account that may get, create and patch these definitions.
        metadata: labels and annotations of each definition.
        version: of Sluicegate, such as 0.1.0.

    Raises:
        SettingsInvalid: the version cannot be read, or the API server refuses.
    """
    ours = parse(version)
    for kind in KINDS:
        definition = kind.definition()
        name = definition["metadata"]["name"]
        path = f"{_PATH}/{name}"
        found = await requests.find(path)
        theirs = ((found or {}).get("metadata", {}).get("annotations") or {}).get(VERSION, "")
        if theirs and parse(theirs) > ours:
            log.info("%s is of %s, newer than %s: it stays", name, theirs, version)
            continue
        annotations = {**metadata.get("annotations", {}), VERSION: version}
        definition["metadata"] |= {**metadata, "annotations": annotations}
        await requests.apply(path, definition, _APPLY)
        log.info("%s is of %s", name, version)


def parse(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without those of a pre-release or a build."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        raise SettingsInvalid(
            f"{version!r} is not a version such as 0.2.0",
            data="no definition was changed",
            do="pass the version of the chart, or correct the annotation sluicegate.dev/version",
        )
    return tuple(map(int, match.group().split(".")))
