"""`sluicegate epochs` on the epoch log of a checkpoint on a local disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluicegate.cli.app import app
from sluicegate.cli.epochs import describe_apply
from sluicegate.errors import SinkUnavailable
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.protocol.record import Chunk, DecidedEpoch, EpochRecord, SinkBinding
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import EpochReport, TimedStep, write_report
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.object_store import LocalObjectStore

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
    """Return a checkpoint with one decided epoch."""
    store = LocalObjectStore(tmp_path)
    claim_lineage(store, "j")
    StoredEpochLog(store).create(record())
    return tmp_path


def run(*arguments: object) -> Result:
    """Run the command as a user does, with no server in the environment."""
    env = {"SLUICEGATE_KAFKA": None, "SLUICEGATE_MYSQL": None}
    return CliRunner().invoke(app, ["epochs", *map(str, arguments)], env=env)


def test_list_shows_when_an_epoch_was_decided_and_its_rows(checkpoint: Path) -> None:
    output = run("list", checkpoint).output
    assert "3  2026-01-07 12:00:00.123  in doubt" in output
    assert "mysql.t 1,234" in output


def states(checkpoint: Path) -> dict[int, str]:
    """Return what `list` says about each epoch."""
    lines = run("list", checkpoint).output.splitlines()[1:]
    return {int(line[:8]): line[35:43].strip() for line in lines}


def test_list_says_that_an_epoch_is_in_doubt_until_something_shows_that_every_sink_has_it(
    checkpoint: Path,
) -> None:
    """With overlap Spark commits an epoch before any sink has it."""
    store = LocalObjectStore(checkpoint)
    log = StoredEpochLog(store)
    log.create(dataclasses.replace(record(4), overlapped=True))
    store.create("commits/3", b"v1\n{}")
    store.create("commits/4", b"v1\n{}")
    assert states(checkpoint) == {3: "applied", 4: "in doubt"}
    log.mark_applied(4)
    assert states(checkpoint) == {3: "applied", 4: "applied"}


def test_list_believes_spark_that_committed_an_epoch_without_overlap(checkpoint: Path) -> None:
    LocalObjectStore(checkpoint).create("commits/3", b"v1\n{}")
    assert states(checkpoint) == {3: "applied"}


@pytest.mark.parametrize(("attempt", "state"), [("three", "applied"), ("other", "in doubt")])
def test_list_believes_the_report_of_the_attempt_that_was_decided(
    checkpoint: Path, attempt: str, state: str
) -> None:
    write_steps(checkpoint, attempt=attempt)
    assert states(checkpoint) == {3: state}


def test_show_prints_attempt_rows_and_staged_bytes(checkpoint: Path) -> None:
    output = run("show", checkpoint, 3).output
    assert "by attempt three" in output
    assert "part 0: 1,234 rows, 4 B in 1 chunks (1 inline)" in output


def test_show_names_the_server_that_is_not_set(checkpoint: Path) -> None:
    assert "not checked: set --mysql or SLUICEGATE_MYSQL" in run("show", checkpoint, 3).output


def test_show_of_an_epoch_without_a_record_is_an_error(checkpoint: Path) -> None:
    done = run("show", checkpoint, 9)
    assert done.exit_code == 66
    assert "it is undecided or was pruned" in done.output


STEPS = (
    TimedStep("stage", 1000.0, 60.0),
    TimedStep("apply", 1060.0, 10.0, SINK),
    TimedStep("commit", 1090.0, 10.0, SINK, 0),
    TimedStep("apply", 1080.0, 20.0, SINK),
)


def write_steps(checkpoint: Path, *, attempt: str = "three") -> EpochReport:
    """Write the report of epoch 3, which was replayed."""
    decided = DecidedEpoch(dataclasses.replace(record(), attempt=attempt), replayed=True)
    report = EpochReport.of(decided, STEPS)
    write_report(LocalObjectStore(checkpoint), report)
    return report


def test_show_prints_a_waterfall_of_the_steps(checkpoint: Path) -> None:
    write_steps(checkpoint)
    lines = run("show", checkpoint, 3).output.splitlines()
    assert lines[lines.index("  steps, of a replay:") + 1 :] == [
        f"             0 ms       60.0 ms  |{'#' * 24}{' ' * 16}|  stage",
        f"            60 ms       10.0 ms  |{' ' * 24}{'#' * 4}{' ' * 12}|  apply {SINK}",
        f"            80 ms       20.0 ms  |{' ' * 32}{'#' * 8}|  apply {SINK}",
        f"            90 ms       10.0 ms  |{' ' * 36}{'#' * 4}|  commit {SINK} part 0",
        f"    {SINK} was tried 2 times",
    ]


def test_show_prints_the_report_as_json(checkpoint: Path) -> None:
    report = write_steps(checkpoint)
    printed = json.loads(run("show", checkpoint, 3, "--json").stdout)
    assert printed == json.loads(report.as_json())
    assert printed["steps"][2]["part"] == 0


def test_show_of_an_epoch_without_a_report_prints_the_rest(checkpoint: Path) -> None:
    assert "steps" not in run("show", checkpoint, 3).output
    assert run("show", checkpoint, 3, "--json").stdout == "null\n"


def test_show_names_a_report_of_another_attempt(checkpoint: Path) -> None:
    write_steps(checkpoint, attempt="other")
    assert "steps, of a replay, OF ATTEMPT other:" in run("show", checkpoint, 3).output


def test_show_of_a_damaged_report_prints_the_rest(checkpoint: Path) -> None:
    LocalObjectStore(checkpoint).create("epochs/3.report", b"{")
    done = run("show", checkpoint, 3)
    assert done.exit_code == 0
    assert "by attempt three" in done.stdout
    assert "epochs/3.report is damaged" in done.stderr
    assert run("show", checkpoint, 3, "--json").stdout == "null\n"


def test_a_report_is_not_listed_as_an_epoch(checkpoint: Path) -> None:
    write_steps(checkpoint)
    assert list(states(checkpoint)) == [3]


def test_discard_is_stored_and_shown(checkpoint: Path) -> None:
    done = run("discard", checkpoint, 3, SINK, "--why", "the table was dropped", "--yes")
    assert "1,234 rows of mysql.t are discarded" in done.output
    assert "DISCARDED" in run("show", checkpoint, 3).output
    assert "mysql.t 1,234 DISCARDED" in run("list", checkpoint).output


def test_discard_of_an_epoch_that_every_sink_has_is_refused(checkpoint: Path) -> None:
    """Its rows would stay in the sink, while `verify` and a restored sink take them for given up."""
    LocalObjectStore(checkpoint).create("commits/3", b"v1\n{}")
    done = run("discard", checkpoint, 3, SINK, "--why", "x", "--yes")
    assert done.exit_code == 2
    assert "every sink has epoch 3" in done.output
    assert StoredEpochLog(LocalObjectStore(checkpoint)).discarded(3) == frozenset()


def test_discard_of_an_unknown_sink_changes_nothing(checkpoint: Path) -> None:
    done = run("discard", checkpoint, 3, "mysql.other", "--why", "x", "--yes")
    assert done.exit_code == 2
    assert StoredEpochLog(LocalObjectStore(checkpoint)).discarded(3) == frozenset()


@pytest.mark.parametrize(
    ("marker", "prev", "state"),
    [
        (Marker(3, "three"), BEFORE, "applied"),
        (BEFORE, BEFORE, "not applied yet"),
        (None, NO_MARKER, "not applied yet"),
        (Marker(5, "five"), BEFORE, "applied; the sink is now at epoch 5, attempt five"),
        (None, BEFORE, "UNEXPECTED: the marker is absent"),
        (Marker(3, "other"), BEFORE, "UNEXPECTED: the marker is epoch 3, attempt other"),
    ],
)
def test_the_state_of_an_apply_follows_from_the_sinks_marker(
    marker: Marker | None, prev: Marker, state: str
) -> None:
    assert describe_apply(record(prev=prev), SINK, 0, {"mysql": lambda *_: marker}) == state


def test_the_state_in_an_unavailable_sink_is_unknown() -> None:
    def unavailable(*_: object) -> Marker | None:
        raise SinkUnavailable("MySQL is away", data="", do="")

    assert describe_apply(record(), SINK, 0, {"mysql": unavailable}) == "unknown: MySQL is away"
