"""The records of the sources that are not values or access-log lines, and what a sink then holds. Pure.

The same seed gives the same records. Like the access log, words, users and keys are heavy-tailed (Zipf).
"""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final

WORDS_PER_LINE: Final = 8
ORDERS_S: Final = 20_000
"""Orders per second of event time."""
ORDER_WINDOW_S: Final = 5

_DISTINCT: Final = 50_000
_BEGIN: Final = datetime(2026, 5, 17, 10, 5, tzinfo=UTC)
_STRIDE: Final = 1_000_003
"""A prime: number * _STRIDE % keys visits every key once before one repeats."""
_CHUNK: Final = 1000


def checksum(*fields: object) -> int:
    """Return the CRC-32 of a row, as `CRC32(CONCAT_WS('|', ...))` of MySQL does."""
    return zlib.crc32("|".join(map(str, fields)).encode())


def word_lines(count: int, seed: int = 1) -> Iterator[tuple[list[str], bytes]]:
    """Yield pairs: the words, and the line."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = [
        "".join(rng.choices(letters, k=rng.randrange(2, 9))) + letters[number % 26]
        for number in range(_DISTINCT)
    ]
    weights = _zipf(_DISTINCT)
    for begin in range(0, count, _CHUNK):
        size = min(_CHUNK, count - begin)
        drawn = rng.choices(vocabulary, cum_weights=weights, k=size * WORDS_PER_LINE)
        for start in range(0, len(drawn), WORDS_PER_LINE):
            words = drawn[start : start + WORDS_PER_LINE]
            yield words, " ".join(words).encode()


def orders(count: int, seed: int = 1) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield the start of the window, the user, the amount in cents, and the order as JSON.

    Times ascend, so no contender sees a late order.
    """
    rng = random.Random(seed)
    users = [f"user-{number:05d}" for number in range(_DISTINCT)]
    weights = _zipf(_DISTINCT)
    for begin in range(0, count, ORDERS_S):
        second = begin // ORDERS_S
        at = _BEGIN + timedelta(seconds=second)
        window = at - timedelta(seconds=second % ORDER_WINDOW_S)
        size = min(ORDERS_S, count - begin)
        for place, user in enumerate(rng.choices(users, cum_weights=weights, k=size)):
            cents = rng.randrange(100, 100_000)
            order = {
                "id": f"o{begin + place}",
                "user": user,
                "time": f"{at:%Y-%m-%dT%H:%M:%S}.{place * 1000 // ORDERS_S:03d}Z",
                "amount": cents / 100,
            }
            yield f"{window:%Y-%m-%d %H:%M:%S}", user, cents, json.dumps(order).encode()


def order_rows(rows: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return the window and user of each result row -> orders, largest and smallest amount in cents."""
    totals: dict[tuple[str, str], tuple[int, int, int]] = {}
    for window, user, cents in rows:
        number, largest, smallest = totals.get((window, user), (0, cents, cents))
        totals[window, user] = number + 1, max(largest, cents), min(smallest, cents)
    return totals


def amount(cents: int) -> str:
    """Return cents as DECIMAL(12,2) is written."""
    return f"{cents // 100}.{cents % 100:02d}"


def keys(count: int, distinct: int, seed: int = 1) -> Iterator[str]:
    """Yield keys: each once, in an order that scatters them, and then any of them."""
    rng = random.Random(seed)
    for number in range(count):
        key = number * _STRIDE % distinct if number < distinct else rng.randrange(distinct)
        yield f"key-{key:08d}"


def upserts(count: int) -> Iterator[tuple[int, int, int]]:
    """Yield rows: id, amount, quantity. Each id is in the first half of the rows once, and in the second.

    So the rows of an epoch have different ids, and their order within it does not matter.
    """
    distinct = -(-count // 2)
    return ((n * _STRIDE % distinct, n * 7 % 100_003, n % 9 + 1) for n in range(count))


def upserted(rows: Iterable[tuple[int, int, int]], *, add: bool) -> dict[int, tuple[int, int]]:
    """Return id -> amount and quantity after all rows: those of the last one, or the sums."""
    table: dict[int, tuple[int, int]] = {}
    for row, amount_, quantity in rows:
        before = table.get(row, (0, 0)) if add else (0, 0)
        table[row] = before[0] + amount_, before[1] + quantity
    return table


def spread_times(appended: Counter[int], per_record: int) -> list[int]:
    """Return when each source record was counted.

    Args:
        appended: time in milliseconds -> by how much the counts grew.
        per_record: by how much one record lets them grow.
    """
    times: list[int] = []
    rest = 0
    for moment_ms in sorted(appended):
        records, rest = divmod(rest + appended[moment_ms], per_record)
        times += [moment_ms] * records
    return times


def _zipf(count: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(1, count + 1)))
