"""A read_committed reader in its own process: `python -m tests.bench.reader FOLDER`.

Compares the time at which a record is seen with the time in it at which it was due, and counts missing
and repeated records. Exits when all measured records were seen, or when no more arrive.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.bench.figures import percentile

MEASURED, WARM_UP = b"m", b"w"
READY = "reader-ready"
ORDER = "reader.json"
SENT = "sent"
"""Created when all records are sent; only after that does silence mean that none will come."""
SEEN = "seen.json"

_SILENCE_S = 30.0
_AFTER_S = 2.0
"""Seconds to wait for repeated records after all were seen."""


@dataclass(frozen=True)
class ReaderOrder:
    """Instructions for the reader: a file in its folder."""

    bootstrap: str
    topic: str
    records: int

    def write(self, folder: Path) -> None:
        """Write the order to a folder."""
        (folder / ORDER).write_text(json.dumps(asdict(self)), encoding="utf-8")


def main() -> int:
    """Read to the end, then write the result."""
    folder = Path(sys.argv[1])
    order = ReaderOrder(**json.loads((folder / ORDER).read_text(encoding="utf-8")))
    consumer = Consumer(
        {
            "bootstrap.servers": order.bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(order.topic, timeout=30).topics[order.topic].partitions
    consumer.assign([TopicPartition(order.topic, number, 0) for number in partitions])
    (folder / READY).touch()
    try:
        seen = _read(consumer, order.records, folder / SENT)
    finally:
        consumer.close()
    partial_file = folder / f"{SEEN}.part"
    partial_file.write_text(json.dumps(_summary(seen, order.records)), encoding="utf-8")
    partial_file.rename(folder / SEEN)
    return 0


def _read(consumer: Consumer, records: int, sent: Path) -> list[tuple[int, float]]:
    """Return number and latency in milliseconds of each measured record, repeats included."""
    seen: list[tuple[int, float]] = []
    numbers: set[int] = set()
    last_message_s = time.monotonic()
    end = float("inf")
    while time.monotonic() < min(last_message_s + _SILENCE_S, end):
        messages = consumer.consume(10_000, 0.05)
        now_ns = time.time_ns()
        if end == float("inf") and not sent.exists():
            last_message_s = time.monotonic()
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            last_message_s = time.monotonic()
            kind, number, due_ns, _ = (message.value() or b"").split(b" ", 3)
            if kind == MEASURED:
                seen.append((int(number), (now_ns - int(due_ns)) / 1e6))
                numbers.add(int(number))
        if len(numbers) == records:
            end = min(end, time.monotonic() + _AFTER_S)
    return seen


def _summary(seen: list[tuple[int, float]], records: int) -> dict[str, object]:
    latencies_ms = [ms for _, ms in seen]
    numbers = {number for number, _ in seen}
    return {
        "missing": records - len(numbers),
        "repeated": len(seen) - len(numbers),
        "p50_ms": percentile(latencies_ms, 50) if latencies_ms else None,
        "p99_ms": percentile(latencies_ms, 99) if latencies_ms else None,
        "max_ms": max(latencies_ms, default=None),
    }


if __name__ == "__main__":
    sys.exit(main())
