"""A volume that is fit is measured and pruned from time to time, and its quota watched. Pure.

A failure of either says so in the condition Upkeep and makes the volume no less fit. Called by
`volume`.
"""

from __future__ import annotations

from sluicegate_operator.resources.addresses import volume_address
from sluicegate_operator.resources.volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.volumes.observed import VolumeObserved
from sluicegate_operator.volumes.passes import Pass, later
from sluicegate_operator.volumes.tasks import Broken, Done, Measure, Prune, Pruned

MEASURE_S, PRUNE_S = 300.0, 3600.0
"""How often; measuring lists everything, a request for 1,000 objects."""

RETRY_S = 300.0
"""After either has failed neither is tried for so long."""

_MEASURE_TIMEOUT_S, _PRUNE_TIMEOUT_S = 600.0, 1800.0


def keep_up(
    p: Pass[CheckpointVolumeStatus], spec: CheckpointVolumeSpec, name: str, seen: VolumeObserved
) -> None:
    """Measure and prune a volume when it is time."""
    _take_in(p)
    address, failed = volume_address(spec), p.status.upkeep_failed_time
    not_before = p.now if failed is None or p.holds("Upkeep") else failed + RETRY_S
    measure_at = max(not_before, _after(p.status.measured_time, MEASURE_S, p.now))
    prune_at = max(not_before, _after(p.status.pruned_time, PRUNE_S, p.now))
    if not p.running(Measure):
        if p.now >= measure_at:
            p.run(Measure(address), name, _MEASURE_TIMEOUT_S)
        else:
            p.wake(measure_at)
    if not p.running(Prune):
        if p.now >= prune_at:
            kept = spec.retention
            task = Prune(
                address,
                kept.savepoints,
                kept.epochs,
                tuple(sorted(seen.named)),
                tuple(sorted(seen.busy)),
            )
            p.run(task, name, _PRUNE_TIMEOUT_S)
        else:
            p.wake(prune_at)


def _after(last: float | None, every_s: float, now: float) -> float:
    return now if last is None else last + every_s


def _take_in(p: Pass[CheckpointVolumeStatus]) -> None:
    for kind, what in ((Measure, "Measuring"), (Prune, "Pruning")):
        for _, state in p.of(kind):
            if isinstance(state, Broken) and later(state.at, p.status.upkeep_failed_time):
                p.set(upkeep_failed_time=round(state.at, 3))
                p.condition("Upkeep", f"{what}Failed", state.said, holds=False)
    for _, state in p.of(Measure):
        if isinstance(state, Done) and later(state.at, p.status.measured_time):
            found = state.result
            p.set(bytes=found.bytes, objects=found.objects, measured_time=round(state.at, 3))
            if found.last_epoch_time is not None:
                p.set(last_epoch_time=round(found.last_epoch_time, 3))
            _well(p, state.at)
    for _, state in p.of(Prune):
        if isinstance(state, Done) and later(state.at, p.status.pruned_time):
            p.set(pruned_time=round(state.at, 3))
            _well(p, state.at)
            removed: Pruned = state.result
            if removed.savepoints or removed.unfinished:
                p.report(
                    "Pruned",
                    f"{removed.savepoints} savepoints over the retention and {removed.unfinished} "
                    "that were never finished were removed",
                )


def _well(p: Pass[CheckpointVolumeStatus], at: float) -> None:
    if p.holds("Upkeep") is False and later(at, p.status.upkeep_failed_time):
        p.condition("Upkeep", "Well", holds=True)


def judge_quota(p: Pass[CheckpointVolumeStatus], spec: CheckpointVolumeSpec) -> None:
    """Say whether the volume is within its quota, with an event when it no longer is."""
    if not spec.quota_bytes:
        p.drop("WithinQuota")
        return
    if p.status.measured_time is None:
        return
    within, before = p.status.bytes <= spec.quota_bytes, p.holds("WithinQuota")
    said = f"{p.status.bytes:,} bytes of {spec.quota_bytes:,}"
    if within:
        p.condition("WithinQuota", "Within", holds=True)
        return
    p.condition("WithinQuota", "Exceeded", f"{said}; nothing is refused or deleted", holds=False)
    if before is not False:
        p.report("QuotaExceeded", f"{said} are used; nothing is refused or deleted", warning=True)
