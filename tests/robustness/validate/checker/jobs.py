"""The judges of the jobs: each restates from its documentation what a job must have written. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from typing import Any

from tests.robustness.validate.checker.history import (
    ALTERED,
    INVENTED,
    REPEATED,
    History,
    Letters,
    Limits,
    Record,
    Report,
    compare_counts,
)

_SECOND = 1000
_HEX = frozenset(b"0123456789abcdefABCDEF.:")
_WORDY = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-")
_ORDER_FIELDS = ("id", "user", "time", "amount")
_MOST_ID, _MOST_DIGITS, _MOST_CENTS = 64, 10, 2

Window = tuple[int, str]
"""The start of a window, ms since 1970, and its address or user."""


@dataclass(frozen=True)
class Lateness:
    """When a row may be late.

    Args:
        window_ms: the length of a window.
        allowed_ms: how much older than the newest event an event may be.
        skew: how many records an epoch may have read of another partition beyond this one's offset.
    """

    window_ms: int
    allowed_ms: int
    skew: int

    def windows(self, events: Mapping[Record, int]) -> dict[Record, tuple[int, bool]]:
        """Return for each event the start of its window, and whether an earlier event may have closed it."""
        newest = self._newest_by_offset(events)
        judged = {}
        for record, at_ms in events.items():
            start = at_ms // self.window_ms * self.window_ms
            known = [
                prefix[record.offset + (0 if p == record.partition else self.skew)]
                for p, prefix in newest.items()
            ]
            judged[record] = start, start + self.window_ms <= max(known) - self.allowed_ms
        return judged

    def _newest_by_offset(self, events: Mapping[Record, int]) -> dict[int, _Prefix]:
        prefixes: dict[int, _Prefix] = defaultdict(_Prefix)
        for record, at_ms in sorted(events.items(), key=lambda event: event[0][:2]):
            prefixes[record.partition].extend(record.offset, at_ms)
        return prefixes


class _Prefix:
    """The newest event of the records of a partition before an offset."""

    def __init__(self) -> None:
        self._newest: list[int] = [0]

    def __len__(self) -> int:
        return len(self._newest) - 1

    def __getitem__(self, offset: int) -> int:
        return self._newest[min(offset, len(self))]

    def extend(self, offset: int, at_ms: int) -> None:
        while len(self) < offset:
            self._newest.append(self._newest[-1])
        self._newest.append(max(at_ms, self._newest[-1]))


# --- ip_count -------------------------------------------------------------------------------


def check_ip_count(history: History, lateness: Lateness, limits: Limits) -> Report:
    """Every line is one hit of its window and address in both sinks, or one dead letter."""
    report = Report()
    letters = Letters(history, limits, report)
    events: dict[Record, int] = {}
    addresses: dict[Record, str] = {}
    for record in history.source:
        hit = parse_hit(record.value)
        if hit is None:
            letters.judge(record, "empty" if record.value is None else "unparsed")
        else:
            events[record], addresses[record] = hit
    hits: Counter[Window] = Counter()
    for record, (start, may_be_late) in lateness.windows(events).items():
        if not letters.judge(record, "", may_be_late=may_be_late):
            hits[start, addresses[record]] += 1
    letters.finish()
    refused = {(_ms(row["window_start"]), row["ip"]): row["hits"] for row in letters.refused}
    excused = {key for key, count in refused.items() if hits[key] == count}
    if refused.keys() - excused:
        report.add(INVENTED, "dead letters: a count that no lines have")
    compare_counts("topic", hits, _last_counts(history.topic, report), report, excused)
    table = {(_ms(str(start)), ip): count for start, ip, _, count in history.table}
    for start, _, end, _ in history.table:
        if end - start != timedelta(milliseconds=lateness.window_ms):
            report.add(ALTERED, "table")
    compare_counts("table", hits, table, report, excused)
    return report


def parse_hit(line: bytes | None) -> tuple[int, str] | None:
    """Return time (ms since 1970) and address of an access-log line; None if it is invalid."""
    address, _, rest = (line or b"").partition(b" ")
    identity, space, rest = rest.partition(b" ")
    _, bracket, rest = rest.partition(b"[")
    time, end, _ = rest.partition(b'] "')
    known = 2 <= len(address) <= 45 and _HEX.issuperset(address)
    if not (known and identity and space and bracket and end) or len(time) != len(
        "07/Jan/2026:12:00:00 +0000"
    ):
        return None
    try:
        at = datetime.strptime(time.decode("ascii"), "%d/%b/%Y:%H:%M:%S %z")
    except ValueError:
        return None
    if time[7:9] not in (b"19", b"20") or time[-4:-2] > b"14" or time[-2:] > b"59":
        return None
    return int(at.timestamp()) * _SECOND, address.decode()


def _last_counts(records: tuple[Record, ...], report: Report) -> dict[Window, int]:
    """Return the last count of each window; an update must be higher than the one before."""
    last: dict[Window, int] = {}
    for record, row in _rows(records, report):
        key = _ms(row["window_start"]), str(row["ip"])
        if record.key != key[1].encode():
            report.add(ALTERED, "topic: another key")
        if row["hits"] == last.get(key):
            report.add(REPEATED, "topic")
        elif row["hits"] < last.get(key, 0):
            report.add(ALTERED, "topic: a count that falls")
        last[key] = max(row["hits"], last.get(key, 0))
    return last


def _rows(records: tuple[Record, ...], report: Report) -> Iterator[tuple[Record, dict[str, Any]]]:
    for record in records:
        try:
            row = json.loads(record.value or b"", parse_float=Decimal)
        except ValueError:
            row = None
        if isinstance(row, dict):
            yield record, row
        else:
            report.add(INVENTED, "topic: what is not a row")


def _ms(text: str) -> int:
    """Return a time as ms since 1970; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


# --- orders_stream --------------------------------------------------------------------------


def check_orders(history: History, lateness: Lateness) -> Report:
    """Every order is in the count, maximum and minimum of its window and user, or a dead letter."""
    report = Report()
    letters = Letters(history, Limits(), report)
    events: dict[Record, int] = {}
    orders: dict[Record, tuple[str, Decimal]] = {}
    for record in history.source:
        order = parse_order(record.value)
        if order is None:
            letters.judge(record, "empty" if record.value is None else "unparsed")
        else:
            events[record], user, amount = order
            orders[record] = user, amount
    amounts: dict[Window, list[Decimal]] = defaultdict(list)
    for record, (start, may_be_late) in lateness.windows(events).items():
        if not letters.judge(record, "", may_be_late=may_be_late):
            user, amount = orders[record]
            amounts[start, user].append(amount)
    letters.finish()
    topic: dict[Window, tuple[int, Decimal, Decimal]] = {}
    seen = set()
    for _, row in _rows(history.topic, report):
        key = _ms(row["window_start"]), str(row["user"])
        values = (row["orders"], Decimal(row["largest"]), Decimal(row["smallest"]))
        # an epoch changes a window only by more orders
        if (key, values) in seen:
            report.add(REPEATED, "topic")
        seen.add((key, values))
        topic[key] = values
    table = {(_ms(str(start)), user): tuple(rest) for start, user, *rest in history.table}
    for where, rows in (("topic", topic), ("table", table)):
        compare_counts(
            where,
            {key: len(a) for key, a in amounts.items()},
            {key: int(values[0]) for key, values in rows.items()},
            report,
        )
        for key in amounts.keys() & rows.keys():
            count, largest, smallest = rows[key]
            right = (max(amounts[key]), min(amounts[key]))
            if count == len(amounts[key]) and (largest, smallest) != right:
                report.add(ALTERED, where)
    return report


def parse_order(value: bytes | None) -> tuple[int, str, Decimal] | None:
    """Return time (ms since 1970), user and amount of an order; None if it is invalid."""
    try:
        row = json.loads(value or b"", parse_int=str, parse_float=str)
        name, user, time, amount = (str(row[field]) for field in _ORDER_FIELDS)
        whole, _, cents = amount.removeprefix("-").partition(".")
        number = Decimal(amount)
        at_ms = _ms(time)
    except (ValueError, LookupError, TypeError, InvalidOperation):
        return None
    named = all(0 < len(n) <= _MOST_ID and _WORDY.issuperset(n) for n in (name, user))
    exact = len(whole) <= _MOST_DIGITS and len(cents) <= _MOST_CENTS and whole.isdecimal()
    return (at_ms, user, number) if named and exact and time.endswith("Z") else None


# --- word_count -----------------------------------------------------------------------------


def check_word_count(history: History, limits: Limits) -> Report:
    """Every word counts once in its row, or in the last dead letter of a word that is too long."""
    report = Report()
    letters = Letters(history, limits, report)
    words: Counter[str] = Counter()
    for record in history.source:
        try:
            text = None if record.value is None else record.value.decode()
        except UnicodeDecodeError:
            letters.judge(record, "unparsed")
            continue
        letters.judge(record, "empty" if text is None else "")
        # only ASCII's white space separates words
        words.update(word.decode() for word in (text or "").encode().split())
    letters.finish()
    too_long = {word for word in words if len(word) > limits.characters["word"]}
    refused: dict[str, int] = {}
    for row in letters.refused:
        word, count = _refused_count(row, {word: words[word] for word in too_long})
        if not count:
            report.add(INVENTED, "dead letters: of no count")
        refused[word] = max(count, refused.get(word, 0))
    table = dict(history.table)
    compare_counts("table", {w: n for w, n in words.items() if w not in too_long}, table, report)
    compare_counts("dead letters", {w: words[w] for w in too_long}, refused, report)
    return report


def _refused_count(row: Mapping[str, Any], counts: Mapping[str, int]) -> tuple[str, int]:
    """Return the word and the count of a refused row; of one that was cut, by trying all of them."""
    if "sha256" not in row:
        return str(row["word"]), int(row["count"])
    for word, most in counts.items():
        for count in range(1, most + 1):
            text = json.dumps([{"word": word, "count": count}], ensure_ascii=False)
            if sha256(text.encode()).hexdigest() == row["sha256"]:
                return word, count
    return "", 0


# --- two_sinks ------------------------------------------------------------------------------


def check_two_sinks(history: History, limits: Limits) -> Report:
    """Every value is once in the sums of both sinks; each sum in the topic has an id of its own."""
    report = Report()
    letters = Letters(history, limits, report)
    sums: dict[tuple[Any, ...], int] = defaultdict(int)
    for record in history.source:
        value = parse_indicator(record.value)
        if not letters.judge(
            record, "" if value else "empty" if record.value is None else "unparsed"
        ):
            assert value is not None
            sums[value[0]] += value[1]
    letters.finish()
    for row in letters.refused:
        sums[_key_of(row)] -= int(row["indicate"])
    topic: dict[tuple[Any, ...], int] = defaultdict(int)
    ids: set[str] = set()
    for record, row in _rows(history.topic, report):
        if row["id"] in ids:
            report.add(REPEATED, "topic: an id")
        ids.add(row["id"])
        if record.key != row["key1"].encode():
            report.add(ALTERED, "topic: a key")
        topic[_key_of(row)] += row["indicate"]
    table = {(_ms(str(time)), *keys): int(total) for time, *keys, total in history.table}
    compare_counts("topic", sums, topic, report)
    compare_counts("table", sums, table, report)
    return report


def parse_indicator(value: bytes | None) -> tuple[tuple[Any, ...], int] | None:
    """Return the key and the value of a record of two_sinks; None if it is invalid."""
    try:
        row = json.loads(value or b"")
        at_ms = _ms(row["time"])
        if not isinstance(row["indicate"], int) or not row["time"].endswith("Z"):
            return None
        if not -(1 << 31) <= row["indicate"] < 1 << 31 or any(k.endswith(" ") for k in _three(row)):
            return None
        return (at_ms - at_ms % (60 * _SECOND), *_three(row)), row["indicate"]
    except (ValueError, LookupError, TypeError):
        return None


def _key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (_ms(row["slot_time"]), *_three(row))


def _three(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["key1"], row["key2"], row["key3"]


# --- joined_payments ------------------------------------------------------------------------


def check_joined_payments(history: History) -> Report:
    """Each order with a payment within a minute is once in both sinks, with the cents of the order."""
    report = Report()
    letters = Letters(history, Limits(), report)
    orders: dict[str, tuple[int, int]] = {}
    payments: dict[str, int] = {}
    for record in history.source:
        event = _payment_event(record.value)
        if not letters.judge(record, "" if event else "unparsed"):
            assert event is not None
            kind, name, at_ms, cents = event
            if kind == "order":
                orders[name] = at_ms, cents
            else:
                payments[name] = at_ms
    letters.finish()
    paid = {
        (name, cents): 1
        for name, (at_ms, cents) in orders.items()
        if name in payments and 0 <= payments[name] - at_ms <= 60 * _SECOND
    }
    rows = list(_rows(history.topic, report))
    topic = Counter((row["id"], row["cents"]) for _, row in rows)
    if any(record.key != row["id"].encode() for record, row in rows):
        report.add(ALTERED, "topic: a key")
    compare_counts("topic", paid, topic, report)
    # the table adds up cents with each pair
    table = {(name, int(cents) // int(pairs)): int(pairs) for name, pairs, cents in history.table}
    compare_counts("table", paid, table, report)
    return report


def _payment_event(value: bytes | None) -> tuple[str, str, int, int] | None:
    try:
        row = json.loads(value or b"")
        return row["kind"], row["id"], _ms(row["time"]), row["cents"]
    except (ValueError, LookupError, TypeError):
        return None
