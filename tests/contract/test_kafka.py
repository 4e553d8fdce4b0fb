"""The Kafka sink keeps the contract, on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pytest

from infra.local_services import Services
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.kafka import KafkaSink
from sluicegate.sinks.kafka.bound_sink import RECORD_OVERHEAD_BYTES, BoundKafka
from tests.contract.suite import ROWS, LogContract, Row
from tests.integration.kafka_reader import read_topic

LIMIT = 3000
STAGED = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class KafkaKit:
    """A new topic for each test; a row is a record with its id as the key."""

    secret = "correct-horse"

    def __init__(self, services: Services) -> None:
        self.lineage = uuid.uuid4().hex
        self.topic = f"contract-{self.lineage}"
        self._bootstrap = services.kafka.bootstrap
        services.kafka.create_topic(self.topic, 1, {"max.message.bytes": str(LIMIT)})

    def bind(self, parts: int = 1) -> BoundKafka:
        sink = KafkaSink(
            self.topic,
            key="id",
            bootstrap=self._bootstrap,
            parts=parts,
            compression="none",  # otherwise a record over the limit might fit compressed
            config={"sasl.password": self.secret},  # unused: the broker requires none
        )
        assert self.secret not in repr(sink)
        return sink.bind(ROWS, lineage=self.lineage, apply_timeout_s=20)

    def stage(self, rows: Sequence[Row]) -> pa.RecordBatch:
        keys = [str(row.id).encode() for row in rows]
        return pa.record_batch([keys, [_value(row) for row in rows]], schema=STAGED)

    def read(self, *, stable: bool = True) -> list[Row]:
        return [
            _row(m.key, m.value) for m in read_topic(self._bootstrap, self.topic, stable=stable)
        ]

    def borderline(self) -> list[Row]:
        return [Row(10_000 + n, "x" * n) for n in range(LIMIT - 150, LIMIT + 1)]


def _value(row: Row) -> bytes | None:
    if row.name is None and row.data is None:
        return None
    return json.dumps([row.name, None if row.data is None else row.data.hex()]).encode()


def _row(key: bytes | None, value: bytes | None) -> Row:
    name, data = json.loads(value) if value else (None, None)
    return Row(int(key or b"-1"), name, None if data is None else bytes.fromhex(data))


@pytest.mark.integration
class TestKafkaSink(LogContract):
    """All claims about a Kafka topic."""

    @pytest.fixture
    def kit(self, services: Services) -> KafkaKit:
        return KafkaKit(services)

    def test_keys_and_values_are_bytes_and_may_be_null(self, kit: KafkaKit) -> None:
        """A tombstone, a record without a key, and bytes that are not text."""
        staged = pa.record_batch(
            [[b"k", None, b"\xff\x00", None], [None, b"v", b"\x00\xfe", None]], schema=STAGED
        )
        writer = kit.bind().open(0)
        writer.apply(PartDecision(kit.lineage, Marker(0, "a"), NO_MARKER), [staged])
        writer.close()
        seen = [(m.key, m.value) for m in read_topic(kit._bootstrap, kit.topic)]
        assert seen == [(b"k", None), (None, b"v"), (b"\xff\x00", b"\x00\xfe"), (None, None)]

    def test_the_size_estimate_is_close(self, kit: KafkaKit) -> None:
        """Refused records are at most 97 bytes below the limit."""
        bound = kit.bind()
        fits = LIMIT - RECORD_OVERHEAD_BYTES - 1
        staged = pa.record_batch([[b"k"] * 2, [b"x" * fits, b"x" * (fits + 1)]], schema=STAGED)
        reasons = bound.refusals(staged)
        assert reasons is not None
        assert reasons.to_pylist()[0] is None
        assert f"3001 bytes with its overhead; topic {kit.topic} takes 3000" in str(reasons[1])
