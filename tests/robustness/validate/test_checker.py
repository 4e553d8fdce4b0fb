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


def records(*values: bytes | None) -> tuple[Record, ...]:
    return tuple(Record(0, offset, None, value) for offset, value in enumerate(values))


def letter(reason: str, history: History, offset: int) -> bytes:
    value = history.source[offset].value
    fields: dict[str, Any] = {"reason": reason, "source": {"topic": "s", "partition": 0}}
    fields["source"]["offset"] = offset
    if value is not None:
        fields["payload_sha256"] = sha256(value).hexdigest()
    return json.dumps(fields).encode()


def refused(*parts: dict[str, Any], cut: bool = False) -> bytes:
    payload = json.dumps(parts, ensure_ascii=False)
    digest = sha256(payload.encode()).hexdigest()
    fields = {"payload": payload[:50] if cut else payload, "payload_sha256": digest}
    return json.dumps({"reason": "refused by mysql.t: so", **fields}).encode()


Damage = Callable[[History], History]
CASES: dict[
    str, tuple[Callable[[History], Report], History, dict[str, tuple[Damage, set[str]]]]
] = {}


def case(job: str, check: Callable[[History], Report], history: History, **damages: Any) -> None:  # noqa: ANN401 - pairs
    CASES[job] = check, history, damages


def changed(h: History, field: str, values: Any) -> History:  # noqa: ANN401 - of any field
    values_by_field: dict[str, Any] = {field: tuple(values)}
    return replace(h, **values_by_field)


def without(field: str, index: int) -> Damage:
    def damage(h: History) -> History:
        values = list(getattr(h, field))
        del values[index]
        return changed(h, field, values)

    return damage


def again(field: str, index: int) -> Damage:
    return lambda h: changed(h, field, [*getattr(h, field), getattr(h, field)[index]])


def instead(field: str, index: int, value: object) -> Damage:
    def damage(h: History) -> History:
        values = list(getattr(h, field))
        values[index] = value
        return changed(h, field, values)

    return damage


def also(field: str, *values: object) -> Damage:
    return lambda h: changed(h, field, [*getattr(h, field), *values])


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
