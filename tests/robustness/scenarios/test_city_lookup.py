"""city_lookup is killed with kill -9 at a random failpoint; afterwards the store's answers differ."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.local_services.valkey import redis_missing_reason
from sluicegate.errors import SluicegateError
from sluicegate.protocol.record import EpochRecord
from sluicegate.storage.arrow_encoding import decode_batches
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.city_lookup import JOB
from tests.robustness.traffic.ip_count_harness import feed
from tests.robustness.traffic.packaged_job_harness import JobScenario, new_job_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

ID_COUNT, IDS_PER_EPOCH, CITIES = 600, 150, 50


def ids() -> list[bytes]:
    """Return ids; every twentieth is unknown to the store, and some are empty."""
    return [
        b" " if i % 100 == 7 else b"nowhere" if i % 20 == 3 else str(i % CITIES).encode()
        for i in range(ID_COUNT)
    ]


UNKNOWN_IDS = sum(not value.strip().isdigit() for value in ids())


def fill(services: Services, hash_name: str, cities: str) -> None:
    """Write these cities into the store."""
    with services.redis.connect() as client:
        client.hset(hash_name, mapping={str(i): f"{cities} {i}" for i in range(CITIES)})


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> JobScenario:
    """Return a scenario whose store has old cities."""
    if redis_missing_reason():
        pytest.skip("there is no Redis; the header of the test run has the reason")
    job_settings = {"cities": f"c{uuid.uuid4().hex[:8]}", "redis": services.redis.url}
    created = new_job_scenario(
        services, tmp_path, JOB, 0, max_records=IDS_PER_EPOCH, **job_settings
    )
    feed(services.kafka.bootstrap, created.settings.source, ids())
    fill(services, created.settings.cities, "old")
    return created


def newest_record(scenario: JobScenario) -> EpochRecord:
    """Return the newest decided epoch."""
    log = StoredEpochLog(open_store(scenario.settings.checkpoint))
    epoch = log.newest()
    record = None if epoch is None else log.read(epoch)
    assert record is not None
    return record


def delivered(scenario: JobScenario) -> dict[bytes, str]:
    """Return id -> city of the records in the topic."""
    records = scenario.records(scenario.settings.topic)
    return {record.value or b"": json.loads(record.value or b"{}")["city"] for record in records}


def decided_values(record: EpochRecord, sink: str) -> list[bytes]:
    """Return the values that an epoch has decided for a topic."""
    chunks = [chunk for chunk in record.chunks if chunk.sink == sink]
    batches = [batch for chunk in chunks if chunk.inline for batch in decode_batches(chunk.inline)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.timeout(400)
def test_both_sinks_get_the_answers_that_were_decided(
    services: Services, scenario: JobScenario
) -> None:
    """The store's answers change between attempts; an epoch has those of the attempt that decided it."""
    settings = scenario.settings
    sinks = (f"kafka.{settings.topic}", f"mysql.{settings.table}", f"kafka.{settings.dead_letters}")
    scenario.run_killed(range(1, 3), sinks)
    values = decided_values(newest_record(scenario), f"kafka.{scenario.settings.topic}")
    assert values
    fill(services, scenario.settings.cities, "new")
    scenario.with_settings(max_records=100_000).finish()
    cities_by_id = delivered(scenario)
    assert cities_by_id.keys() >= set(values)
    assert {cities_by_id[value].split()[0] for value in values} == {"old"}
    old_cities = sum(city.startswith("old ") for city in cities_by_id.values())
    assert 0 < old_cities < len(cities_by_id) == ID_COUNT - UNKNOWN_IDS
    scenario.check_exact(dead_letters=UNKNOWN_IDS)


def test_verify_proves_nothing_with_a_checkpoint_in_which_nothing_is_decided(
    scenario: JobScenario,
) -> None:
    """The wrong checkpoint and empty sinks would otherwise look exact."""
    with pytest.raises(SluicegateError, match="no epoch is decided"):
        scenario.check_exact()
