"""Lookups within epochs, with memory sinks and a real Redis: sinks, dead letters and errors."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.local_services import RedisEndpoint, RedisServer
from sluicegate import RedisHash, lookup, refuse
from sluicegate.errors import (
    LookupUnanswered,
    RowRefused,
    SchemaMismatch,
    SettingsInvalid,
    TargetMissing,
)
from sluicegate.sinks.memory import MemorySink
from tests.robustness.traffic.memory_streams import Stream, dying_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def ids(spark: SparkSession, tmp_path: Path) -> Stream:
    """Create a stream of ids: two epochs, one id that no store has."""
    stream = Stream(spark, tmp_path, "id long, at string")
    stream.add(
        [{"id": i, "at": f"a{i}"} for i in (1, 2, 1)], [{"id": i, "at": "b"} for i in (2, 9)]
    )
    return stream


def create_hash(store: RedisEndpoint, city: str = "city") -> str:
    """Create a hash of three cities and return its name."""
    name = f"cities-{uuid.uuid4().hex[:8]}"
    fill(store, name, city)
    return name


def fill(store: RedisEndpoint, name: str, city: str) -> None:
    with store.connect() as client:
        client.hset(name, mapping={str(i): f"{city} {i}" for i in (1, 2, 3)})


def with_cities(rows: DataFrame, store: RedisEndpoint, name: str, **more: object) -> DataFrame:
    client = RedisHash(name, url=store.url)
    return lookup(rows, key="id", client=client, into="city", **more)  # type: ignore[arg-type]


def cities(stream: Stream, name: str) -> list[object]:
    return [row["city"] for row in stream.seen(name)]


def letters(stream: Stream) -> list[dict[str, object]]:
    return [json.loads(row["value"]) for row in stream.seen("letters")]


def run_with_letters(stream: Stream, rows: DataFrame) -> None:
    """Run an output into two sinks and the dead letters."""
    sinks = [MemorySink(stream.store(name)) for name in ("one", "other")]
    stream.run(rows, sinks, dead_letters=MemorySink(stream.store("letters")))


def test_rows_get_their_answers_in_order(ids: Stream, redis: RedisEndpoint) -> None:
    """A key that the store does not have is null; every column keeps its value."""
    ids.run(with_cities(ids.rows, redis, create_hash(redis)), [MemorySink(ids.store("out"))])
    assert cities(ids, "out") == ["city 1", "city 2", "city 1", "city 2", None]
    assert [row["at"] for row in ids.seen("out")] == ["a1", "a2", "a1", "b", "b"]


def test_workers_call_an_async_function_of_this_module(ids: Stream) -> None:
    async def doubled(key: int) -> str:
        return str(2 * key)

    rows = lookup(ids.rows, key="id", client=doubled, into="city", capacity=2, mode="unordered")
    ids.run(rows, [MemorySink(ids.store("out"))])
    assert sorted(cities(ids, "out")) == ["18", "2", "2", "4", "4"]  # type: ignore[type-var]


def test_two_lookups_of_a_row(ids: Stream, redis: RedisEndpoint) -> None:
    one = with_cities(ids.rows, redis, create_hash(redis))
    client = RedisHash(create_hash(redis, "town"), url=redis.url)
    both = lookup(one, key="id", client=client, into="town", on_timeout="dead-letter")
    ids.run(both, [MemorySink(ids.store("out"))])
    first = ids.seen("out")[0]
    assert (first["city"], first["town"]) == ("city 1", "town 1")
    assert "__refused" not in first


def test_a_replay_applies_the_answers_that_were_decided(ids: Stream, redis: RedisEndpoint) -> None:
    """The store has other answers when the epoch is replayed."""
    name = create_hash(redis, "old")
    sinks = [MemorySink(ids.store("one")), MemorySink(ids.store("other"))]
    with dying_at("after-decide@0"):
        ids.run(with_cities(ids.rows, redis, name), sinks)
    fill(redis, name, "new")
    ids.run(with_cities(ids.rows, redis, name), sinks)
    expected = ["old 1", "old 2", "old 1", "new 2", None]
    assert cities(ids, "one") == cities(ids, "other") == expected


def test_an_undecided_epoch_fetches_again(ids: Stream, redis: RedisEndpoint) -> None:
    """Both sinks have only the newer answers."""
    name = create_hash(redis, "old")
    sinks = [MemorySink(ids.store("one")), MemorySink(ids.store("other"))]
    with dying_at("before-decide@0"):
        ids.run(with_cities(ids.rows, redis, name), sinks)
    fill(redis, name, "new")
    ids.run(with_cities(ids.rows, redis, name), sinks)
    expected = ["new 1", "new 2", "new 1", "new 2", None]
    assert cities(ids, "one") == cities(ids, "other") == expected


# --- an unavailable store -------------------------------------------------------------------------


@pytest.mark.faults
def test_fail_leaves_the_epoch_undecided_and_a_restart_is_exact(
    ids: Stream, own_redis: RedisServer
) -> None:
    """The error passes through Spark with all three parts."""
    name = create_hash(own_redis.endpoint)
    rows = with_cities(ids.rows, own_redis.endpoint, name, retries=1)
    sinks = [MemorySink(ids.store("one")), MemorySink(ids.store("other"))]
    own_redis.kill()
    with pytest.raises(LookupUnanswered, match="lookup into city: unanswered after 2") as raised:
        ids.run(rows, sinks)
    assert raised.value.restartable
    assert "the epoch is undecided" in raised.value.data
    assert "start the store" in raised.value.do
    assert ids.newest() is None
    own_redis.start()
    ids.run(rows, sinks)
    expected = ["city 1", "city 2", "city 1", "city 2", None]
    assert cities(ids, "one") == cities(ids, "other") == expected


@pytest.mark.faults
def test_null_continues_without_an_answer(ids: Stream, own_redis: RedisServer) -> None:
    name = create_hash(own_redis.endpoint)
    own_redis.kill()
    rows = with_cities(ids.rows, own_redis.endpoint, name, retries=0, on_timeout="null")
    ids.run(rows, [MemorySink(ids.store("out"))])
    assert cities(ids, "out") == [None] * 5


@pytest.mark.faults
def test_dead_letter_keeps_rows_without_an_answer_out_of_every_sink(
    ids: Stream, own_redis: RedisServer
) -> None:
    """Each becomes a dead letter with reason and row; an unknown key does not."""
    name = create_hash(own_redis.endpoint)
    own_redis.kill()
    rows = with_cities(ids.rows, own_redis.endpoint, name, retries=0, on_timeout="dead-letter")
    run_with_letters(ids, rows)
    assert ids.seen("one") == ids.seen("other") == []
    assert len(letters(ids)) == 5
    assert {str(letter["reason"])[:29] for letter in letters(ids)} == {
        "lookup into city: unanswered "
    }
    assert '"at": "a1"' in str(letters(ids)[0]["payload"])


@pytest.mark.faults
def test_dead_letter_without_dead_letters_stops_the_epoch(
    ids: Stream, own_redis: RedisServer
) -> None:
    name = create_hash(own_redis.endpoint)
    own_redis.kill()
    rows = with_cities(ids.rows, own_redis.endpoint, name, retries=0, on_timeout="dead-letter")
    with pytest.raises(RowRefused, match="the first: lookup into city: unanswered"):
        ids.run(rows, [MemorySink(ids.store("out"))])
    assert ids.newest() is None


# --- errors before anything starts ------------------------------------------------------------------


def test_a_missing_hash_fails_before_anything_starts(ids: Stream, redis: RedisEndpoint) -> None:
    with pytest.raises(TargetMissing, match="no-such-hash"):
        with_cities(ids.rows, redis, "no-such-hash")


@pytest.mark.faults
def test_an_unavailable_store_fails_before_anything_starts(
    ids: Stream, own_redis: RedisServer
) -> None:
    name = create_hash(own_redis.endpoint)
    own_redis.kill()
    with pytest.raises(LookupUnanswered, match="does not answer"):
        with_cities(ids.rows, own_redis.endpoint, name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "number"}, "names no column; there are id, at"),
        ({"into": "at"}, "is a column already"),
        ({"client": len}, "make it `async def`"),
        ({"capacity": 0}, "capacity=0"),
    ],
)
def test_an_invalid_lookup_is_explained(
    ids: Stream, change: dict[str, object], message: str
) -> None:
    async def city(_key: int) -> str:
        return ""

    arguments = {"key": "id", "client": city, "into": "city", **change}
    with pytest.raises(SettingsInvalid, match=message):
        lookup(ids.rows, **arguments)  # type: ignore[arg-type]


def test_an_answer_of_a_wrong_type_is_reported_through_spark(ids: Stream) -> None:
    async def number(_key: int) -> int:
        return 1

    rows = lookup(ids.rows, key="id", client=number, into="city")
    with pytest.raises(SchemaMismatch, match="an answer is not of type string"):
        ids.run(rows, [MemorySink(ids.store("out"))])


# --- rows that an output refuses ----------------------------------------------------------------


def test_rule_07_a_row_is_in_the_sinks_or_a_dead_letter_by_one_evaluation(ids: Stream) -> None:
    """A non-deterministic reason never puts a row into both, or into neither."""
    ids.add([{"id": i, "at": "c"} for i in range(200)])
    drawn = ids.rows.withColumn("drawn", F.rand())
    rows = refuse(drawn, F.when(F.col("drawn") < 0.5, F.format_string("row %s", "id")))
    run_with_letters(ids, rows)
    sent = [row["drawn"] for row in ids.seen("one")]
    assert sent == [row["drawn"] for row in ids.seen("other")]
    assert all(drawn >= 0.5 for drawn in sent)
    assert len(sent) + len(letters(ids)) == 205
    assert 50 < len(sent) < 150


def test_a_reason_may_be_a_complete_dead_letter(ids: Stream) -> None:
    """As `dead_letter` creates it, with the row's source; the first reason of a row counts."""
    letter = F.to_json(F.struct(F.lit("odd").alias("reason"), F.col("at").alias("payload"), "id"))
    rows = refuse(refuse(ids.rows, F.when(F.col("id") % 2 == 1, letter)), F.lit("all"))
    run_with_letters(ids, rows)
    assert letters(ids)[0] == {"reason": "odd", "payload": "a1", "id": 1}
    assert [letter["reason"] for letter in letters(ids)] == ["odd", "all", "odd", "all", "odd"]
    assert json.loads(str(letters(ids)[1]["payload"]))[0] == {"id": 2, "at": "a2"}
