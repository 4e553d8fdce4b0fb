"""The generated log is skewed as requested, and the same for a seed."""

import gzip
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.demo.access_log import LogShape, access_log, write_log
from sluicegate_jobs.access_log import Hit, read_line

START = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
START_MS = int(START.timestamp()) * 1000


def read(shape: LogShape) -> list[Hit | str]:
    return [read_line(line) for line in access_log(shape)]


def test_a_log_has_as_many_lines_as_were_asked_for() -> None:
    assert sum(1 for _ in access_log(LogShape(lines=2345))) == 2345
    assert list(access_log(LogShape(lines=0))) == []


def test_the_same_seed_gives_the_same_bytes() -> None:
    one, same, other = (list(access_log(LogShape(lines=500, seed=s))) for s in (3, 3, 4))
    assert one == same
    assert one != other


def test_event_time_begins_at_the_start_and_goes_at_the_rate() -> None:
    shape = LogShape(lines=1001, start=START, per_second=10, late=0, broken=0)
    times = [said.at_ms for said in read(shape) if isinstance(said, Hit)]
    assert times[0] == START_MS
    assert times[-1] == START_MS + 100_000
    assert times == sorted(times)


def test_few_addresses_make_most_hits() -> None:
    said = read(LogShape(lines=20_000, addresses=1000))
    hits = Counter(one.ip for one in said if isinstance(one, Hit))
    assert sum(count for _, count in hits.most_common(20)) > 0.4 * hits.total()
    assert any(":" in ip for ip in hits), "some are IPv6"


def test_late_lines_are_minutes_behind_and_as_many_as_asked_for() -> None:
    shape = LogShape(lines=20_000, start=START, per_second=20, late=0.01, broken=0)
    behind = [
        START_MS + number * 50 - said.at_ms
        for number, said in enumerate(read(shape))
        if isinstance(said, Hit) and START_MS + number * 50 - said.at_ms > 1000
    ]
    assert 120 < len(behind) < 280
    assert min(behind) >= 60_000
    assert max(behind) < 601_000


def test_broken_lines_are_broken_in_several_ways_and_as_many_as_asked_for() -> None:
    shape = LogShape(lines=20_000, late=0, broken=0.01)
    broken = [line for line in access_log(shape) if read_line(line) == "unparsed"]
    assert 120 < len(broken) < 280
    assert b"" in broken
    assert any(line.startswith(b"\x16\x03\x01") for line in broken)
    assert any(b"31/Feb" in line for line in broken)
    assert any(line and b"]" not in line and line[:1].isdigit() for line in broken)


def test_no_line_holds_a_line_break() -> None:
    lines = list(access_log(LogShape(lines=5000, broken=0.5)))
    assert not any(b"\n" in line or b"\r" in line for line in lines)


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_a_written_log_reads_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_log(path, lines=300, seed=7)
    content = path.read_bytes()
    lines = (gzip.decompress(content) if name.endswith("gz") else content).split(b"\n")
    assert lines == [*access_log(LogShape(lines=300, seed=7)), b""]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lines": -1},
        {"late": 1.5},
        {"late": 0.6, "broken": 0.6},
        {"per_second": 0.0},
        {"start": datetime(2026, 1, 1)},  # noqa: DTZ001 - what is refused
    ],
)
def test_a_shape_that_gives_no_log_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|shares|time zone"):
        LogShape(**wrong)  # type: ignore[arg-type]
