"""Verification of ip_count finds every kind of deliberate damage."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Record
from sluicegate_jobs.access_log import Hit, interval_ms, read_line
from sluicegate_jobs.ip_count.expected import Rules, TableRow, compare
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.limits import SinkLimits, TopicLimits
from sluicegate_jobs.verification.watermarks import EpochPlan, Watermarks
from tests.unit.jobs.table_limits import table_limits, varchar

TOPIC = "lines"
START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=5)


def line(second: int, ip: str = "10.0.0.1") -> bytes:
    time = START + timedelta(seconds=second)
    return f'{ip} - - [{time:%d/%b/%Y:%H:%M:%S +0000}] "GET / HTTP/1.1" 200 1 "-" "-"'.encode()


def letter(offset: int, reason: str, value: bytes | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "reason": reason,
        "source": {"topic": TOPIC, "partition": 0, "offset": offset, "timestamp": "-"},
    }
    if value is not None:
        fields |= {"payload": "-", "payload_sha256": hashlib.sha256(value).hexdigest()}
    return fields


def record(window: int, ip: str, hits: int) -> dict[str, Any]:
    start = START + timedelta(seconds=window)
    times = {"window_start": start, "window_end": start + WINDOW}
    texts = {name: f"{time:%Y-%m-%dT%H:%M:%S}.000Z" for name, time in times.items()}
    return {**texts, "ip": ip, "hits": hits}


def row(window: int, ip: str, hits: int) -> TableRow:
    start = START.replace(tzinfo=None) + timedelta(seconds=window)
    return TableRow(start, ip, start + WINDOW, hits)


@dataclass
class World:
    """A source with the expected results; each test damages one of them."""

    source: list[bytes | None] = field(
        default_factory=lambda: [
            line(0),
            line(1),
            line(2, "10.0.0.2"),
            b"garbage",
            line(60),
            line(3),  # late: its window was closed by line 4
            None,
            line(61, "2001:db8::1"),
        ]
    )
    kafka: list[dict[str, Any]] = field(
        default_factory=lambda: [
            record(0, "10.0.0.1", 1),
            record(0, "10.0.0.1", 2),
            record(0, "10.0.0.2", 1),
            record(60, "10.0.0.1", 1),
            record(60, "2001:db8::1", 1),
        ]
    )
    mysql: list[TableRow] = field(
        default_factory=lambda: [
            row(0, "10.0.0.1", 2),
            row(0, "10.0.0.2", 1),
            row(60, "10.0.0.1", 1),
            row(60, "2001:db8::1", 1),
        ]
    )
    letters: list[dict[str, Any]] = field(
        default_factory=lambda: [
            letter(3, "unparsed: not a line", b"garbage"),
            letter(5, "late: the window was closed", line(3)),
            letter(6, "empty: no value", None),
        ]
    )
    covered: int = 8
    watermark_s: int = 55
    """The newest line of epoch 0 is at 60 s. Epoch 1 has no lines; epoch 2 drops what is older than this."""
    ip_characters: int = 45

    def verify(self) -> Verification:
        source = [Record(0, offset, None, value) for offset, value in enumerate(self.source)]
        watermark_ms = int((START.timestamp() + self.watermark_s) * 1000)
        plans = [
            EpochPlan(0, {0: min(5, self.covered)}, 0),
            EpochPlan(1, {0: min(5, self.covered)}, watermark_ms),
            EpochPlan(2, {0: self.covered}, watermark_ms),
        ]
        limits = SinkLimits(
            {"kafka.counts": TopicLimits(1_000_000)},
            {"mysql.ip_count": table_limits(varchar("ip", self.ip_characters))},
        )
        return compare(
            SourceRecords(TOPIC, source, {0: self.covered}, Watermarks(plans)),
            [(count["ip"].encode(), json.dumps(count).encode()) for count in self.kafka],
            self.mysql,
            [json.dumps(fields).encode() for fields in self.letters],
            Rules(5000, 5000),
            limits,
        )


def kinds(outcome: Verification) -> dict[str, int]:
    return {finding.kind: finding.count for finding in outcome.findings}


def test_a_correct_result_passes_and_reports_what_was_compared() -> None:
    outcome = World().verify()
    assert outcome.exact, outcome.findings
    assert outcome.checked == {
        "dead letters": 3,
        "source lines": 8,
        "source lines not read yet": 0,
        "late lines": 1,
        "records in Kafka": 5,
        "rows in MySQL": 4,
        "expected counts": 4,
        "counts that a sink refused": 0,
    }


def test_lines_that_no_epoch_has_read_are_not_expected() -> None:
    world = World()
    world.source += [line(70), b"broken too"]
    outcome = world.verify()
    assert outcome.exact
    assert outcome.checked["source lines not read yet"] == 2


def _lose_kafka_key(world: World) -> None:
    del world.kafka[2]


def _lose_kafka_update(world: World) -> None:
    del world.kafka[1]


def _lose_mysql_row(world: World) -> None:
    del world.mysql[0]


def _lose_line(world: World) -> None:
    world.mysql[0] = row(0, "10.0.0.1", 1)


def _lose_letter_of_garbage(world: World) -> None:
    del world.letters[0]


def _lose_letter_of_late_line(world: World) -> None:
    del world.letters[1]


def _double_record(world: World) -> None:
    world.kafka.append(world.kafka[-1])


def _replay_updates(world: World) -> None:
    world.kafka.insert(2, world.kafka[0])


def _double_letter(world: World) -> None:
    world.letters.append(world.letters[0])


def _count_too_many(world: World) -> None:
    world.mysql[1] = row(0, "10.0.0.2", 7)


def _shrink(world: World) -> None:
    world.kafka.insert(2, record(0, "10.0.0.1", 0))


def _invent_address(world: World) -> None:
    world.mysql.append(row(0, "10.9.9.9", 1))


def _wrong_end(world: World) -> None:
    world.mysql[1] = world.mysql[1]._replace(window_end=world.mysql[1].window_start)


def _wrong_record(world: World) -> None:
    world.kafka.append({"ip": "10.0.0.1"})


def _late_letter_for_garbage(world: World) -> None:
    world.letters[0]["reason"] = "late: it was not"


def _unparsed_letter_for_valid_line(world: World) -> None:
    world.letters.append(letter(0, "unparsed: it is not", line(0)))


def _late_letter_within_lateness(world: World) -> None:
    world.letters.append(letter(4, "late: nothing is newer", line(60)))


def _other_payload(world: World) -> None:
    world.letters[0]["payload_sha256"] = "0" * 64


def _letter_about_nothing(world: World) -> None:
    world.letters.append(letter(99, "unparsed: where is it", b"?"))


def _letter_without_source(world: World) -> None:
    world.letters.append({"reason": "unparsed: from nowhere"})


def _letter_of_undecided_line(world: World) -> None:
    world.source.append(b"broken too")
    world.letters.append(letter(8, "unparsed: not a line", b"broken too"))


def _row_of_undecided_line(world: World) -> None:
    world.source.append(line(70))
    world.kafka.append(record(70, "10.0.0.1", 1))


def _update_of_undecided_line(world: World) -> None:
    world.source.append(line(62))
    world.mysql[2] = row(60, "10.0.0.1", 2)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_lose_kafka_key, {"lost": 1}),
        (_lose_kafka_update, {"lost": 1}),
        (_lose_mysql_row, {"lost": 1}),
        (_lose_line, {"lost": 1}),
        (_lose_letter_of_garbage, {"lost": 1}),
        (_lose_letter_of_late_line, {"lost": 1}),
        (_double_record, {"duplicated": 1}),
        (_replay_updates, {"duplicated": 1}),
        (_double_letter, {"duplicated": 1}),
        (_count_too_many, {"wrong": 1}),
        (_shrink, {"wrong": 1}),
        (_invent_address, {"wrong": 1}),
        (_wrong_end, {"wrong": 1}),
        (_wrong_record, {"wrong": 1}),
        (_late_letter_for_garbage, {"wrong": 1}),
        (_unparsed_letter_for_valid_line, {"wrong": 1}),
        (_late_letter_within_lateness, {"wrong": 1}),
        (_other_payload, {"wrong": 1}),
        (_letter_about_nothing, {"wrong": 1}),
        (_letter_without_source, {"wrong": 1}),
        (_letter_of_undecided_line, {"undecided-but-visible": 1}),
        (_row_of_undecided_line, {"undecided-but-visible": 1}),
        (_update_of_undecided_line, {"undecided-but-visible": 1}),
    ],
)
def test_each_kind_of_damage_is_found(
    damage: Callable[[World], None], expected: dict[str, int]
) -> None:
    world = World()
    damage(world)
    outcome = world.verify()
    assert kinds(outcome) == expected
    assert all(finding.examples for finding in outcome.findings)


def test_a_count_under_another_key_is_wrong() -> None:
    value = json.dumps(record(0, "10.0.0.1", 1)).encode()
    world = World(source=[line(0)], mysql=[row(0, "10.0.0.1", 1)], covered=1)
    outcome = compare(
        SourceRecords(TOPIC, [Record(0, 0, None, world.source[0])], {0: 1}),
        [(b"10.0.0.2", value)],
        world.mysql,
        [],
        Rules(5000, 5000),
    )
    assert kinds(outcome) == {"wrong": 1}


def test_a_dead_letter_that_is_not_json_is_wrong() -> None:
    outcome = compare(SourceRecords(TOPIC, [], {}), [], [], [b"\xff{", None], Rules(5000, 5000))
    assert kinds(outcome) == {"wrong": 2}


def bury(world: World, offset: int) -> None:
    """Make a dead letter of a line that was in time, and take its hit out of both sinks."""
    assert world.source[offset] == line(1)
    world.letters.append(letter(offset, "late: the window was closed", line(1)))
    del world.kafka[1]
    world.mysql[0] = row(0, "10.0.0.1", 1)


def test_a_hit_that_is_buried_as_late_is_found_though_newer_ones_exist() -> None:
    """It is older than the newest hit by more than the lateness, but its epoch did not know that yet."""
    world = World()
    bury(world, 1)
    assert kinds(world.verify()) == {"lost": 2, "wrong": 1}


def test_a_watermark_that_jumped_is_found() -> None:
    """It buries a hit that was in time; offsets/N has the watermark, but no event that moved it there."""
    world = World(watermark_s=70)
    world.letters.append(letter(7, "late: the window was closed", world.source[7]))
    del world.kafka[4], world.mysql[3]
    outcome = world.verify()
    assert kinds(outcome) == {"wrong": 2}  # of epochs 1 and 2
    assert "permit" in outcome.findings[0].examples[0]


def test_a_late_line_that_was_counted_is_found() -> None:
    world = World()
    del world.letters[1]
    world.kafka.insert(2, record(0, "10.0.0.1", 3))
    world.mysql[0] = row(0, "10.0.0.1", 3)
    assert kinds(world.verify()) == {"lost": 1, "wrong": 2}


def test_a_row_that_is_buried_as_refused_is_found() -> None:
    world = World()
    for index, count in enumerate(world.kafka):
        payload = json.dumps(
            [{"key": count["ip"], "value": json.dumps(count)}, {"ip": count["ip"]}]
        )
        reason = f"refused by {('mysql.ip_count', 'kafka.counts', 'nothing')[index % 3]}: so"
        world.letters.append({"reason": reason, "payload": payload})
    world.kafka, world.mysql = [], []
    assert kinds(world.verify()) == {"wrong": 5}


def refuse(world: World, hits: int) -> None:
    """Make a dead letter of the count whose address has eleven characters, for which it is too long."""
    world.ip_characters = 8
    count = record(60, "2001:db8::1", hits)
    payload = json.dumps([{"key": count["ip"], "value": json.dumps(count)}, {"ip": count["ip"]}])
    world.letters.append({"reason": "refused by mysql.ip_count: too long", "payload": payload})


def test_a_row_that_a_sink_refused_is_not_lost() -> None:
    world = World()
    refuse(world, 1)
    del world.kafka[4], world.mysql[3]
    outcome = world.verify()
    assert outcome.exact, outcome.findings
    assert outcome.checked["counts that a sink refused"] == 1


def test_a_refused_row_does_not_excuse_another() -> None:
    world = World()
    refuse(world, 9)
    del world.mysql[3]
    assert kinds(world.verify()) == {"lost": 1, "wrong": 1}  # no lines have a count of 9


def test_a_dead_letter_that_was_refused_still_counts_for_its_line() -> None:
    world = World()
    inner = json.dumps([{"value": json.dumps(world.letters[0])}])
    world.letters[0] = {"reason": "refused by kafka.letters: too large", "payload": inner}
    assert world.verify().exact


def test_the_number_of_examples_is_limited() -> None:
    world = World(kafka=[], source=[line(s, f"10.0.0.{s}") for s in range(60)], letters=[])
    world.covered = 60
    lost = next(f for f in world.verify().findings if f.kind == "lost")
    assert lost.count > 60
    assert len(lost.examples) == 5


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x16\x03\x01\x02\x00",
        b"10.0.0.1 - - ",
        line(0)[:40],
        line(0).replace(b"01/Jan", b"31/Feb"),
        line(0).replace(b"Jan", b"Foo"),
        line(0).replace(b":00:00:00", b":24:00:00"),
        line(0).replace(b":00:00:00", b":00:60:00"),
        line(0).replace(b":00:00:00", b":00:00:60"),
        line(0).replace(b"+0000", b"+1500"),
        line(0).replace(b"10.0.0.1", b"host.example"),
    ],
)
def test_an_invalid_line_is_unparsed(value: bytes) -> None:
    assert read_line(value) == "unparsed"


def test_a_record_without_a_value_is_empty() -> None:
    assert read_line(None) == "empty"


@pytest.mark.parametrize(("zone", "hours"), [(b"+0200", -2), (b"-0800", 8), (b"-0000", 0)])
def test_a_time_is_converted_from_its_zone(zone: bytes, hours: int) -> None:
    time = START + timedelta(hours=hours)
    expected = Hit(int(time.timestamp()) * 1000, "10.0.0.1")
    assert read_line(line(0).replace(b"+0000", zone)) == expected


def test_an_interval_may_have_any_fixed_unit() -> None:
    assert [interval_ms(t) for t in ("5 seconds", "1 minute", "2 Hours")] == [
        5000,
        60_000,
        7_200_000,
    ]
    with pytest.raises(ValueError, match="is not an interval"):
        interval_ms("1 month")
