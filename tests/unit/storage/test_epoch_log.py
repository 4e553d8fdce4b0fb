"""Epoch log and Spark's logs on a local disk."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import failpoints
from sluicegate.errors import (
    EpochLogBroken,
    OffsetLogDiverged,
    Sealed,
    StoreUnavailable,
)
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets, log_ports
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.storage.staging_area import StagingArea


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
def store(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path)


def test_a_record_reads_back_as_it_was_written(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    assert log.create(record(3))
    assert StoredEpochLog(store).read(3) == record(3)


def test_a_record_is_decoded_again_only_if_its_bytes_are_not_those_that_were_created(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    log, stored = StoredEpochLog(store), record(7)
    assert log.create(stored)
    assert log.read(7) is stored
    assert StoredEpochLog(store).read(7) is not stored
    (tmp_path / "epochs" / "7").unlink()
    assert log.read(7) is None
    assert StoredEpochLog(store).create(record(7, attempt="another"))
    assert log.read(7) == record(7, attempt="another")


def test_the_newest_epoch_is_by_number_not_by_name(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    for epoch in (8, 9, 10):
        log.create(record(epoch))
    log.discard(11, "mysql", "why")
    assert log.newest() == 10


def test_a_truncated_record_is_never_a_decision(store: LocalObjectStore, tmp_path: Path) -> None:
    log = StoredEpochLog(store)
    log.create(record(0))
    file = tmp_path / "epochs" / "0"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(EpochLogBroken):
        log.read(0)


def test_rule_02_pruning_respects_the_retention_and_keeps_the_newest(
    store: LocalObjectStore,
) -> None:
    log = StoredEpochLog(store, retained=5)
    for epoch in range(12):
        log.create(record(epoch))
    assert log.prune(11) == 7
    assert log.epochs() == [7, 8, 9, 10, 11]
    StoredEpochLog(store, retained=0).prune_after(record(11))
    assert log.epochs() == [11]


def test_pruning_runs_once_in_ten_epochs(store: LocalObjectStore) -> None:
    """It lists the whole log."""
    log = StoredEpochLog(store, retained=1)
    for epoch in range(5, 16):
        log.create(record(epoch))
    log.prune_after(record(5))
    log.prune_after(record(14))
    assert log.epochs() == list(range(5, 16))
    log.prune_after(record(15))
    assert log.epochs() == [15]


class Unreachable(LocalObjectStore):
    """A store whose lists fail while `broken`."""

    broken = True

    def names(self, prefix: str) -> Iterator[str]:
        if self.broken:
            raise StoreUnavailable("no list")
        return super().names(prefix)


def test_a_store_that_cannot_be_listed_is_pruned_by_the_next_epoch(tmp_path: Path) -> None:
    store = Unreachable(tmp_path)
    log = StoredEpochLog(store, retained=1)
    for epoch in (1, 2, 3):
        log.create(record(epoch))
    log.prune_after(record(2))
    store.broken = False
    log.prune_after(record(3))
    assert log.epochs() == [3]


def test_pruning_removes_a_record_after_what_belongs_to_it(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is interrupted, the record still shows which epochs the rest belongs to."""
    log = StoredEpochLog(store, retained=1)
    for epoch in (1, 2):
        log.create(record(epoch))
    log.mark_applied(1)
    deleted: list[str] = []
    monkeypatch.setattr(LocalObjectStore, "delete", lambda _self, name: deleted.append(name))
    log.prune(2)
    assert deleted == ["epochs/1.applied", "epochs/1"]


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("pruning-log", ["epochs/4", "epochs/5", "epochs/5.applied", "staging/4/a/s/0-0-0-0"]),
        ("before-sweep", ["epochs/5", "epochs/5.applied", "staging/4/a/s/0-0-0-0"]),
    ],
)
def test_rule_02_pruning_that_was_killed_is_completed_by_the_next(
    store: LocalObjectStore, point: str, left: list[str]
) -> None:
    log = StoredEpochLog(store, retained=1)
    for epoch in (4, 5):
        log.create(record(epoch))
        log.mark_applied(epoch)
    StagingArea(store).write(4, "a", "s/0-0-0-0", b"1")

    def prune() -> None:
        failpoints.arm(f"{point}@5=kill-self")
        log.prune(5)

    process = multiprocessing.get_context("fork").Process(target=prune)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert sorted(store.names("")) == left
    log.prune(5)
    assert sorted(store.names("")) == ["epochs/5", "epochs/5.applied"]


def test_a_file_that_is_not_of_the_log_is_left_alone(store: LocalObjectStore) -> None:
    store.create("epochs/README.txt", b"")
    log = StoredEpochLog(store, retained=1)
    assert (log.epochs(), log.newest(), log.seal()) == ([], None, None)
    log.create(record(2))
    assert log.prune(2) == 0
    assert store.read("epochs/README.txt") is not None


def test_a_record_that_another_process_prunes_meanwhile_has_no_chunks_to_keep(
    tmp_path: Path,
) -> None:
    class Late(LocalObjectStore):
        def read(self, name: str) -> bytes | None:
            return None if name == "epochs/4" else super().read(name)

    store = Late(tmp_path)
    log = StoredEpochLog(store)
    log.create(record(4))
    for attempt in ("a", "b"):
        StagingArea(store).write(4, attempt, "s/0-0-0-0", b"1")
    log.prune(5)
    assert list(store.names("staging/")) == []


def test_an_epoch_is_claimed_and_marked_once(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    assert (log.claim(3, "s", 0), log.claim(3, "s", 0), log.claim(3, "s", 1)) == (True, False, True)
    assert not log.is_marked_applied(3)
    log.mark_applied(3)
    log.mark_applied(3)
    assert log.is_marked_applied(3)


def test_discarded_sinks_are_listed_by_epoch(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    assert (log.discard(3, "mysql", "why"), log.discard(3, "mysql", "again")) == (True, False)
    assert (log.discarded(3), log.discarded(30)) == (frozenset({"mysql"}), frozenset())


def test_without_a_seal_all_records_are_decided(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    log.create(record(2))
    log.create(record(3))
    assert log.decided() == [2, 3]


def test_the_ports_of_the_logs_read_the_checkpoint(store: LocalObjectStore) -> None:
    store.create("commits/4", b"v1\n{}")
    ports = log_ports(store)
    ports.log.create(record(4))
    assert ports.log.newest() == 4
    assert (ports.offsets.is_committed(4), ports.offsets.is_committed(5)) == (True, False)
    assert ports.clock.now_ms() == pytest.approx(time.time() * 1000, abs=60_000)


def test_rule_02_a_late_driver_never_prunes_newer_epochs(
    store: LocalObjectStore,
) -> None:
    log = StoredEpochLog(store, retained=1)
    for epoch in (5, 6, 7):
        log.create(record(epoch))
    log.prune_after(record(5))
    assert log.epochs() == [5, 6, 7]


def test_pruning_lists_twice_and_reads_only_what_it_needs(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is a request on S3; a record is read only if several attempts have staged chunks."""
    log = StoredEpochLog(store, retained=5)
    for epoch in range(12):
        log.create(record(epoch))
        log.discard(epoch, "mysql", "why")
    StagingArea(store).write(9, "loser", "s/0-0-0-0", b"")
    StagingArea(store).write(9, "loser", "s/0-0-1-0", b"")
    kept = [StagingArea(store).write(epoch, "a", "s/0-0-0-0", b"") for epoch in (8, 9)]
    StagingArea(store).write(1, "pruned", "s/0-0-0-0", b"")
    calls: list[str] = []
    read, names = LocalObjectStore.read, LocalObjectStore.names

    def recorded_read(self: LocalObjectStore, name: str) -> bytes | None:
        calls.append(name)
        return read(self, name)

    def recorded_names(self: LocalObjectStore, prefix: str) -> Iterator[str]:
        calls.append(prefix)
        return names(self, prefix)

    monkeypatch.setattr(LocalObjectStore, "read", recorded_read)
    monkeypatch.setattr(LocalObjectStore, "names", recorded_names)
    log.prune_after(record(11))
    assert calls == ["epochs/", "staging/", "epochs/9"]
    monkeypatch.undo()
    logs = [f"epochs/{epoch}{tail}" for epoch in range(7, 12) for tail in ("", ".discard/mysql")]
    assert sorted(store.names("")) == sorted(logs + kept)


def test_rule_08_pruning_keeps_the_decided_attempt_and_removes_the_losers(
    store: LocalObjectStore,
) -> None:
    log, area = StoredEpochLog(store), StagingArea(store)
    winner = area.write(4, "winner", "s/0-0-0-0", b"1")
    area.write(4, "loser", "s/0-0-1-0", b"2")
    log.create(record(4, "winner"))
    log.prune_after(record(4, "winner"))
    assert list(store.names("staging/")) == [winner]


def test_rule_08_pruning_reads_no_record_whose_epoch_has_the_chunks_of_one_attempt(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may hold megabytes of rows, and a hundred of them are retained."""
    log, area = StoredEpochLog(store), StagingArea(store)
    for epoch in (3, 4):
        log.create(record(epoch, "winner"))
        area.write(epoch, "winner", "s/0-0-0-0", b"1")
    read = list[str]()
    monkeypatch.setattr(LocalObjectStore, "read", lambda _, name: read.append(name))
    log.prune(4)
    assert read == []


def test_rule_08_pruning_keeps_the_chunks_of_an_epoch_whose_record_cannot_be_read(
    store: LocalObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a redo needs them. An error would end the driver, at each start again."""
    log, area = StoredEpochLog(store), StagingArea(store)
    staged = [area.write(4, attempt, "s/0-0-0-0", b"1") for attempt in ("a", "b")]
    store.create("epochs/4", b"damaged")
    log.create(record(5))
    log.prune_after(record(5))
    assert sorted(store.names("staging/")) == staged
    assert "the staged chunks of epoch 4 stay" in caplog.text


def test_rule_08_pruning_leaves_an_undecided_epoch_staged(store: LocalObjectStore) -> None:
    log, area = StoredEpochLog(store), StagingArea(store)
    log.create(record(4))
    staged = area.write(5, "zombie", "s/0-0-0-0", b"1")
    log.prune_after(record(4))
    assert list(store.names("staging/")) == [staged]


@pytest.mark.parametrize("name", ["staging/x", "staging/4", "staging/x/y/z"])
def test_rule_08_pruning_leaves_names_that_are_none_of_a_chunk(
    store: LocalObjectStore, name: str
) -> None:
    """An error would end the driver, at each tenth epoch again."""
    log = StoredEpochLog(store)
    log.create(record(4))
    store.create(name, b"x")
    log.prune_after(record(4))
    assert store.read(name) == b"x"


def write_logs(root: Path, files: dict[str, bytes]) -> None:
    """Write files of Spark's logs."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@pytest.mark.parametrize(
    ("empty", "removed"),
    [
        ({"commits/5"}, {"commits/5"}),
        ({"commits/5", "commits/4"}, {"commits/5", "commits/4"}),
        ({"commits/5", "offsets/6"}, {"commits/5", "offsets/6"}),
        ({"offsets/6"}, {"offsets/6"}),
        ({"commits/4"}, set()),  # not the newest, the only one that Spark reads
        ({"offsets/6", "offsets/5"}, {"offsets/6"}),  # epoch 5 is decided
        (set(), set()),
    ],
)
def test_files_of_spark_that_a_power_cut_left_empty_are_removed_unless_a_decision_needs_them(
    store: LocalObjectStore, tmp_path: Path, empty: set[str], removed: set[str]
) -> None:
    names = {"commits/4", "commits/5", "offsets/4", "offsets/5", "offsets/6"}
    write_logs(tmp_path, {name: b"" if name in empty else b"v1" for name in names})
    StoredEpochLog(store).create(record(5))
    StoredOffsets(store).remove_empty()
    left = {*store.names("commits/"), *store.names("offsets/")}
    assert names - left == removed


def test_a_file_that_is_not_of_sparks_logs_stops_no_start(store: LocalObjectStore) -> None:
    store.create("offsets/README.txt", b"")
    StoredOffsets(store).remove_empty()
    assert store.read("offsets/README.txt") == b""


def test_the_files_of_spark_on_s3_are_not_listed_at_a_start() -> None:
    """They are whole, and each list is a request."""

    class OnS3(LocalObjectStore):
        def names(self, prefix: str) -> Iterator[str]:
            raise AssertionError(prefix)

    StoredOffsets(OnS3(Path("unused"), "s3://bucket/job")).remove_empty()


def test_rule_03_the_digest_is_that_of_the_stored_offsets(store: LocalObjectStore) -> None:
    offsets = StoredOffsets(store)
    assert offsets.digest(0) is None
    store.create("offsets/0", b"v1\n{}")
    first = offsets.digest(0)
    store.delete("offsets/0")
    store.create("offsets/0", b"v1\n{ }")
    assert first != offsets.digest(0)


def test_rule_03_stored_offsets_that_the_running_query_does_not_read_are_no_digest(
    store: LocalObjectStore,
) -> None:
    """Another driver replaced the file; the metadata may differ, as a restart may find it so."""
    store.create("offsets/0", b'v1\n{"batchTimestampMs":7}\n{"hits":{"0":5}}\n-')
    assert StoredOffsets(store, {0: ('{"hits":{"0":5}}', "-")}).digest(0)
    assert StoredOffsets(store, {1: ('{"hits":{"0":9}}', "-")}).digest(0)
    with pytest.raises(OffsetLogDiverged, match="another driver wrote it"):
        StoredOffsets(store, {0: ('{"hits":{"0":2}}', "-")}).digest(0)


# --- the seal ----------------------------------------------------------------------------------------

SEAL = Seal("id", "l", "j", 3, "moved", 0)


def test_a_seal_occupies_an_epoch_and_is_raised_when_its_record_is_read(
    store: LocalObjectStore,
) -> None:
    log = StoredEpochLog(store)
    assert log.create_seal(SEAL)
    assert not log.create(record(3))
    with pytest.raises(Sealed):
        log.read(3)
    assert log.read_any(3) == SEAL


def test_a_seal_cannot_replace_a_decision(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    log.create(record(3))
    assert not log.create_seal(SEAL)
    assert log.seal() is None


def test_a_seal_is_the_newest_epoch_but_not_a_decided_one(store: LocalObjectStore) -> None:
    log = StoredEpochLog(store)
    log.create(record(2))
    log.create_seal(SEAL)
    assert (log.newest(), log.decided(), log.seal()) == (3, [2], SEAL)


def test_a_late_driver_that_prunes_keeps_the_seal(
    store: LocalObjectStore,
) -> None:
    log = StoredEpochLog(store, retained=1)
    log.create(record(2))
    log.create_seal(SEAL)
    log.prune_after(record(2))
    assert log.seal() == SEAL
