"""The names of the files of Spark's state.

Layouts: RocksDB with changelog (`N.zip`, `N.changelog`, `SSTs/`, `logs/`) and the hdfs-backed store
(`N.delta`, `N.snapshot`) of Spark 4.1.2, state checkpoint format v1. The files of a state store are in
`state/OPERATOR/PARTITION/`, or in a folder of it if the operator has several stores, as a join has.
Epoch N reads version N and writes version N+1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(state/\d+/\d+/(?:[^/]+/)?)(\d+)\.(changelog|zip|delta|snapshot)(\.crc)?")
_SNAPSHOTS = ("zip", "snapshot")


@dataclass(frozen=True)
class StateFile:
    """A version of a state store: all of it (a snapshot), or its changes since the version before.

    Args:
        name: of the object.
        store: the folder of the state store, with its '/'.
        version: of the state.
        is_snapshot: whether the version is complete.
        is_checksum: whether this is only Spark's checksum of the file.
    """

    name: str
    store: str
    version: int
    is_snapshot: bool
    is_checksum: bool


def state_file(name: str) -> StateFile | None:
    """Return the version that an object of a checkpoint has, None if it has none."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    return StateFile(name, parts[1], int(parts[2]), parts[3] in _SNAPSHOTS, parts[4] is not None)
