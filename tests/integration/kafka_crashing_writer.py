"""A process that applies one epoch to a Kafka topic and kills itself at a failpoint.

Arguments: bootstrap, topic, lineage, failpoint.
"""

from __future__ import annotations

import os
import signal
import sys

import pyarrow as pa

from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.kafka import KafkaSink
from sluicegate.sinks.kafka.bound_sink import BoundKafka

ROWS = pa.schema([("id", pa.string())])


def bound(bootstrap: str, topic: str, lineage: str, **more: object) -> BoundKafka:
    """Return the bound sink that this process and the tests use."""
    sink = KafkaSink(topic, key="id", bootstrap=bootstrap, **more)  # type: ignore[arg-type]
    return sink.bind(ROWS, lineage=lineage, apply_timeout_s=20)


def staged(values: list[bytes]) -> pa.RecordBatch:
    """Return staged rows without keys."""
    keys = pa.nulls(len(values), pa.binary())
    return pa.record_batch({"key": keys, "value": pa.array(values, pa.binary())})


def first_epoch(lineage: str, point: str = "") -> PartDecision:
    """Return the decision of epoch 0, with a kill -9 of this process at a failpoint."""

    def reach(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return PartDecision(lineage, Marker(0, "a0"), NO_MARKER, reach=reach)


def main(bootstrap: str, topic: str, lineage: str, point: str) -> None:
    """Apply, and die at the failpoint."""
    rows = staged([b"%d" % n for n in range(100)])
    bound(bootstrap, topic, lineage).open(0).apply(first_epoch(lineage, point), [rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
