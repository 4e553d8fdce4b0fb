"""Records that are sent at a steady pace: their content, and how a process sends them.

A record has its kind, its number and the time at which it was due, from which a reader computes latency.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.bench.plan import LATENCY_PARTITIONS, LATENCY_VALUE_BYTES, Pace
from tests.bench.produce import Sender

MEASURED: Final = b"m"
WARM_UP: Final = b"w"
"""The kinds of records; those of the second are also sent after the measured ones."""

_BURST_S: Final = 0.01
_VALUE: Final = b"%b %09d %020d %b"
_HEAD_BYTES: Final = len(_VALUE % (MEASURED, 0, 0, b""))
_NUMBER: Final = slice(2, 11)
_DUE: Final = slice(13, 32)
"""Without its first digit, which 64 bits have no room for."""
_PADDING_BYTES: Final = LATENCY_VALUE_BYTES - _HEAD_BYTES
_RANDOM: Final = random.Random(1)
_PADDINGS: Final = [
    _RANDOM.randbytes(_PADDING_BYTES).hex().encode()[:_PADDING_BYTES] for _ in range(10_000)
]
"""They compress to about half, as real records do."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Arrived:
    """Measured records that a reader has seen.

    Args:
        numbers: of the records.
        due_ns: when each was due, in nanoseconds since 1970.
        seen_ns: when each was seen, or all of them.
    """

    numbers: Integers
    due_ns: Integers
    seen_ns: Integers | int


@dataclass(frozen=True)
class Sent:
    """How a process sent its records.

    Args:
        took_s: duration in seconds.
        behind_ms: the largest age of a record that the broker had not acknowledged.
        cores: CPU seconds of this process in a second.
    """

    took_s: float
    behind_ms: float
    cores: float


def value(kind: bytes, number: int, due_ns: int) -> bytes:
    """Return the value of a record."""
    return _VALUE % (kind, number, due_ns, _PADDINGS[number % len(_PADDINGS)])


def arrived(values: Sequence[bytes], seen_ns: int) -> Arrived:
    """Return the measured records of some values."""
    heads = np.array(values, dtype=f"S{_HEAD_BYTES}").view(np.uint8).reshape(-1, _HEAD_BYTES)
    heads = heads[heads[:, 0] == ord(MEASURED)]
    return Arrived(_integers(heads[:, _NUMBER]), _integers(heads[:, _DUE]), seen_ns)


def _integers(digits: NDArray[np.uint8]) -> Integers:
    """Return a number for each row of decimal digits."""
    powers = 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    result: Integers = (digits.astype(np.int64) - ord("0")) @ powers
    return result


def send(bootstrap: str, topic: str, pace: Pace, kind: bytes, until: Event | None = None) -> Sent:
    """Send records at a steady pace, each with its number and the time at which it was due.

    A record that is sent late, because the broker or this process is slow, is still due at its time:
    otherwise the slowest moments would count least (coordinated omission). What was due in 10 ms is sent at
    once, because a call for each record would need a large part of a core at a high rate.

    Args:
        bootstrap: Kafka's bootstrap servers.
        topic: destination topic.
        pace: rate and duration.
        kind: MEASURED or WARM_UP.
        until: send until this is set; None: send `pace.records`.
    """
    sent, behind_s = 0, 0.0
    with Sender(bootstrap, topic, LATENCY_PARTITIONS) as sender:
        start_s, start_ns, cpu_s = time.monotonic(), time.time_ns(), time.process_time()
        while not until.is_set() if until else sent < pace.records:
            elapsed_s = time.monotonic() - start_s
            behind_s = max(behind_s, elapsed_s - (sent - sender.pending) / pace.records_s)
            due = int(elapsed_s * pace.records_s)
            due = due if until else min(due, pace.records)
            for first in range(sent, min(sent + LATENCY_PARTITIONS, due)):
                numbers = range(first, due, LATENCY_PARTITIONS)
                values = [value(kind, n, start_ns + pace.due_after_ns(n)) for n in numbers]
                sender.send_all(values, first % LATENCY_PARTITIONS)
            sent = max(sent, due)
            time.sleep(_BURST_S)
    took_s = time.monotonic() - start_s
    return Sent(took_s, behind_s * 1000, (time.process_time() - cpu_s) / took_s)
