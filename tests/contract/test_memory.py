"""The in-memory sink keeps the contract."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from sluicegate.errors import SchemaMismatch
from sluicegate.sinks.memory import BoundMemory, MemorySink, committed, forget
from tests.contract.suite import ROWS, LogContract, Row


class MemoryKit:
    """A new store for each test."""

    secret = ""

    def __init__(self) -> None:
        self.lineage = self.name = uuid.uuid4().hex

    def bind(self, parts: int = 1) -> BoundMemory:
        sink = MemorySink(self.name, required=("id",), parts=parts)
        return sink.bind(ROWS, lineage=self.lineage, apply_timeout_s=10)

    def stage(self, rows: Sequence[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=ROWS)

    def read(self, *, stable: bool = True) -> list[Row]:
        del stable
        return [Row(**row) for row in committed(self.name)]

    def borderline(self) -> list[Row]:
        return [Row(1), Row(None), Row(2)]  # type: ignore[arg-type] # null in a required column


class TestMemorySink(LogContract):
    """All claims about the in-memory sink."""

    @pytest.fixture
    def kit(self) -> Iterator[MemoryKit]:
        kit = MemoryKit()
        yield kit
        forget(kit.name)


def test_a_missing_required_column_is_refused_at_bind() -> None:
    with pytest.raises(SchemaMismatch, match="nowhere"):
        MemorySink("s", required=("nowhere",)).bind(ROWS, lineage="x", apply_timeout_s=1)
