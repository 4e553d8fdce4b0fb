"""Sends the records behind dead letters again, each letter once.

What was sent is noted in the topic `sluicegate.replayed`, in the transaction that sends it: so a
letter is sent again and noted, or neither, whenever the command is killed. A note a letter and not
a position of a consumer group: with a filter, letters that were left out lie behind those that were
sent, and a position would lose them. Not here: what a letter says (`letters`). Called by the CLI.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Message, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import Fenced, SinkUnavailable, SluicegateError
from sluicegate.sinks.kafka import faults
from sluicegate.sinks.kafka.clients import RDKAFKA_LOG, Connection, Deadline
from sluicegate.sinks.kafka.faults import Undelivered
from sluicegate.sinks.kafka.letters import Letter, Restored, restored
from sluicegate.sinks.kafka.producers import (
    ProducerLimits,
    TransactionalProducer,
    producer_settings,
)
from sluicegate.sinks.kafka.reading import CommittedReader, Position

log = logging.getLogger(__name__)

REPLAYED_TOPIC = "sluicegate.replayed"
"""A record for each letter that was replayed; kept for ever, about 150 bytes each."""

FROM_HEADER = "sluicegate-replayed-from"
"""The header of a replayed record: topic/partition/offset of its letter."""

_TRANSACTIONAL_ID = "sluicegate.replay"
"""One for a cluster: a replay that begins ends the one before it, which then says `Fenced`."""

_TRANSACTION_MS = 60_000
_APPLY_S = 45.0
_SETTLED_S = 30.0
_LARGEST_BYTES = 1_000_000_000
"""The brokers know what a topic takes."""
LETTERS_A_TRANSACTION = 500


@dataclass(frozen=True)
class Replayed:
    """What was replayed before.

    Args:
        letters: where they stand.
        records: the records behind them, by `record_id`: two rows that were refused of one record
            are two letters, and the record is sent once.
    """

    letters: set[Position] = field(default_factory=set)
    records: set[str] = field(default_factory=set)


def record_id(letter: Letter) -> str | None:
    """Return what tells the record behind a letter from all others; None where it is not known."""
    return None if letter.source is None else f"{letter.source}@{letter.source_ms}"


@dataclass(frozen=True)
class Order:
    """A letter with what is to be sent for it.

    Args:
        letter: the letter.
        record: what is sent, or why nothing can be.
        target: the topic that it is sent to; None where nothing is.
    """

    letter: Letter
    record: Restored | str
    target: str | None


class Replay:
    """One run of the command over the letters of a topic; to be closed.

    Args:
        connection: the brokers.
        topic: of the letters.
        target: where records are sent; None: to the topic that each letter names.

    Raises:
        TargetMissing: there is no such topic.
        SinkUnavailable: the brokers do not answer.
    """

    def __init__(self, connection: Connection, topic: str, target: str | None = None) -> None:
        self._connection, self._topic, self._target = connection, topic, target
        settings: dict[str, Any] = connection.settings()
        self._admin = AdminClient(settings, logger=RDKAFKA_LOG)
        self._reader = CommittedReader(connection)
        self._reader.partitions(topic)
        self._topic_id = self._id_of(topic)
        self._producer: TransactionalProducer | None = None
        self._number = 0

    def close(self) -> None:
        """Let go of every connection; an open transaction is aborted."""
        self._reader.close()
        if self._producer is not None:
            self._producer.throw_away(abort=True)
            self._producer = None

    def replayed(self) -> Replayed:
        """Return what of the topic was replayed already; final only after `take_over`."""
        found = Replayed()
        if REPLAYED_TOPIC not in self._admin.list_topics(timeout=_SETTLED_S).topics:
            return found
        for message in self._reader.all_of(REPLAYED_TOPIC):
            topic_id, partition, offset = (message.key() or b"").decode().rsplit("/", 2)
            if topic_id == self._topic_id:
                found.letters.add(Position(self._topic, int(partition), int(offset)))
                record = json.loads(message.value() or b"{}").get("record")
                found.records.update([record] if record else [])
        return found

    def orders(self, letters: Sequence[Letter]) -> list[Order]:
        """Say for each letter what is sent; reads the records at their sources."""
        topics = self._admin.list_topics(timeout=_SETTLED_S).topics
        there = {name: set(topic.partitions) for name, topic in topics.items()}
        wanted = (letter.source for letter in letters if letter.source)
        originals = self._originals(wanted, there)
        return [self._order(letter, originals, there) for letter in letters]

    def take_over(self) -> None:
        """Fence an earlier replay, so that `replayed` is final until another one fences this.

        The producer lives to the end of the command: one that was made anew after `replayed` was
        asked could fence a replay that had begun in between, and send again what that one sent.

        Raises:
            SluicegateError: the brokers do not answer, or refuse.
        """
        self._create_replayed()
        limits = ProducerLimits(_LARGEST_BYTES, _TRANSACTION_MS, _TRANSACTION_MS // 2, "lz4")
        settings = producer_settings(self._connection, _TRANSACTIONAL_ID, limits)
        # a broker refuses a batch over its topic's limit, librdkafka does not split one, and the
        # topics are not known yet: a batch for each record
        settings["batch.size"] = 1
        self._producer = TransactionalProducer(settings)
        try:
            self._producer.init(Deadline(_APPLY_S))
        except KafkaException as raised:
            raise self._failed(raised) from raised
        self._await_settled()

    def send(self, orders: Sequence[Order], before: Replayed) -> Iterator[int]:
        """Send records, a transaction for each `LETTERS_A_TRANSACTION`; yield how many are in.

        Args:
            orders: of letters that `before` does not name.
            before: `replayed`, asked after `take_over`; what is sent is added.

        Raises:
            Fenced: another replay has begun.
            SinkUnavailable: in doubt; run the command again, it goes on where this one ended.
        """
        wanted = [order for order in orders if order.target is not None]
        for begin in range(0, len(wanted), LETTERS_A_TRANSACTION):
            some = wanted[begin : begin + LETTERS_A_TRANSACTION]
            try:
                self._transact(some, before.records)
            except (KafkaException, Undelivered) as raised:
                raise self._failed(raised) from raised
            before.letters.update(order.letter.at for order in some)
            failpoints.reach("replay-committed", epoch=self._number)
            self._number += 1
            yield len(some)

    def _transact(self, orders: Sequence[Order], sent: set[str]) -> None:
        producer, deadline, number = self._producer, Deadline(_APPLY_S), self._number
        assert producer is not None
        producer.begin()
        failpoints.reach("replay-begun", epoch=number)
        for order in orders:
            record = record_id(order.letter)
            if record is None or record not in sent:
                assert order.target is not None
                producer.produce(order.target, iter([self._row(order)]), deadline)
            sent.update([record] if record else [])
        producer.produce(REPLAYED_TOPIC, (self._note(order) for order in orders), deadline)
        producer.flush(deadline)
        failpoints.reach("replay-written", epoch=number)
        producer.commit(deadline)

    def _row(self, order: Order) -> tuple[object, ...]:
        record = order.record
        assert isinstance(record, Restored)
        source = order.letter.source
        back = record.partition is not None and source is not None and source.topic == order.target
        partition = record.partition if back else -1
        headers = [*(record.headers or []), (FROM_HEADER, str(order.letter.at).encode())]
        return record.value, record.key, partition, None, None, record.timestamp_ms, headers

    def _note(self, order: Order) -> tuple[object, ...]:
        at = order.letter.at
        said = {
            "letter": str(at),
            "record": record_id(order.letter),
            "to": order.target,
            "at_ms": time.time_ns() // 1_000_000,
        }
        return json.dumps(said).encode(), f"{self._topic_id}/{at.partition}/{at.offset}".encode()

    def _order(
        self, letter: Letter, originals: Mapping[Position, Message], there: Mapping[str, set[int]]
    ) -> Order:
        original = originals.get(letter.source) if letter.source else None
        record = restored(letter, original)
        target = self._target or (letter.source.topic if letter.source else None)
        if isinstance(record, Restored) and target is None:
            record = "it names no topic; say one by --to"
        elif isinstance(record, Restored) and target not in there:
            record = f"there is no topic {target}"
        return Order(letter, record, None if isinstance(record, str) else target)

    def _originals(
        self, wanted: Iterable[Position], there: Mapping[str, set[int]]
    ) -> dict[Position, Message]:
        by_partition: dict[tuple[str, int], set[int]] = {}
        for topic, partition, offset in wanted:
            by_partition.setdefault((topic, partition), set()).add(offset)
        found = {}
        for (topic, partition), offsets in by_partition.items():
            if partition in there.get(topic, ()):
                for message in self._reader.pick(topic, partition, offsets):
                    found[Position(topic, partition, message.offset() or 0)] = message
        return found

    def _create_replayed(self) -> None:
        config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        new = NewTopic(REPLAYED_TOPIC, 1, -1, config=config)
        try:
            self._admin.create_topics([new], request_timeout=_SETTLED_S)[REPLAYED_TOPIC].result()
        except KafkaException as raised:
            error = faults.error_of(raised)
            if error.name() != "TOPIC_ALREADY_EXISTS":
                raise faults.before_start(
                    error, self._connection.bootstrap, f"creating topic {REPLAYED_TOPIC}"
                ) from raised

    def _await_settled(self) -> None:
        """Wait until readers of committed records see all that earlier replays committed.

        Their transactions have ended, since ours is the only id; the stable offset follows a little
        later.
        """
        plain = CommittedReader(self._connection, committed=False)
        deadline = Deadline(_SETTLED_S)
        try:
            while self._reader.bounds(REPLAYED_TOPIC, 0) != plain.bounds(REPLAYED_TOPIC, 0):
                if deadline.passed():
                    raise SinkUnavailable(
                        f"topic {REPLAYED_TOPIC} has an open transaction that is not of a replay",
                        data="nothing was sent",
                        do="wait until it ends: kafka-transactions.sh find-hanging",
                    )
                time.sleep(0.02)
        finally:
            plain.close()

    def _id_of(self, topic: str) -> str:
        """Return the topic's id: one that is made anew under the same name has other letters."""
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_SETTLED_S)
        try:
            return str(asked[topic].result(_SETTLED_S).topic_id)
        except KafkaException as raised:
            raise faults.before_start(
                faults.error_of(raised), self._connection.bootstrap, f"describing topic {topic}"
            ) from raised

    def _failed(self, raised: KafkaException | Undelivered) -> SluicegateError:
        error = faults.error_of(raised)
        if faults.is_fenced(error):
            return Fenced(
                "another replay has begun",
                data="what this one had not committed was aborted; its letters are left to the other",
                do="wait for the other; then run this again if letters are left",
            )
        found = faults.while_applying(raised, f"replay of {self._topic}", "sending")
        return type(found)(
            found.what,
            data="the last transaction is in or it is not, as a whole; the notes say which letters are",
            do="run the command again: it goes on where this one ended; a record that its topic will "
            "never take can be left out by --reason, or sent elsewhere by --to",
        )
