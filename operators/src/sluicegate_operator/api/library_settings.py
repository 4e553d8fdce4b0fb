"""The library's settings dataclasses as parts of a StreamingJob's spec.

The library is the source of fields, types, defaults and bounds, so that a setting cannot mean two
things. This module adds what Kubernetes needs: names without the prefix that the parent field already
says, CamelCase enum values, descriptions for `kubectl explain`, and validation rules in CEL. The codec
and the schema generator are its only readers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.fields import Rule

_SPECIAL_VALUES = {"rocksdb": "RocksDB", "hdfs": "HDFS"}
"""Enum values whose CamelCase form is a proper name."""

_INTERVAL = re.compile(r"\s*\d+\s*(millisecond|second|minute|hour)s?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class LibrarySettings:
    """How a settings dataclass of the library appears in the API.

    Args:
        prefix: the word that all of its Python names begin with; empty for none.
        renamed: API names that do not follow from the Python name, by Python name.
        descriptions: the text of `kubectl explain`, by Python name.
        rules: rules about its fields. Each must allow for a missing field: the API server evaluates
            them on the object's own default `{}` before it fills in the fields' defaults.
    """

    descriptions: Mapping[str, str]
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()


EPOCHS = LibrarySettings(
    descriptions={
        "interval": "Time between the starts of two epochs: a number and milliseconds, seconds, "
        "minutes or hours. An epoch that leaves records in a Kafka source is followed by the next one "
        "at once. Only a job with trigger Interval uses it.",
        "delivery": "Delivery guarantee of the sinks. ExactlyOnce: a failure neither loses nor "
        "repeats rows. AtLeastOnce: a failure may repeat rows. AtMostOnce: a failure may lose rows. "
        "It belongs to the checkpoint: only upgradeMode Stateless can change it.",
        "min_pause_ms": "Minimum pause between the end of an epoch and the start of the next.",
        "timeout_s": "Maximum duration of an epoch. A driver whose epoch takes longer exits and is "
        "restarted by spec.restart; the new driver runs or completes the epoch. 0 disables the "
        "timeout.",
        "progress_timeout_s": "Maximum time in which Spark neither begins an epoch nor finds no input. A "
        "driver that exceeds it ends itself and logs where its threads are; spec.progressDeadlineSeconds "
        "is for a driver that cannot. 0 disables the limit.",
        "tolerated_failures": "Number of consecutive failures of an epoch that the driver retries "
        "itself before it exits. A timeout is never retried by the same driver.",
        "max_concurrent": "Number of epochs that run at the same time. It must be 1: an epoch starts "
        "at the offsets and state where the previous one ended. See overlap.",
        "on_cancel": "What happens to the checkpoint when the StreamingJob is deleted. Retain keeps "
        "it; Delete removes everything below the job's path on its CheckpointVolume.",
        "state_backend": "State store of stateful queries. RocksDB keeps state on local disk and "
        "writes changelogs to the checkpoint. HDFS keeps it on the JVM heap, for small state. Memory "
        "is rejected, because the state would be lost with the driver. It belongs to the "
        "checkpoint: only upgradeMode Stateless can change it.",
        "inline_bytes": "Maximum size in bytes of an epoch's staged rows that are stored inside its "
        "record. Each staging task has an equal share. Chunks that exceed it become objects in the "
        "checkpoint's staging area.",
        "max_part_bytes": "Maximum size in bytes, uncompressed, of an epoch's rows for one part of a "
        "sink, which are written in one transaction. A larger part fails the epoch before its "
        "decision.",
        "apply_timeout_s": "Maximum duration of applying an epoch to one sink.",
        "overlap": "Whether an epoch is applied to the sinks while the next one is staged, which raises "
        "throughput. The next epoch is decided only after the previous one is applied.",
        "metrics_port": "Port at which the driver serves metrics for Prometheus, without TLS or a "
        "login; the container's port metrics. 0: it serves none.",
        "commit_source_offsets": "Whether the offsets up to which every sink has the Kafka sources are "
        "committed to a consumer group, so that Kafka's tools show the lag. The job never reads them, "
        "and a refused commit is a warning.",
        "source_group": "Consumer group to which offsets of Kafka sources are committed; nothing else "
        "may use it. If empty: sluicegate.NAME with the StreamingJob's name.",
    },
    rules=(
        Rule(
            "!has(self.maxConcurrent) || self.maxConcurrent == 1",
            "maxConcurrent must be 1: an epoch starts where the previous one ends; "
            "overlap: true applies one epoch while the next is staged",
            lambda settings: settings.max_concurrent == 1,
        ),
        Rule(
            "!has(self.stateBackend) || self.stateBackend != 'Memory'",
            "stateBackend must not be Memory: the state would be lost with the driver; "
            "use RocksDB, or HDFS for small state",
            lambda settings: settings.state_backend != "memory",
        ),
        Rule(
            "!has(self.interval) || "
            r"self.interval.matches('(?i)^\\s*[0-9]+\\s*(millisecond|second|minute|hour)s?\\s*$')",
            "interval must be a number and milliseconds, seconds, minutes or hours; "
            "for a job that ends by itself, set spec.trigger",
            lambda settings: _INTERVAL.fullmatch(settings.interval) is not None,
        ),
    ),
)

RESTART = LibrarySettings(
    prefix="restart_",
    renamed={"restart": "strategy", "restart_reset_s": "resetAfterSeconds"},
    descriptions={
        "restart": "Restart strategy for failures of the application. ExponentialDelay: restarts "
        "without limit, each delay longer than the last. FixedDelay: restarts a number of times "
        "(attempts), always after delaySeconds. FailureRate: restarts after delaySeconds unless "
        "there are more than maxFailures within intervalSeconds. None: never restarts.",
        "restart_attempts": "FixedDelay: total number of restarts before the job is Failed.",
        "restart_delay_s": "FixedDelay and FailureRate: delay before each restart.",
        "restart_max_failures": "FailureRate: number of failures within intervalSeconds that are "
        "tolerated. One more, and the job is Failed.",
        "restart_interval_s": "FailureRate: length of the interval in which failures are counted.",
        "restart_initial_delay_s": "ExponentialDelay: delay before the first restart.",
        "restart_max_delay_s": "ExponentialDelay: upper limit of the delay.",
        "restart_multiplier": "ExponentialDelay: factor by which each delay exceeds the previous one.",
        "restart_jitter": "ExponentialDelay: random part of each delay as a fraction from 0 to 1, so "
        "that many jobs do not restart at the same moment.",
        "restart_reset_s": "A driver that ran this long was healthy: earlier failures are no longer "
        "counted. 0: failures are never forgotten for this reason.",
    },
)

LIBRARY_SETTINGS: Mapping[type[object], LibrarySettings] = {
    EpochSettings: EPOCHS,
    RestartSettings: RESTART,
}


def enum_name(value: str) -> str:
    """Return 'ExactlyOnce' for 'exactly-once'."""
    words = (word.capitalize() for word in value.split("-"))
    return _SPECIAL_VALUES.get(value) or "".join(words)
