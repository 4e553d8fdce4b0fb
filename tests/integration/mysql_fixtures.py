"""Helpers of the MySQL tests: unique tables, decisions, and queries of the server's state."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pymysql
import pytest

from infra.local_services import Services
from infra.local_services.endpoints import MySQLEndpoint
from infra.local_services.process import ServiceError
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.sinks.contract import PartDecision, Reach
from sluicegate.sinks.mysql import MySQLSink
from sluicegate.sinks.mysql.writer import BoundMySQL, MySQLPartWriter
from tests.waiting import wait_until

HITS = pa.schema([("ip", pa.string()), ("hits", pa.int64())])
HITS_TABLE = "ip VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, hits BIGINT NOT NULL"


def no_hook(point: str) -> None:
    """Do nothing at a failpoint."""
    del point


def hook_at(failpoint: str, action: Callable[[], object]) -> Reach:
    """Return a hook that runs an action at one failpoint."""

    def reach(point: str) -> None:
        if point == failpoint:
            action()

    return reach


def hits(**counts: int) -> pa.RecordBatch:
    """Return staged rows of `HITS`."""
    return pa.record_batch({"ip": list(counts), "hits": list(counts.values())}, schema=HITS)


@dataclass
class MySQL:
    """A database, with a new lineage for each test.

    Args:
        server: the server with the login of a job.
        admin: the same with all privileges if this process started the server; otherwise the job's login.
    """

    server: MySQLEndpoint
    admin: MySQLEndpoint
    lineage: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, services: Services) -> MySQL:
        """Return the services' database, with a new lineage."""
        try:
            return cls(services.mysql, services.database.admin)
        except ServiceError:  # a server named by the environment
            return cls(services.mysql, services.mysql)

    def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement in its own session with all privileges, and commit."""
        with self.admin.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def table(self, body: str = HITS_TABLE, *, engine: str = "InnoDB") -> str:
        """Create a table with a unique name."""
        name = f"t_{uuid.uuid4().hex[:16]}"
        self.execute(f"CREATE TABLE {name} ({body}) ENGINE={engine} CHARACTER SET utf8mb4")
        return name

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Return the committed rows, sorted."""
        return sorted(self.execute(f"SELECT * FROM {table}"))

    def url(self, **changes: object) -> str:
        """Return the url, with changes."""
        fields = {name: getattr(self.server, name) for name in ("host", "port", "user")}
        fields |= {"password": self.server.password, "database": self.server.database, **changes}
        login = f"{quote(str(fields['user']), safe='')}:{quote(str(fields['password']), safe='')}"
        return f"mysql://{login}@{fields['host']}:{fields['port']}/{fields['database']}"

    def bind(
        self,
        table: str,
        *,
        rows: pa.Schema = HITS,
        apply_timeout_s: float = 20,
        **settings: Any,  # noqa: ANN401 - passed on
    ) -> BoundMySQL:
        """Return a bound sink; the default key is ip."""
        settings = {"keys": ["ip"], "url": self.url(), **settings}
        sink = MySQLSink(table, **settings)
        return sink.bind(rows, lineage=self.lineage, apply_timeout_s=apply_timeout_s)

    def decision(
        self,
        epoch: int,
        reach: Reach = no_hook,
        **changes: Any,  # noqa: ANN401 - passed on
    ) -> PartDecision:
        """Return the decision of an epoch in the chain 0, 1, 2, ..."""
        prev = Marker(epoch - 1, f"attempt-{epoch - 1}") if epoch else NO_MARKER
        decision = {"this": Marker(epoch, f"attempt-{epoch}"), "prev": prev, "reach": reach}
        return PartDecision(lineage=self.lineage, **{**decision, **changes})

    def markers(self) -> list[tuple[Any, ...]]:
        """Return part, epoch and attempt of this lineage's markers."""
        rows = self.execute(
            "SELECT part, epoch, attempt FROM sluicegate_markers WHERE lineage = %s", self.lineage
        )
        return sorted(rows)

    def kill(self, writer: MySQLPartWriter) -> None:
        """Kill a writer's session on the server."""
        assert writer._connection is not None
        session = int(writer._connection.thread_id())  # type: ignore[no-untyped-call]
        self.execute(f"KILL {session}")
        wait_until(lambda: session not in self.sessions(), seconds=20)

    def sessions(self, like: str = "%") -> list[int]:
        """Return the sessions whose current statement matches; '%': all, including idle ones."""
        condition = "" if like == "%" else "WHERE info LIKE %s AND id <> CONNECTION_ID()"
        sql = f"SELECT id FROM information_schema.processlist {condition}"
        return [row[0] for row in self.execute(sql, *([like] if condition else []))]

    def user(self, name: str, *grants: str) -> str:
        """Create a user with these grants and return a url; skips the test if that is not permitted."""
        try:
            self.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'geheim'")
            for grant in grants:
                self.execute(f"GRANT {grant} TO '{name}'@'%'")
        except pymysql.err.OperationalError as error:
            pytest.skip(f"the server does not permit creating users: {error}")
        return self.url(user=name, password="geheim")
