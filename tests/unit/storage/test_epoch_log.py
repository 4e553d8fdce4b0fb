"""The epoch log, staging and lineage on a local disk."""

from pathlib import Path

import pytest

from sluicegate.protocol.errors import (
    CheckpointOfAnotherJob,
    EpochLogBroken,
    Sealed,
    StageFailed,
)
from sluicegate.protocol.record import Chunk, EpochRecord
from sluicegate.protocol.seal import Seal
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets
from sluicegate.storage.lineage import Lineage, claim_lineage, create_lineage
from sluicegate.storage.objects import LocalObjects
from sluicegate.storage.staging import StagingArea


def record(epoch: int, attempt: str = "a") -> EpochRecord:
    return EpochRecord(
        lineage="l",
        job="j",
        epoch=epoch,
        attempt=attempt,
        delivery="exactly-once",
        offsets_digest="d",
        sinks={},
        prev={},
    )


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path)


def test_a_record_reads_back_as_it_was_written(objects: LocalObjects) -> None:
    log = StoredEpochLog(objects)
    assert log.create(record(3))
    assert log.read(3) == record(3)


def test_the_newest_is_by_number_not_by_name(objects: LocalObjects) -> None:
    log = StoredEpochLog(objects)
    for epoch in (8, 9, 10):
        log.create(record(epoch))
    log.discard(11, "mysql", "why")
    assert log.newest() == 10


def test_a_torn_record_is_never_taken_for_a_decision(objects: LocalObjects, tmp_path: Path) -> None:
    log = StoredEpochLog(objects)
    log.create(record(0))
    file = tmp_path / "epochs" / "0"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(EpochLogBroken):
        log.read(0)


def test_rule_02_pruning_keeps_as_many_as_spark_and_never_the_newest(objects: LocalObjects) -> None:
    log = StoredEpochLog(objects, retained=5)
    for epoch in range(12):
        log.create(record(epoch))
    log.tidy(record(11))
    assert log.epochs() == [7, 8, 9, 10, 11]
    StoredEpochLog(objects, retained=0).tidy(record(11))
    assert log.epochs() == [11]


def test_rule_02_a_late_driver_never_prunes_what_is_newer_than_its_epoch(
    objects: LocalObjects,
) -> None:
    log = StoredEpochLog(objects, retained=1)
    for epoch in (5, 6, 7):
        log.create(record(epoch))
    log.tidy(record(5))
    assert log.epochs() == [5, 6, 7]


def test_rule_08_the_decided_attempt_stays_staged_and_the_losers_go(objects: LocalObjects) -> None:
    log, area = StoredEpochLog(objects), StagingArea(objects)
    kept = area.write(4, "winner", "s/0-0-0-0", b"1")
    area.write(4, "loser", "s/0-0-1-0", b"2")
    log.create(record(4, "winner"))
    log.tidy(record(4, "winner"))
    assert list(objects.names("staging/")) == [kept]


def test_rule_08_staging_of_an_undecided_epoch_is_left_alone(objects: LocalObjects) -> None:
    log, area = StoredEpochLog(objects), StagingArea(objects)
    log.create(record(4))
    living = area.write(5, "zombie", "s/0-0-0-0", b"1")
    log.tidy(record(4))
    assert list(objects.names("staging/")) == [living]


def test_rule_08_a_staged_name_is_never_written_twice(objects: LocalObjects) -> None:
    area = StagingArea(objects)
    area.write(4, "a", "s/0-0-0-0", b"1")
    with pytest.raises(StageFailed):
        area.write(4, "a", "s/0-0-0-0", b"2")


def test_a_changed_chunk_is_not_applied(objects: LocalObjects) -> None:
    area = StagingArea(objects)
    name = area.write(4, "a", "x", b"other")
    with pytest.raises(EpochLogBroken):
        area.read(Chunk("s", 0, (0, 0), 1, 5, "not its hash", name=name))


def test_a_chunk_that_is_gone_is_an_error_not_an_empty_one(objects: LocalObjects) -> None:
    with pytest.raises(EpochLogBroken, match="gone"):
        StagingArea(objects).read(Chunk("s", 0, (0, 0), 1, 5, "h", name="staging/4/a/x"))


def test_rule_03_the_digest_is_of_the_stored_offsets(objects: LocalObjects) -> None:
    offsets = StoredOffsets(objects)
    assert offsets.digest(0) is None
    objects.create("offsets/0", b"v1\n{}")
    first = offsets.digest(0)
    objects.delete("offsets/0")
    objects.create("offsets/0", b"v1\n{ }")
    assert first != offsets.digest(0)


def test_a_checkpoint_keeps_its_lineage(objects: LocalObjects) -> None:
    assert claim_lineage(objects, "job") == claim_lineage(objects, "job")


def test_two_checkpoints_have_two_lineages(tmp_path: Path) -> None:
    one, two = (claim_lineage(LocalObjects(tmp_path / name), "job") for name in ("a", "b"))
    assert one.id != two.id


def test_a_checkpoint_of_another_job_is_refused_by_name(objects: LocalObjects) -> None:
    claim_lineage(objects, "orders")
    with pytest.raises(CheckpointOfAnotherJob, match=r"orders(.|\n)*ip_count"):
        claim_lineage(objects, "ip_count")


def test_a_checkpoint_that_spark_used_alone_is_refused(objects: LocalObjects) -> None:
    objects.create("metadata", b"{}")
    with pytest.raises(CheckpointOfAnotherJob):
        claim_lineage(objects, "ip_count")


# --- the seal ----------------------------------------------------------------------------------------

SEAL = Seal("id", "l", "j", 3, "moved", 0)


def test_a_seal_takes_the_place_of_a_decision_and_is_raised_where_one_is_read(
    objects: LocalObjects,
) -> None:
    log = StoredEpochLog(objects)
    assert log.create_seal(SEAL)
    assert not log.create(record(3))
    with pytest.raises(Sealed):
        log.read(3)
    assert log.read_any(3) == SEAL


def test_a_decision_keeps_its_place_from_a_seal(objects: LocalObjects) -> None:
    log = StoredEpochLog(objects)
    log.create(record(3))
    assert not log.create_seal(SEAL)
    assert log.seal() is None


def test_a_seal_is_newest_and_not_decided(objects: LocalObjects) -> None:
    log = StoredEpochLog(objects)
    log.create(record(2))
    log.create_seal(SEAL)
    assert (log.newest(), log.decided(), log.seal()) == (3, [2], SEAL)


def test_a_late_driver_that_tidies_does_not_trip_over_the_seal_nor_remove_it(
    objects: LocalObjects,
) -> None:
    log = StoredEpochLog(objects, retained=1)
    log.create(record(2))
    log.create_seal(SEAL)
    log.tidy(record(2))
    assert log.seal() == SEAL


# --- a restored checkpoint ---------------------------------------------------------------------------


def test_a_restored_lineage_reads_back_with_its_parent(objects: LocalObjects) -> None:
    made = Lineage("l", "j", first_epoch=4, parent="p", moved=True)
    assert create_lineage(objects, made) == made
    assert claim_lineage(objects, "j") == made


def test_a_lineage_is_created_once(objects: LocalObjects) -> None:
    first = create_lineage(objects, Lineage("one", "j"))
    assert create_lineage(objects, Lineage("two", "j")) == first


def test_a_lineage_of_an_older_version_is_read(objects: LocalObjects) -> None:
    objects.create("lineage.json", b'{"id": "l", "job": "j", "first_epoch": 0}')
    assert claim_lineage(objects, "j") == Lineage("l", "j")
