"""city_lookup is killed with kill -9 at a random failpoint, and the store answers otherwise after it.

The point is drawn from a seed that is printed; SLUICEGATE_SEED=… plays it again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from infra.embedded import Services
from infra.embedded.redis import redis_gap
from sluicegate.cli.options import as_arguments
from sluicegate.protocol.failpoints import POINTS, VARIABLE
from sluicegate.protocol.record import EpochRecord
from sluicegate.sinks.chunks import unpack
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import open_objects
from sluicegate_jobs.city_lookup import CityLookupSettings, create_targets
from sluicegate_jobs.city_lookup_verify import verify
from tests.faults.harness import PARTITIONS, Ended, feed, start
from tests.integration.kafka_reader import read_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.e2e]

IDS, EPOCH_IDS, CITIES = 600, 150, 50

OF_THE_DRIVER = [p for p, who in POINTS.items() if who.startswith(("driver:", "applier:"))]
OF_A_SINK = {
    "before-apply", "apply-begun", "apply-written", "before-commit", "after-commit", "after-apply",
}  # fmt: skip


def ids() -> list[bytes]:
    """Return ids; each twentieth is unknown to the store, and there are empty ones."""
    return [
        b" " if i % 100 == 7 else b"nowhere" if i % 20 == 3 else str(i % CITIES).encode()
        for i in range(IDS)
    ]


BURIED = sum(not one.strip().isdigit() for one in ids())


@dataclass(frozen=True)
class Played:
    """A source, a store, sinks and a checkpoint that no other test shares."""

    folder: Path
    services: Services
    settings: CityLookupSettings

    def fill(self, cities: str) -> None:
        """Let the store answer with other cities from now on."""
        with self.services.redis.connect() as client:
            names = {str(i): f"{cities} {i}" for i in range(CITIES)}
            client.hset(self.settings.cities, mapping=names)

    def run(self, failpoints: str = "") -> Ended:
        """Run a driver to its end."""
        command = ["sluicegate.cli", "run", "city_lookup", "--once", *as_arguments(self.settings)]
        log = self.folder / f"driver-{uuid.uuid4().hex[:6]}.log"
        return start(command, log, {VARIABLE: failpoints}).wait()

    def newest(self) -> EpochRecord | None:
        """Return the newest decided epoch."""
        log = StoredEpochLog(open_objects(self.settings.checkpoint))
        epoch = log.newest()
        return None if epoch is None else log.read(epoch)

    def delivered(self) -> dict[bytes, str]:
        """Return the records of the topic with their cities."""
        records = read_topic(self.settings.kafka, self.settings.topic)
        return {r.value or b"": json.loads(r.value or b"{}")["city"] for r in records}


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Played:
    """Give a scene whose store has old cities."""
    if redis_gap():
        pytest.skip("no Redis: see the head of the run")
    name = f"c{uuid.uuid4().hex[:8]}"
    settings = CityLookupSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        source=f"{name}_source",
        topic=f"{name}_sink",
        table=f"{name}_table",
        dead_letters=f"{name}_letters",
        cities=f"{name}_cities",
        interval="available-now",
        max_records=EPOCH_IDS,
        kafka=services.kafka.bootstrap,
        mysql=services.mysql.url,
        redis=services.redis.url,
    )
    services.kafka.create_topic(settings.source, PARTITIONS)
    create_targets(settings)
    feed(services.kafka.bootstrap, settings.source, ids())
    made = Played(tmp_path, services, settings)
    made.fill("old")
    return made


def decided_values(record: EpochRecord, sink: str) -> list[bytes]:
    """Return the values that an epoch has decided for a topic."""
    chunks = [c for c in record.chunks if c.sink == sink]
    batches = [batch for c in chunks if c.inline for batch in unpack(c.inline)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def drawn(settings: CityLookupSettings) -> str:
    """Return a failpoint of the driver."""
    seed = int(os.environ.get("SLUICEGATE_SEED") or random.SystemRandom().randrange(1 << 32))
    chance = random.Random(seed)
    point, epoch = chance.choice(OF_THE_DRIVER), chance.choice((1, 2))
    sinks = (
        f":kafka.{settings.topic}", f":mysql.{settings.table}", f":kafka.{settings.dead_letters}",
    )  # fmt: skip
    where = chance.choice(sinks) if point in OF_A_SINK else ""
    print(f"seed {seed}: {point}{where}@{epoch}")  # noqa: T201 - to play it again
    return f"{point}{where}@{epoch}=kill-group"


@pytest.mark.timeout(400)
def test_the_answer_that_was_decided_is_the_one_that_both_sinks_get(played: Played) -> None:
    """A store whose answers change between the tries: each epoch has those of the try that decided."""
    killed = played.run(drawn(played.settings))
    assert killed.code == -signal.SIGKILL, killed.log
    decided = played.newest()
    assert decided is not None
    values = decided_values(decided, f"kafka.{played.settings.topic}")
    assert values
    played.fill("new")
    ended = replace(played, settings=replace(played.settings, max_records=100_000)).run()
    assert ended.code == 0, ended.log
    delivered = played.delivered()
    assert delivered.keys() >= set(values)
    assert {delivered[value].split()[0] for value in values} == {"old"}
    old = sum(city.startswith("old ") for city in delivered.values())
    assert 0 < old < len(delivered) == IDS - BURIED
    outcome = verify(played.settings)
    assert outcome.exact, outcome.findings
    assert outcome.checked["dead letters"] == BURIED
