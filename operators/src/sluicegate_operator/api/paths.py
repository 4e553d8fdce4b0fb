"""Paths below a bucket: which ones a volume or a job may have, and which ones overlap.

Only characters that every client of S3 sends unchanged are allowed. A '#' or '?' would end the path in
an address, and '..' would leave it, so that a deletion could reach a parent folder.
"""

from __future__ import annotations

import re

from sluicegate.deployment.environment import EVENT_LOGS

_PART = r"[A-Za-z0-9!_*'()=-][A-Za-z0-9!_.*'()=-]*"
"""A part does not begin with '.', so neither '.' nor '..' is one."""

PREFIX_PATTERN = f"^{_PART}(/{_PART})*/?$"
PATH_PATTERN = f"^/?{_PART}(/{_PART})*/?$"

OWNER = "owner.json"
"""Name of the object that says who owns a volume or a job's path (`sluicegate.storage.owner`)."""

RESERVED_CEL = f"^/?(savepoints|preflight|{EVENT_LOGS}|owner[.]json)(/.*)?$"
"""Paths that begin with a name that the operator uses itself, for CEL and Python."""

RESERVED_MESSAGE = (
    f"the path must not begin with savepoints, preflight, {EVENT_LOGS} or owner.json: the operator uses "
    "these names on each volume"
)


def is_reserved(path: str) -> bool:
    """Return whether a path below a volume begins with a name that the operator uses itself."""
    return re.fullmatch(RESERVED_CEL, path) is not None


def overlaps(one: str, other: str) -> bool:
    """Return whether two addresses are the same folder, or one folder contains the other."""
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)
