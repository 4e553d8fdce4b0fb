"""Verification compares markers and record counts with what the epoch log decided."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.errors import EpochLogBroken
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.protocol.record import Chunk, EpochRecord, Seal, SinkBinding
from sluicegate.savepoints.manifest import Ancestry, write_ancestry
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.verification.epoch_log import (
    DecidedState,
    SinkState,
    compare_decided,
    read_decided,
)

TOPIC = "lines"
SINK = "kafka.counts"
BINDING = SinkBinding("kafka", "topic counts", 1, "group")


def epoch(number: int, rows: int, prev: Marker = NO_MARKER) -> EpochRecord:
    body = b"-" * number
    chunk = Chunk(SINK, 0, (0, 0), rows, len(body), hashlib.sha256(body).hexdigest(), inline=body)
    return EpochRecord(
        lineage="l",
        job="ip_count",
        epoch=number,
        attempt=f"a{number}",
        delivery="exactly-once",
        offsets_digest="",
        sinks={SINK: BINDING},
        prev={SINK: {0: prev}},
        chunks=(chunk,),
    )


DECIDED = DecidedState(
    newest=epoch(1, 2, Marker(0, "a0")), attempts={0: "a0", 1: "a1"}, rows={SINK: 5}, covered={0: 8}
)


@pytest.mark.parametrize(
    ("marker", "records", "expected"),
    [
        (Marker(1, "a1"), 5, []),
        (Marker(1, "seeded.x"), 5, []),  # expired, and seeded for an epoch that was not decided
        (Marker(0, "a0"), 5, ["lost"]),  # decided but not applied yet
        (None, 5, ["lost"]),
        (Marker(1, "zombie"), 5, ["undecided-but-visible"]),
        (Marker(0, "zombie"), 5, ["undecided-but-visible"]),
        (Marker(2, "a2"), 5, ["undecided-but-visible"]),
        (Marker(1, "a1"), 4, ["lost"]),
        (Marker(1, "a1"), 6, ["undecided-but-visible"]),
    ],
)
def test_a_sink_must_match_what_was_decided(
    marker: Marker | None, records: int, expected: list[str]
) -> None:
    findings = compare_decided(DECIDED, {SINK: SinkState({0: marker}, records)})
    assert [finding.kind for finding in findings] == expected


def test_a_marker_without_any_decision_is_found() -> None:
    findings = compare_decided(DecidedState(), {SINK: SinkState({0: Marker(0, "a0")}, None)})
    assert [finding.kind for finding in findings] == ["undecided-but-visible"]


def test_records_are_not_counted_against_a_pruned_log() -> None:
    findings = compare_decided(
        replace(DECIDED, rows=None), {SINK: SinkState({0: Marker(1, "a1")}, 3)}
    )
    assert findings == ()


def checkpoint(folder: Path, offsets: str) -> None:
    log = StoredEpochLog(open_store(str(folder)))
    assert log.create(epoch(0, 3))
    assert log.create(epoch(1, 2, Marker(0, "a0")))
    (folder / "offsets").mkdir()
    (folder / "offsets" / "1").write_text(offsets)


def test_the_epoch_log_and_the_offsets_are_read(tmp_path: Path) -> None:
    checkpoint(tmp_path, 'v1\n{"batchWatermarkMs":0}\n{"lines":{"0":8,"1":3}}')
    decided = read_decided(open_store(str(tmp_path)), TOPIC)
    assert decided.attempts == {0: "a0", 1: "a1"}
    assert decided.rows == {SINK: 5}
    assert decided.covered == {0: 8, 1: 3}


def test_discarded_rows_are_not_expected(tmp_path: Path) -> None:
    checkpoint(tmp_path, 'v1\n{}\n{"lines":{"0":8}}')
    StoredEpochLog(open_store(str(tmp_path))).discard(1, SINK, "given up")
    assert read_decided(open_store(str(tmp_path)), TOPIC).rows == {SINK: 3}


@pytest.mark.parametrize("offsets", ["v1\n{}\n-", 'v1\n{}\n{"other":{"0":8}}', ""])
def test_offsets_without_the_source_are_an_error(tmp_path: Path, offsets: str) -> None:
    checkpoint(tmp_path, offsets)
    with pytest.raises(EpochLogBroken, match="how far lines was read"):
        read_decided(open_store(str(tmp_path)), TOPIC)


def test_a_checkpoint_without_epochs_has_decided_nothing(tmp_path: Path) -> None:
    assert read_decided(open_store(str(tmp_path)), TOPIC) == DecidedState(rows={})


# --- a restored job -------------------------------------------------------------------------------


def restored(folder: Path, *, target: str = "topic counts", rows: int | None = 7) -> DecidedState:
    """Read a checkpoint that was restored after epoch -1 of a parent that had written rows."""
    checkpoint(folder, 'v1\n{}\n{"lines":{"0":8}}')
    objects = open_store(str(folder))
    inherited = None if rows is None else {SINK: rows}
    write_ancestry(
        objects, Ancestry("p", -1, {SINK: replace(BINDING, target=target)}, {}, rows=inherited)
    )
    create_lineage(objects, Lineage("l", "ip_count", parent="p"))
    return read_decided(objects, TOPIC)


def test_rows_of_a_parent_in_the_same_sink_are_expected(tmp_path: Path) -> None:
    assert restored(tmp_path).rows == {SINK: 5 + 7}


def test_a_restored_checkpoint_lacks_the_records_of_inherited_rows(tmp_path: Path) -> None:
    """So `verify` of two_sinks does not call the rows of a job that was moved undecided."""
    assert not restored(tmp_path).has_all_records


def test_rows_of_a_parent_in_another_sink_are_not_expected(tmp_path: Path) -> None:
    found = restored(tmp_path, target="topic other")
    assert (found.rows, found.has_all_records) == ({SINK: 5}, True)


def test_rows_are_not_counted_if_those_of_the_parent_are_unknown(tmp_path: Path) -> None:
    assert restored(tmp_path, rows=None).rows is None


def test_a_sealed_log_is_read_up_to_the_seal(tmp_path: Path) -> None:
    checkpoint(tmp_path, 'v1\n{}\n{"lines":{"0":8}}')
    log = StoredEpochLog(open_store(str(tmp_path)))
    log.create_seal(Seal("id", "l", "ip_count", 2, "moved", 0))
    assert read_decided(open_store(str(tmp_path)), TOPIC).rows == {SINK: 5}
