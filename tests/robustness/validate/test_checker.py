"""The checker finds what is lost, repeated, altered or invented, and imports nothing that it checks."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.validate import checker
from tests.robustness.validate.checker.history import (
    ALTERED,
    INVENTED,
    LOST,
    REPEATED,
    History,
    Limits,
    Record,
    Report,
)
from tests.robustness.validate.checker.jobs import (
    Lateness,
    check_ip_count,
    check_joined_payments,
    check_orders,
    check_two_sinks,
    check_word_count,
)
from tests.robustness.validate.checker.kafka_to_kafka import check_kafka_to_kafka
from tests.robustness.validate.checker.orders_batch import check_orders_batch
from tests.robustness.validate.damages import (
    Damage,
    again,
    also,
    changed,
    instead,
    letter,
    records,
    refused,
    without,
)

FILES = sorted(Path(checker.__path__[0]).glob("*.py"))
CLIENTS = {"confluent_kafka", "pymysql"}
T = datetime(2026, 1, 7, 12)  # noqa: DTZ001 - as MySQL returns it


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_checker_imports_only_clients_and_the_standard_library(file: Path) -> None:
    imports: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            imports.add(node.module or "")
    others = {name for name in imports if not name.startswith(checker.__name__)}
    assert {name.split(".")[0] for name in others} <= sys.stdlib_module_names | CLIENTS


CASES: dict[
    str, tuple[Callable[[History], Report], History, dict[str, tuple[Damage, set[str]]]]
] = {}


def case(job: str, check: Callable[[History], Report], history: History, **damages: Any) -> None:  # noqa: ANN401 - pairs
    CASES[job] = check, history, damages


# --- ip_count -------------------------------------------------------------------------------


def line(second: int, ip: str = "10.0.0.1") -> bytes:
    time = T + timedelta(seconds=second)
    return f'{ip} - - [{time:%d/%b/%Y:%H:%M:%S +0000}] "GET / HTTP/1.1" 200 1 "-" "-"'.encode()


def count(second: int, ip: str, hits: int) -> Record:
    start = T + timedelta(seconds=second)
    row = {"window_start": f"{start:%Y-%m-%dT%H:%M:%S}.000Z", "ip": ip, "hits": hits}
    return Record(0, 0, ip.encode(), json.dumps(row).encode())


def window(second: int, ip: str, hits: int) -> tuple[object, ...]:
    start = T + timedelta(seconds=second)
    return start, ip, start + timedelta(seconds=5), hits


LINES = History(
    "s",
    records(line(0), line(1), b"broken", None, line(60), line(2), line(3, "10.0.0.2")),
    (count(0, "10.0.0.1", 1), count(0, "10.0.0.1", 2), count(60, "10.0.0.1", 1)),
    (window(0, "10.0.0.1", 2), window(60, "10.0.0.1", 1)),
)
LINES = replace(
    LINES,
    letters=(
        letter("unparsed: so", LINES, 2),
        letter("empty: so", LINES, 3),
        letter("late: so", LINES, 5),
        letter("late: so", LINES, 6),
    ),
)


OTHER_LINES = replace(LINES, source=records(b"", b"", b"other"))


def buried_hit(h: History) -> History:
    """Line 1 was in time: the newest event before it is a second older."""
    h = replace(h, letters=(*h.letters, letter("late: so", h, 1)))
    h = replace(h, topic=(h.topic[0], h.topic[2]))
    return instead("table", 0, window(0, "10.0.0.1", 1))(h)


def buried_count(h: History) -> History:
    part = {"ip": "10.0.0.1", "window_start": "2026-01-07T12:01:00Z", "hits": 1}
    h = replace(h, letters=(*h.letters, refused(part)), topic=h.topic[:2])
    return without("table", 1)(h)


case(
    "ip_count",
    lambda h: check_ip_count(h, Lateness(5000, 5000, 0), Limits({"ip": 45})),
    LINES,
    a_lost_key=(without("topic", 2), {LOST}),
    a_lost_update=(without("topic", 1), {LOST}),
    a_lost_row=(without("table", 0), {LOST}),
    a_repeated_update=(again("topic", 2), {REPEATED}),
    a_count_that_falls=(also("topic", count(0, "10.0.0.1", 1)), {ALTERED}),
    a_hit_twice=(instead("table", 0, window(0, "10.0.0.1", 3)), {REPEATED}),
    an_invented_address=(also("table", window(0, "10.9.9.9", 1)), {INVENTED}),
    another_key=(instead("topic", 2, count(60, "10.0.0.1", 1)._replace(key=b"x")), {ALTERED}),
    another_end=(instead("table", 1, (*window(60, "10.0.0.1", 1)[:2], T, 1)), {ALTERED}),
    no_row=(also("topic", Record(0, 0, b"", b"?")), {INVENTED}),
    a_lost_letter=(without("letters", 0), {LOST}),
    a_repeated_letter=(again("letters", 0), {REPEATED}),
    another_reason=(instead("letters", 0, letter("late: so", LINES, 2)), {ALTERED}),
    another_payload=(instead("letters", 0, letter("unparsed: so", OTHER_LINES, 2)), {ALTERED}),
    a_letter_about_nothing=(
        also("letters", letter("unparsed: so", LINES, 2).replace(b'"offset": 2', b'"offset": 99')),
        {INVENTED},
    ),
    no_letter=(also("letters", b"?"), {INVENTED}),
    a_buried_hit=(buried_hit, {LOST}),
    a_buried_count=(buried_count, {LOST}),
)

# --- orders_stream --------------------------------------------------------------------------


def order(second: int, amount: str, user: str = "ann") -> bytes:
    time = T + timedelta(seconds=second)
    return f'{{"id": "o", "user": "{user}", "time": "{time:%Y-%m-%dT%H:%M:%SZ}", "amount": {amount}}}'.encode()


def total(orders: int, largest: str, smallest: str) -> Record:
    value = (
        '{"window_start": "2026-01-07T12:00:00.000Z", "user": "ann", "orders": %d,'
        ' "largest": %s, "smallest": %s}'
    )
    return Record(0, 0, b"ann", (value % (orders, largest, smallest)).encode())


ORDERS = History(
    "s", records(order(0, "1"), order(1, "2.50"), order(2, "0.105")), (total(2, "2.50", "1.00"),)
)
ORDERS = replace(
    ORDERS,
    table=((T, "ann", 2, Decimal("2.50"), Decimal("1.00")),),
    letters=(letter("unparsed: so", ORDERS, 2),),
)

case(
    "orders_stream",
    lambda h: check_orders(h, Lateness(5000, 2000, 0)),
    ORDERS,
    a_lost_window=(without("topic", 0), {LOST}),
    a_repeated_window=(again("topic", 0), {REPEATED}),
    two_epochs_again=(
        lambda h: changed(h, "topic", 2 * [total(1, "1.00", "1.00"), total(2, "2.50", "1.00")]),
        {REPEATED},
    ),
    an_order_lost=(instead("topic", 0, total(1, "2.50", "1.00")), {LOST}),
    an_order_twice=(instead("table", 0, (T, "ann", 3, Decimal(3), Decimal(1))), {REPEATED}),
    another_maximum=(instead("topic", 0, total(2, "9", "1")), {ALTERED}),
    an_invented_user=(also("table", (T, "bob", 1, Decimal(1), Decimal(1))), {INVENTED}),
    a_buried_order=(also("letters", letter("late: so", ORDERS, 1)), {LOST, REPEATED}),
)

# --- word_count -----------------------------------------------------------------------------

LONG, LONGER = "x" * 300, "y" * 400
WORDS = History(
    "s", records(b"a b a", b"\xff", f"{LONG} {LONGER}".encode()), table=(("a", 2), ("b", 1))
)
WORDS = replace(
    WORDS,
    letters=(
        letter("unparsed: so", WORDS, 1),
        refused({"word": LONG, "count": 1}),
        refused({"word": LONGER, "count": 1}, cut=True),
    ),
)

case(
    "word_count",
    lambda h: check_word_count(h, Limits({"word": 255})),
    WORDS,
    a_lost_word=(without("table", 1), {LOST}),
    a_lower_count=(instead("table", 0, ("a", 1)), {LOST}),
    a_higher_count=(instead("table", 0, ("a", 3)), {REPEATED}),
    an_invented_word=(also("table", ("c", 1)), {INVENTED}),
    a_lost_long_word=(without("letters", 1), {LOST}),
    a_lost_word_that_was_cut=(without("letters", 2), {LOST}),
    a_refused_word_twice=(again("letters", 1), {REPEATED}),
    a_letter_of_no_count=(
        also("letters", refused({"word": "z" * 99, "count": 1}, cut=True)),
        {INVENTED},
    ),
)

# --- two_sinks ------------------------------------------------------------------------------

KEYS = {"key1": "a", "key2": "b", "key3": "c"}


def value(indicate: int) -> bytes:
    return json.dumps({"time": "2026-01-07T12:00:31Z", "indicate": indicate} | KEYS).encode()


def sum_of(name: str, indicate: int, **keys: str) -> Record:
    row = {"id": name, "slot_time": "2026-01-07T12:00:00.000Z", "indicate": indicate}
    fields = row | KEYS | keys
    return Record(0, 0, str(fields["key1"]).encode(), json.dumps(fields).encode())


SUMS = History(
    "s",
    records(value(3), value(4), None),
    (sum_of("x", 3), sum_of("y", 4)),
    ((T, "a", "b", "c", 7),),
)
SUMS = replace(SUMS, letters=(letter("empty: so", SUMS, 2),))

case(
    "two_sinks",
    lambda h: check_two_sinks(h, Limits(dict.fromkeys(KEYS, 64))),
    SUMS,
    a_lost_sum=(without("topic", 1), {LOST}),
    a_sum_without_its_key=(instead("topic", 0, sum_of("x", 3)._replace(key=None)), {ALTERED}),
    a_lost_row=(without("table", 0), {LOST}),
    an_epoch_that_ran_twice=(also("topic", sum_of("z", 4)), {REPEATED}),
    the_same_id_twice=(again("topic", 1), {REPEATED}),
    a_sum_that_was_added_twice=(instead("table", 0, (T, "a", "b", "c", 11)), {REPEATED}),
    an_invented_key=(also("topic", sum_of("z", 1, key1="q")), {INVENTED}),
    sums_that_are_buried=(
        lambda h: replace(
            h,
            topic=(),
            table=(),
            letters=(*h.letters, refused(json.loads(sum_of("q", 7).value or b""))),
        ),
        {LOST},
    ),
)


# --- joined_payments ------------------------------------------------------------------------


def event(kind: str, name: str, second: int, cents: int = 7) -> bytes:
    time = f"{T + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}.000Z"
    return json.dumps({"kind": kind, "id": name, "time": time, "cents": cents}).encode()


def paid(name: str, cents: int = 7) -> Record:
    row = {"id": name, "pairs": 1, "cents": cents}
    return Record(0, 0, name.encode(), json.dumps(row).encode())


PAYMENTS = History(
    "s",
    records(
        event("order", "in time", 0),
        event("payment", "at the limit", 60),
        event("order", "at the limit", 0),
        event("payment", "in time", 1),
        event("order", "too late", 0),
        event("payment", "too late", 61),
        event("order", "unpaid", 0),
        b"{",
    ),
    (paid("in time"), paid("at the limit")),
    (("in time", 1, 7), ("at the limit", 1, 7)),
)
PAYMENTS = replace(PAYMENTS, letters=(letter("unparsed: so", PAYMENTS, 7),))

case(
    "joined_payments",
    check_joined_payments,
    PAYMENTS,
    a_lost_pair=(without("topic", 0), {LOST}),
    a_lost_row=(without("table", 1), {LOST}),
    a_repeated_pair=(again("topic", 0), {REPEATED}),
    a_pair_without_its_key=(instead("topic", 0, paid("in time")._replace(key=None)), {ALTERED}),
    a_pair_that_was_added_twice=(instead("table", 0, ("in time", 2, 14)), {REPEATED}),
    a_payment_that_was_too_late=(also("topic", paid("too late")), {INVENTED}),
    other_cents=(instead("topic", 0, paid("in time", 8)), {INVENTED, LOST}),
    a_buried_order=(also("letters", letter("unparsed: so", PAYMENTS, 0)), {LOST, INVENTED}),
)


# --- kafka_to_kafka -------------------------------------------------------------------------


def sent(partition: int, offset: int, value: bytes | None, key: bytes | None = b"k") -> Record:
    return Record(partition, offset, key, value, (("n", b"\xff"), ("n", None)), 7000 + offset)


def swapped(h: History) -> History:
    first, second, *others = h.topic
    return changed(h, "topic", [second, first, *others])


RECORDS = History(
    "s",
    (sent(0, 0, b"a"), sent(0, 1, None), sent(0, 2, b"\xff"), sent(1, 0, "ß".encode(), None)),
    (sent(1, 0, b"A"), sent(1, 1, None), sent(0, 0, b"SS", None)),
)
RECORDS = replace(RECORDS, letters=(letter("unparsed: so", RECORDS, 2),))

case(
    "kafka_to_kafka",
    check_kafka_to_kafka,
    RECORDS,
    a_lost_record=(without("topic", 0), {LOST}),
    a_lost_tombstone=(without("topic", 1), {LOST}),
    a_repeated_record=(again("topic", 2), {REPEATED}),
    an_invented_record=(also("topic", sent(0, 9, b"Z")), {INVENTED, ALTERED}),
    a_value_that_is_not_transformed=(instead("topic", 0, sent(1, 0, b"a")), {LOST, INVENTED}),
    another_time=(instead("topic", 0, sent(1, 5, b"A")), {LOST, INVENTED}),
    no_headers=(instead("topic", 0, sent(1, 0, b"A")._replace(headers=())), {LOST, INVENTED}),
    another_order=(swapped, {ALTERED}),
    a_key_in_two_partitions=(
        instead("topic", 1, sent(2, 1, None)._replace(timestamp_ms=7001)),
        {ALTERED},
    ),
    a_lost_letter=(without("letters", 0), {LOST}),
    a_buried_record=(
        lambda h: replace(h, topic=h.topic[1:], letters=(*h.letters, letter("unparsed: so", h, 0))),
        {LOST},
    ),
)

# --- orders_batch ---------------------------------------------------------------------------


def lines_of(file: str, *lines: bytes) -> list[Record]:
    return [Record(0, offset, file.encode(), text) for offset, text in enumerate(lines)]


def line_letter(
    line: bytes, file: str = "file:///in/a%20b.jsonl", reason: str = "unparsed"
) -> bytes:
    fields = {"reason": f"{reason}: so", "payload_sha256": sha256(line).hexdigest()}
    return json.dumps({**fields, "source": {"file": file}}).encode()


BATCH = History(
    "in",
    (
        *lines_of("/in/a b.jsonl", order(0, "1"), b"?", order(1, "2.50")),
        *lines_of("/in/c.jsonl", order(2, "3", "bob"), b"?"),
    ),
    table=(
        ("ann", 2, Decimal("3.50"), Decimal("2.50"), Decimal("1.00")),
        ("bob", 1, Decimal(3), Decimal(3), Decimal(3)),
    ),
    letters=(line_letter(b"?"), line_letter(b"?", "file:///in/c.jsonl")),
)

case(
    "orders_batch",
    check_orders_batch,
    BATCH,
    a_lost_user=(without("table", 1), {LOST}),
    an_order_lost=(instead("table", 0, ("ann", 1, *BATCH.table[0][2:])), {LOST}),
    an_order_twice=(instead("table", 0, ("ann", 3, *BATCH.table[0][2:])), {REPEATED}),
    another_total=(instead("table", 1, ("bob", 1, *map(Decimal, (4, 3, 3)))), {ALTERED}),
    another_minimum=(instead("table", 1, ("bob", 1, *map(Decimal, (3, 3, 2)))), {ALTERED}),
    an_invented_user=(also("table", ("eve", 1, *map(Decimal, (1, 1, 1)))), {INVENTED}),
    a_lost_letter=(without("letters", 0), {LOST}),
    a_repeated_letter=(again("letters", 0), {REPEATED}),
    a_letter_of_another_file=(instead("letters", 1, line_letter(b"?")), {LOST, REPEATED}),
    another_reason=(
        instead("letters", 0, line_letter(b"?", reason="empty")),
        {LOST, INVENTED},
    ),
    another_payload=(instead("letters", 0, line_letter(b"!")), {LOST, INVENTED}),
    a_buried_order=(also("letters", line_letter(order(0, "1"))), {INVENTED}),
    no_letter=(instead("letters", 0, b"?"), {LOST, INVENTED}),
)


@pytest.mark.parametrize("job", CASES)
def test_a_correct_history_has_no_anomaly(job: str) -> None:
    check, history, _ = CASES[job]
    report = check(history)
    assert not report.anomalies
    assert report.rows == len(history.source)
    assert report.letters.total() == len(history.letters)


@pytest.mark.parametrize(
    ("job", "damage"), [(job, damage) for job, (_, _, all_) in CASES.items() for damage in all_]
)
def test_each_damage_is_found(job: str, damage: str) -> None:
    check, history, damages = CASES[job]
    do, kinds = damages[damage]
    assert check(do(history)).kinds == kinds
