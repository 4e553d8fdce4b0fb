"""How this sink's librdkafka clients are named, configured and given time.

Not here: what they do. Called by `preflight`, `committed` and `producers`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate.sinks.kafka.access import security, servers_of

MARKERS_TOPIC = "sluicegate.markers"
"""Group offsets on this topic are the markers; it never holds a record. On the sink's own topic a
part beyond the partition count would fail after the decision, and re-creating it erase markers."""

MARKERS_PARTITIONS = 64

LOG = logging.getLogger("sluicegate.sinks.kafka")
RDKAFKA_LOG = logging.getLogger("sluicegate.sinks.kafka.librdkafka")

OURS = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "compression.type",
        "compression.codec",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "metadata.broker.list",
        "on_delivery",
        "request.required.acks",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""Settings that exactly-once stands on, or that have a parameter of their own."""

Settings = dict[str, object]


@dataclass(frozen=True)
class Connection:
    """Where the brokers are and how to get in. `config` may hold a password: it has no repr."""

    bootstrap: str
    config: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of(
        cls, servers: str = "", config: Mapping[str, object] | None = None, *, topic: str = ""
    ) -> Connection:
        """Return how the environment says that Kafka is reached; see `access`.

        Args:
            servers: brokers; empty: the environment's.
            config: more settings; they win.
            topic: that is looked for, to be named in an error.

        Raises:
            SettingsInvalid: no brokers are known, or what lets us in cannot be read.
        """
        return cls(servers_of(servers, topic), {**security(), **(config or {})})

    def settings(self, **more: object) -> Settings:
        """Return the settings that all clients share, with `more` ('_' read as '.')."""
        return {
            # The defaults of 100 ms each make init_transactions take 60 ms instead of 18.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1000,
            "retry.backoff.ms": 20,
            "log.connection.close": False,
            **self.config,
            "bootstrap.servers": self.bootstrap,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


def transactional_id(lineage: str, sink: str, part: int) -> str:
    """Return the id by which a writer of a part fences the one before it."""
    return f"sluicegate.{lineage}.{sink}.{part}"


def group_id(lineage: str, sink: str) -> str:
    """Return the consumer group whose offsets are the markers of a sink."""
    return f"sluicegate.{lineage}.{sink}"


class Deadline:
    """The end of the time that an apply, or a preflight, may take."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def passed(self) -> bool:
        """Say whether the time is up."""
        return time.monotonic() >= self._end

    def left(self, at_most: float = float("inf")) -> float:
        """Return the seconds left; never 0 or less, which librdkafka takes for 'forever' or 'now'."""
        return max(0.05, min(at_most, self._end - time.monotonic()))
