"""Builds a checkpoint of a few kilobytes: files as Spark names them, and our records.

Files that Spark really writes are covered by tests/integration/test_savepoints.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import Chunk, EpochRecord, SinkBinding
from sluicegate.savepoints.catalog import Savepoint
from sluicegate.savepoints.restore import restore_savepoint
from sluicegate.savepoints.take import take_savepoint
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage, claim_lineage
from sluicegate.storage.object_store import LocalObjectStore, open_store

SINK = "memory.t"
STORE = "state/0/0/"


def write(root: Path, name: str, content: bytes = b"x") -> None:
    """Write a file."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def snapshot(*ssts: str, logs: tuple[str, ...] = ()) -> bytes:
    """Return a RocksDB snapshot that refers to some files."""
    files = {"sstFiles": [{"dfsSstFileName": name} for name in ssts]}
    if logs:
        files["logFiles"] = [{"dfsLogFileName": name} for name in logs]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps(files)}")
    return content.getvalue()


def record(
    epoch: int, lineage: str, *, overlapped: bool = False, delivery: str = "exactly-once"
) -> EpochRecord:
    """Return the decision of an epoch: ten rows for one part of a sink in memory."""
    return EpochRecord(
        lineage=lineage,
        job="j",
        epoch=epoch,
        attempt=f"a{epoch}",
        delivery=delivery,
        offsets_digest=hashlib.sha256(offsets(epoch)).hexdigest(),
        sinks={SINK: SinkBinding("memory", "store t", 1, f"{lineage}/{SINK}")},
        prev={SINK: {0: Marker(epoch - 1, f"a{epoch - 1}")}} if epoch else {},
        chunks=(Chunk(SINK, 0, (0, 0), 10, 1, hashlib.sha256(b"r").hexdigest(), inline=b"r"),),
        overlapped=overlapped,
    )


def offsets(epoch: int) -> bytes:
    """Return the content of Spark's `offsets/N`."""
    return f"v1\n{{}}\n{epoch}".encode()


def run_epoch(
    root: Path,
    epoch: int,
    *,
    job: str = "j",
    committed: bool = True,
    overlapped: bool = False,
    delivery: str = "exactly-once",
) -> None:
    """Write the files of one epoch, with the hdfs-backed state store."""
    store = LocalObjectStore(root)
    lineage = claim_lineage(store, job).id
    write(root, "metadata", b'{"id":"parent"}')
    write(root, f"offsets/{epoch}", offsets(epoch))
    write(root, f"sources/0/{epoch}")
    write(root, f"{STORE}{epoch + 1}.delta", f"delta {epoch + 1}".encode())
    decided = record(epoch, lineage, overlapped=overlapped, delivery=delivery)
    StoredEpochLog(store).create(decided)
    if committed:
        write(root, f"commits/{epoch}")


def checkpoint(root: Path, epochs: int) -> str:
    """Write a checkpoint with some completed epochs and return its address."""
    for epoch in range(epochs):
        run_epoch(root, epoch)
    return str(root)


def take(checkpoint: str, folder: str, *, seal: bool = False) -> Savepoint:
    """Take a savepoint of the checkpoint at an address."""
    return take_savepoint(open_store(checkpoint), folder, seal=seal)


def restore(
    savepoint: str, checkpoint: str, *, branch: bool = False, same_sinks: bool = False
) -> Lineage:
    """Restore the savepoint at an address into the checkpoint at another."""
    stores = open_store(savepoint), open_store(checkpoint)
    return restore_savepoint(*stores, branch=branch, same_sinks=same_sinks)
