"""A MySQL sink that has seen its table: picklable, opens no connection by itself.

Not here: the checks that made it (preflight) and transactions (writer). Called by the library on
the driver and on executors, as `contract.BoundSink` says. It carries the password to executors;
its repr does not show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.mysql.columns import Column
from sluicegate.sinks.mysql.refusals import refusals
from sluicegate.sinks.mysql.session import Address
from sluicegate.sinks.mysql.statements import InsertForm
from sluicegate.sinks.mysql.writer import MySQLPartWriter, PartPlan


@dataclass(frozen=True)
class BoundMySQL:
    """See `contract.BoundSink`.

    Args:
        id: the sink's id.
        binding: what the epoch record says of it.
        expressions: staged column and Spark SQL, in the table's spelling.
        part_expression: Spark SQL of a row's part, None for one part.
        address: where the database is.
        form: the statement around the rows.
        statement_rows: rows a statement, about.
        packet_bytes: the server's max_allowed_packet at the preflight.
        apply_timeout_s: how long one apply may take.
        lineage: the history whose marker a writer's `marker` reads.
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
        """The table's columns that are written."""
        return self.form.columns

    @property
    def refresh_every_s(self) -> float | None:
        """Markers last for ever."""
        return None

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Say per row why the table would not take it, null where it would; None if all."""
        row_bytes = self.packet_bytes - self.form.overhead()
        return refusals(batch, self.form.columns, keys=self.form.keys, row_bytes=row_bytes)

    def open(self, part: int) -> MySQLPartWriter:
        """Return a writer; it connects when it is first used.

        Earlier writers of the part need no fencing: each locks the marker row and judges it.
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
