"""What retention does not keep is removed, and what nobody else tidies.

A driver prunes its own epoch log and what was staged; Spark its offsets, commits and state, orphans
among them. Left over are: records over the volume's retention, and what was staged, of jobs that do
not run; savepoints over the retention; savepoints whose taker died; probes of a preflight that
died. Nothing goes for its age alone, and of savepoints only those in a Savepoint resource's own
layout: what people put beside is theirs. Called by `store.__main__`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate.checkpoint.manifest import MANIFEST, read_manifest
from sluicegate.checkpoint.savepoints import moved_to
from sluicegate.protocol.errors import SluicegateError
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import open_objects
from sluicegate_operator.store.child.listing import pages, remove
from sluicegate_operator.store.child.taking import remove_savepoint
from sluicegate_operator.volumes.tasks import Prune, Pruned

LEAST_EPOCHS = 2
"""A savepoint of a running job may need the epoch before the newest."""

DEAD_S = 86400.0
"""An unfinished savepoint in a folder that nobody is busy with has no living taker after a day: the
longest task is ended after an hour."""

PROBE_S = 3600.0
"""A preflight lasts seconds."""

_HEAD = re.compile(r"savepoints/([^/]+)/[^/]+/[^/]+/[^/]+/(savepoint|taking)\.json")
_LINEAGE = re.compile(r"(.+)/lineage\.json")
_PROOF = re.compile(r"(?:.*/)?preflight/[0-9a-f]{16}")
_PROBE = re.compile(r"(?:.*/)?preflight/probe-[0-9a-f]{32}")


@dataclass
class _Heads:
    """What was found: names are below the volume, times in seconds since 1970."""

    checkpoints: list[str] = field(default_factory=list)
    finished: dict[str, str] = field(default_factory=dict)
    """savepoint -> its job"""
    begun: dict[str, float] = field(default_factory=dict)
    """savepoint -> when"""
    proofs: dict[str, float] = field(default_factory=dict)
    """folder -> when its newest proof was made"""
    probes: dict[str, float] = field(default_factory=dict)


def prune(task: Prune) -> Pruned:
    """Prune a volume; what fails does not keep the rest from being pruned.

    Raises:
        SluicegateError: the first that failed.
    """
    heads, tries = _found(task.volume), _Tries()
    unfinished = sum(tries.one(remove_savepoint, url) for url in _dead(task, heads))
    over: list[str] = []
    tries.one(_over, task, heads, over)
    savepoints = sum(tries.one(remove_savepoint, url) for url in over)
    objects = sum(
        tries.one(_epochs, f"{task.volume}/{name}", task.epochs) for name in heads.checkpoints
    )
    objects += tries.one(_probes, task.volume, heads)
    if tries.failed is not None:
        raise tries.failed
    return Pruned(savepoints, unfinished, objects)


class _Tries:
    """Goes on where something fails, and remembers the first failure."""

    def __init__(self) -> None:
        self.failed: SluicegateError | None = None

    def one(self, work: Callable[..., int], *given: object) -> int:
        """Return how many things a piece of work removed, 0 if it failed."""
        try:
            return int(work(*given))
        except SluicegateError as error:
            self.failed = self.failed or error
            return 0


def _found(volume: str) -> _Heads:
    heads = _Heads()
    for page in pages(volume):
        for entry in page:
            name, at = entry["path"], entry["last_modified"].timestamp()
            if head := _HEAD.fullmatch(name):
                place = name.rpartition("/")[0]
                if head[2] == "savepoint":
                    heads.finished[place] = head[1]
                else:
                    heads.begun[place] = at
            elif checkpoint := _LINEAGE.fullmatch(name):
                heads.checkpoints.append(checkpoint[1])
            elif _PROOF.fullmatch(name):
                folder = name.rpartition("/")[0]
                heads.proofs[folder] = max(at, heads.proofs.get(folder, 0.0))
            elif _PROBE.fullmatch(name):
                heads.probes[name] = at
    return heads


def _dead(task: Prune, heads: _Heads) -> list[str]:
    """Return savepoints that were never finished, and whose taker is dead."""
    old = time.time() - DEAD_S
    dead = []
    for place, at in heads.begun.items():
        url = f"{task.volume}/{place}"
        folder = url.rpartition("/")[0]
        if (
            place not in heads.finished
            and at < old
            and not {folder, url} & {*task.busy, *task.named}
        ):
            dead.append(url)
    return dead


def _over(task: Prune, heads: _Heads, over: list[str]) -> int:
    """Add the savepoints of each job over the retention, the oldest first."""
    ages: dict[str, list[tuple[int, str]]] = {}
    for place, job in heads.finished.items() if task.savepoints else ():
        url = f"{task.volume}/{place}"
        objects = open_objects(url)
        if objects.read(MANIFEST) is None:
            continue  # somebody has removed it meanwhile
        manifest = read_manifest(objects, url)
        spare = not manifest.sealed or bool(moved_to(objects))
        free = spare and url not in task.named and url.rpartition("/")[0] not in task.busy
        ages.setdefault(job, []).append((manifest.created_at_ms, url if free else ""))
    old = [one for found in ages.values() for one in sorted(found)[: -task.savepoints] if one[1]]
    over.extend(url for _, url in sorted(old))
    return len(over)


def _epochs(checkpoint: str, retained: int) -> int:
    """Prune a checkpoint's epoch log, and what was staged."""
    log = StoredEpochLog(open_objects(checkpoint), retained=max(retained, LEAST_EPOCHS))
    decided = log.decided()
    return log.prune(decided[-1]) if decided else 0


def _probes(volume: str, heads: _Heads) -> int:
    """Remove probes that are no younger than a proof beside them: no preflight asks for them again."""
    old = time.time() - PROBE_S
    names = [
        name
        for name, at in heads.probes.items()
        if at <= min(old, heads.proofs.get(name.rpartition("/")[0], 0.0))
    ]
    if names:
        remove(volume, names)
    return len(names)
