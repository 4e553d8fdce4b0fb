"""`sluicegate epochs` on the epoch log of a checkpoint on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluicegate.cli.applied import applied
from sluicegate.cli.commands import app
from sluicegate.protocol.errors import SinkUnavailable
from sluicegate.protocol.markers import GENESIS, Marker
from sluicegate.protocol.record import Chunk, EpochRecord, SinkBinding
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.objects import LocalObjects

SINK = "mysql.t"
BEFORE = Marker(2, "two")


def record(epoch: int = 3, prev: Marker = BEFORE) -> EpochRecord:
    """Return a record of 1,234 rows for one part of a table."""
    return EpochRecord(
        lineage="l",
        job="j",
        epoch=epoch,
        attempt="three",
        delivery="exactly-once",
        offsets_digest="d",
        sinks={SINK: SinkBinding("mysql", "table t", 1, "l/t")},
        prev={SINK: {0: prev}},
        chunks=(
            Chunk(
                SINK,
                0,
                (0, 0),
                rows=1234,
                size=4,
                sha256=hashlib.sha256(b"rows").hexdigest(),
                inline=b"rows",
            ),
        ),
        decided_at_ms=1_767_787_200_123,
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Give a checkpoint with one decided epoch."""
    objects = LocalObjects(tmp_path)
    claim_lineage(objects, "j")
    StoredEpochLog(objects).create(record())
    return tmp_path


def run(*arguments: object) -> Result:
    """Run the command as a user does, with no server in the environment."""
    env = {"SLUICEGATE_KAFKA": None, "SLUICEGATE_MYSQL": None}
    return CliRunner().invoke(app, ["epochs", *map(str, arguments)], env=env)


def test_list_says_when_an_epoch_was_decided_and_its_rows(checkpoint: Path) -> None:
    said = run("list", checkpoint).output
    assert "3  2026-01-07 12:00:00.123  decided" in said
    assert "mysql.t 1,234" in said


def test_list_tells_what_spark_has_committed_from_what_is_only_decided(checkpoint: Path) -> None:
    LocalObjects(checkpoint).create("commits/3", b"v1\n{}")
    assert "committed" in run("list", checkpoint).output


def test_show_names_attempt_rows_and_staged_bytes(checkpoint: Path) -> None:
    said = run("show", checkpoint, 3).output
    assert "by attempt three" in said
    assert "part 0: 1,234 rows, 4 B in 1 chunks (1 inline)" in said


def test_show_says_which_server_it_was_not_told_of(checkpoint: Path) -> None:
    assert "not asked: give --mysql or SLUICEGATE_MYSQL" in run("show", checkpoint, 3).output


def test_show_of_an_epoch_without_a_record_says_what_that_means(checkpoint: Path) -> None:
    done = run("show", checkpoint, 9)
    assert done.exit_code == 66
    assert "it is undecided, or was pruned" in done.output


def test_discard_is_kept_with_its_reason_and_shown(checkpoint: Path) -> None:
    done = run("discard", checkpoint, 3, SINK, "--why", "the table is gone", "--yes")
    assert "1,234 rows of mysql.t are discarded" in done.output
    assert "DISCARDED" in run("show", checkpoint, 3).output


def test_discard_of_a_sink_that_the_epoch_does_not_have_changes_nothing(checkpoint: Path) -> None:
    done = run("discard", checkpoint, 3, "mysql.other", "--why", "x", "--yes")
    assert done.exit_code == 2
    assert StoredEpochLog(LocalObjects(checkpoint)).discarded(3) == frozenset()


@pytest.mark.parametrize(
    ("found", "prev", "said"),
    [
        (Marker(3, "three"), BEFORE, "applied"),
        (BEFORE, BEFORE, "not applied yet"),
        (None, GENESIS, "not applied yet"),
        (Marker(5, "five"), BEFORE, "applied; the sink has gone on to epoch 5, attempt five"),
        (None, BEFORE, "UNEXPECTED: the marker is absent"),
        (Marker(3, "other"), BEFORE, "UNEXPECTED: the marker is epoch 3, attempt other"),
    ],
)
def test_where_an_epoch_is_in_is_read_from_the_sinks_marker(
    found: Marker | None, prev: Marker, said: str
) -> None:
    assert applied(record(prev=prev), SINK, 0, {"mysql": lambda *_: found}) == said


def test_a_sink_that_does_not_answer_is_unknown_not_empty() -> None:
    def away(*_: object) -> Marker | None:
        raise SinkUnavailable("MySQL is away", data="", do="")

    assert applied(record(), SINK, 0, {"mysql": away}) == "unknown: MySQL is away"
