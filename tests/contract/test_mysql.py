"""The MySQL sink keeps the contract, on a real server."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
import pytest

from infra.local_services import Services
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.mysql import MySQLSink
from tests.contract.suite import ROWS, Row, SinkContract

NAME_CHARS = 40


class MySQLKit:
    """A new table for each test. A repeated row would violate its primary key."""

    def __init__(self, services: Services) -> None:
        self.lineage = uuid.uuid4().hex
        self.table = f"contract_{self.lineage}"
        self.secret = services.mysql.password
        self._mysql = services.mysql
        self._execute(
            f"CREATE TABLE `{self.table}` (`id` BIGINT PRIMARY KEY,"
            f" `name` VARCHAR({NAME_CHARS}) CHARACTER SET utf8mb4, `data` VARBINARY(100))"
            " ENGINE=InnoDB"
        )

    def bind(self, parts: int = 1) -> BoundSink:
        url = self._mysql.url
        sink = MySQLSink(self.table, keys=["id"], on_conflict="error", url=url, parts=parts)
        assert self.secret not in repr(sink)
        return sink.bind(ROWS, lineage=self.lineage, apply_timeout_s=20)

    def stage(self, rows: Sequence[Row]) -> pa.RecordBatch:
        staged = pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=ROWS)
        return staged.select([name for name, _ in self.bind().expressions])

    def read(self, *, stable: bool = True) -> list[Row]:
        del stable
        return [Row(*row) for row in self._execute(f"SELECT id, name, data FROM `{self.table}`")]

    def borderline(self) -> list[Row]:
        return [Row(n, "ž" * n) for n in range(1, NAME_CHARS + 10)]

    def _execute(self, sql: str) -> Sequence[tuple[int, str | None, bytes | None]]:
        connection = self._mysql.connect(autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)
            rows: Sequence[tuple[int, str | None, bytes | None]] = cursor.fetchall()
            return rows


@pytest.mark.integration
@pytest.mark.mysql
class TestMySQLSink(SinkContract):
    """All claims about a MySQL table."""

    @pytest.fixture
    def kit(self, services: Services) -> MySQLKit:
        return MySQLKit(services)
