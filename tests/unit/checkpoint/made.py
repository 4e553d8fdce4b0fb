"""A checkpoint made by hand: files as Spark names them, and our records, in a few kilobytes.

Not collected by itself. Called by the tests beside it. What Spark really writes is read by
tests/integration/test_savepoints.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import Chunk, EpochRecord, SinkBinding
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.objects import LocalObjects

SINK = "memory.t"
STORE = "state/0/0/"


def write(root: Path, name: str, content: bytes = b"x") -> None:
    """Write a file."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def snapshot(*ssts: str, logs: tuple[str, ...] = ()) -> bytes:
    """Return a RocksDB snapshot that names some files."""
    files = {"sstFiles": [{"dfsSstFileName": name} for name in ssts]}
    if logs:
        files["logFiles"] = [{"dfsLogFileName": name} for name in logs]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps(files)}")
    return content.getvalue()


def record(epoch: int, lineage: str, *, overlapped: bool = False) -> EpochRecord:
    """Return the decision of an epoch: ten rows for one part of a store."""
    return EpochRecord(
        lineage=lineage,
        job="j",
        epoch=epoch,
        attempt=f"a{epoch}",
        delivery="exactly-once",
        offsets_digest=hashlib.sha256(offsets(epoch)).hexdigest(),
        sinks={SINK: SinkBinding("memory", "store t", 1, f"{lineage}/{SINK}")},
        prev={SINK: {0: Marker(epoch - 1, f"a{epoch - 1}")}} if epoch else {},
        chunks=(Chunk(SINK, 0, (0, 0), 10, 1, hashlib.sha256(b"r").hexdigest(), inline=b"r"),),
        overlapped=overlapped,
    )


def offsets(epoch: int) -> bytes:
    """Return what Spark's `offsets/N` holds."""
    return f"v1\n{{}}\n{epoch}".encode()


def run_epoch(root: Path, epoch: int, *, committed: bool = True, overlapped: bool = False) -> None:
    """Do what an epoch leaves behind, in the hdfs-backed store."""
    objects = LocalObjects(root)
    lineage = claim_lineage(objects, "j").id
    write(root, "metadata", b'{"id":"parent"}')
    write(root, f"offsets/{epoch}", offsets(epoch))
    write(root, f"sources/0/{epoch}")
    write(root, f"{STORE}{epoch + 1}.delta", f"delta {epoch + 1}".encode())
    StoredEpochLog(objects).create(record(epoch, lineage, overlapped=overlapped))
    if committed:
        write(root, f"commits/{epoch}")


def checkpoint(root: Path, epochs: int) -> str:
    """Make a checkpoint on which some epochs are done; return its address."""
    for epoch in range(epochs):
        run_epoch(root, epoch)
    return str(root)
