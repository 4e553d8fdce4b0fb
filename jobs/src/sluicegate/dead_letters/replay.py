"""Replays dead letters: sends the record of each again, exactly once.

The transaction that sends a record also writes a note to the topic `sluicegate.replayed`, so a dead
letter is replayed and noted, or neither, whenever the command is killed. One note per dead letter and
not the offset of a consumer group: with a filter, dead letters that were skipped lie before others that
were replayed, and an offset would lose them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from sluicegate import failpoints
from sluicegate.dead_letters.topic import DeadLetter, record_to_replay
from sluicegate.errors import Fenced, SinkUnavailable, SluicegateError, TargetMissing
from sluicegate.sinks.kafka import errors as kafka_errors
from sluicegate.sinks.kafka.admin import KafkaAdmin
from sluicegate.sinks.kafka.connection import Connection, Deadline
from sluicegate.sinks.kafka.errors import Undelivered
from sluicegate.sinks.kafka.producer import TransactionalProducer, producer_settings
from sluicegate.sinks.kafka.reader import CommittedReader, Position, Record

REPLAYED_TOPIC = "sluicegate.replayed"
"""A record for each dead letter that was replayed; kept forever, about 150 bytes each."""

FROM_HEADER = "sluicegate-replayed-from"
"""The header of a replayed record: topic/partition/offset of its dead letter."""

LETTERS_PER_TRANSACTION = 500

_TRANSACTIONAL_ID = "sluicegate.replay"
"""One per cluster: a new replay fences the earlier one, which then raises `Fenced`."""

_TRANSACTION_TIMEOUT_MS = 60_000
_TRANSACT_S = 45.0
_STABLE_S = 30.0
_MAX_RECORD_BYTES = 1_000_000_000
"""No limit here: the brokers know the limit of each topic."""


@dataclass(frozen=True)
class Replayed:
    """The dead letters that were replayed before.

    Args:
        positions: of the dead letters.
        records: `DeadLetter.record_id` of their records, and the topics that they were sent to: two refused
            rows of one record are two dead letters, and the record is sent there once.
    """

    positions: set[Position] = field(default_factory=set)
    records: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True)
class ReplayStep:
    """What a replay does with one dead letter.

    Args:
        letter: the dead letter.
        record: what it sends, or why it can send nothing; see `record_to_replay`.
        target: the topic that it sends to; None if it sends nothing.
    """

    letter: DeadLetter
    record: Record | str
    target: str | None

    @property
    def complete(self) -> bool:
        """Whether key, headers and timestamp of the record are known."""
        return isinstance(self.record, Record) and self.record.offset >= 0


class Replay:
    """One run of the command over the dead letters of a topic. Must be closed.

    Args:
        connection: the brokers.
        topic: of the dead letters.
        target: the topic to send to; None: the topic that each dead letter names.

    Raises:
        TargetMissing: the topic does not exist.
        SinkUnavailable: the brokers do not answer.
    """

    def __init__(self, connection: Connection, topic: str, target: str | None = None) -> None:
        self._connection, self._topic, self._target = connection, topic, target
        self._admin = KafkaAdmin(connection)
        description = self._admin.wait_for(topic)
        if description is None:
            raise TargetMissing(
                f"Kafka at {connection.bootstrap}: topic {topic} does not exist",
                data="nothing was read or sent",
                do="check the name and the servers",
            )
        # The id, because a topic that is re-created under the same name has other dead letters.
        self._topic_id = str(description.topic_id)
        self._reader = CommittedReader(connection, skip_gaps=True)
        self._producer: TransactionalProducer | None = None
        self._transactions = 0

    def close(self) -> None:
        """Close all connections; an open transaction is aborted."""
        self._reader.close()
        if self._producer is not None:
            self._producer.discard(abort=True)
            self._producer = None

    def replayed(self) -> Replayed:
        """Return which dead letters of the topic were replayed; final only after `take_over`."""
        replayed = Replayed()
        if self._admin.describe(REPLAYED_TOPIC) is None:
            return replayed
        for note in self._reader.read(REPLAYED_TOPIC):
            topic_id, partition, offset = (note.key or b"").decode().rsplit("/", 2)
            if topic_id == self._topic_id:
                replayed.positions.add(Position(self._topic, int(partition), int(offset)))
                content = json.loads(note.value or b"{}")
                if content.get("record"):
                    replayed.records.add((content["record"], content["to"]))
        return replayed

    def plan(self, letters: Sequence[DeadLetter]) -> list[ReplayStep]:
        """Return what to do with each dead letter; reads the records at their sources."""
        topics = self._admin.topics()
        sources = (letter.source for letter in letters if letter.source)
        originals = self._read_originals(sources, topics)
        return [self._step(letter, originals, topics) for letter in letters]

    def take_over(self) -> None:
        """Fence an earlier replay, so that `replayed` is final until another replay fences this one.

        The producer lives until the command ends. A producer created after `replayed` was read could
        fence a replay that started in between, and send again what that one sent.

        Raises:
            SluicegateError: the brokers do not answer, or refuse.
        """
        config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        self._admin.ensure(REPLAYED_TOPIC, 1, config)
        self._admin.wait_for(REPLAYED_TOPIC)
        settings = producer_settings(
            self._connection,
            _TRANSACTIONAL_ID,
            record_bytes=_MAX_RECORD_BYTES,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=_TRANSACTION_TIMEOUT_MS // 2,
            compression="lz4",
        )
        # One batch per record: a broker refuses a batch over its topic's limit, librdkafka does not
        # split batches, and the topics are not known yet.
        settings["batch.size"] = 1
        self._producer = TransactionalProducer(settings)
        try:
            self._producer.init(Deadline(_TRANSACT_S))
        except KafkaException as raised:
            raise self._error(raised) from raised
        # The earlier replays' transactions have ended, because they share our id, but readers of
        # committed records see that a little later.
        if not self._reader.await_stable(REPLAYED_TOPIC, _STABLE_S):
            raise SinkUnavailable(
                f"topic {REPLAYED_TOPIC} has an open transaction that does not belong to a replay",
                data="nothing was sent",
                do="wait until it ends; kafka-transactions.sh find-hanging shows it",
            )

    def send(self, steps: Sequence[ReplayStep], before: Replayed) -> Iterator[int]:
        """Send records, `LETTERS_PER_TRANSACTION` per transaction; yield how many each committed.

        Args:
            steps: for dead letters that are not in `before`.
            before: the result of `replayed` after `take_over`; dead letters that are sent are added.

        Raises:
            Fenced: another replay has started.
            SinkUnavailable: in doubt; run the command again, it continues where this one stopped.
        """
        steps = [step for step in steps if step.target is not None]
        for begin in range(0, len(steps), LETTERS_PER_TRANSACTION):
            page = steps[begin : begin + LETTERS_PER_TRANSACTION]
            try:
                self._transact(page, before.records)
            except (KafkaException, Undelivered) as raised:
                raise self._error(raised) from raised
            before.positions.update(step.letter.position for step in page)
            failpoints.reach("replay-committed", epoch=self._transactions)
            self._transactions += 1
            yield len(page)

    def _transact(self, steps: Sequence[ReplayStep], sent: set[tuple[str, str]]) -> None:
        producer, deadline, number = self._producer, Deadline(_TRANSACT_S), self._transactions
        assert producer is not None
        producer.begin()
        failpoints.reach("replay-begun", epoch=number)
        for step in steps:
            record_id, target = step.letter.record_id, step.target
            assert target is not None
            if record_id is None or (record_id, target) not in sent:
                producer.produce(target, iter([_produce_arguments(step)]), deadline)
            if record_id is not None:
                sent.add((record_id, target))
        producer.produce(REPLAYED_TOPIC, (self._note(step) for step in steps), deadline)
        producer.flush(deadline)
        failpoints.reach("replay-written", epoch=number)
        producer.commit(deadline)

    def _note(self, step: ReplayStep) -> tuple[object, ...]:
        position = step.letter.position
        note = {
            "letter": str(position),
            "record": step.letter.record_id,
            "to": step.target,
            "at_ms": time.time_ns() // 1_000_000,
        }
        key = f"{self._topic_id}/{position.partition}/{position.offset}"
        return json.dumps(note).encode(), key.encode()

    def _step(
        self,
        letter: DeadLetter,
        originals: Mapping[Position, Record],
        topics: Mapping[str, set[int]],
    ) -> ReplayStep:
        original = originals.get(letter.source) if letter.source else None
        record = record_to_replay(letter, original)
        target = self._target or (letter.source.topic if letter.source else None)
        if isinstance(record, Record) and target is None:
            record = "it names no topic; name one with --to"
        elif isinstance(record, Record) and target not in topics:
            record = f"topic {target} does not exist"
        return ReplayStep(letter, record, None if isinstance(record, str) else target)

    def _read_originals(
        self, sources: Iterable[Position], topics: Mapping[str, set[int]]
    ) -> dict[Position, Record]:
        by_partition: dict[tuple[str, int], set[int]] = {}
        for topic, partition, offset in sources:
            by_partition.setdefault((topic, partition), set()).add(offset)
        originals = {}
        for (topic, partition), offsets in by_partition.items():
            if partition in topics.get(topic, ()):
                for record in self._reader.pick(topic, partition, offsets):
                    originals[Position(topic, partition, record.offset)] = record
        return originals

    def _error(self, raised: KafkaException | Undelivered) -> SluicegateError:
        if kafka_errors.is_fenced(raised):
            return Fenced(
                "another replay has started",
                data="this replay's open transaction was aborted; the other replay handles the rest",
                do="wait for the other replay; then run this one again if dead letters are left",
            )
        error = kafka_errors.apply_error(raised, f"replay of {self._topic}", "sending")
        return type(error)(
            error.what,
            data="the last transaction is committed as a whole or not at all; the notes in "
            f"{REPLAYED_TOPIC} show which dead letters were replayed",
            do="run the command again: it continues where this one stopped; a record that its topic "
            "never accepts can be left out with --reason, or sent elsewhere with --to",
        )


def _produce_arguments(step: ReplayStep) -> tuple[object, ...]:
    """Return the arguments of `produce` after the topic; in its own topic a record keeps its partition."""
    record, source = step.record, step.letter.source
    assert isinstance(record, Record)
    headers = [*record.headers, (FROM_HEADER, str(step.letter.position).encode())]
    partition = record.partition if source is not None and source.topic == step.target else -1
    return record.value, record.key, partition, None, None, max(0, record.timestamp_ms), headers
