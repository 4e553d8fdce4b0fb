"""How epochs run: interval, delivery guarantee, limits and state (docs/guides/settings.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluicegate.errors import SettingsInvalid
from sluicegate.settings.formats import SETTINGS
from sluicegate.settings.schema import NOTHING_STARTED, option

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
"""Decided and replayed from the record, but without markers: a repeated apply repeats its rows."""
AT_MOST_ONCE = "at-most-once"
"""Applied once, by the process that decided it; rows that it did not apply are lost."""

AVAILABLE_NOW = "available-now"
"""As an interval: process the available input in as many epochs as needed, then stop."""

_INTERVAL = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour)s?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class EpochSettings:
    """How epochs run. An epoch is what Flink calls a checkpoint.

    Args:
        interval: time from the start of one epoch to the start of the next, such as '5 seconds'
            (default 10), or AVAILABLE_NOW. Flink's checkpoint interval. An epoch that leaves records in
            a Kafka source is followed by the next one at once.
        delivery: 'exactly-once' (default), 'at-least-once' or 'at-most-once'. Fixed for the
            lifetime of a checkpoint.
        min_pause_ms: pause in ms between the end of an epoch and the start of the next, at least;
            default 0, as Flink's. Ignored with AVAILABLE_NOW.
        timeout_s: an epoch that takes longer ends the process, default 60. After the restart the
            epoch runs again or, if it was decided, is applied (rule 18). 0 disables the timeout.
        progress_timeout_s: a query that is neither in an epoch nor idle for longer ends the process,
            default 600: Spark hangs. 0 disables the limit.
        tolerated_failures: how many consecutive failures of an epoch the same driver retries,
            default 0. A timeout is never tolerated, because it ends the driver.
        max_concurrent: must be 1. Spark's state and offsets pass from one epoch to the next.
        on_cancel: 'retain' (default) keeps the checkpoint when the job is canceled, 'delete'
            removes everything below its prefix. Ctrl-C and `EpochsQuery.cancel` cancel a job.
            SIGTERM stops it and never deletes: Kubernetes sends it to move a pod.
        state_backend: 'rocksdb' (default; incremental through changelogs) or 'hdfs' (on the JVM
            heap). Fixed for the lifetime of a checkpoint. 'memory' is rejected: it would not
            survive the driver.
        inline_bytes: how much of an epoch's staged rows may be stored in its record, in bytes;
            default 16 MiB. It bounds what an epoch carries through the driver. Each staging task
            has an equal share; chunks that exceed it are stored in the staging area.
        max_part_bytes: size in memory, in bytes, of the rows of one part of a sink, which are
            written in one transaction; default 1 GiB. A larger part fails the epoch before its
            decision.
        apply_timeout_s: time limit of one apply, and of its Kafka transaction, in seconds, default 60.
        overlap: apply an epoch while the next one is staged; the next one is decided only after
            the apply. On by default; at-least-once, and a batch, which is a single epoch, ignore it.
        metrics_port: port at which the driver serves metrics for Prometheus; default 0: none.
        commit_source_offsets: commit how far every sink has the Kafka sources to a consumer group,
            for tools that show its lag; on by default. Nothing reads it.
        source_group: that consumer group; empty (default): sluicegate.<job>.

    Raises:
        SettingsInvalid: a value is invalid.
    """

    interval: str = option(
        "10 seconds",
        "Time from the start of one epoch to the start of the next, as a number and a unit "
        "(milliseconds, seconds, minutes, hours). An epoch that leaves records in a Kafka source is "
        "followed by the next one at once. available-now processes the available input and stops.",
    )
    delivery: str = option(
        EXACTLY_ONCE,
        "Delivery guarantee. exactly-once: a failure neither repeats nor loses rows. "
        "at-least-once: no markers are written, so an interrupted apply may repeat rows. "
        "at-most-once: an interrupted apply is not retried, so rows may be lost. Fixed for the "
        "lifetime of a checkpoint.",
        choices=(EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE),
    )
    min_pause_ms: int = option(
        0,
        "Minimum pause in milliseconds between the end of an epoch and the start of the next.",
        at_least=0,
    )
    timeout_s: float = option(
        60.0,
        "Time limit of an epoch in seconds. An epoch that exceeds it ends the driver, which is "
        "then restarted. 0 disables the limit.",
        at_least=0,
    )
    progress_timeout_s: float = option(
        600.0,
        "Time limit in seconds for Spark to begin the next epoch or to find no input. A driver that "
        "exceeds it hangs, and is ended and then restarted. 0 disables the limit. Batches ignore it.",
        at_least=0,
    )
    tolerated_failures: int = option(
        0,
        "Number of consecutive failures of an epoch that the driver retries before it ends.",
        at_least=0,
    )
    max_concurrent: int = option(1, "Number of epochs that run at a time. Must be 1.")
    on_cancel: str = option(
        "retain",
        "What happens to the checkpoint when the job is canceled. retain: it is kept. delete: it is "
        "deleted with everything below its prefix.",
        choices=("retain", "delete"),
    )
    state_backend: str = option(
        "rocksdb",
        "Store of the state between epochs. rocksdb: on local disk, with incremental changelogs. "
        "hdfs: on the JVM heap, for small state. memory is rejected, because it would not survive "
        "the driver. Fixed for the lifetime of a checkpoint.",
        choices=("rocksdb", "hdfs", "memory"),
    )
    inline_bytes: int = option(
        16 << 20,
        "Size in bytes up to which the staged data of an epoch is stored in its record. Each staging "
        "task has an equal share of it. Chunks that exceed the share are stored as separate objects.",
        at_least=0,
        at_most=64 << 20,  # a Spark task has at most 128 MiB by default (spark.rpc.message.maxSize)
    )
    max_part_bytes: int = option(
        1 << 30,
        "Maximum size in bytes, uncompressed, of an epoch's data for one part of a sink, which is "
        "written in one transaction. A larger part fails the epoch before its decision.",
        at_least=1,
    )
    apply_timeout_s: float = option(
        60.0,
        "Time limit in seconds for applying an epoch to a sink, and timeout of its Kafka transaction.",
        above=0,
    )
    overlap: bool = option(
        default=True,
        text="Apply an epoch while the next one is staged. At-least-once and batches ignore it.",
    )
    metrics_port: int = option(
        0,
        "Port at which the driver serves metrics for Prometheus, without TLS or a login. 0: it serves "
        "none. If the port is taken, the job runs without metrics.",
        at_least=0,
        at_most=65535,
    )
    commit_source_offsets: bool = option(
        default=True,
        text="Commit the offsets up to which every sink has the Kafka sources to a consumer group, so "
        "that Kafka's tools show the lag. The job never reads them, and a refused commit is a warning.",
    )
    source_group: str = option(
        "",
        "The consumer group to which offsets of Kafka sources are committed; nothing else may use it. "
        "If empty: sluicegate.NAME with the job's name.",
    )

    @property
    def waits_for_triggers(self) -> bool:
        """Whether Spark waits between two epochs: not with AVAILABLE_NOW, nor with an interval of 0."""
        found = _INTERVAL.fullmatch(self.interval)
        return found is not None and int(found[1]) > 0

    def __post_init__(self) -> None:
        """Reject invalid values."""
        SETTINGS.check_fields(self)
        for invalid, what, do in (
            (
                self.interval != AVAILABLE_NOW and not _INTERVAL.fullmatch(self.interval),
                f"interval {self.interval!r} is not a duration",
                "write a number and milliseconds, seconds, minutes or hours, or available-now",
            ),
            (
                self.max_concurrent != 1,
                f"max-concurrent is {self.max_concurrent}, but an epoch starts where the one before ends",
                "leave it at 1; overlap applies one epoch while the next one is staged",
            ),
            (
                self.state_backend == "memory",
                "state-backend is memory: state would be lost with the driver, and counts would be wrong",
                "use rocksdb, or hdfs for small state",
            ),
        ):
            if invalid:
                raise SettingsInvalid(what, data=NOTHING_STARTED, do=do)
