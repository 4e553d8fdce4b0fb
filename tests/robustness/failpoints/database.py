"""A crash of MySQL, after which the server must have every commit that it has acknowledged.

What a job does with a server that has lost commits is another promise than exactly-once with one that has
not. The judgment at the end of a run cannot tell them apart, so the server is checked at once.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.local_services.mariadb import MariaDB
from sluicegate.sinks.mysql.writer import MARKERS

_EXAMPLES: Final = 5

Rows = frozenset[tuple[Any, ...]]


class LostCommits(Exception):
    """The server has started without commits that it had acknowledged, or with a part of one."""


@dataclass(frozen=True)
class _Content:
    """What a server has: its markers, and the rows of all other tables."""

    markers: Mapping[tuple[str, str, int], int]
    tables: Mapping[str, Rows]

    @classmethod
    def of(cls, database: MariaDB) -> _Content:
        """Read all tables in one transaction."""
        tables: dict[str, Rows] = {}
        with closing(database.endpoint.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            names = [str(name) for (name,) in cursor.fetchall()]
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            for name in names:
                cursor.execute(f"SELECT * FROM `{name}`")
                tables[name] = frozenset(cursor.fetchall())
        markers = {row[:3]: row[3] for row in tables.pop(MARKERS, ())}
        return cls(markers, tables)

    def lost(self, later: _Content) -> list[str]:
        """Return what a later content lacks, though nothing was removed meanwhile.

        Rows can be compared only if no epoch was committed in between, which the markers show.
        """
        older = [
            f"the marker of {' '.join(map(str, key))} was {epoch} and is {later.markers.get(key)}"
            for key, epoch in self.markers.items()
            if later.markers.get(key, -1) < epoch
        ]
        if older or not self.markers or self.markers != later.markers:
            return older
        return [
            f"table {name} {verb} {row}"
            for name, rows in self.tables.items()
            for verb, changed in (
                ("lacks", rows - later.tables.get(name, frozenset())),
                ("got", later.tables.get(name, frozenset()) - rows),
            )
            for row in changed
        ]


def copy_files(database: MariaDB, folder: Path) -> None:
    """Copy the files of a server that is paused or killed; the folder may exist, empty."""
    ignore = shutil.ignore_patterns("*.sock")
    shutil.copytree(database.data, folder, ignore=ignore, dirs_exist_ok=True)


def _flushed_lsn(database: MariaDB) -> int:
    """Return up to where the redo log of a running server is durable."""
    with closing(database.admin.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW ENGINE INNODB STATUS")
        (row,) = cursor.fetchall()
    return _last_number(r"Log flushed up to\s+(\d+)", str(row[-1]))


def _recovered_lsn(database: MariaDB) -> int:
    """Return where the last start of a server found the end of its redo log."""
    log = database.log.read_text(encoding="utf-8", errors="replace")
    return _last_number(r"InnoDB: End of log at LSN=(\d+)", log)


def _last_number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    assert found, f"MariaDB does not write {pattern} any more"
    return int(found[-1])


@contextmanager
def killed(database: MariaDB, folder: Path) -> Iterator[None]:
    """Kill a server, start it again at the end of the block, and check what it has.

    Args:
        database: the server; nobody may write to it after the block before it is checked.
        folder: where a folder with the server's files as the kill left them is kept if it lacks something.

    Raises:
        LostCommits: the server lacks what it has acknowledged, or a part of it.
    """
    before, flushed = _Content.of(database), _flushed_lsn(database)
    database.kill()
    kept = Path(tempfile.mkdtemp(prefix="mysql-killed-", dir=folder))
    copy_files(database, kept)
    yield
    database.start()
    recovered = _recovered_lsn(database)
    lost = before.lost(_Content.of(database))
    if recovered < flushed:
        lost.insert(0, f"its redo log was flushed to {flushed}, and ends at {recovered}")
    if lost:
        raise LostCommits(
            f"MySQL has lost acknowledged commits; its files are in {kept}: "
            + "; ".join(lost[:_EXAMPLES])
        )
    shutil.rmtree(kept)
