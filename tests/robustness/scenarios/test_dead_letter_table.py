"""Dead letters in a table: each is written once despite kills, and the epoch records count them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    LINES,
    LONG_ADDRESSES,
    new_scenario,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_a_driver_killed_while_writing_dead_letters_leaves_each_in_the_table_once(
    services: Services, tmp_path: Path
) -> None:
    """Some lines are late, some do not parse, and the table refuses the address of some counts."""
    table = f"letters_{tmp_path.name}".replace("-", "_")[:60]
    scenario = new_scenario(services, tmp_path, dead_letter_table=table)
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {scenario.settings.table} MODIFY ip VARCHAR(8) NOT NULL")
    killed = scenario.run(f"before-commit:mysql.{table}@2=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    result = scenario.run()
    assert result.code == 0, result.log
    checked = scenario.check_exact(refused=LONG_ADDRESSES)
    log = scenario.epoch_log()
    counts = [record.counts for epoch in log.epochs() if (record := log.read(epoch))]
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            f"SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(reason, ' ', 1), ':', 1), COUNT(*), "
            f"COUNT(source_offset) FROM {table} GROUP BY 1"
        )
        rows_by_kind = {
            kind: (rows, rows_with_source) for kind, rows, rows_with_source in cursor.fetchall()
        }
    assert sum(count["rows_in"] for count in counts) == LINES
    assert max(count["rows_in"] for count in counts) <= EPOCH_LINES
    for kind, (rows, rows_with_source) in rows_by_kind.items():
        assert rows == sum(count.get(f"dead_letters_{kind}", 0) for count in counts)
        assert rows_with_source == (0 if kind == "refused" else rows)
    assert rows_by_kind.keys() == {"late", "unparsed", "refused"}
    assert checked["dead letters"] == sum(rows for rows, _ in rows_by_kind.values())
