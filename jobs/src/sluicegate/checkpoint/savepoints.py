"""Savepoints: a copy of a checkpoint at one epoch, from which a new lineage can start.

`take` works beside a running job, which knows nothing of it: what Spark prunes meanwhile makes it
start again at a newer epoch. A savepoint exists when its manifest does, which is created last. With
a seal the parent ends there (`protocol.sealing`), and the savepoint may be restored in its place.
Not here: restoring (`restoring`). Called by the CLI, and by a driver that was asked to stop.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from sluicegate.checkpoint.contents import Vanished, chosen
from sluicegate.checkpoint.copying import copy_all
from sluicegate.checkpoint.manifest import (
    MANIFEST,
    TAKING,
    Ancestry,
    Manifest,
    read_ancestry,
    read_manifest,
    write_manifest,
)
from sluicegate.checkpoint.sealed import Sealer
from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import (
    NoSavepoint,
    OffsetLogDiverged,
    SavepointRefused,
    StoreUnavailable,
)
from sluicegate.protocol.record import EpochRecord
from sluicegate.protocol.seal import Seal
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage, read_lineage
from sluicegate.storage.objects import Objects, open_objects

log = logging.getLogger("sluicegate.savepoint")

MOVED = "moved.json"
"""In a savepoint: which checkpoint it was restored into in its parent's place."""

_TRIES = 10
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Savepoint:
    """A savepoint, by its address.

    Args:
        url: a path, `file://…` or `s3://…`.
        manifest: what it holds; None for one that was never finished.
        moved_to: the checkpoint that goes on in the parent's place, empty if there is none.
    """

    url: str
    manifest: Manifest | None
    moved_to: str = ""


@dataclass(frozen=True)
class _Parent:
    """The checkpoint that a savepoint is taken of."""

    url: str
    objects: Objects
    lineage: Lineage

    @property
    def log(self) -> StoredEpochLog:
        return StoredEpochLog(self.objects)


def take(checkpoint: str, folder: str, *, seal: bool = False) -> Savepoint:
    """Take a savepoint of a running or stopped job.

    Args:
        checkpoint: the job's checkpoint.
        folder: where savepoints are kept, on any volume; the new one gets a folder in it.
        seal: end the lineage after this epoch, so that the savepoint can take its place.

    Raises:
        SavepointRefused: there is nothing to save yet, or the checkpoint is not Sluicegate's.
        EpochUnfinished: with `seal`: the newest decision may not be in every sink yet.
        Fenced: with `seal`: a driver lives and has gone on.
        StoreUnavailable: no answer; nothing half-done can be taken for a savepoint.
    """
    parent = _opened(checkpoint)
    if f"{folder.rstrip('/')}/".startswith(f"{checkpoint.rstrip('/')}/"):
        raise _refused("the savepoint would lie inside its own checkpoint", "give another folder")
    gone = ""
    for _ in range(_TRIES):
        try:
            return _taken(parent, folder, seal=seal)
        except Vanished as error:
            gone = str(error)
            log.info("Spark has pruned %s meanwhile: begun again with a newer epoch", gone)
            time.sleep(_PAUSE_S)
    raise _refused(
        f"in {_TRIES} tries a file was never there any more when it was to be copied, such as {gone}",
        "stop the job, or give Spark more batches to keep (spark.sql.streaming.minBatchesToRetain)",
    )


def _opened(checkpoint: str) -> _Parent:
    objects = open_objects(checkpoint)
    lineage = read_lineage(objects)
    if lineage is None:
        raise _refused(
            f"{checkpoint} has no lineage: no job of Sluicegate has run on it",
            "give the checkpoint of a job",
        )
    return _Parent(checkpoint, objects, lineage)


def _taken(parent: _Parent, folder: str, *, seal: bool) -> Savepoint:
    """Copy everything at the newest epoch that is done; the manifest last."""
    record = _newest_done(parent)
    stood = parent.log.seal()
    if stood is not None and stood.epoch != record.epoch + 1:
        raise _refused(
            f"the lineage was sealed after epoch {stood.epoch - 1}, of which Spark's files are gone",
            "restore `commits/` and `offsets/` of the checkpoint",
        )
    tag = uuid.uuid4().hex[:8]
    name = f"{re.sub('[^A-Za-z0-9._-]', '-', parent.lineage.job)}-{record.epoch}-{tag}"
    url = f"{folder.rstrip('/')}/{name}"
    sealer = Sealer(parent.objects, parent.lineage, record.epoch, f"moved by savepoint {url}")
    if seal and stood is None:
        sealer.check()
    target = open_objects(url)
    target.create(TAKING, json.dumps({"checkpoint": parent.url, "epoch": record.epoch}).encode())
    try:
        files = copy_all(
            parent.objects,
            target,
            _names(parent, record),
            reach=partial(failpoints.reach, "savepoint-copying", epoch=record.epoch),
        )
        _check_offsets(record, files[f"offsets/{record.epoch}"].sha256)
        if seal and stood is None:
            sealer.seal()
    except BaseException:
        _give_up(target, url)
        raise
    failpoints.reach("before-manifest", epoch=record.epoch)
    manifest = Manifest(
        id=tag,
        job=parent.lineage.job,
        sealed=seal or stood is not None,
        checkpoint=parent.url,
        created_at_ms=time.time_ns() // 1_000_000,
        version=version("sluicegate"),
        ancestry=_ancestry(parent, record),
        files=files,
    )
    write_manifest(target, manifest)
    return Savepoint(url, manifest)


def _newest_done(parent: _Parent) -> EpochRecord:
    """Return the newest epoch that Spark has committed and that is surely in every sink.

    An overlapped epoch is committed before it is applied. It is in when the next is decided, or
    sealed off, or when the driver that ended well has said so.
    """
    decided = set(parent.log.epochs())
    tails = (name.removeprefix("commits/") for name in parent.objects.names("commits/"))
    committed = {int(tail) for tail in tails if tail.isdecimal()}
    for epoch in sorted(committed & decided, reverse=True):
        record = parent.log.read_any(epoch)
        if record is None or isinstance(record, Seal):
            continue
        if not record.overlapped or epoch + 1 in decided or parent.log.finished(epoch):
            return record
    raise _refused(
        f"job {parent.lineage.job} has finished no epoch on this checkpoint yet",
        "let it run first; a job that was just restored can be restored from the same savepoint",
    )


def _names(parent: _Parent, record: EpochRecord) -> dict[str, str]:
    """Return the files to copy: their name in the savepoint -> in the checkpoint."""
    try:
        names = list(parent.objects.names(""))
    except FileNotFoundError as error:  # a folder went while it was listed
        raise Vanished(str(error)) from error
    kept = chosen(names, record.epoch, parent.objects.read)
    # for people and for later tools; a restored lineage begins a chain of its own
    return {name: name for name in kept} | {"parent/epoch": f"epochs/{record.epoch}"}


def _check_offsets(record: EpochRecord, sha256: str) -> None:
    if sha256 != record.offsets_digest:
        raise OffsetLogDiverged(
            f"Spark's offsets/{record.epoch} are not those that the epoch was decided with",
            data="no savepoint was taken: it would repeat input or leave some out",
            do="restore `offsets/` of the checkpoint as it was",
        )


def _give_up(target: Objects, url: str) -> None:
    """Remove what was copied; whatever stays has no manifest and is no savepoint."""
    try:
        for name in [n for n in target.names("") if n != TAKING]:
            target.delete(name)
        target.delete(TAKING)
    except (StoreUnavailable, OSError) as error:
        log.warning("what was copied to %s is left there, without a manifest: %s", url, error)


def _ancestry(parent: _Parent, record: EpochRecord) -> Ancestry:
    return Ancestry(
        lineage=parent.lineage.id,
        epoch=record.epoch,
        sinks=dict(record.sinks),
        chain=record.chain(),
        delivery=record.delivery,
        rows=_rows(parent, record),
    )


def _rows(parent: _Parent, record: EpochRecord) -> dict[str, int] | None:
    """Return the rows of all epochs by sink, where every record is still kept."""
    before = read_ancestry(parent.objects)
    decided = [e for e in parent.log.epochs() if e <= record.epoch]
    if decided != list(range(parent.lineage.first_epoch, record.epoch + 1)):
        return None
    if before is not None and before.rows is None:
        return None
    rows = inherited(before, record) if before is not None else {}
    for epoch in decided:
        found = parent.log.read_any(epoch)
        if not isinstance(found, EpochRecord):
            return None
        for sink in found.sinks.keys() - parent.log.discarded(epoch):
            rows[sink] = rows.get(sink, 0) + found.rows(sink)
    return rows


def inherited(ancestry: Ancestry, record: EpochRecord) -> dict[str, int]:
    """Return the parent's rows in those sinks of a record that were the parent's too."""
    return {
        sink: (ancestry.rows or {}).get(sink, 0)
        for sink, binding in record.sinks.items()
        if sink in ancestry.sinks and ancestry.sinks[sink].target == binding.target
    }


# --- what is there, and removing it ------------------------------------------------------------------


def listed(folder: str) -> list[Savepoint]:
    """Return the savepoints of a folder, the oldest first, then those that were never finished."""
    heads: Mapping[str, Objects] = {
        name.rpartition("/")[0]: open_objects(f"{folder.rstrip('/')}/{name.rpartition('/')[0]}")
        for name in open_objects(folder).names("")
        if name.rpartition("/")[2] in (MANIFEST, TAKING) and name.count("/") <= 1
    }
    found = [_seen(f"{folder.rstrip('/')}/{head}".rstrip("/"), heads[head]) for head in heads]
    return sorted(found, key=lambda s: s.manifest.created_at_ms if s.manifest else 1 << 62)


def _seen(url: str, objects: Objects) -> Savepoint:
    try:
        manifest = read_manifest(objects, url)
    except NoSavepoint:
        return Savepoint(url, None)
    return Savepoint(url, manifest, moved_to(objects))


def moved_to(savepoint: Objects) -> str:
    """Return the checkpoint that goes on in the parent's place, empty if there is none."""
    stored = savepoint.read(MOVED)
    return "" if stored is None else str(json.loads(stored)["checkpoint"])


def dispose(url: str, *, unfinished: bool = False, force: bool = False) -> int:
    """Remove a savepoint: its manifest first, so that half of one is never taken for one.

    Args:
        url: the savepoint.
        unfinished: remove one that was never finished; nobody may be taking it now.
        force: remove one that holds the only way on of a job that was sealed for it.

    Returns:
        How many files were removed.

    Raises:
        NoSavepoint: there is none.
        SavepointRefused: it moves a job that was not restored yet.
    """
    objects = open_objects(url)
    half = unfinished and objects.read(MANIFEST) is None and objects.read(TAKING) is not None
    manifest = None if half else read_manifest(objects, url)
    if manifest is not None and manifest.sealed and not moved_to(objects) and not force:
        raise _refused(
            f"{url} was sealed for a move and never restored: without it job {manifest.job} can only "
            "go on from another savepoint of its sealed checkpoint",
            "restore it first; or give --force if the job has ended for good",
        )
    objects.delete(MANIFEST)
    ours = set(objects.names("")) - {TAKING}
    if manifest is not None:
        ours &= {*manifest.files, MOVED}
    for name in sorted(ours):
        objects.delete(name)
    objects.delete(TAKING)
    return len(ours)


def _refused(what: str, do: str) -> SavepointRefused:
    return SavepointRefused(what, data="nothing was changed", do=do)
