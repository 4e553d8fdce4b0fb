"""The manifest of a savepoint, which is created last: without it there is no savepoint.

Also the ancestry, which a restored checkpoint keeps about its parent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sluicegate.errors import SavepointFailed, SavepointInvalid
from sluicegate.protocol.record import (
    Chain,
    EpochRecord,
    SinkBinding,
    parse_chain,
    parse_sinks,
)
from sluicegate.storage.object_access import is_inside
from sluicegate.storage.object_store import ObjectStore, create_and_read

MANIFEST = "savepoint.json"
TAKING = "taking.json"
"""Created first: a folder with it but without a manifest is an incomplete savepoint."""

ANCESTRY = "ancestry.json"
_FORMAT = 1
_DISPOSED = b'{"disposed": true}'
"""In the place of the manifest: an unfinished savepoint is being deleted, and nobody completes it."""


@dataclass(frozen=True)
class Ancestry:
    """The state of a parent lineage at the epoch of the savepoint.

    Args:
        lineage: the parent's id.
        epoch: the last epoch in the savepoint.
        sinks: the parent's sinks by id, as its last record binds them.
        chain: the marker of each part of each sink, as of that epoch.
        delivery: see `EpochRecord.delivery`.
        rows: sink -> rows of all decided epochs since the job began; None: unknown, because the
            oldest records are pruned.
    """

    lineage: str
    epoch: int
    sinks: Mapping[str, SinkBinding]
    chain: Chain
    delivery: str = "exactly-once"
    rows: Mapping[str, int] | None = None

    def inherited_rows(self, record: EpochRecord) -> dict[str, int]:
        """Return the parent's rows in those sinks of a record that were the parent's too."""
        return {
            sink: (self.rows or {}).get(sink, 0)
            for sink, binding in record.sinks.items()
            if sink in self.sinks and self.sinks[sink].target == binding.target
        }


@dataclass(frozen=True)
class SavedFile:
    """A file of a savepoint: its size in bytes and its SHA-256, hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a savepoint.

    Args:
        id: a random id.
        job: the job's name.
        sealed: the parent lineage was sealed, so the savepoint may be restored as its successor.
        checkpoint: address of the checkpoint that it was taken of.
        created_at_ms: local time in ms since 1970, informational.
        version: the version of Sluicegate that took it.
        ancestry: the parent lineage at the savepoint's epoch.
        files: name -> expected size and digest.
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
        """The last epoch in the savepoint."""
        return self.ancestry.epoch

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files.values())


def write_manifest(savepoint: ObjectStore, manifest: Manifest) -> None:
    """Create the manifest, which completes the savepoint.

    Raises:
        SavepointFailed: the savepoint was disposed of meanwhile.
    """
    body = json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1).encode()
    if create_and_read(savepoint, MANIFEST, body) == body:
        if savepoint.read(TAKING) is not None:
            return
        savepoint.delete(MANIFEST)  # all of it had been deleted before
    raise _disposed(savepoint)


def check_not_disposed(savepoint: ObjectStore) -> None:
    """Raise SavepointFailed if a savepoint that is being taken was disposed of."""
    if savepoint.read(MANIFEST) is not None or savepoint.read(TAKING) is None:
        raise _disposed(savepoint)


def is_unfinished(savepoint: ObjectStore) -> bool:
    """Return whether a savepoint was begun, and not completed or not deleted completely."""
    stored = savepoint.read(MANIFEST)
    return stored == _DISPOSED or (stored is None and savepoint.read(TAKING) is not None)


def end_unfinished(savepoint: ObjectStore) -> bool:
    """Let nobody complete an unfinished savepoint any more; return False if it is complete."""
    return create_and_read(savepoint, MANIFEST, _DISPOSED) == _DISPOSED


def read_manifest(savepoint: ObjectStore) -> Manifest:
    """Return the manifest of a savepoint; raises SavepointInvalid if it is missing or not supported."""
    stored = savepoint.read(MANIFEST)
    if stored is None or stored == _DISPOSED:
        incomplete = is_unfinished(savepoint)
        raise SavepointInvalid(
            f"{savepoint.url} is {'an incomplete savepoint' if incomplete else 'not a savepoint'}",
            data="nothing was changed",
            do="see `sluicegate savepoint list FOLDER`"
            + ("; delete this one with `dispose --unfinished`" if incomplete else ""),
        )
    try:
        return _parsed(json.loads(stored))
    except (LookupError, TypeError, ValueError) as error:
        raise SavepointInvalid(
            f"the manifest of {savepoint.url} cannot be read: {error}",
            data="nothing was changed",
            do="use the version of Sluicegate that took the savepoint, or restore savepoint.json",
        ) from error


def _disposed(savepoint: ObjectStore) -> SavepointFailed:
    return SavepointFailed(
        f"{savepoint.url} was disposed of while it was being taken",
        data="there is no savepoint, and nothing is lost; a checkpoint that is sealed already stays so",
        do="take another one, which also completes the move of a sealed checkpoint; use `dispose "
        "--unfinished` only if nothing takes the savepoint any more",
    )


def _parsed(body: dict[str, Any]) -> Manifest:
    if body.pop("format") != _FORMAT:
        raise ValueError("its format is not supported")
    body["ancestry"] = _ancestry(body["ancestry"])
    body["files"] = {name: SavedFile(**file) for name, file in body["files"].items()}
    for name in body["files"]:
        if not is_inside(name):
            raise ValueError(f"the file {name!r} would be outside of the checkpoint")
    return Manifest(**body)


def write_ancestry(checkpoint: ObjectStore, ancestry: Ancestry) -> None:
    """Store what a restored checkpoint knows about its parent."""
    checkpoint.create(ANCESTRY, json.dumps(asdict(ancestry), indent=1).encode())


def read_ancestry(checkpoint: ObjectStore) -> Ancestry | None:
    """Return what a checkpoint knows about its parent; None if it was never restored."""
    stored = checkpoint.read(ANCESTRY)
    return None if stored is None else _ancestry(json.loads(stored))


def _ancestry(body: dict[str, Any]) -> Ancestry:
    sinks, chain = parse_sinks(body["sinks"]), parse_chain(body["chain"])
    return Ancestry(**(body | {"sinks": sinks, "chain": chain}))
