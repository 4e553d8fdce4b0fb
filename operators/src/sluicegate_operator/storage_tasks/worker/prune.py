"""Pruning of a volume: what exceeds the retention, and leftovers that nothing else cleans up.

A driver prunes its own epoch log and staged data; Spark prunes its offsets, commits and state, orphans
included. That leaves the data of jobs that do not run, savepoints beyond the retention, and what a process
that died has left. Nothing is deleted for its age alone. Of the savepoints only those in the layout of
Savepoint resources are considered; what people put next to them is theirs.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from sluicegate.savepoints.catalog import moved_to
from sluicegate.savepoints.manifest import MANIFEST, is_unfinished, read_manifest
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_operator.reconcile.storage_tasks import Prune, Pruned
from sluicegate_operator.storage_tasks.worker.objects import pages, remove
from sluicegate_operator.storage_tasks.worker.savepoint import Steps, delete_savepoint

MIN_EPOCHS = 2
"""A savepoint of a running job may need the epoch before the newest one."""

ABANDONED_S = 86400.0
"""An unfinished savepoint in a folder where none is in progress has no living process after a day: the
longest task is killed after an hour."""

PROBE_S = 3600.0
"""A preflight takes seconds."""

_SAVEPOINT = re.compile(r"savepoints/([^/]+)/[^/]+/[^/]+/[^/]+/(savepoint|taking)\.json")
_LINEAGE = re.compile(r"(.+)/lineage\.json")
_PROOF = re.compile(r"(?:.*/)?preflight/[0-9a-f]{16}")
_PROBE = re.compile(r"(?:.*/)?preflight/probe-[0-9a-f]{32}")


@dataclass
class _Inventory:
    """Contents of a volume; names are relative to it, times in seconds since 1970.

    Args:
        checkpoints: folders with a lineage.
        complete: savepoint -> its job.
        unfinished: savepoint -> when it was started.
        proofs: folder -> when its newest preflight succeeded.
        probes: object of a preflight -> when it was created.
    """

    checkpoints: list[str] = field(default_factory=list)
    complete: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, float] = field(default_factory=dict)
    proofs: dict[str, float] = field(default_factory=dict)
    probes: dict[str, float] = field(default_factory=dict)


def prune(task: Prune) -> Pruned:
    """Prune a volume; a step that fails does not prevent the others.

    Raises:
        SluicegateError: the first error.
    """
    inventory, steps = _list(task.volume), Steps()
    unfinished = sum(steps.run(delete_savepoint, url) for url in _abandoned(task, inventory))
    expired: list[str] = []
    steps.run(_find_expired, task, inventory, expired)
    savepoints = sum(steps.run(delete_savepoint, url) for url in expired)
    objects = sum(
        steps.run(_prune_epoch_log, f"{task.volume}/{name}", task.epochs)
        for name in inventory.checkpoints
    )
    objects += steps.run(_remove_probes, task.volume, inventory)
    steps.check()
    return Pruned(savepoints, unfinished, objects)


def _list(volume: str) -> _Inventory:
    inventory = _Inventory()
    for page in pages(volume):
        for entry in page:
            name, at = entry["path"], entry["last_modified"].timestamp()
            folder = name.rpartition("/")[0]
            if head := _SAVEPOINT.fullmatch(name):
                if head[2] == "savepoint":
                    inventory.complete[folder] = head[1]
                else:
                    inventory.unfinished[folder] = at
            elif checkpoint := _LINEAGE.fullmatch(name):
                inventory.checkpoints.append(checkpoint[1])
            elif _PROOF.fullmatch(name):
                inventory.proofs[folder] = max(at, inventory.proofs.get(folder, 0.0))
            elif _PROBE.fullmatch(name):
                inventory.probes[name] = at
    return inventory


def _abandoned(task: Prune, inventory: _Inventory) -> list[str]:
    """Return the unfinished savepoints whose process is dead."""
    limit = time.time() - ABANDONED_S
    retained = {*task.in_progress, *task.referenced}
    abandoned = []
    for savepoint, started in inventory.unfinished.items():
        url = f"{task.volume}/{savepoint}"
        complete = savepoint in inventory.complete
        if not complete and started < limit and not {url.rpartition("/")[0], url} & retained:
            abandoned.append(url)
    return abandoned


def _find_expired(task: Prune, inventory: _Inventory, expired: list[str]) -> int:
    """Add the savepoints of each job beyond the retention, oldest first."""
    by_job: dict[str, list[tuple[int, str]]] = {}
    for name, job in inventory.complete.items() if task.savepoints else ():
        url = f"{task.volume}/{name}"
        savepoint = open_store(url)
        if savepoint.read(MANIFEST) is None:
            continue  # somebody has deleted it in the meantime
        if is_unfinished(savepoint):
            expired.append(url)  # somebody has begun to delete it
            continue
        manifest = read_manifest(savepoint)
        dispensable = not manifest.sealed or bool(moved_to(savepoint))
        in_use = url in task.referenced or url.rpartition("/")[0] in task.in_progress
        deletable = url if dispensable and not in_use else ""
        by_job.setdefault(job, []).append((manifest.created_at_ms, deletable))
    old = [one for found in by_job.values() for one in sorted(found)[: -task.savepoints] if one[1]]
    expired.extend(url for _, url in sorted(old))
    return len(expired)


def _prune_epoch_log(checkpoint: str, retained: int) -> int:
    """Prune a checkpoint's epoch log and its staged data."""
    log = StoredEpochLog(open_store(checkpoint), retained=max(retained, MIN_EPOCHS))
    decided = log.decided()
    return log.prune(decided[-1]) if decided else 0


def _remove_probes(volume: str, inventory: _Inventory) -> int:
    """Delete probes that are not newer than a proof in their folder: no preflight reads them again."""
    limit = time.time() - PROBE_S
    names = [
        name
        for name, created in inventory.probes.items()
        if created <= min(limit, inventory.proofs.get(name.rpartition("/")[0], 0.0))
    ]
    if names:
        remove(volume, names)
    return len(names)
