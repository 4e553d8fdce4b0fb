"""One savepoint from its folder's name to its address: which way, when again, and when no more.

Failures are of three kinds. *Not now*: the job has no epoch yet, is starting, or has one half done;
that is waited for without end. *Not so*: the checkpoint is not what it should be; that is final. Any
other, such as a store that does not answer, is tried ten times. A savepoint of an upgrade waits for
nothing that may stop another driver than its own. Called by `savepoint`.
"""

from __future__ import annotations

from sluicegate_operator.resources.addresses import checkpoint_address, reached_by
from sluicegate_operator.resources.job_status import ALIVE, ASKED, RUN
from sluicegate_operator.resources.savepoint import TakenStatus
from sluicegate_operator.volumes.observed import JobView, VolumeView
from sluicegate_operator.volumes.passes import backoff, later
from sluicegate_operator.volumes.savepoint_pass import SavepointPass
from sluicegate_operator.volumes.tasks import (
    ASK,
    BESIDE,
    SEAL,
    Broken,
    Done,
    Running,
    SavepointTaken,
    Take,
)

NOT_NOW = frozenset(
    {
        "SavepointRefused",  # no lineage or epoch yet, or Spark prunes quicker than we copy
        "EpochUnfinished",
        "Fenced",
        "NotTakenUp",
        "NotAnswered",
        "NotStopped",
    }
)
"""Errors of a job that comes and goes."""

NOT_SO = frozenset(
    {
        "EpochLogBroken",
        "OffsetLogDiverged",
        "NoSavepoint",
        "SettingsInvalid",
        "StoreUnfit",
        "CheckpointOfAnotherJob",
    }
)
"""Errors that no further try can mend."""

TRIES = 10
"""Of what is neither."""

_AN_UPGRADES = frozenset({"SavepointRefused", "NotStopped"})
"""Final for an upgrade: it goes on without rather than wait."""

_BY_SAVEPOINT = "savepoint"
"""Why a driver is stopping that waits to be asked (`reconcile.drivers.BY_SAVEPOINT`)."""

_HOLD_S, _TAKE_S = 60.0, 3600.0


def take_in(p: SavepointPass) -> None:
    """Take in how tries ended; those of another folder than the one in the status are over."""
    for task, state in p.of(Take):
        if task.folder != p.status.folder:
            continue
        if isinstance(state, Done):
            _taken(p, state.result)
        elif isinstance(state, Broken) and later(state.at, p.status.tried_time):
            _failed(p, state)


def _taken(p: SavepointPass, found: SavepointTaken) -> None:
    one = TakenStatus(
        location=found.location,
        epoch=found.epoch,
        taken_time=round(found.at, 3),
        sealed=found.sealed,
    )
    p.set(taken=(one, *(t for t in p.status.taken if t.location != one.location)))
    p.set(folder="", tries=0, failures=0, next_try_time=None, failed="", last_error="")
    how = "; the job has ended there, and can go on from it" if found.sealed else ""
    p.report("Taken", f"epoch {found.epoch} at {found.location}{how}")


def _failed(p: SavepointPass, state: Broken) -> None:
    """Count a try that failed: it is tried again, or given up."""
    upgrade = p.savepoint.attempt is not None
    waits = state.kind in NOT_NOW and not (upgrade and state.kind in _AN_UPGRADES)
    failures = p.status.failures + (0 if waits else 1)
    tries = p.status.tries + 1
    p.set(tries=tries, failures=failures, tried_time=round(state.at, 3), last_error=state.said)
    final = state.kind in NOT_SO or (upgrade and state.kind in _AN_UPGRADES) or failures >= TRIES
    if final:
        give_up(p, state.kind, state.said)
        return
    p.set(next_try_time=round(state.at + backoff(tries), 3))
    if tries == 1:
        p.report("NotTakenYet", state.said, warning=True)


def give_up(p: SavepointPass, why: str, message: str) -> None:
    """End the try for good; a schedule goes on at its next time."""
    p.set(folder="", failed=why, last_error=message, next_try_time=None)
    p.report("SavepointFailed", f"{why}: {message}", warning=True)


def try_to_take(p: SavepointPass) -> None:
    """Begin a try, unless one runs, it is too early, or something is missing."""
    if any(task.folder == p.status.folder and isinstance(s, Running) for task, s in p.of(Take)):
        p.trying = True
        return
    attempt = p.savepoint.attempt
    if attempt is not None and not _upgrade_waits(p, attempt):
        give_up(p, "NotWanted", f"job {p.spec.job} goes on without it")
        return
    job, source, target = p.seen.job, p.source, p.target
    if job is None or (p.savepoint.job_uid and p.savepoint.job_uid != job.uid):
        p.wait("JobMissing", f"there is no StreamingJob {p.spec.job}")
        return
    if source is None or target is None or not _fit(source, target):
        p.wait(*_unfit(p, job, source, target))
        return
    how = _way(p, job)
    if how is None:
        p.wait("JobUnsettled", f"the driver of job {job.name} starts, stops or only finishes")
    elif p.status.next_try_time is not None and p.now < p.status.next_try_time:
        p.wait("BackingOff", p.status.last_error)
        p.wake(p.status.next_try_time)
    else:
        address = checkpoint_address(source.spec, job.name, job.spec, job.status.checkpoint_number)
        p.run(Take(address, p.status.folder, how, _HOLD_S), target.name, _TAKE_S)
        p.trying = True


def _upgrade_waits(p: SavepointPass, attempt: int) -> bool:
    """Say whether the upgrade that made this still waits for it: nothing else may seal the job."""
    job = p.seen.job
    if job is None or job.deleted or (p.savepoint.job_uid and p.savepoint.job_uid != job.uid):
        return False
    upgrade = job.status.upgrade
    named = upgrade is not None and upgrade.savepoint == p.savepoint.name
    return named and job.status.attempt == attempt


def _fit(source: VolumeView, target: VolumeView) -> bool:
    """Say whether both are ready, and reached with one environment: a process has no more."""
    a, b = source.spec, target.spec
    return source.ready and target.ready and reached_by(a) == reached_by(b)


def _unfit(
    p: SavepointPass, job: JobView, source: VolumeView | None, target: VolumeView | None
) -> tuple[str, str]:
    """Say what is wrong with the volumes."""
    if source is None:
        return "VolumeMissing", f"there is no CheckpointVolume {job.spec.checkpoint.volume}"
    if target is None:
        return p.no_target()
    for one in (source, target):
        if not one.ready:
            return "VolumeNotReady", f"CheckpointVolume {one.name}: {one.message}"
    both = f"CheckpointVolumes {source.name} and {target.name}"
    said = "have not the same endpoint, region, credentialsSecret and authoritySecret"
    return "OtherStore", f"{both} {said}: a savepoint is copied within one store"


def _way(p: SavepointPass, job: JobView) -> str | None:
    """Say how it is to be taken now; None: the job is between two ways."""
    if not p.spec.stop:
        return BESIDE
    driver = job.status.driver
    if driver.state not in (ASKED, ALIVE):
        return SEAL
    steady = driver.running_at is not None and driver.stopping in ("", _BY_SAVEPOINT)
    return ASK if driver.state == ALIVE and driver.purpose == RUN and steady else None
