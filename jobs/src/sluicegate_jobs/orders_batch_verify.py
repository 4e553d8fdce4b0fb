"""The check of orders_batch: sums the files up in plain Python and compares the table.

Nothing is written anywhere. Called by `sluicegate verify`, while the job is stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate.cli.job import Verification
from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.sinks.kafka.access import servers_of
from sluicegate.sinks.mysql.session import Address
from sluicegate.storage.objects import open_objects
from sluicegate_jobs.decided import (
    concluded,
    counted,
    held_by,
    read_decided,
    table_rows,
)
from sluicegate_jobs.findings import LOST, WRONG, Findings
from sluicegate_jobs.orders_answer import Totals, check_rows, read_order

if TYPE_CHECKING:
    from sluicegate_jobs.orders_batch import OrdersBatchSettings


def verify(settings: OrdersBatchSettings) -> Verification:
    """Sum the orders up again and compare the table and the dead letters.

    Raises:
        SluicegateError: something could not be read, or nothing was ever decided.
    """
    decided = read_decided(open_objects(settings.checkpoint), None)
    servers, database = servers_of(settings.kafka), Address.parse(settings.mysql or None)
    seen: dict[str, int] = {}
    compared = compare(
        _lines(Path(settings.source)),
        table_rows(database, settings.table, "user, orders, total, largest, smallest"),
        (r.value for r in counted(servers, settings.dead_letters, seen)),
    )
    held = held_by(decided, seen, servers, settings.table, database)
    return concluded(settings.checkpoint, decided, compared, held)


def compare(
    lines: Iterable[bytes], rows: Iterable[tuple[Any, ...]], letters: Iterable[bytes | None]
) -> Verification:
    """Compare the table with the sums of the lines. Pure.

    Args:
        lines: of all files.
        rows: of the table: user, orders, total, largest, smallest.
        letters: the values of the dead letters.
    """
    findings = Findings()
    totals: dict[str, Totals] = {}
    broken: Counter[str] = Counter()
    read = 0
    for line in lines:
        read += 1
        order = read_order(line)
        if isinstance(order, str):
            broken[hashlib.sha256(line).hexdigest()] += 1
        else:
            totals.setdefault(order.user, Totals()).add(order.amount)
    expected = {u: (t.orders, t.total, t.largest, t.smallest) for u, t in totals.items()}
    check_rows("the table", expected, ((user, tuple(rest)) for user, *rest in rows), findings)
    buried = Counter(_hash(letter) for letter in letters)
    for digest, count in (broken - buried).items():
        findings.add(LOST, f"a line that is no order has no dead letter: sha256 {digest}", count)
    for digest, count in (buried - broken).items():
        findings.add(WRONG, f"a dead letter is about no broken line: sha256 {digest}", count)
    checked = {
        "lines": read,
        "lines that are no orders": broken.total(),
        "users": len(expected),
        "dead letters": buried.total(),
    }
    return Verification(checked, findings.found())


def _hash(letter: bytes | None) -> str:
    """Return the hash that a letter says; its own text where it says none, which fits no line."""
    text = (letter or b"").decode(errors="replace")
    try:
        return str(json.loads(text)["payload_sha256"])
    except (ValueError, KeyError, TypeError):
        return f"none in {text[:80]!r}"


def _lines(source: Path) -> Iterable[bytes]:
    """Yield the lines of a file, or of a folder's files, but for the hidden ones, as Spark does."""
    if not source.exists():
        raise SettingsInvalid(
            f"the orders {source} are not there, or not on a local disk",
            data="nothing was compared",
            do="give the file or folder that the job has read",
        )
    files = [source] if source.is_file() else sorted(source.iterdir())
    for path in files:
        if path.is_file() and not path.name.startswith((".", "_")):
            with path.open("rb") as file:
                yield from (line.rstrip(b"\r\n") for line in file)
