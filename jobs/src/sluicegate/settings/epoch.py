"""How epochs are run: interval, delivery, limits, state (DESIGN.md section 3).

Not here: what a setting does (`spark.query`, `protocol.coordinator`). Called by jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.protocol.record import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from sluicegate.settings.schema import NOTHING_STARTED, check_bounds, check_choices, option

AVAILABLE_NOW = "available-now"
"""As an interval: process what is there in as many epochs as needed, then end."""

_INTERVAL = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour)s?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class EpochSettings:
    """How epochs are run. A checkpoint of Flink is an epoch here.

    Args:
        interval: time between epochs' starts, such as '5 seconds' (the default is 10), or
            AVAILABLE_NOW. Flink's checkpoint interval.
        delivery: 'exactly-once' (default), 'at-least-once' or 'at-most-once'. A checkpoint keeps
            the one that it was started with.
        min_pause_ms: an epoch starts no sooner after the last one ended, default 500. Not
            observed with AVAILABLE_NOW.
        timeout_s: an epoch that takes longer ends the process, default 60; whoever supervises it
            starts it again, and the epoch is run again or, if it was decided, finished (rule 18).
            0 switches it off.
        tolerated_failures: how many times in a row an epoch may fail and be tried again by the same driver,
            default 0. An epoch past its timeout is never tolerated: its driver is gone.
        max_concurrent: 1. Spark's state and offsets go from one epoch to the next.
        on_cancel: 'retain' (default) the checkpoint when the job is cancelled, or 'delete' it
            with everything below its prefix. Cancelled is: Ctrl-C, `EpochsQuery.cancel`. SIGTERM
            stops and never deletes: Kubernetes sends it to move a pod.
        state_backend: 'rocksdb' (default; changelogs, so incremental) or 'hdfs' (on the heap). A
            checkpoint keeps the one that it was started with. 'memory' is refused: it would not
            survive the driver.
        inline_bytes: chunks up to this size travel in the epoch record, larger ones go to the
            staging area; default 4 MiB.
        apply_timeout_s: how long one apply may take, default 60.
        overlap: apply an epoch while the next is staged; the next is decided only when it is in.
            More epochs a second where applying takes long; off by default.

    Raises:
        SettingsInvalid: a value cannot work.
    """

    interval: str = option("10 seconds", "time between epochs, or available-now")
    delivery: str = option(
        EXACTLY_ONCE,
        "what a failure may do to rows",
        choices=(EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE),
    )
    min_pause_ms: int = option(
        500, "an epoch starts no sooner after the last one ended", at_least=0
    )
    timeout_s: float = option(
        60.0, "an epoch that takes longer ends the driver; 0: none does", at_least=0
    )
    tolerated_failures: int = option(
        0, "failures in a row of an epoch that the driver tries again", at_least=0
    )
    max_concurrent: int = option(1, "epochs at a time; only 1 is possible")
    on_cancel: str = option(
        "retain", "what becomes of the checkpoint of a cancelled job", choices=("retain", "delete")
    )
    state_backend: str = option(
        "rocksdb", "where state is kept between epochs", choices=("rocksdb", "hdfs", "memory")
    )
    inline_bytes: int = option(
        4 << 20, "the largest chunk that travels in the epoch record", at_least=0
    )
    apply_timeout_s: float = option(60.0, "how long one apply may take", above=0)
    overlap: bool = option(default=False, text="apply an epoch while the next is staged")

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        check_choices(self)
        check_bounds(self)
        for wrong, what, do in (
            (
                self.interval != AVAILABLE_NOW and not _INTERVAL.fullmatch(self.interval),
                f"interval {self.interval!r} is no time",
                "write a number and milliseconds, seconds, minutes or hours, or available-now",
            ),
            (
                self.max_concurrent != 1,
                f"max-concurrent is {self.max_concurrent}: an epoch starts where the one before ends",
                "leave it at 1; --overlap=true applies one epoch while the next is staged",
            ),
            (
                self.state_backend == "memory",
                "state-backend is memory: state would be gone with the driver, and counts wrong",
                "use rocksdb, or hdfs for small state",
            ),
        ):
            if wrong:
                raise SettingsInvalid(what, data=NOTHING_STARTED, do=do)
