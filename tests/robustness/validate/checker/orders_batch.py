"""The judge of orders_batch. Pure.

The source of its history has a partition for each file, whose records are the lines; their key is the
path of the file.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from tests.robustness.validate.checker.history import (
    ALTERED,
    INVENTED,
    History,
    Report,
    compare_counts,
)
from tests.robustness.validate.checker.jobs import parse_order

Refusal = tuple[str, str, str]
"""Kind of a dead letter, path of the file, and hash of the line."""


def check_orders_batch(history: History) -> Report:
    """Every order is in the row of its user, and every other line is a dead letter that names its file."""
    report = Report(rows=len(history.source))
    amounts: dict[str, list[Decimal]] = defaultdict(list)
    invalid: Counter[Refusal] = Counter()
    for line in history.source:
        order = parse_order(line.value)
        if order is None:
            digest = sha256(line.value or b"").hexdigest()
            invalid["unparsed", (line.key or b"").decode(), digest] += 1
        else:
            amounts[order[1]].append(order[2])
    compare_counts("dead letters", invalid, _refusals(history, report), report)
    sums = {user: tuple(values) for user, *values in history.table}
    orders = {user: len(of_user) for user, of_user in amounts.items()}
    compare_counts("table", orders, {user: row[0] for user, row in sums.items()}, report)
    for user in amounts.keys() & sums.keys():
        of_user, (count, *values) = amounts[user], sums[user]
        if count == len(of_user) and values != [sum(of_user), max(of_user), min(of_user)]:
            report.add(ALTERED, "table")
    return report


def _refusals(history: History, report: Report) -> Counter[Refusal]:
    """Return what the dead letters are about; count them by kind."""
    found: Counter[Refusal] = Counter()
    for value in history.letters:
        try:
            letter = json.loads(value or b"")
            kind = str(letter["reason"]).partition(":")[0]
            path = unquote(urlsplit(letter["source"]["file"]).path)
            digest = str(letter["payload_sha256"])
        except (ValueError, LookupError, TypeError, AttributeError):
            report.add(INVENTED, "dead letters: one cannot be read")
            continue
        report.letters[kind] += 1
        found[kind, path, digest] += 1
    return found
