"""The manifest of a savepoint: written last and once, so a savepoint without it does not exist.

Also what a restored checkpoint keeps of its parent (`Ancestry`). Not here: copying. Called by
`savepoints`, `restoring`, the driver of a restored job, and a job's `verify`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sluicegate.protocol.errors import NoSavepoint
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import SinkBinding
from sluicegate.storage.objects import Objects

MANIFEST = "savepoint.json"
TAKING = "taking.json"
"""Created first: a folder with it and no manifest is a savepoint that was never finished."""

ANCESTRY = "ancestry.json"
_FORMAT = 1


@dataclass(frozen=True)
class Ancestry:
    """What is known of a parent lineage at the savepoint's epoch.

    Args:
        lineage: the parent's id.
        epoch: the last epoch that is in.
        sinks: the parent's sinks by id, as its last record binds them.
        chain: sink -> part -> the marker that the part held then.
        delivery: see `EpochRecord.delivery`.
        rows: sink -> rows of all decided epochs from the job's very beginning; None where the
            records of the oldest are pruned.
    """

    lineage: str
    epoch: int
    sinks: Mapping[str, SinkBinding]
    chain: Mapping[str, Mapping[int, Marker]]
    delivery: str = "exactly-once"
    rows: Mapping[str, int] | None = None


@dataclass(frozen=True)
class SavedFile:
    """A file of a savepoint: its size in bytes, and its SHA-256, hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a savepoint holds.

    Args:
        id: random.
        job: the job's name.
        sealed: the parent was ended for it: it may be restored as the parent's successor.
        checkpoint: where it was taken from.
        created_at_ms: the taker's clock, ms since 1970, for people only.
        version: of Sluicegate, that took it.
        ancestry: the parent lineage at the savepoint's epoch.
        files: name -> what it must be.
    """

    id: str
    job: str
    sealed: bool
    checkpoint: str
    created_at_ms: int
    version: str
    ancestry: Ancestry
    files: Mapping[str, SavedFile] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The last epoch that it holds."""
        return self.ancestry.epoch

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())


def write_manifest(target: Objects, manifest: Manifest) -> bool:
    """Create the manifest: True if it is new."""
    body = json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1)
    return target.create(MANIFEST, body.encode())


def read_manifest(target: Objects, where: str) -> Manifest:
    """Return the manifest of a savepoint.

    Raises:
        NoSavepoint: there is none, or it is of another version.
    """
    stored = target.read(MANIFEST)
    if stored is None:
        half = target.read(TAKING) is not None
        raise NoSavepoint(
            f"{where} is {'a savepoint that was never finished' if half else 'no savepoint'}",
            data="nothing was changed",
            do="see `sluicegate savepoint list FOLDER`"
            + ("; remove this one with `dispose --unfinished`" if half else ""),
        )
    try:
        return _parsed(json.loads(stored))
    except (LookupError, TypeError, ValueError) as error:
        raise NoSavepoint(
            f"the manifest of {where} cannot be read: {error}",
            data="nothing was changed",
            do="use the version of Sluicegate that took it, or restore savepoint.json",
        ) from error


def _parsed(body: dict[str, Any]) -> Manifest:
    if body.pop("format") != _FORMAT:
        raise ValueError("another format")
    body["ancestry"] = _ancestry(body["ancestry"])
    body["files"] = {name: SavedFile(**file) for name, file in body["files"].items()}
    return Manifest(**body)


def write_ancestry(checkpoint: Objects, ancestry: Ancestry) -> None:
    """Create what a restored checkpoint keeps of its parent."""
    checkpoint.create(ANCESTRY, json.dumps(asdict(ancestry), indent=1).encode())


def read_ancestry(checkpoint: Objects) -> Ancestry | None:
    """Return what a checkpoint keeps of its parent; None for one that was never restored."""
    stored = checkpoint.read(ANCESTRY)
    return None if stored is None else _ancestry(json.loads(stored))


def _ancestry(body: dict[str, Any]) -> Ancestry:
    chain = {
        sink: {int(part): Marker(**marker) for part, marker in parts.items()}
        for sink, parts in body["chain"].items()
    }
    sinks = {sink: SinkBinding(**binding) for sink, binding in body["sinks"].items()}
    return Ancestry(**(body | {"sinks": sinks, "chain": chain}))
