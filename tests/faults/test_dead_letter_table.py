"""Dead letters into a table: each is there once, whatever is killed, and the epochs count them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from infra.embedded import Services
from tests.faults.harness import EPOCH_LINES, LINES, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_a_driver_killed_with_letters_half_written_leaves_each_in_the_table_once(
    services: Services, tmp_path: Path
) -> None:
    """Some are late, some do not parse, and some are of counts whose address the table refuses."""
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
