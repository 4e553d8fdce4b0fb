"""Verification of orders_batch: sums the files in plain Python and compares the table."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
from codecs import BOM_UTF8
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from sluicegate.errors import SettingsInvalid
from sluicegate.packaged_job import Verification
from sluicegate_jobs.orders.batch import OrdersBatchSettings
from sluicegate_jobs.orders.expected import check_rows, read_order
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import UNPARSED
from sluicegate_jobs.verification.findings import LOST, WRONG, Findings

_OPEN: Mapping[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
"""How to open compressed files, by the end of their names."""


def verify(settings: OrdersBatchSettings) -> Verification:
    """Sum the orders again and compare them with the table and the dead letters."""
    check = Check(settings)
    compared = compare(
        _lines(Path(settings.source)),
        check.table_rows(settings.table, "user, orders, total, largest, smallest"),
        check.topic_values(settings.dead_letters),
    )
    return check.conclude(compared, settings.table)


def compare(
    lines: Iterable[bytes], rows: Iterable[tuple[Any, ...]], letters: Iterable[bytes | None]
) -> Verification:
    """Compare the table's rows and the dead letters with the lines of all files. Pure."""
    findings = Findings()
    amounts: dict[str, list[Decimal]] = defaultdict(list)
    invalid: Counter[str] = Counter()
    read = 0
    for line in lines:
        read += 1
        order = read_order(line)
        if isinstance(order, str):
            invalid[hashlib.sha256(line).hexdigest()] += 1
        else:
            amounts[order.user].append(order.amount)
    expected = {user: (len(a), sum(a), max(a), min(a)) for user, a in amounts.items()}
    check_rows("the table", expected, ((user, tuple(rest)) for user, *rest in rows), findings)
    digests = Counter(_digest(letter) for letter in letters)
    for digest, count in (invalid - digests).items():
        findings.add(LOST, f"an invalid line has no dead letter: sha256 {digest}", count)
    for digest, count in (digests - invalid).items():
        findings.add(WRONG, f"a dead letter belongs to no invalid line: sha256 {digest}", count)
    checked = {
        "lines": read,
        "invalid lines": invalid.total(),
        "users": len(expected),
        "dead letters": digests.total(),
    }
    return Verification(checked, findings.result())


def _digest(letter: bytes | None) -> str:
    """Return the hash in the dead letter of a line that is no order, or its own text, which matches none."""
    text = (letter or b"").decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        fields = json.loads(text)
        if fields["reason"].startswith(f"{UNPARSED}: "):
            return str(fields["payload_sha256"])
    return f"none in {text[:80]!r}"


def _lines(source: Path) -> Iterable[bytes]:
    """Yield the lines of a file, or of the files of a folder without hidden ones, as Spark does.

    It reads folders that are named as partitions, decompresses files by their names, drops the byte order
    mark at the beginning of a file, and splits at each of CR, LF and CR LF.
    """
    if not source.exists():
        raise SettingsInvalid(
            f"the orders {source} do not exist, or are not on a local disk",
            data="nothing was compared",
            do="give the file or folder that the job has read",
        )
    for path in [source] if source.is_file() else sorted(source.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir() and "=" in path.name:
            yield from _lines(path)
        elif path.is_file():
            # latin-1 keeps each byte
            with _OPEN.get(path.suffix, open)(path, "rt", encoding="latin-1") as file:
                if file.read(len(BOM_UTF8)) != BOM_UTF8.decode("latin-1"):
                    file.seek(0)
                yield from (line.rstrip("\n").encode("latin-1") for line in file)
