"""A MySQL sink bound to its table. Picklable; it opens no connection by itself.

It carries the password to executors; its repr does not show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.mysql.column_types import Column
from sluicegate.sinks.mysql.connection import Address
from sluicegate.sinks.mysql.row_validation import refusals
from sluicegate.sinks.mysql.statements import InsertForm
from sluicegate.sinks.mysql.writer import MySQLPartWriter, PartPlan


@dataclass(frozen=True)
class BoundMySQL:
    """See `contract.BoundSink`.

    Args:
        id: the sink's id.
        binding: what the epoch record stores of it.
        expressions: staged columns, spelled as in the table, and their Spark SQL.
        part_expression: Spark SQL of a row's part, None for one part.
        address: of the database.
        form: of the INSERT statements.
        statement_rows: approximate number of rows per statement.
        packet_bytes: the server's max_allowed_packet at the preflight.
        apply_timeout_s: how long one apply may take.
        lineage: whose marker `MySQLPartWriter.marker` reads.
    """

    id: str
    binding: SinkBinding
    expressions: tuple[tuple[str, str], ...]
    part_expression: str | None
    address: Address
    form: InsertForm
    statement_rows: int
    packet_bytes: int
    apply_timeout_s: float
    lineage: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table that are written."""
        return self.form.columns

    @property
    def refresh_every_s(self) -> float | None:
        """Markers never expire."""
        return None

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Return for each row why the table would not accept it; see the contract."""
        row_bytes = self.packet_bytes - self.form.overhead()
        return refusals(batch, self.form.columns, keys=self.form.keys, row_bytes=row_bytes)

    def open(self, part: int) -> MySQLPartWriter:
        """Return a writer; it connects when it is first used.

        Earlier writers of the part need no fencing: each locks and compares the marker row.
        """
        plan = PartPlan(
            lineage=self.lineage,
            sink=self.id,
            part=part,
            where=f"sink {self.id}, part {part}, {self.binding.target}",
            address=self.address,
            form=self.form,
            statement_rows=self.statement_rows,
            packet_bytes=self.packet_bytes,
            apply_timeout_s=self.apply_timeout_s,
        )
        return MySQLPartWriter(plan)
