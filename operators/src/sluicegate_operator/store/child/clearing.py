"""Counting, looking for, and removing what is below an address, a page at a time.

Called by `store.__main__`.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sluicegate.protocol.errors import SettingsInvalid, StoreUnavailable
from sluicegate_operator.store.child.listing import pages, remove
from sluicegate_operator.volumes.tasks import (
    Delete,
    Deleted,
    Exists,
    Found,
    Measure,
    Measured,
)

_EPOCH = re.compile(r"(?:.*/)?epochs/\d+")

_PASSES = 10
"""Whoever still writes there is not outrun."""


def measure(task: Measure) -> Measured:
    """Count bytes and objects, and find the newest epoch of any job; holds a page in memory.

    Raises:
        StoreUnavailable: no answer.
    """
    size, count, newest = 0, 0, None
    for page in pages(task.volume):
        for entry in page:
            size, count = size + entry["size"], count + 1
            if _EPOCH.fullmatch(entry["path"]):
                at = entry["last_modified"].timestamp()
                newest = at if newest is None else max(newest, at)
    return Measured(size, count, newest)


def exists(task: Exists) -> Found:
    """Say whether anything is below an address.

    Raises:
        StoreUnavailable: no answer.
    """
    return Found(any(len(page) > 0 for page in pages(task.address)))


def delete(task: Delete) -> Deleted:
    """Remove everything below an address.

    Raises:
        SettingsInvalid: it is a whole bucket.
        StoreUnavailable: no answer, or something is still being written there.
    """
    if not urlsplit(task.address).path.strip("/"):
        raise SettingsInvalid(
            f"{task.address} is a whole bucket",
            data="nothing was deleted",
            do="give a prefix below the bucket",
        )
    removed = 0
    for _ in range(_PASSES):
        before = removed
        for page in pages(task.address):
            names = [entry["path"] for entry in page]
            if names:
                remove(task.address, names)
            removed += len(names)
        if removed == before:
            return Deleted(removed)
    raise StoreUnavailable(
        f"{task.address} is being written to: it was never empty in {_PASSES} passes",
        data=f"{removed} objects were deleted",
        do="stop whoever writes there; it is tried again",
    )
