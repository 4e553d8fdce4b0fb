"""Takes a savepoint: a copy of a checkpoint at one epoch, from which a new lineage can start.

`take_savepoint` plans, copies, seals and publishes. It works next to a running job, which does not
notice it: if Spark prunes a file meanwhile, it starts again with a newer epoch. A savepoint exists
once its manifest does, and that is created last. With a seal the parent lineage ends there
(`protocol.sealing`), and the savepoint may be restored as its successor.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

from sluicegate import failpoints
from sluicegate.errors import (
    OffsetLogDiverged,
    SavepointFailed,
    SavepointRefused,
    StoreUnavailable,
)
from sluicegate.protocol.effects import run_effects
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.protocol.sealing import all_applied, seal_after
from sluicegate.savepoints.catalog import Savepoint
from sluicegate.savepoints.copy import copy_files
from sluicegate.savepoints.file_selection import FilePruned, select_files
from sluicegate.savepoints.manifest import (
    TAKING,
    Ancestry,
    Manifest,
    SavedFile,
    check_not_disposed,
    read_ancestry,
    write_manifest,
)
from sluicegate.storage.epoch_log import StoredEpochLog, SystemClock, log_ports
from sluicegate.storage.lineage import Lineage, read_lineage
from sluicegate.storage.object_store import ObjectStore, absolute, open_store

log = logging.getLogger("sluicegate.savepoint")

_ATTEMPTS = 10
_PAUSE_S = 0.2


@dataclass(frozen=True)
class _Plan:
    """Everything about a savepoint that is known before its first file is copied."""

    checkpoint: ObjectStore
    savepoint: ObjectStore
    record: EpochRecord
    """The decision of the last epoch in the savepoint."""
    files: Mapping[str, str]
    """Name in the savepoint -> name in the checkpoint."""
    seal: Seal | None
    """The seal to create after the copy; None: the job goes on, or is sealed already."""
    manifest: Manifest
    """Still without files."""


def take_savepoint(checkpoint: ObjectStore, folder: str, *, seal: bool = False) -> Savepoint:
    """Take a savepoint of a running or stopped job.

    Args:
        checkpoint: the job's checkpoint.
        folder: address of a folder in any store; the savepoint gets a new folder in it.
        seal: end the lineage after this epoch, so that the savepoint can replace it.

    Raises:
        SavepointRefused: there is nothing to save yet, or no job of Sluicegate ran on the checkpoint.
        EpochUnfinished: with `seal`: the newest decided epoch may not be in every sink yet.
        Fenced: with `seal`: a running driver has decided a newer epoch.
        SavepointFailed: somebody disposed of it meanwhile; the lineage may be sealed.
        StoreUnavailable: no reply. An incomplete copy is never mistaken for a savepoint.
    """
    pruned = ""
    for _ in range(_ATTEMPTS):
        try:
            return _execute(_make_plan(checkpoint, folder, seal=seal))
        except FilePruned as error:
            pruned = str(error)
            log.info("Spark pruned %s meanwhile; starting again with a newer epoch", pruned)
            time.sleep(_PAUSE_S)
    raise _refused(
        f"Spark kept pruning files while they were being copied: {_ATTEMPTS} attempts failed, the "
        f"last on {pruned}",
        "stop the job, or let Spark keep more batches (spark.sql.streaming.minBatchesToRetain)",
    )


def _execute(plan: _Plan) -> Savepoint:
    """Copy, seal, and create the manifest, which makes the copy a savepoint."""
    try:
        files = _copy(plan)
        check_not_disposed(plan.savepoint)
        if plan.seal is not None:
            # no job starts on a sealed checkpoint again and repairs what a power cut has torn
            plan.checkpoint.sync(plan.files.values())
            run_effects(seal_after(plan.seal), log_ports(plan.checkpoint))
    except BaseException:
        _clean_up(plan.savepoint)
        raise
    failpoints.reach("before-manifest", epoch=plan.record.epoch)
    manifest = replace(plan.manifest, created_at_ms=SystemClock.now_ms(), files=files)
    try:
        write_manifest(plan.savepoint, manifest)
    except SavepointFailed:
        _clean_up(plan.savepoint)
        raise
    return Savepoint(plan.savepoint.url, manifest)


def _make_plan(checkpoint: ObjectStore, folder: str, *, seal: bool) -> _Plan:
    """Choose epoch, files and address of a savepoint; raises FilePruned as `_copy`."""
    lineage = read_lineage(checkpoint)
    if lineage is None:
        raise _refused(
            f"{checkpoint.url} has no lineage: no job of Sluicegate has run on it",
            "pass the checkpoint of a job",
        )
    if f"{absolute(folder)}/".startswith(f"{absolute(checkpoint.url)}/"):
        raise _refused("the savepoint would be inside its own checkpoint", "choose another folder")
    epoch_log = StoredEpochLog(checkpoint)
    record = _newest_applied(checkpoint, epoch_log, lineage)
    existing_seal = epoch_log.seal()
    if existing_seal is not None and existing_seal.epoch != record.epoch + 1:
        raise _refused(
            f"the lineage was sealed after epoch {existing_seal.epoch - 1}, whose Spark files are missing",
            "restore `commits/` and `offsets/` of the checkpoint",
        )
    savepoint_id = uuid.uuid4().hex[:8]
    name = f"{re.sub('[^A-Za-z0-9._-]', '-', lineage.job)}-{record.epoch}-{savepoint_id}"
    url = f"{folder.rstrip('/')}/{name}"
    new_seal = None
    if seal and existing_seal is None:
        why = f"moved by savepoint {url}"
        now_ms = SystemClock.now_ms()
        new_seal = Seal(uuid.uuid4().hex, lineage.id, lineage.job, record.epoch + 1, why, now_ms)
        run_effects(all_applied(new_seal), log_ports(checkpoint))
    ancestry = Ancestry(
        lineage=lineage.id,
        epoch=record.epoch,
        sinks=dict(record.sinks),
        chain=record.chain(),
        delivery=record.delivery,
        rows=_rows(checkpoint, epoch_log, lineage, record),
    )
    manifest = Manifest(
        id=savepoint_id,
        job=lineage.job,
        sealed=seal or existing_seal is not None,
        checkpoint=checkpoint.url,
        created_at_ms=0,
        version=version("sluicegate"),
        ancestry=ancestry,
    )
    files = _files(checkpoint, record)
    return _Plan(checkpoint, open_store(url), record, files, new_seal, manifest)


def _newest_applied(
    checkpoint: ObjectStore, epoch_log: StoredEpochLog, lineage: Lineage
) -> EpochRecord:
    """Return the newest epoch that Spark has committed and that is certainly in every sink.

    An overlapped epoch is committed before it is applied. It is certainly applied once the next
    epoch is decided or sealed, or once a driver that stopped normally has marked it.
    """
    decided = set(epoch_log.epochs())
    numbers = (name.removeprefix("commits/") for name in checkpoint.names("commits/"))
    committed = {int(number) for number in numbers if number.isdecimal()}
    for epoch in sorted(committed & decided, reverse=True):
        record = epoch_log.read_any(epoch)
        if isinstance(record, EpochRecord) and (
            not record.overlapped or epoch + 1 in decided or epoch_log.is_marked_applied(epoch)
        ):
            return record
    raise _refused(
        f"job {lineage.job} has completed no epoch on this checkpoint yet",
        "let it run first; a job that was just restored can be restored from the same savepoint",
    )


def _files(checkpoint: ObjectStore, record: EpochRecord) -> dict[str, str]:
    selected = select_files(checkpoint.names(""), record.epoch, checkpoint.read)
    # the record is for people and for later tools; a restored lineage begins a chain of its own
    return {name: name for name in selected} | {"parent/epoch": f"epochs/{record.epoch}"}


def _rows(
    checkpoint: ObjectStore, epoch_log: StoredEpochLog, lineage: Lineage, last: EpochRecord
) -> dict[str, int] | None:
    """Return the rows of all epochs by sink, None unless every record is still retained."""
    ancestry = read_ancestry(checkpoint)
    decided = [epoch for epoch in epoch_log.epochs() if epoch <= last.epoch]
    if decided != list(range(lineage.first_epoch, last.epoch + 1)):
        return None
    if ancestry is not None and ancestry.rows is None:
        return None
    rows = ancestry.inherited_rows(last) if ancestry is not None else {}
    for epoch in decided:
        record = epoch_log.read_any(epoch)
        if not isinstance(record, EpochRecord):
            return None
        for sink in record.sinks.keys() - epoch_log.discarded(epoch):
            rows[sink] = rows.get(sink, 0) + record.rows(sink)
    return rows


def _copy(plan: _Plan) -> dict[str, SavedFile]:
    """Copy the files of a plan; raises FilePruned if Spark pruned one meanwhile."""
    epoch = plan.record.epoch
    begun_at_ms = SystemClock.now_ms()
    note = {"checkpoint": plan.checkpoint.url, "epoch": epoch, "begun_at_ms": begun_at_ms}
    plan.savepoint.create(TAKING, json.dumps(note).encode())
    reach = partial(failpoints.reach, "savepoint-copying", epoch=epoch)
    files = copy_files(plan.checkpoint, plan.savepoint, plan.files, reach=reach)
    for name in (f"commits/{epoch}", f"offsets/{epoch}"):
        if not files[name].size:
            raise _refused(
                f"{name} of the checkpoint is empty, as a power cut leaves it: no job could start from it",
                "start the job, which removes the file and runs the epoch again; or restore the file",
            )
    if files[f"offsets/{epoch}"].sha256 != plan.record.offsets_digest:
        raise OffsetLogDiverged(
            f"Spark's offsets/{epoch} are not those that the epoch was decided with",
            data="no savepoint was taken: it would repeat input or skip some",
            do="restore `offsets/` of the checkpoint",
        )
    return files


def _clean_up(savepoint: ObjectStore) -> None:
    """Delete what was copied; whatever remains has no manifest and is not a savepoint."""
    try:
        for name in [n for n in savepoint.names("") if n != TAKING]:
            savepoint.delete(name)
        savepoint.delete(TAKING)
    except StoreUnavailable as error:
        log.warning("%s: cannot delete an incomplete copy: %s", savepoint.url, error)


def _refused(what: str, do: str) -> SavepointRefused:
    return SavepointRefused(what, data="nothing was changed", do=do)
