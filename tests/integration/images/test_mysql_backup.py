"""Backups of the image mysql, of a real MySQL with the rows and markers of the real sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pymysql
import pytest

from infra.local_services.s3 import S3Endpoint
from infra.workspace import CHECKOUT
from sluicegate.protocol.markers import Verdict
from tests.integration.images.mysql_image import DATABASE, MySQLImage
from tests.integration.mysql_fixtures import MySQL, hits

pytestmark = [pytest.mark.integration, pytest.mark.mysql]

STORE = CHECKOUT / "charts/mysql/files/backups.py"


@pytest.fixture
def mysql(mysql_image: MySQLImage) -> MySQL:
    """Return an empty database, with the rights of a job and a new lineage."""
    mysql = MySQL(mysql_image.endpoint, mysql_image.endpoint)
    drop_and_create(mysql_image)
    return mysql


def drop_and_create(mysql_image: MySQLImage) -> None:
    with mysql_image.restorer.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")


def store(verb: str, dump: Path, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(STORE), verb, str(dump)],
        env=os.environ | {"BACKUP_URL": url, "BACKUP_KEEP": "2"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_restored_sink_has_the_rows_of_its_marker_and_what_followed_is_applied_again(
    mysql_image: MySQLImage, mysql: MySQL, bucket: S3Endpoint, tmp_path: Path
) -> None:
    """The rights of the job suffice for the sink, and a restore brings rows and marker together."""
    table = mysql.table()
    first, second = [hits(a=1, b=2)], [hits(a=5, c=3)]
    mysql.bind(table).open(0).apply(mysql.decision(0), first)
    backup = mysql_image.run("mysql-backup")
    assert backup.returncode == 0, backup.stderr
    url = f"{bucket.url}/{tmp_path.name}"
    stored = store("store", mysql_image.root / "backup/dump.sql.gz", url)
    assert stored.returncode == 0, stored.stderr
    assert "'binlogFile': 'binlog.0" in stored.stdout
    mysql.bind(table).open(0).apply(mysql.decision(1), second)
    after = mysql.rows(table)

    drop_and_create(mysql_image)
    fetched = mysql_image.root / "backup/fetched.sql.gz"
    assert store("fetch", fetched, url).returncode == 0
    restored = mysql_image.run("mysql-restore", BACKUP_DUMP="/backup/fetched.sql.gz")
    assert restored.returncode == 0, restored.stderr
    assert mysql.rows(table) == [("a", 1), ("b", 2)]
    assert mysql.markers() == [(0, 0, "attempt-0")]

    again = mysql.bind(table).open(0).apply(mysql.decision(1), second)
    assert again.verdict is Verdict.APPLY
    assert mysql.rows(table) == after


def test_the_binary_log_brings_a_restored_sink_to_the_moment_before_the_damage(
    mysql_image: MySQLImage, mysql: MySQL, tmp_path: Path
) -> None:
    """With the command of docs/operations/backups.md."""
    table = mysql.table()
    mysql.bind(table).open(0).apply(mysql.decision(0), [hits(a=1)])
    assert mysql_image.run("mysql-backup").returncode == 0
    url = str(tmp_path)
    assert store("store", mysql_image.root / "backup/dump.sql.gz", url).returncode == 0
    mysql.bind(table).open(0).apply(mysql.decision(1), [hits(a=5)])
    with mysql_image.restorer.connect(autocommit=True) as admin, admin.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS")
        damage = cursor.fetchone()[1]
        cursor.execute(f"DROP DATABASE {DATABASE}")
    assert mysql_image.run("mysql-restore").returncode == 0
    assert mysql.markers() == [(0, 0, "attempt-0")]

    (listed,) = store("list", tmp_path, url).stdout.splitlines()
    manifest = json.loads(listed.partition(" ")[2])
    replayed = mysql_image.bash(
        # the server has executed the transactions, and would skip them by their GTIDs
        "cd /var/lib/mysql/data && mysqlbinlog --skip-gtids "
        f"--start-position={manifest['binlogPosition']} --stop-position={damage} "
        f"{manifest['binlogFile']} | mysql --defaults-file=/tmp/root.cnf"
    )
    assert replayed.returncode == 0, replayed.stderr
    assert mysql.rows(table) == [("a", 5)]
    assert mysql.markers() == [(0, 1, "attempt-1")]


def test_a_server_with_data_is_not_restored_into(mysql_image: MySQLImage, mysql: MySQL) -> None:
    table = mysql.table()
    assert mysql_image.run("mysql-backup").returncode == 0
    mysql.execute(f"INSERT INTO {table} VALUES ('kept', 1)")
    refused = mysql_image.run("mysql-restore")
    assert refused.returncode == 64
    assert f"has data: {DATABASE}.{table}. Nothing was changed" in refused.stderr
    assert mysql.rows(table) == [("kept", 1)]


def test_a_dump_that_fails_leaves_no_file(mysql_image: MySQLImage, mysql: MySQL) -> None:
    table = mysql.table()
    dump = mysql_image.root / "backup/dump.sql.gz"
    with mysql_image.restorer.connect(autocommit=True) as connection, connection.cursor() as cursor:
        # a view that cannot be dumped
        cursor.execute(f"CREATE VIEW {DATABASE}.broken AS SELECT * FROM {DATABASE}.{table}")
        cursor.execute(f"DROP TABLE {DATABASE}.{table}")
    failed = mysql_image.run("mysql-backup")
    assert failed.returncode == 64
    assert "There is no new backup" in failed.stderr
    assert not dump.exists()
    assert not dump.with_name("dump.sql.gz.part").exists()


def test_jobs_have_rights_in_their_database_only(mysql_image: MySQLImage, mysql: MySQL) -> None:
    """In GRANT a `_` matches any character."""
    with mysql_image.restorer.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shopXa")
        try:
            with pytest.raises(pymysql.OperationalError, match="denied"):
                mysql.execute("CREATE TABLE shopXa.t (a INT)")
            with pytest.raises(pymysql.OperationalError, match="denied"):
                mysql.execute(f"DROP DATABASE {DATABASE}")
        finally:
            cursor.execute("DROP DATABASE shopXa")


def test_data_of_another_series_are_not_upgraded_unasked(mysql_image: MySQLImage) -> None:
    mysql_image.stop()
    history = mysql_image.upgrade_history.read_text()
    mysql_image.upgrade_history.write_text(history.replace('"version":"9.7.', '"version":"8.4.'))
    said = mysql_image.fail_to_start()
    mysql_image.upgrade_history.write_text(history)
    mysql_image.start()
    assert "was last used by MySQL 8.4, and this is MySQL 9.7" in said
