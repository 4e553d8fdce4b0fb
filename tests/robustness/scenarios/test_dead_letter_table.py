"""Dead letters in a table: each is written once despite kills, and the epochs count them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.traffic.ip_count_harness import EPOCH_LINES, LINES, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_a_driver_killed_while_writing_dead_letters_leaves_each_in_the_table_once(
    services: Services, tmp_path: Path
) -> None:
    """Some lines are late, some do not parse, and the table refuses the address of some counts."""
    table = f"letters_{tmp_path.name}".replace("-", "_")[:60]
    with scene(services, tmp_path, dead_letter_table=table) as played:
        with services.mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {played.settings.table} MODIFY ip VARCHAR(8) NOT NULL")
        killed = played.run(f"before-commit:mysql.{table}@2=kill-group")
        assert killed.code == -signal.SIGKILL, killed.log
        ended = played.run()
        assert ended.code == 0, ended.log
        checked = played.check_exact()
        log = played.epoch_log()
        counts = [record.counts for epoch in log.epochs() if (record := log.read(epoch))]
        with services.mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                f"SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(reason, ' ', 1), ':', 1), COUNT(*), "
                f"COUNT(source_offset) FROM {table} GROUP BY 1"
            )
            kinds = {kind: (rows, sourced) for kind, rows, sourced in cursor.fetchall()}
    assert sum(count["rows_in"] for count in counts) == LINES
    assert max(count["rows_in"] for count in counts) <= EPOCH_LINES
    for kind, (rows, sourced) in kinds.items():
        assert rows == sum(count.get(f"dead_letters_{kind}", 0) for count in counts)
        assert sourced == (0 if kind == "refused" else rows)
    assert kinds.keys() == {"late", "unparsed", "refused"}
    assert checked["dead letters"] == sum(rows for rows, _ in kinds.values())
