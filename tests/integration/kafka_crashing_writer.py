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


def bind_sink(bootstrap: str, topic: str, lineage: str, **settings: object) -> BoundKafka:
    """Return a bound sink for this process or a test."""
    sink = KafkaSink(topic, key="id", bootstrap=bootstrap, **settings)  # type: ignore[arg-type]
    return sink.bind(ROWS, lineage=lineage, apply_timeout_s=20)


def staged_rows(values: list[bytes]) -> pa.RecordBatch:
    """Return a batch of staged rows without keys."""
    keys = pa.nulls(len(values), pa.binary())
    return pa.record_batch({"key": keys, "value": pa.array(values, pa.binary())})


def first_decision(lineage: str, point: str = "") -> PartDecision:
    """Return the decision of epoch 0; its hook kills this process with SIGKILL at a failpoint."""

    def reach(current: str) -> None:
        if current == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return PartDecision(lineage, Marker(0, "a0"), NO_MARKER, reach=reach)


def main(bootstrap: str, topic: str, lineage: str, point: str) -> None:
    """Apply, and die at the failpoint."""
    rows = staged_rows([b"%d" % n for n in range(100)])
    bind_sink(bootstrap, topic, lineage).open(0).apply(first_decision(lineage, point), [rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
