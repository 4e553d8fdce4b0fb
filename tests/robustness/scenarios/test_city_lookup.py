"""city_lookup is killed with kill -9 at a random failpoint; afterwards the store's answers differ."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.local_services.valkey import redis_missing_reason
from sluicegate.protocol.record import EpochRecord
from sluicegate.storage.arrow_encoding import decode_batches
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.city_lookup import JOB
from tests.robustness.traffic.ip_count_harness import feed
from tests.robustness.traffic.packaged_job_harness import JobScene, job_scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

IDS, EPOCH_IDS, CITIES = 600, 150, 50


def ids() -> list[bytes]:
    """Return ids; every twentieth is unknown to the store, and some are empty."""
    return [
        b" " if i % 100 == 7 else b"nowhere" if i % 20 == 3 else str(i % CITIES).encode()
        for i in range(IDS)
    ]


BURIED = sum(not one.strip().isdigit() for one in ids())


def fill(services: Services, hash_name: str, cities: str) -> None:
    """Make the store answer with these cities."""
    with services.redis.connect() as client:
        client.hset(hash_name, mapping={str(i): f"{cities} {i}" for i in range(CITIES)})


@pytest.fixture
def played(services: Services, tmp_path: Path) -> JobScene:
    """Return a scene whose store has old cities."""
    if redis_missing_reason():
        pytest.skip("no Redis: see the head of the run")
    own = {"cities": f"c{uuid.uuid4().hex[:8]}", "redis": services.redis.url}
    made = job_scene(services, tmp_path, JOB, 0, max_records=EPOCH_IDS, **own)
    feed(services.kafka.bootstrap, made.settings.source, ids())
    fill(services, made.settings.cities, "old")
    return made


def newest(played: JobScene) -> EpochRecord:
    """Return the newest decided epoch."""
    log = StoredEpochLog(open_store(played.settings.checkpoint))
    epoch = log.newest()
    record = None if epoch is None else log.read(epoch)
    assert record is not None
    return record


def delivered(played: JobScene) -> dict[bytes, str]:
    """Return id -> city of the records in the topic."""
    records = played.records(played.settings.topic)
    return {r.value or b"": json.loads(r.value or b"{}")["city"] for r in records}


def decided_values(record: EpochRecord, sink: str) -> list[bytes]:
    """Return the values that an epoch has decided for a topic."""
    chunks = [c for c in record.chunks if c.sink == sink]
    batches = [batch for c in chunks if c.inline for batch in decode_batches(c.inline)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.timeout(400)
def test_both_sinks_get_the_decided_answer(services: Services, played: JobScene) -> None:
    """The store's answers change between attempts; an epoch has those of the attempt that decided it."""
    targets = played.settings
    sinks = (f"kafka.{targets.topic}", f"mysql.{targets.table}", f"kafka.{targets.dead_letters}")
    played.run_killed(range(1, 3), sinks)
    values = decided_values(newest(played), f"kafka.{played.settings.topic}")
    assert values
    fill(services, played.settings.cities, "new")
    played.but(max_records=100_000).finish()
    found = delivered(played)
    assert found.keys() >= set(values)
    assert {found[value].split()[0] for value in values} == {"old"}
    old = sum(city.startswith("old ") for city in found.values())
    assert 0 < old < len(found) == IDS - BURIED
    assert played.check_exact()["dead letters"] == BURIED
