"""Spark's execution of the current epoch, accessed through the JVM.

Spark has no public API for it. Tests check the names used here against the pinned version:
`StreamExecution.lastExecution`, `IncrementalExecution.offsetSeqMetadata`,
`EventTimeWatermarkExec.eventTimeStats`, `SupportsAdmissionControl.reportLatestOffset`,
`StateStoreWriter.stateInfo` and `eventTimeWatermarkForLateEvents`,
`ProgressContext.currentDurationsMs`,
`MicroBatchExecution.sources`, `committedOffsets` and `getLatestExecutionContext`,
`KafkaMicroBatchStream.kafkaOffsetReader` and its `driverKafkaParams`,
`StreamingRelationV2.extraOptions`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluicegate.errors import RecordOfAnotherJob, StateIncomplete
from sluicegate.protocol.record import EventTime
from sluicegate.spark.java_classes import has_class
from sluicegate.storage.object_store import ObjectStore

JavaObject = Any
KafkaOffsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset, as Spark writes them."""

_ROWS = "numOutputRows"
_STATE_ROWS = "numTotalStateRows"
_STATE_TIMES = ("commitTimeMs", "allRemovalsTimeMs")
"""Metrics of state stores in ms. `allUpdatesTimeMs` is none of them: Spark also counts in it how long the
rows take to come from the input and to be staged."""
_DURATION = re.compile(r"(\w+) -> (\d+)")
_WITHOUT_WATERMARK = frozenset({"StreamingGlobalLimitExec"})
"""Stateful operators that know no watermark."""
_PLAN_NODES = "dev.sluicegate.spark.PlanNodes"
"""Finds nodes of a plan in one call; source in jobs/java."""
_STATE_WRITER = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"


@dataclass(frozen=True)
class KafkaSource:
    """Up to where an epoch reads a Kafka source.

    Args:
        number: identifies the source among those of the query.
        stream: Spark's object, which knows the options of the source.
        end: the offset after the last record of each partition.
        latest: the same of the records that existed when the epoch was planned.
    """

    number: int
    stream: JavaObject
    end: KafkaOffsets
    latest: KafkaOffsets

    @property
    def lag(self) -> int:
        """The number of records that the epoch leaves."""
        return _distance(self.end, self.latest)


@dataclass(frozen=True)
class StateOperator:
    """A stateful operator: its id, the version that this epoch writes, its number of partitions."""

    id: int
    version: int
    partitions: int


class RunningQuery:
    """The query whose foreachBatch callback is running: what is the same in each of its epochs.

    What is known of it is kept: each call into the JVM delays an epoch.
    """

    def __init__(self, spark: SparkSession) -> None:
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        query = spark._jsparkSession.streams().get(query_id)  # noqa: SLF001 - no public API
        self.java: JavaObject = query.streamingQuery()
        jvm: JavaObject = spark._jvm  # noqa: SLF001 - no public API
        has_nodes = has_class(spark, _PLAN_NODES)
        self.nodes: JavaObject | None = jvm.dev.sluicegate.spark.PlanNodes if has_nodes else None
        self._context, self._jvm = spark.sparkContext, jvm

    @property
    def cores(self) -> int:
        """The number of tasks that run at a time, now: executors may start later than the query."""
        return max(1, self._context.defaultParallelism)

    @cached_property
    def adds_executors(self) -> bool:
        """Whether Spark starts executors when tasks wait for a core."""
        conf = self._context.getConf()
        return conf.get("spark.dynamicAllocation.enabled", "false") == "true"

    @cached_property
    def sources(self) -> list[JavaObject]:
        """The sources, in the order of Spark's offset log; one that two outputs read is there once for each."""
        return _items(self.java.sources())

    @cached_property
    def kafka_numbers(self) -> dict[int, int]:
        """The position of each Kafka source in `sources`, and its `KafkaSource.number`."""
        found: dict[int, int] = {}
        for position, stream in enumerate(self.sources):
            if _name(stream) == "KafkaMicroBatchStream":
                number = int(stream.hashCode())
                if number not in found.values():
                    found[position] = number
        return found

    @cached_property
    def kafka_scans(self) -> Counter[int] | None:
        """How often the plan reads each Kafka source, by its number; None if there are other sources."""
        scans = Counter(int(source.hashCode()) for source in self.sources)
        return scans if scans.keys() == {*self.kafka_numbers.values()} else None

    def prime_sources(self) -> None:
        """Make each Kafka source fetch the latest offsets of its topics once.

        Spark 4.1 ends a query whose first epoch was planned by the previous driver (SPARK-55271):
        after that epoch its source reports its lag, but has never fetched the latest offsets. A source
        without records for the epoch is no part of its plan, and reports its lag too.
        """
        streaming = self._jvm.org.apache.spark.sql.connector.read.streaming
        ends = RunningExecution(self).ends
        for position in self.kafka_numbers:
            stream, end = self.sources[position], ends[position]
            known = stream.initialOffset() if end is None else stream.deserializeOffset(end)
            stream.latestOffset(known, streaming.ReadLimit.allAvailable())


class RunningExecution:
    """The physical plan of the epoch whose foreachBatch callback is running."""

    def __init__(self, query: RunningQuery) -> None:
        self._query = query
        self._execution = query.java.lastExecution()
        self._trigger = query.java.getLatestExecutionContext()
        self._root = self._execution.executedPlan()

    @property
    def query(self) -> JavaObject:
        """Spark's object of the query, a MicroBatchExecution."""
        return self._query.java

    @property
    def plan(self) -> JavaObject:
        """The root of the physical plan."""
        return self._root

    def end_offsets(self) -> tuple[str, ...]:
        """Return up to where each source is read, in the order and the form of Spark's offset log."""
        return tuple("-" if end is None else end for end in self.ends)

    @cached_property
    def ends(self) -> list[str | None]:
        """Up to where each source of the query is read, as JSON; None: nowhere yet."""
        ends = self._trigger.endOffsets()
        found = (ends.get(source) for source in self._query.sources)
        return [str(end.get().json()) if end.isDefined() else None for end in found]

    def planned_ms(self) -> int:
        """Return when the epoch was planned, in ms since 1970; a later driver finds the same time."""
        return int(self._execution.offsetSeqMetadata().batchTimestampMs())

    def kafka_sources(self) -> tuple[KafkaSource, ...]:
        """Return up to where this epoch reads the Kafka sources that have had input."""
        found = []
        for position, number in self._query.kafka_numbers.items():
            stream, end = self._query.sources[position], self.ends[position]
            if end is not None:
                offsets, latest = json.loads(end), stream.reportLatestOffset()
                known = offsets if latest is None else json.loads(latest.json())
                found.append(KafkaSource(number, stream, offsets, known))
        return tuple(found)

    def event_times(self) -> tuple[EventTime, ...]:
        """Return the statistics of each watermark operator after the plan has run."""
        values = (node.eventTimeStats().value() for node in self._watermarks)
        none = EventTime(0, 0, 0.0, 0)
        return tuple(
            EventTime(v.max(), v.min(), v.avg(), v.count()) if v.count() else none for v in values
        )

    def rows_in(self) -> int:
        """Return how many rows the sources have delivered to this plan, for people only.

        A source that is scanned twice counts once: an output of late rows scans its source in
        addition to the aggregation. A stage that Spark runs again counts again.
        """
        by_source: dict[str, int] = {}
        for source, metric in self._inputs:
            by_source[source] = max(by_source.get(source, 0), int(metric.value()))
        return sum(by_source.values())

    @cached_property
    def _inputs(self) -> list[tuple[str, JavaObject]]:
        """Return the source of each leaf that counts its rows, and the metric that does."""
        found, all_leaves = [], _leaves(self._root)
        for leaf in all_leaves:
            metrics = leaf.metrics()
            if metrics.contains(_ROWS):
                source = _source_of(leaf) if len(all_leaves) > 1 else ""
                found.append((source, metrics.apply(_ROWS)))
        return found

    def state_rows(self) -> int | None:
        """Return how many rows the state has since the plan has run, for people only; None without state.

        As for `rows_in`, a stage that Spark runs again counts again.
        """
        metrics = [node.metrics() for node in self._stateful]
        counted = [of.apply(_STATE_ROWS) for of in metrics if of.contains(_STATE_ROWS)]
        return sum(int(metric.value()) for metric in counted) if counted else None

    def enough_tasks(self) -> int | None:
        """Return how many tasks use every core.

        Returns:
            None if there may be no fewer tasks than partitions: their number belongs to the state, or
            makes Spark start executors.
        """
        return None if self._stateful or self._query.adds_executors else self._query.cores

    def state_ms(self) -> float | None:
        """Return about how long the plan's state stores have committed; None without state.

        Spark adds up the tasks, as many of which run at the same time as there are partitions or cores.
        """
        if not self._stateful:
            return None
        total, cores = 0.0, self._query.cores
        for node in self._stateful:
            metrics = node.metrics()
            sums = [metrics.apply(n).value() for n in _STATE_TIMES if metrics.contains(n)]
            total += sum(sums) / min(int(node.stateInfo().get().numPartitions()), cores)
        return total

    def durations_ms(self) -> dict[str, int]:
        """Return how long Spark took for each step of this epoch until it called back, by Spark's names.

        Their text is parsed: a call into the JVM for each of them would delay the epoch.
        """
        text = self._trigger.currentDurationsMs().toString()
        return {name: int(ms) for name, ms in _DURATION.findall(text)}

    def restore_watermark(self, event_times: tuple[EventTime, ...]) -> None:
        """Give a plan that will not run the event times of the one that did (rule 16).

        Only the maximum moves a watermark; the minimum is added for Spark's own statistics.

        Raises:
            RecordOfAnotherJob: the plan has other watermarks than the one that ran.
        """
        nodes = self._watermarks
        if len(nodes) != len(event_times):
            raise RecordOfAnotherJob(
                f"the decided epoch ran a plan with {len(event_times)} watermarks, and the job has "
                f"{len(nodes)}",
                data="the epoch stays decided; this start wrote nothing",
                do="start the job once with its former code; change it after the epoch is applied",
            )
        for node, seen in zip(nodes, event_times, strict=True):
            if seen.count:
                node.eventTimeStats().add(seen.max_ms)
                node.eventTimeStats().add(seen.min_ms)

    def late_watermark_ms(self) -> int | None:
        """Return the watermark by which this epoch drops late rows; None without state.

        With several stateful operators it is that of the first, which receives the input rows: the
        largest. Those after it have a smaller one, and one whose input has no watermark has 0.
        """
        late = [
            node.eventTimeWatermarkForLateEvents()
            for node in self._stateful
            if _name(node) not in _WITHOUT_WATERMARK
        ]
        return max((int(value.get()) for value in late if value.isDefined()), default=None)

    def state_operators(self) -> list[StateOperator]:
        """Return the stateful operators of the plan."""
        infos = [node.stateInfo().get() for node in self._stateful]
        found = {(i.operatorId(), i.storeVersion() + 1, i.numPartitions()) for i in infos}
        return [StateOperator(*operator) for operator in sorted(found)]

    @cached_property
    def _stateful(self) -> list[JavaObject]:
        """Return the nodes that write state; nodes that only read it share their operator id."""
        if self._query.nodes is not None:
            return list(self._query.nodes.stateful(self._root))
        writer = self._root.getClass().getClassLoader().loadClass(_STATE_WRITER)
        nodes = (node for node in self._nodes if writer.isInstance(node))
        return [node for node in nodes if node.stateInfo().isDefined()]

    @cached_property
    def _watermarks(self) -> list[JavaObject]:
        if self._query.nodes is not None:
            return list(self._query.nodes.watermarks(self._root))
        return [node for node in self._nodes if _name(node) == "EventTimeWatermarkExec"]

    @cached_property
    def _nodes(self) -> list[JavaObject]:
        """Return the nodes of the physical plan; records have event times in the order of this walk.

        PlanNodes walks in the same order.
        """
        found, pending = [], [self._root]
        while pending:
            node = pending.pop()
            found.append(node)
            pending += _items(node.children())
        return found


def leaves(rows: DataFrame) -> list[JavaObject]:
    """Return the inputs of a DataFrame that is not started, from left to right."""
    return _leaves(rows._jdf.queryExecution().analyzed())  # noqa: SLF001 - no public API


def kafka_options(relation: JavaObject) -> dict[str, str] | None:
    """Return the options of an input that is a Kafka source, None of any other."""
    if _name(relation) != "StreamingRelationV2" or relation.sourceName() != "kafka":
        return None
    return dict(relation.extraOptions().asCaseSensitiveMap())


def committed_sources(query: StreamingQuery) -> tuple[KafkaSource, ...]:
    """Return up to where the Kafka sources are read by the epochs that Spark has committed."""
    running = query._jsq.streamingQuery()  # noqa: SLF001 - no public API
    committed = running.committedOffsets()
    found = []
    for stream in _items(running.sources()):
        end = committed.get(stream)
        if _name(stream) == "KafkaMicroBatchStream" and end.isDefined():
            offsets = json.loads(end.get().json())
            found.append(KafkaSource(int(stream.hashCode()), stream, offsets, offsets))
    return tuple(found)


def _distance(start: KafkaOffsets, end: KafkaOffsets) -> int:
    """Return the number of records between two offsets; a new partition counts from its start."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, 0))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )


def _source_of(leaf: JavaObject) -> str:
    """Return what identifies the source of a leaf."""
    streamed = _name(leaf) == "MicroBatchScanExec"
    return str(leaf.stream().hashCode() if streamed else leaf.id())


def _leaves(plan: JavaObject) -> list[JavaObject]:
    """Return the leaves of a plan from left to right."""
    return _items(plan.collectLeaves())


def _items(of: JavaObject) -> list[JavaObject]:
    """Return the items of a Scala Seq."""
    return [of.apply(number) for number in range(of.size())]


def _name(of: JavaObject) -> str:
    return str(of.getClass().getSimpleName())


def check_state(store: ObjectStore, operators: list[StateOperator]) -> list[str]:
    """Return all state files; every partition must have the version of this epoch (rule 9).

    Raises:
        StateIncomplete: one has not; a decision would make the checkpoint unusable one epoch later.
    """
    names: list[str] = []
    for operator in operators:
        prefix = f"state/{operator.id}/"
        found: dict[str, set[int]] = {}
        for name in store.names(prefix):
            partition, _, rest = name.removeprefix(prefix).partition("/")
            state_store, _, file = rest.rpartition("/")
            names.append(name)
            if partition.isdecimal() and file.partition(".")[0] == str(operator.version):
                found.setdefault(state_store, set()).add(int(partition))
        expected = set(range(operator.partitions))
        missing = {name: expected - numbers for name, numbers in found.items()} or {"": expected}
        for name, partitions in missing.items():
            if not partitions:
                continue
            where = f"operator {operator.id} store {name}" if name else f"operator {operator.id}"
            raise StateIncomplete(
                f"state {where} has no version {operator.version} in partitions {sorted(partitions)}",
                data="the epoch is undecided and nothing of it is visible",
                do="let every row of the stream reach a sink: no limit(), and no filter that Spark "
                "folds to false, after a stateful operator",
            )
    return names
