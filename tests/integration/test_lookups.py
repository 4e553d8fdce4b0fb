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
from tests.robustness.traffic.memory_streams import Stream, failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def ids(spark: SparkSession, tmp_path: Path) -> Stream:
    """Create a stream of ids with two epochs and one id that no store has."""
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


def with_cities(rows: DataFrame, store: RedisEndpoint, name: str, **options: object) -> DataFrame:
    client = RedisHash(name, url=store.url)
    return lookup(rows, key="id", client=client, into="city", **options)  # type: ignore[arg-type]


def cities(stream: Stream, name: str) -> list[object]:
    return [row["city"] for row in stream.committed_rows(name)]


def dead_letters(stream: Stream) -> list[dict[str, object]]:
    return [json.loads(row["value"]) for row in stream.committed_rows("letters")]


def run_with_dead_letters(stream: Stream, rows: DataFrame) -> None:
    """Run an output into two sinks and the dead letters."""
    sinks = [MemorySink(stream.store(name)) for name in ("one", "other")]
    stream.run(rows, sinks, dead_letters=MemorySink(stream.store("letters")))


def test_rows_get_their_answers_in_order(ids: Stream, redis: RedisEndpoint) -> None:
    """A key that the store does not have is null; every column keeps its value."""
    ids.run(with_cities(ids.rows, redis, create_hash(redis)), [MemorySink(ids.store("out"))])
    assert cities(ids, "out") == ["city 1", "city 2", "city 1", "city 2", None]
    assert [row["at"] for row in ids.committed_rows("out")] == ["a1", "a2", "a1", "b", "b"]


def test_workers_call_an_async_function_of_this_module(ids: Stream) -> None:
    async def doubled(key: int) -> str:
        return str(2 * key)

    rows = lookup(ids.rows, key="id", client=doubled, into="city", capacity=2, mode="unordered")
    ids.run(rows, [MemorySink(ids.store("out"))])
    assert sorted(cities(ids, "out")) == ["18", "2", "2", "4", "4"]  # type: ignore[type-var]


def test_a_row_can_have_two_lookups(ids: Stream, redis: RedisEndpoint) -> None:
    first_lookup = with_cities(ids.rows, redis, create_hash(redis))
    client = RedisHash(create_hash(redis, "town"), url=redis.url)
    second_lookup = lookup(
        first_lookup, key="id", client=client, into="town", on_timeout="dead-letter"
    )
    ids.run(second_lookup, [MemorySink(ids.store("out"))])
    first = ids.committed_rows("out")[0]
    assert (first["city"], first["town"]) == ("city 1", "town 1")
    assert "__refused" not in first


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("after-decide", ["old 1", "old 2", "old 1", "new 2", None]),
        ("before-decide", ["new 1", "new 2", "new 1", "new 2", None]),
    ],
)
def test_a_restart_applies_decided_answers_and_fetches_undecided_ones_again(
    ids: Stream, redis: RedisEndpoint, point: str, expected: list[object]
) -> None:
    """The store has other answers when the first epoch is replayed; both sinks have the same ones."""
    name = create_hash(redis, "old")
    sinks = [MemorySink(ids.store("one")), MemorySink(ids.store("other"))]
    with failing_at(f"{point}@0"):
        ids.run(with_cities(ids.rows, redis, name), sinks)
    fill(redis, name, "new")
    ids.run(with_cities(ids.rows, redis, name), sinks)
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
    with pytest.raises(
        LookupUnanswered, match="lookup into city: unanswered after 2"
    ) as error_info:
        ids.run(rows, sinks)
    assert error_info.value.retryable
    assert "the epoch is undecided" in error_info.value.data
    assert "start the store" in error_info.value.do
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
    run_with_dead_letters(ids, rows)
    assert ids.committed_rows("one") == ids.committed_rows("other") == []
    assert len(dead_letters(ids)) == 5
    assert {str(dead_letter["reason"])[:29] for dead_letter in dead_letters(ids)} == {
        "lookup into city: unanswered "
    }
    assert '"at": "a1"' in str(dead_letters(ids)[0]["payload"])


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
    run_with_dead_letters(ids, rows)
    delivered = [row["drawn"] for row in ids.committed_rows("one")]
    assert delivered == [row["drawn"] for row in ids.committed_rows("other")]
    assert all(drawn >= 0.5 for drawn in delivered)
    assert len(delivered) + len(dead_letters(ids)) == 205
    assert 50 < len(delivered) < 150


def test_a_reason_may_be_a_complete_dead_letter(ids: Stream) -> None:
    """As `dead_letter` creates it, with the row's source; the first reason of a row counts."""
    dead_letter = F.to_json(
        F.struct(F.lit("odd").alias("reason"), F.col("at").alias("payload"), "id")
    )
    rows = refuse(refuse(ids.rows, F.when(F.col("id") % 2 == 1, dead_letter)), F.lit("all"))
    run_with_dead_letters(ids, rows)
    assert dead_letters(ids)[0] == {"reason": "odd", "payload": "a1", "id": 1}
    assert [dead_letter["reason"] for dead_letter in dead_letters(ids)] == [
        "odd",
        "all",
        "odd",
        "all",
        "odd",
    ]
    assert json.loads(str(dead_letters(ids)[1]["payload"]))[0] == {"id": 2, "at": "a2"}
