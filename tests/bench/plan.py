"""The comparisons with their sizes and their order. Pure.

All contenders of a workload have the same source, source options, trigger, epoch size and session
settings. They differ only in how they write to the sinks. Other engines have the same source and broker.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from sluicegate.settings.epoch import AVAILABLE_NOW

T = TypeVar("T")

SLUICEGATE: Final = "sluicegate"
SPARK: Final = "spark-kafka-sink"
NAIVE: Final = "naive-foreachBatch"
NOOP: Final = "spark-noop"
"""The query that the others run too, without a sink: what reading and computing alone cost."""
SERIAL: Final = "sluicegate-serial"
"""The same without `EpochSettings.overlap`: an epoch is staged when the one before is applied."""
BARE: Final = "sluicegate-bare"
"""The query that the others run too, without the packaged job's dead letters."""
HEAP: Final = "sluicegate-heap"
"""The same with its state on the JVM heap (`state-backend` hdfs), as Flink's is, not in RocksDB."""
COMMON_QUERY: Final = (BARE, HEAP)
MEASURED: Final = (SLUICEGATE, SERIAL, *COMMON_QUERY)
"""Our contenders: the report shows their phases and compares them with the rivals."""
SPARK_JDBC: Final = "spark-jdbc-merge"
"""Spark's JDBC writer into a staging table, then one INSERT ... SELECT ... ON DUPLICATE KEY UPDATE."""
RIVALS: Final = (SPARK, NAIVE, NOOP, SPARK_JDBC)
FLINK: Final = "flink"
FLINK_AT_LEAST_ONCE: Final = "flink-at-least-once"
KAFKA_STREAMS: Final = "kafka-streams"
"""With `exactly_once_v2`."""
OTHER_ENGINES: Final = (FLINK, FLINK_AT_LEAST_ONCE, KAFKA_STREAMS)
"""Not on Spark: they have no epochs, so only the records in the sink are compared."""

PASS_THROUGH: Final = "pass-through"
IP_COUNT: Final = "ip_count"
WORD_COUNT: Final = "word_count"
ORDERS: Final = "orders_stream"
UPSERT: Final = "mysql-upsert"
ADD: Final = "mysql-add"
KEY_COUNT: Final = "key-count"
"""A running count of each key."""
MYSQL_LATENCY: Final = "mysql-latency"
LATENCY: Final = "latency"
HALF_LOAD: Final = "half-load"
RECOVERY: Final = "recovery"

WARM_UP_EPOCHS: Final = 2
"""Unmeasured epochs in which the JVM compiles, producers connect and Python workers start."""

SESSION: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
"""Settings of all contenders, in addition to those of `sluicegate.session`."""

EPOCH_TIMEOUT_S: Final = 600.0
"""Sluicegate's timeout; the others have none. A slow machine must yield a slow figure, not an anomaly."""

COMPRESSION: Final = "lz4"
"""Compression of every producer: Sluicegate's default, also set on Spark's sink."""


@dataclass(frozen=True)
class Workload:
    """One comparison.

    Args:
        name: value of `--only`.
        kind: PASS_THROUGH, IP_COUNT, WORD_COUNT, ORDERS, UPSERT, ADD or KEY_COUNT; a latency is measured
            with a paced PASS_THROUGH or MYSQL_LATENCY.
        value_bytes: size of a record's value; 0 if the kind decides it.
        records: number of records in the source topic.
        epoch_records: maxOffsetsPerTrigger.
        contenders: names of the contenders.
        note: remark below the table's title.
        apply_wait_s: how long each apply waits without using a core, in seconds: a slow sink.
        partitions: of the source and of the sink; 4 are what the packaged jobs create.
        cores: threads of Spark's session, and the parallelism of other engines.
        keys: different keys of KEY_COUNT, each of which is once in the first `keys` records.
        executors: processes that run the tasks, `cores` threads each; 0: Spark's driver runs them.
        round_trip_ms: from clients to the broker and back, in milliseconds; 0: it is on this machine.
        store: whether the checkpoint is in an S3 server, not in a folder.
        store_round_trip_ms: from clients to that server and back; 0: it is on this machine.
        trigger: AVAILABLE_NOW or an interval.
    """

    name: str
    kind: str
    value_bytes: int
    records: int
    epoch_records: int
    contenders: tuple[str, ...]
    note: str = ""
    apply_wait_s: float = 0.0
    partitions: int = 4
    cores: int = 2
    keys: int = 0
    executors: int = 0
    round_trip_ms: float = 0.0
    store: bool = False
    store_round_trip_ms: float = 0.0
    trigger: str = AVAILABLE_NOW

    def of_size(self, records: int) -> Workload:
        """Return the workload with another number of records, in at least ten epochs."""
        per_epoch = max(1, min(self.epoch_records, records // 10))
        keys = min(self.keys, records // 2)
        return replace(self, records=records, epoch_records=per_epoch, keys=keys)

    @property
    def warm_up_epochs(self) -> int:
        """The epochs that are not measured: the first ones, and those that fill a state."""
        return max(WARM_UP_EPOCHS, -(-self.keys // self.epoch_records))

    @property
    def unit(self) -> str:
        """What the records of the source are."""
        if self.value_bytes:
            return f"values of {self.value_bytes} B"
        return _UNITS.get(self.kind, "records")


MYSQL_ONLY: Final = (UPSERT, ADD, MYSQL_LATENCY)

_UNITS: Final = {
    IP_COUNT: "access-log lines",
    WORD_COUNT: "lines of 8 words",
    ORDERS: "orders in JSON",
    UPSERT: "rows",
    ADD: "rows",
    KEY_COUNT: "keys",
}

_PASS_THROUGH: Final = (SLUICEGATE, SERIAL, SPARK, NAIVE, NOOP, *OTHER_ENGINES)

_S3_CHECKPOINT: Final = Workload(
    "s3-checkpoint",
    PASS_THROUGH,
    100,
    4_000_000,
    200_000,
    contenders=(SLUICEGATE, SERIAL),
    note=(
        "the checkpoint is in an S3 server on this machine: tasks upload the staged rows to it, and read "
        "them back to apply them"
    ),
    store=True,
)

WORKLOADS: Final = (
    Workload("pass-through-100", PASS_THROUGH, 100, 8_000_000, 200_000, _PASS_THROUGH),
    Workload("pass-through-1k", PASS_THROUGH, 1000, 3_000_000, 100_000, _PASS_THROUGH),
    Workload(
        "ip_count",
        IP_COUNT,
        0,
        5_000_000,
        200_000,
        contenders=(SLUICEGATE, SERIAL, *COMMON_QUERY, SPARK, NAIVE, NOOP, FLINK),
        note=(
            f"{SLUICEGATE} is the packaged job, dead letters and trace headers included; {BARE} the same "
            f"query as the others', and {HEAP} that with its state on the heap, as {FLINK}'s is. {SPARK} and "
            f"{FLINK} write Kafka ONLY. A line is appended when its window's last count is"
        ),
    ),
    Workload(
        WORD_COUNT,
        WORD_COUNT,
        0,
        5_000_000,
        100_000,
        contenders=(SLUICEGATE, SERIAL, *COMMON_QUERY, SPARK, NOOP, FLINK),
        note=(
            f"{SLUICEGATE} is the packaged job, dead letters included, which writes MySQL only; {BARE}, "
            f"{HEAP} (its state is on the heap, as {FLINK}'s is), {SPARK} and {FLINK} split lines at each "
            f"blank and write Kafka only. {FLINK} collects the updates of a second (mini-batch), as an epoch "
            "does. A line is appended when the counts have 8 words more"
        ),
    ),
    Workload(
        ORDERS,
        ORDERS,
        0,
        6_000_000,
        200_000,
        contenders=(SLUICEGATE, SERIAL, *COMMON_QUERY, SPARK, NOOP, FLINK),
        note=(
            f"{SLUICEGATE} is the packaged job, which checks each field by a pattern and writes dead letters, "
            f"and {BARE} the same query as the others', which parse JSON with a schema ({BARE} by parse_json); "
            f"{HEAP} is that with its state on the heap, as {FLINK}'s is. They write Kafka and MySQL. {SPARK} "
            f"and {FLINK} write Kafka ONLY. An order is appended when its window's last row is"
        ),
    ),
    Workload(
        UPSERT,
        UPSERT,
        0,
        5_000_000,
        50_000,
        contenders=(SLUICEGATE, SERIAL, SPARK_JDBC),
        note=(
            "rows of three integers: the first half are inserted, the second half replace them. Nothing is "
            f"written to Kafka. {SPARK_JDBC} is at-least-once"
        ),
    ),
    Workload(
        ADD,
        ADD,
        0,
        5_000_000,
        50_000,
        contenders=(SLUICEGATE, SERIAL, SPARK_JDBC),
        note=(
            f"the same rows, and numbers are added to those in the table. {SPARK_JDBC} is at-least-once: an "
            "epoch that Spark repeats is added twice"
        ),
    ),
    Workload(
        "backlog",
        PASS_THROUGH,
        100,
        2_000_000,
        200_000,
        contenders=(SLUICEGATE, SPARK),
        note="the trigger is that of packaged jobs, which do not wait for it while they are behind",
        trigger="10 seconds",
    ),
    Workload(
        "slow-sink",
        PASS_THROUGH,
        100,
        2_000_000,
        200_000,
        contenders=(SLUICEGATE, SERIAL),
        note="each apply waits another second, as for a database on a distant or busy server",
        apply_wait_s=1.0,
    ),
    Workload(
        "distant-broker",
        PASS_THROUGH,
        100,
        4_000_000,
        50_000,
        contenders=(SLUICEGATE, SERIAL),
        note=(
            "source and sink are on a broker that is 5 ms away: a proxy delays what is sent over each "
            "connection by 2.5 ms in both directions"
        ),
        round_trip_ms=5.0,
    ),
    _S3_CHECKPOINT,
    replace(
        _S3_CHECKPOINT,
        name="distant-s3",
        note=(
            "the same with an S3 server that is 20 ms away, as a cloud's: a proxy delays what is sent over "
            "each connection by 10 ms in both directions"
        ),
        store_round_trip_ms=20.0,
    ),
)


AIMS: Final[Mapping[tuple[str, str], float]] = {
    ("pass-through-100", FLINK): 1.0,
    ("pass-through-1k", FLINK): 1.0,
    ("pass-through-100", SPARK): 1.3,
    ("pass-through-1k", SPARK): 1.3,
    (IP_COUNT, FLINK): 1.3,
    (WORD_COUNT, FLINK): 1.3,
    (ORDERS, FLINK): 1.3,
    (UPSERT, SPARK_JDBC): 2.0,
    (ADD, SPARK_JDBC): 2.0,
}
"""The ratio of throughput that Sluicegate is meant to reach, by workload and peer."""


@dataclass(frozen=True)
class Pace:
    """Input rate of a latency workload.

    Args:
        trigger: interval between epochs, and between Flink's checkpoints.
        kind: PASS_THROUGH, or MYSQL_LATENCY for rows in a table.
        records_s: records per second.
        seconds: duration of the measured part.
        only: contenders that are measured; empty: all.
        half_load: whether the rate is about half of what Sluicegate keeps up with.
        warm_s: how long records are sent before the measured ones, at least: a high rate needs what the JVM
            compiles in that time, and the records that waited for its start must have been read.
    """

    trigger: str
    kind: str = PASS_THROUGH
    records_s: int = 5000
    seconds: float = 60.0
    only: Sequence[str] = ()
    half_load: bool = False
    warm_s: float = 0.0

    @property
    def workload(self) -> str:
        """The value of `--only`."""
        name = MYSQL_LATENCY if self.kind == MYSQL_LATENCY else LATENCY
        return f"{name}-{HALF_LOAD}" if self.half_load else name

    @property
    def name(self) -> str:
        """The name in results."""
        return f"{self.workload}, {self.trigger}"

    @property
    def full_load(self) -> str:
        """The throughput workload whose rate is full load."""
        return UPSERT if self.kind == MYSQL_LATENCY else "pass-through-100"

    @property
    def contenders(self) -> tuple[str, ...]:
        """The names of the contenders."""
        of_kind = _MYSQL_LATENCY if self.kind == MYSQL_LATENCY else LATENCY_CONTENDERS
        return tuple(name for name in of_kind if not self.only or name in self.only)

    @property
    def records(self) -> int:
        """The number of measured records."""
        return int(self.records_s * self.seconds)

    @property
    def epoch_records(self) -> int:
        """The most records of an epoch: what arrives in two seconds, or more."""
        return max(200_000, 2 * self.records_s)

    def due_after_ns(self, number: int) -> int:
        """Return when a record is due, in nanoseconds after the start."""
        return number * 1_000_000_000 // self.records_s


LATENCY_CONTENDERS: Final = (SLUICEGATE, SERIAL, SPARK, NAIVE, FLINK)
_MYSQL_LATENCY: Final = (SLUICEGATE, SERIAL, SPARK_JDBC, FLINK)
_TRIGGERS: Final = ("1 second", "200 milliseconds")
_HALF_LOADS: Final = {PASS_THROUGH: 60_000, MYSQL_LATENCY: 30_000}
"""About half of what Sluicegate keeps up with while sender, reader and servers share its two cores, in
records per second: a quarter of its rates in `Pace.full_load`, where they do not."""
_WARM_S: Final = 60.0

PACES: Final[tuple[Pace, ...]] = tuple(
    Pace(trigger, kind, records_s, half_load=half_load, warm_s=_WARM_S if half_load else 0.0)
    for kind, half_load_records_s in _HALF_LOADS.items()
    for half_load, records_s in ((False, Pace.records_s), (True, half_load_records_s))
    for trigger in _TRIGGERS
)
LATENCY_VALUE_BYTES: Final = 100
LATENCY_PARTITIONS: Final = 4

COLD: Final = "cold-start"
STANDBY: Final = "standby"
RECOVERY_CONTENDERS: Final = (COLD, STANDBY)
KILLS: Final = 5
"""Kills of the driver in a round of a contender."""


def shuffled(contenders: Sequence[T], *, seed: int, round_: int, workload: str) -> list[T]:
    """Return the contenders in the order of a round; the same seed gives the same order."""
    return random.Random(f"{seed}/{round_}/{workload}").sample(list(contenders), len(contenders))
