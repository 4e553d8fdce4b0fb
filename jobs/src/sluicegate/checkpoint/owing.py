"""Whether a checkpoint has a decided epoch that may not be in every sink, without Spark or the sinks.

`protocol.finishing` over the stored logs. Not here: applying it (`spark.driver`). Called by the
driver's pod.
"""

from __future__ import annotations

from typing import Any

from sluicegate.protocol.effects import drive
from sluicegate.protocol.finishing import unfinished
from sluicegate.protocol.ports import Ports
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import Objects


def unfinished_epoch(checkpoint: Objects) -> int | None:
    """Return the decided epoch that may not be in every sink, None if there is none.

    Raises:
        StoreUnavailable: no answer.
        EpochLogBroken: its record cannot be read.
    """
    if read_lineage(checkpoint) is None:
        return None
    nothing: Any = None  # looking runs no plan, applies nothing and takes no time
    log, offsets = StoredEpochLog(checkpoint), StoredOffsets(checkpoint)
    record = drive(unfinished(), Ports(log, offsets, nothing, nothing, nothing))
    return None if record is None else record.epoch
