"""Backups of the platform of test_6: of MySQL into the object store, and back."""

from __future__ import annotations

import json

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.platform import CLIENT_POD, RELEASE, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

JOB = "ip-count"

_ROWS = """
import json
from sluicegate.sinks.mysql.connection import Address, connect
with connect(Address.parse(None), timeout_s=30) as connection, connection.cursor() as cursor:
    for table in ("ip_count", "sluicegate_markers"):
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3")
        print(json.dumps(cursor.fetchall(), default=str))
"""
_AS_ROOT = """
umask 077
printf '[client]\\npassword="%s"\\n' "$(cat /etc/mysql/passwords/root-password)" >/tmp/root.cnf
mysql --defaults-file=/tmp/root.cnf --user=root --socket=/tmp/mysql.sock --execute "$0"
rm /tmp/root.cnf
"""


def run_now(cluster: Cluster, verb: str) -> None:
    """Run the backup or the restore of MySQL, and wait for it."""
    name = f"{verb}-now"
    cluster.run("create", "job", name, f"--from=cronjob/{RELEASE}-mysql-{verb}")
    options = ("--for=condition=Complete", "--timeout=120s")
    cluster.run("wait", f"job/{name}", *options, timeout_s=130.0)


@pytest.fixture(scope="module")
def suspended(secured: Platform) -> Platform:
    """Return the platform with its job suspended."""
    cluster = secured.cluster
    cluster.patch("streamingjob", JOB, {"spec": {"suspend": True}})
    secured.job_when(JOB, lambda status: status["phase"] == "Suspended", "to be suspended")
    return secured


def test_a_dropped_database_is_restored_with_its_rows_and_markers(suspended: Platform) -> None:
    cluster = suspended.cluster
    before = cluster.execute(CLIENT_POD, "python", "-c", _ROWS)
    assert all(json.loads(table) for table in before.splitlines())
    run_now(cluster, "backup")
    server = f"{RELEASE}-mysql-0"
    cluster.execute(server, "bash", "-c", _AS_ROOT, "DROP DATABASE sluicegate")
    run_now(cluster, "restore")
    assert cluster.execute(CLIENT_POD, "python", "-c", _ROWS) == before
    suspended.wait_exact("ip_count", JOB)
