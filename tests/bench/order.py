"""What a contender's process is started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Order:
    """Instructions for a contender's process: a file in its folder, without passwords.

    Args:
        kind: as in the workload.
        contender: name of the contender.
        bootstrap: Kafka's bootstrap servers.
        source: source topic.
        sink: sink topic.
        dead_letters: topic for lines that cannot be counted.
        table: sink table, if the kind has one; its staging table has `_staging` after its name.
        epoch_records: maxOffsetsPerTrigger.
        trigger: an interval, or 'available-now'.
        apply_wait_s: as in the workload.
        cores: as in the workload.
        executors: as in the workload.
        checkpoint: its address; empty: it is in the folder.
        records: with an interval, how many records end the run; 0: a file does.
    """

    kind: str
    contender: str
    bootstrap: str
    source: str
    sink: str
    dead_letters: str
    table: str
    epoch_records: int
    trigger: str
    apply_wait_s: float = 0.0
    cores: int = 2
    executors: int = 0
    checkpoint: str = ""
    records: int = 0

    @property
    def spark_master(self) -> str:
        """The master of Spark's session: threads of the driver, or executors of 1 GiB."""
        if self.executors:
            return f"local-cluster[{self.executors},{self.cores},1024]"
        return f"local[{self.cores}]"

    @property
    def staging_table(self) -> str:
        """The table that SPARK_JDBC fills before it merges."""
        return f"{self.table}_staging"

    def write(self, folder: Path) -> None:
        """Write the order to a folder."""
        (folder / "order.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Order:
        """Read the order from a folder."""
        return cls(**json.loads((folder / "order.json").read_text(encoding="utf-8")))
