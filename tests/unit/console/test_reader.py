"""What the reader finds, and that it never shows what has changed since."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from infra.local_services import S3Endpoint
from sluicegate.console.reader import EPOCHS, Reader
from sluicegate.protocol.record import DecidedEpoch
from sluicegate.storage import driver_failure
from sluicegate.storage.driver_end import DriverEnd, Why, write_end
from sluicegate.storage.driver_failure import DriverFailure, write_failure
from sluicegate.storage.driver_start import DriverStart, write_start
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import EpochReport, TimedStep, write_report
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore, ObjectStore, open_store
from tests.unit.console.browser import request
from tests.unit.savepoints.builders import record

Open = Callable[..., Reader]
FAILURE = '{"ended_at_ms":9000,"ran_s":1.0,"exit_code":75,"kind":"Stuck","what":"","data":"","do":"","then":""}'


@pytest.fixture
def reading() -> Iterator[Open]:
    """Return what makes readers of some addresses; they are closed after the test."""
    readers: list[Reader] = []

    def make(*addresses: object) -> Reader:
        readers.append(Reader([str(address) for address in addresses]))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def checkpoint(store: ObjectStore, *epochs: int, lineage: str = "l") -> None:
    """Write decided epochs, whose reports say how often they were applied."""
    create_lineage(store, Lineage(lineage, "orders"))
    for epoch in epochs:
        StoredEpochLog(store).create(record(epoch, lineage))
        reported(store, epoch)


def reported(store: ObjectStore, epoch: int, tries: int = 1) -> None:
    decided = DecidedEpoch(record(epoch, "l"), replayed=False)
    steps = (TimedStep("apply", 1.0, 2.0, "memory.t"),) * tries
    write_report(store, EpochReport.of(decided, steps))


def tries(reader: Reader, key: str) -> list[int]:
    job = reader.job(key)
    assert job is not None
    return [sink.tries for report in job.reports for sink in report.sinks.values()]


def test_checkpoints_are_found_at_any_depth_and_by_their_own_address(
    tmp_path: Path, reading: Open
) -> None:
    for name in ("a", "tenant/b", "volume/tenant/jobs/c"):
        checkpoint(LocalObjectStore(tmp_path / name))
    assert set(reading(tmp_path).found().checkpoints) == {"a", "tenant/b", "volume/tenant/jobs/c"}
    assert set(reading(f"{tmp_path}/tenant/b/").found().checkpoints) == {"b"}


def test_the_current_folder_has_a_name(
    tmp_path: Path, reading: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(LocalObjectStore(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert set(reading(os.curdir).found().checkpoints) == {tmp_path.name}


def test_checkpoints_with_one_name_below_two_addresses_are_both_shown(
    tmp_path: Path, reading: Open
) -> None:
    for name in ("1/a", "1/a~2", "2/a", "3/a"):
        checkpoint(LocalObjectStore(tmp_path / name))
    found = reading(*(tmp_path / str(n) for n in (1, 2, 3))).found().checkpoints
    assert set(found) == {"a", "a~2", "a~3", "a~4"}
    assert len(set(found.values())) == 4


def test_a_checkpoint_in_a_bucket_is_read_as_one_in_a_folder(
    bucket: S3Endpoint, reading: Open
) -> None:
    checkpoint(open_store(f"{bucket.url}/console/shop/orders"), 0, 1)
    job = reading(f"{bucket.url}/console").job("shop/orders")
    assert job is not None
    assert (job.name, job.every_sink_has, job.problems) == ("orders", 1, ())


def test_only_the_newest_epochs_are_read_but_any_can_be(tmp_path: Path, reading: Open) -> None:
    checkpoint(LocalObjectStore(tmp_path / "a"), *range(EPOCHS + 3))
    reader = reading(tmp_path)
    job = reader.job("a")
    assert job is not None
    assert [epoch.number for epoch in job.epochs] == list(range(3, EPOCHS + 3))
    old = reader.epoch(job, 0)
    assert old is not None
    assert (old.number, old.is_reported) == (0, True)
    assert reader.epoch(job, EPOCHS + 3) is None


def test_what_a_driver_writes_is_seen_by_the_next_read(tmp_path: Path, reading: Open) -> None:
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0, 1)
    reader = reading(tmp_path)
    assert tries(reader, "a") == [1, 1]
    reported(store, 1, tries=3)  # by a replay
    checkpoint(store, 2)
    assert tries(reader, "a") == [1, 3, 1]


def test_a_record_is_read_once(
    tmp_path: Path, reading: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may be in it, and a page that is open asks every few seconds."""
    checkpoint(LocalObjectStore(tmp_path / "a"), 0, 1, 2)
    names: list[str] = []
    read = LocalObjectStore.read

    def recording(store: LocalObjectStore, name: str) -> bytes | None:
        names.append(name)
        return read(store, name)

    monkeypatch.setattr(LocalObjectStore, "read", recording)
    reader = reading(tmp_path)
    for _ in range(3):
        reader.job("a")
    assert [names.count(f"a/epochs/{epoch}") for epoch in range(3)] == [1, 1, 1]
    assert [names.count(f"a/epochs/{epoch}.report") for epoch in range(3)] == [1, 3, 3]


def test_another_history_in_the_same_folder_is_not_mistaken_for_the_first(
    tmp_path: Path, reading: Open
) -> None:
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0, 1, 2, 3)
    reader = reading(tmp_path)
    assert tries(reader, "a") == [1, 1, 1, 1]
    store.clear()
    checkpoint(store, 0, 1, 2, 3, lineage="other")
    job = reader.job("a")
    assert job is not None
    assert job.lineage == Lineage("other", "orders")
    assert [epoch.sinks["memory.t"].marker_key for epoch in job.epochs] == ["other/memory.t"] * 4


@pytest.mark.parametrize("start_ms", [1e308, -1.0, 1e15])
def test_a_report_with_impossible_times_is_a_note(
    tmp_path: Path, reading: Open, start_ms: float
) -> None:
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0)
    decided = DecidedEpoch(record(0, "l"), replayed=False)
    write_report(store, EpochReport.of(decided, (TimedStep("stage", start_ms, 1e308),)))
    job = reading(tmp_path).job("a")
    assert job is not None
    assert (job.reports, len(job.notes)) == ([], 1)


@pytest.mark.parametrize(
    "lineage",
    [
        b'{"id":"l","job":[1]}',
        b'{"id":"l","job":"j","first_epoch":"x"}',
        b'{"id":"l","job":"j","parent":[]}',
        rb'{"id":"l","job":"\ud800"}',
    ],
)
def test_a_lineage_with_fields_of_another_type_is_damage(
    tmp_path: Path, reading: Open, lineage: bytes
) -> None:
    LocalObjectStore(tmp_path / "a").put("lineage.json", [lineage])
    job = reading(tmp_path).job("a")
    assert job is not None
    assert "lineage.json is damaged" in job.problems[0].what
    assert replace(job, problems=()).name == "a"


DECIDED_MS = 1_000


@pytest.mark.parametrize(
    ("failures", "started_at_ms", "failed_at_ms"),
    [
        ([(2_000, "SinkUnavailable")], None, 2_000),
        ([(2_000, "SinkUnavailable")], 1_500, 2_000),
        ([(2_000, "SinkUnavailable")], 2_500, None),
        ([(500, "SinkUnavailable")], None, None),
        ([(2_000, "Fenced")], 1_500, None),
        ([(2_000, "SinkUnavailable"), (3_000, "Fenced")], 1_500, 2_000),
        ([], None, None),
    ],
    ids=["new", "after-start", "restarted", "old", "zombie", "before-zombie", "none"],
)
def test_the_last_failure_counts_until_a_driver_starts_or_decides(
    tmp_path: Path,
    reading: Open,
    failures: list[tuple[int, str]],
    started_at_ms: int | None,
    failed_at_ms: int | None,
) -> None:
    """And not that of a driver that was fenced: another one is alive."""
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0)
    StoredEpochLog(store).create(replace(record(1, "l"), decided_at_ms=DECIDED_MS))
    for ended_at_ms, kind in failures:
        write_failure(store.url, DriverFailure(ended_at_ms, 1.0, 75, kind=kind))
    if started_at_ms is not None:
        write_start(store.url, DriverStart(started_at_ms, {}))
    reader = reading(tmp_path)
    (brief,) = reader.briefs(reader.found(), {})
    whole = reader.job("a")
    assert whole is not None
    for facts in (brief, whole):
        assert (facts.failed and facts.failed.ended_at_ms) == failed_at_ms


def test_a_batch_that_has_finished_after_a_failure_has_not_failed(
    tmp_path: Path, reading: Open
) -> None:
    """It records no start, and its epoch was decided before."""
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0)
    StoredEpochLog(store).create(replace(record(1, "l"), decided_at_ms=DECIDED_MS))
    write_failure(store.url, DriverFailure(DECIDED_MS + 1000, 1.0, 75, kind="Stuck"))
    write_end(store.url, DriverEnd(DECIDED_MS + 1500, 1.0, Why.FINISHED))
    facts = reading(tmp_path).job("a")
    assert facts is not None
    assert facts.failed is None


def test_a_damaged_failure_is_skipped_for_the_state_of_a_job(tmp_path: Path, reading: Open) -> None:
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0)
    write_failure(store.url, DriverFailure(2_000, 1.0, 75, kind="SinkUnavailable"))
    store.put(driver_failure.name_of(3_000), [b"torn"])
    job = reading(tmp_path).job("a")
    assert job is not None
    assert job.failed is not None
    assert job.failed.ended_at_ms == 2_000


@pytest.mark.parametrize(
    "name",
    ["lineage.json", "offsets/0", "epochs/0.report", "starts/1", "failures/1", "ends/1"],
)
def test_a_nested_object_is_no_reason_to_show_nothing(
    tmp_path: Path, reading: Open, name: str
) -> None:
    """Anyone who may write one checkpoint could otherwise switch the console off for all."""
    checkpoint(LocalObjectStore(tmp_path / "good"), 0)
    bad = LocalObjectStore(tmp_path / "bad")
    checkpoint(bad, 0)
    (tmp_path / "bad" / name).unlink(missing_ok=True)
    nested = b"[" * 100_000
    bad.create(name, nested if not name.startswith("offsets") else b"v1\n%b\n%b" % (nested, nested))
    reader = reading(tmp_path)
    assert {job.key for job in reader.briefs(reader.found(), {})} == {"good", "bad"}
    assert reader.job("good") is not None
    job = reader.job("bad")
    assert job is not None
    reader.epoch(job, 0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("offsets/0", 'v1\n{"batchTimestampMs":1e999}\n{"t":{"0":1e999}}'),
        ("failures/000000000009000", FAILURE.replace("9000", "9" * 400)),
        ("failures/000000000009000", FAILURE.replace("Stuck", r"\ud800")),
        ("lineage.json", r'{"id":"\ud800","job":"j"}'),
        ("lineage.json", r'{"id":"l","job":"\ud800"}'),
        (b"../folder \xff/lineage.json".decode(errors="surrogateescape"), '{"id":"l","job":"j"}'),
    ],
    ids=["infinite", "huge", "no-text", "id", "job", "folder"],
)
def test_a_checkpoint_with_impossible_values_is_no_reason_to_show_nothing(
    tmp_path: Path, console: ASGIApp, name: str, content: str
) -> None:
    """Anyone who may write one checkpoint could otherwise switch the console off for all."""
    checkpoint(LocalObjectStore(tmp_path / "good"), 0)
    checkpoint(LocalObjectStore(tmp_path / "bad"), 0)
    (tmp_path / "bad" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "bad" / name).write_text(content)
    for path in ("/", "/job/good", "/job/bad", "/job/bad/epoch/0"):
        assert request(console, path).status == 200, path
    fleet = request(console, "/").body
    assert 'href="/job/good"' in fleet
    assert 'href="/job/bad"' in fleet


@pytest.mark.parametrize("at_ms", [-1, 1 << 60])
def test_a_decision_with_an_impossible_time_is_damage(
    tmp_path: Path, reading: Open, at_ms: int
) -> None:
    store = LocalObjectStore(tmp_path / "a")
    checkpoint(store, 0)
    StoredEpochLog(store).create(replace(record(1, "l"), decided_at_ms=at_ms))
    job = reading(tmp_path).job("a")
    assert job is not None
    assert "epochs/1 is damaged" in job.problems[0].what
