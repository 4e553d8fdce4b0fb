"""The plan that Spark is running for the current epoch, seen through the JVM.

Spark has no public door to it; the names used here are checked by tests against the pinned
version: `StreamExecution.lastExecution`, `EventTimeWatermarkExec.eventTimeStats`,
`StreamingDataSourceV2ScanRelation.endOffset`, `SupportsAdmissionControl.reportLatestOffset`,
`StateStoreWriter.stateInfo` and `eventTimeWatermarkForLateEvents`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sluicegate.protocol.errors import StateIncomplete
from sluicegate.protocol.record import EventTime
from sluicegate.storage.objects import Objects

JavaObject = Any
KafkaOffsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset, as Spark writes them."""

_ROWS = "numOutputRows"


@dataclass(frozen=True)
class StateOperator:
    """A stateful operator: its number, the version that this epoch writes, its partitions."""

    id: int
    version: int
    partitions: int


class RunningPlan:
    """The physical plan of the epoch whose foreachBatch callback is running."""

    def __init__(self, spark: SparkSession) -> None:
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        query = spark._jsparkSession.streams().get(query_id)  # noqa: SLF001 - no public door
        self._execution = query.streamingQuery().lastExecution()
        self._root = self._execution.executedPlan()
        self._scans: list[JavaObject] | None = None
        self._limit = spark._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit  # type: ignore[union-attr] # noqa: SLF001

    def prime_sources(self) -> None:
        """Let each Kafka source look once at where its topics end.

        Spark 4.1 ends a query whose first epoch was begun by the driver before (SPARK-55271): after
        that epoch its source reports how far it is behind, and has never looked.
        """
        for node in self._kafka_sources():
            stream, start = node.stream(), node.startOffset()
            offset = start.get() if start.isDefined() else stream.initialOffset()
            stream.latestOffset(offset, self._limit.allAvailable())

    def lag(self) -> int:
        """Return how many records the Kafka sources hold that this epoch and all before leave out.

        As of the moment when Spark chose this epoch's offsets.
        """
        behind = 0
        for node in self._kafka_sources():
            end, newest = node.endOffset(), node.stream().reportLatestOffset()
            if end.isDefined() and newest is not None:
                behind += _distance(json.loads(end.get().json()), json.loads(newest.json()))
        return behind

    def _kafka_sources(self) -> Iterator[JavaObject]:
        for node in _nodes(self._execution.logical()):
            streaming = node.getClass().getSimpleName() == "StreamingDataSourceV2ScanRelation"
            if streaming and node.stream().getClass().getSimpleName() == "KafkaMicroBatchStream":
                yield node

    def event_times(self) -> tuple[EventTime, ...]:
        """Return what each watermark operator has seen in the plan that has run."""
        values = (node.eventTimeStats().value() for node in self._watermarks())
        return tuple(
            EventTime(v.max(), v.min(), v.avg(), v.count())
            if v.count()
            else EventTime(0, 0, 0.0, 0)
            for v in values
        )

    def rows_in(self) -> int:
        """Return how many rows the sources have given to this plan; read twice counts once.

        An output of late rows scans its source beside the aggregation. A stage that Spark runs
        again counts again: for people only.
        """
        if self._scans is None:
            nodes = [node for node in _nodes(self._root) if not node.children().size()]
            self._scans = [node for node in nodes if node.metrics().contains(_ROWS)]
        by_source: dict[str, int] = {}
        for scan in self._scans:
            stream = scan.getClass().getSimpleName() == "MicroBatchScanExec"
            source = str(scan.stream().hashCode() if stream else scan.id())
            rows = int(scan.metrics().apply(_ROWS).value())
            by_source[source] = max(by_source.get(source, 0), rows)
        return sum(by_source.values())

    def feed(self, event_times: tuple[EventTime, ...]) -> None:
        """Give a plan that will not run the event times of the one that did (rule 16).

        Only the maximum moves a watermark; the minimum is added for Spark's own statistics.
        """
        for node, seen in zip(self._watermarks(), event_times, strict=True):
            if seen.count:
                node.eventTimeStats().add(seen.max_ms)
                node.eventTimeStats().add(seen.min_ms)

    def late_watermark_ms(self) -> int | None:
        """Return the watermark by which this epoch drops late rows; None without state.

        A group is dropped when its window's end is not after it. With several stateful
        operators it is the first one's: the one that input rows meet.
        """
        late = [
            node.eventTimeWatermarkForLateEvents()
            for node in _nodes(self._root)
            if _is_stateful(node) and node.eventTimeWatermarkForLateEvents().isDefined()
        ]
        return min((int(value.get()) for value in late), default=None)

    def state_operators(self) -> list[StateOperator]:
        """Return the stateful operators of the plan."""
        infos = [node.stateInfo().get() for node in _nodes(self._root) if _is_stateful(node)]
        found = {(i.operatorId(), i.storeVersion() + 1, i.numPartitions()) for i in infos}
        return [StateOperator(*operator) for operator in sorted(found)]

    def _watermarks(self) -> list[JavaObject]:
        return [
            node
            for node in _nodes(self._root)
            if node.getClass().getSimpleName() == "EventTimeWatermarkExec"
        ]


def _distance(start: KafkaOffsets, end: KafkaOffsets) -> int:
    """Return the records between two offsets; a partition that is new counts from its beginning."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, 0))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )


def _nodes(root: JavaObject) -> Iterator[JavaObject]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        children = node.children()
        pending.extend(children.apply(i) for i in range(children.size()))


def _is_stateful(node: JavaObject) -> bool:
    """Say whether a node writes state; readers beside it share its operator id."""
    interfaces: set[str] = set()
    kind = node.getClass()
    while kind is not None:
        interfaces.update(i.getSimpleName() for i in kind.getInterfaces())
        kind = kind.getSuperclass()
    return (
        bool(interfaces & {"StateStoreWriter", "StatefulOperator"}) and node.stateInfo().isDefined()
    )


def check_state(objects: Objects, operators: list[StateOperator]) -> None:
    """See that every state partition has the version that this epoch owes (rule 9).

    Raises:
        StateIncomplete: one has not; deciding would make the checkpoint unusable an epoch later.
    """
    for operator in operators:
        prefix = f"state/{operator.id}/"
        there: dict[str, set[int]] = {}
        for name in objects.names(prefix):
            partition, _, rest = name.removeprefix(prefix).partition("/")
            store, _, file = rest.rpartition("/")
            if partition.isdecimal() and file.partition(".")[0] == str(operator.version):
                there.setdefault(store, set()).add(int(partition))
        expected = set(range(operator.partitions))
        missing = {store: expected - got for store, got in there.items()} or {"": expected}
        for store, partitions in missing.items():
            if partitions:
                raise _incomplete(operator, store, sorted(partitions))


def _incomplete(operator: StateOperator, store: str, partitions: list[int]) -> StateIncomplete:
    where = f"operator {operator.id}{f' store {store}' if store else ''}"
    return StateIncomplete(
        f"state {where} has no version {operator.version} in partitions {partitions}",
        data="the epoch is undecided and nothing of it is visible",
        do="let every row of the stream reach a sink: no limit() and no filter that Spark folds "
        "to false after a stateful operator",
    )
