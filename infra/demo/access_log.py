"""Generates an access log in the combined format, skewed like real ones and reproducible by its seed.

A few addresses account for most hits (Zipf); some lines are minutes late, and some are corrupt in the ways
in which real logs are.
"""

import argparse
import contextlib
import functools
import gzip
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from sluicegate_jobs.access_log import MONTHS

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH: Final = 1000
_IPV6_EVERY: Final = 12

_PATHS: Final = (
    *("/", "/index.html", "/api/v1/items"),
    *("/static/app.js", "/img/logo.png", "/search?q=a+b"),
)
_STATUSES: Final = ("200", "200", "200", "200", "200", "304", "301", "404", "500")
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_6) AppleWebKit/605.1.15 (KHTML, like Gecko) Safari/605.1",
    "curl/8.9.1",
    "Mozilla/5.0 (compatible; Googlebot/2.1)",
)

_Clock = Callable[[datetime], bytes]


@dataclass(frozen=True)
class LogShape:
    """What a log is like."""

    lines: int = 100_000  # how many; broken and late ones are among them
    seed: int = 1  # the same shape gives the same bytes
    start: datetime = _START  # event time of the first line
    per_second: float = 50.0  # lines of one second of event time
    addresses: int = 2000  # how many different ones there are
    zipf: float = 1.1  # the exponent of their popularity; 0 makes all equal
    late: float = 0.01  # share of lines whose event time is behind
    late_by_s: tuple[int, int] = (60, 600)  # by how much, from and to
    broken: float = 0.005  # share of lines that are no lines

    def __post_init__(self) -> None:
        """Refuse what gives no log."""
        shares = (self.late, self.broken, self.late + self.broken)
        if self.lines < 0 or self.addresses < 1 or self.per_second <= 0:
            raise ValueError("lines, addresses and per_second must be positive")
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError("late and broken are shares of the lines: from 0 to 1, together too")
        if self.start.tzinfo is None:
            raise ValueError("start needs a time zone, such as +00:00")


def access_log(shape: LogShape) -> Iterator[bytes]:
    """Yield the lines of a log, without their newlines; none has one inside."""
    # Not for secrets: the point of a seed is that everybody gets the same log.
    chance = random.Random(shape.seed)  # noqa: S311
    addresses = [_address(chance, number) for number in range(1, shape.addresses + 1)]
    weights = [1 / (rank + 1) ** shape.zipf for rank in range(shape.addresses)]
    popular = list(itertools.accumulate(weights))
    clock = functools.lru_cache(maxsize=1)(_time)  # a second is formatted once
    for first in range(0, shape.lines, _BATCH):
        numbers = range(first, min(first + _BATCH, shape.lines))
        chosen = chance.choices(addresses, cum_weights=popular, k=len(numbers))
        for number, address in zip(numbers, chosen, strict=True):
            yield _line(chance, shape, clock, number, address)


def write_log(path: Path, *, lines: int, seed: int, start: datetime = _START) -> None:
    """Write a generated log to a file, gzipped if its name ends so."""
    with path.open("wb") as raw, contextlib.ExitStack() as stack:
        file: BinaryIO = raw
        if path.suffix == ".gz":
            # without the time of day, so that the same seed gives the same file
            packed = gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0)
            file = stack.enter_context(packed)  # type: ignore[assignment] # it is one, untyped
        for line in access_log(LogShape(lines=lines, seed=seed, start=start)):
            file.write(line + b"\n")


def _time(second: datetime) -> bytes:
    return f"{second:%d}/{MONTHS[second.month - 1]}/{second:%Y:%H:%M:%S %z}".encode()


def _address(chance: random.Random, number: int) -> bytes:
    """Return an address of the ranges that are kept for documentation and tests."""
    if number % _IPV6_EVERY == 0:
        return f"2001:db8::{chance.getrandbits(16):x}:{number:x}".encode()
    # 198.18.0.0/15: as many different ones as there are numbers, up to 131,072
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 255}.{number & 255}".encode()


def _line(
    chance: random.Random, shape: LogShape, clock: _Clock, number: int, address: bytes
) -> bytes:
    at = shape.start + timedelta(seconds=number / shape.per_second)
    kind = chance.random()
    if shape.broken <= kind < shape.broken + shape.late:
        at -= timedelta(seconds=chance.randint(*shape.late_by_s))
    line = b'%b - - [%b] "GET %b HTTP/1.1" %b %d "-" "%b"' % (
        address,
        clock(at.replace(microsecond=0)),
        chance.choice(_PATHS).encode(),
        chance.choice(_STATUSES).encode(),
        chance.randrange(100, 50_000),
        chance.choice(_AGENTS).encode(),
    )
    return chance.choice(_BREAKS)(chance, line) if kind < shape.broken else line


def _cut(chance: random.Random, line: bytes) -> bytes:
    """End within the time: the disk was full, or the writer was killed."""
    return line[: chance.randrange(1, line.index(b"]"))]


def _bad_date(chance: random.Random, line: bytes) -> bytes:
    """Give a time that looks like one and does not exist."""
    begin, end = line.index(b"[") + 1, line.index(b"]")
    time = chance.choice(
        (b"31/Feb/2026:10:00:00", b"01/Foo/2026:10:00:00", b"01/Jan/2026:25:61:00")
    )
    return line[:begin] + time + b" +0000" + line[end:]


def _garbage(chance: random.Random, _line: bytes) -> bytes:
    """Give the begin of a TLS handshake at a plain port, which is no UTF-8."""
    noise = chance.randbytes(chance.randrange(8, 64))
    return b"\x16\x03\x01" + noise.replace(b"\n", b"\x0b").replace(b"\r", b"\x0b")


def _empty(_chance: random.Random, _line: bytes) -> bytes:
    return b""


_BREAKS: Final = (_cut, _bad_date, _garbage, _empty)


def main() -> int:
    """Write a log to a file."""
    parser = argparse.ArgumentParser(prog="python -m infra.demo.access_log", description=__doc__)
    parser.add_argument("path", type=Path, help="the file; gzipped if it ends in .gz")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--start", type=datetime.fromisoformat, default=_START, help="event time, with zone"
    )
    given = parser.parse_args()
    try:
        write_log(given.path, lines=given.lines, seed=given.seed, start=given.start)
    except (OSError, ValueError) as error:
        print(
            f"{given.path} was not written whole: {error}. Correct it and run again.",
            file=sys.stderr,
        )
        return 1
    print(f"{given.lines:,} lines in {given.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
