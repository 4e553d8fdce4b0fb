"""Seals the lineage of a checkpoint on a volume: `protocol.sealing` over the stored logs.

Not here: what a seal means. Called by `savepoints`.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from sluicegate.protocol.effects import drive
from sluicegate.protocol.ports import Ports
from sluicegate.protocol.seal import Seal
from sluicegate.protocol.sealing import all_applied, seal_after
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets
from sluicegate.storage.lineage import Lineage
from sluicegate.storage.objects import Objects


class Sealer:
    """Seals one checkpoint after an epoch.

    Args:
        checkpoint: its volume.
        lineage: whose end it is.
        epoch: the last epoch, which every sink must hold.
        why: for people: what it is sealed for.
    """

    def __init__(self, checkpoint: Objects, lineage: Lineage, epoch: int, why: str) -> None:
        nothing: Any = None  # sealing runs no plan and applies nothing
        self._ports = Ports(
            log=StoredEpochLog(checkpoint),
            offsets=StoredOffsets(checkpoint),
            plan=nothing,
            sinks=nothing,
            clock=_Clock(),
        )
        now_ms = time.time_ns() // 1_000_000
        self._seal = Seal(uuid.uuid4().hex, lineage.id, lineage.job, epoch + 1, why, now_ms)

    def check(self) -> None:
        """Raise what `seal` would raise already now; see `sealing.all_applied`."""
        drive(all_applied(self._seal), self._ports)

    def seal(self) -> None:
        """Create the seal; see `sealing.seal_after` for the errors."""
        drive(seal_after(self._seal), self._ports)


class _Clock:
    """`ports.Clock` of this machine, as far as sealing needs one."""

    now_ms = staticmethod(lambda: time.time_ns() // 1_000_000)
    pause = staticmethod(time.sleep)
    new_attempt = staticmethod(lambda: uuid.uuid4().hex)
    traceparent = staticmethod(str)
