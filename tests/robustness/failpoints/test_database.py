"""A crash of MySQL is checked: which server has lost nothing, and which has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from infra.local_services.mariadb import MariaDB
from sluicegate.sinks.mysql.writer import MARKERS
from tests.robustness.failpoints.database import LostCommits, killed
from tests.robustness.failpoints.replica import Replica


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    server = MariaDB(tmp_path_factory.mktemp("mysql"))
    server.start()
    execute(
        server,
        f"CREATE TABLE {MARKERS} (lineage CHAR(1), sink CHAR(1), part INT, epoch BIGINT)",
        f"INSERT INTO {MARKERS} VALUES ('l', 's', 0, 1)",
        "CREATE TABLE counts (word VARCHAR(9) PRIMARY KEY, hits BIGINT)",
        "INSERT INTO counts VALUES ('a', 1)",
    )
    yield server
    server.stop()


def execute(server: MariaDB, *statements: str) -> None:
    with closing(server.endpoint.connect()) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def test_a_server_that_recovers_has_lost_nothing(database: MariaDB, tmp_path: Path) -> None:
    with killed(database, tmp_path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("commit", "lost"),
    [
        (f"UPDATE {MARKERS} SET epoch = epoch + 1", "the marker of l s 0 was"),
        ("UPDATE counts SET hits = hits + 1", "table counts lacks"),
        ("DELETE FROM counts", "table counts got"),
    ],
    ids=["an epoch", "a change of a row", "a deletion"],
)
def test_a_server_that_lost_a_commit_is_reported_and_its_files_are_kept(
    database: MariaDB, tmp_path: Path, commit: str, lost: str
) -> None:
    replica = Replica(database)
    replica.catch_up()
    execute(database, commit)
    reported = f"its redo log was flushed to .*; .*{lost}"
    with pytest.raises(LostCommits, match=reported), killed(database, tmp_path):
        replica.take_place()
    (kept,) = tmp_path.iterdir()
    assert (kept / "ib_logfile0").exists()
