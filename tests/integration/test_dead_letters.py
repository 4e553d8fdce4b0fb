"""`sluicegate dead-letters` on a real Kafka: what it says, what it sends, and each letter once."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from infra.embedded import Services
from infra.embedded.endpoints import KafkaEndpoint
from sluicegate.cli.commands import app
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate.sinks.kafka.clients import Connection
from sluicegate.sinks.kafka.letters import read_letters
from sluicegate.sinks.kafka.replay import FROM_HEADER, LETTERS_A_TRANSACTION, Replay

from .kafka_reader import Record, read_topic

pytestmark = [pytest.mark.integration, pytest.mark.faults]

MANY = 2 * LETTERS_A_TRANSACTION + 100
AT_MS = (int(time.time()) - 3600) * 1000
"""An hour ago; a broker soon deletes what is older than its retention."""


def iso(time_ms: int) -> str:
    """Return a time as letters and options write it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


@dataclass
class Desk:
    """A source topic of two partitions, its dead letters, and who writes to both."""

    kafka: KafkaEndpoint
    name: str = field(default_factory=lambda: f"dl{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.source, self.letters = f"{self.name}_source", f"{self.name}_letters"
        self.kafka.create_topic(self.source, 2)
        self.kafka.create_topic(self.letters, 2)

    def put(self, values: list[bytes], topic: str = "", partition: int = 0) -> list[int]:
        """Append records with a key, a header and a timestamp; return their offsets."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "acks": "all"})
        for value in values:
            producer.produce(
                topic or self.source,
                value,
                b"key",
                partition,
                lambda _error, message: offsets.append(message.offset() or 0),
                timestamp=AT_MS,
                headers=[("trace", b"1")],
            )
        assert producer.flush(30) == 0
        return offsets

    def letter(self, value: bytes, offset: int | None, reason: str, **more: object) -> bytes:
        """Return a dead letter as the packaged jobs write it."""
        place = {"topic": self.source, "partition": 0, "offset": offset}
        said: dict[str, object] = {
            "reason": reason,
            "payload": value.decode(errors="replace"),
            "payload_sha256": hashlib.sha256(value).hexdigest(),
            "source": place | {"timestamp": iso(AT_MS)},
        }
        if offset is None:
            del said["source"]
        return json.dumps(said | more).encode()

    def buried(self, values: list[bytes], reason: str = "unparsed: no line") -> None:
        """Put records into the source and letters about them into the dead letters, in turn."""
        letters = [
            self.letter(value, offset, reason)
            for value, offset in zip(values, self.put(values), strict=True)
        ]
        for partition in (0, 1):
            self.put(letters[partition::2], self.letters, partition)

    def run(self, *arguments: str) -> Result:
        """Run the command as a user does."""
        command, *rest = arguments
        given = ["dead-letters", command, self.letters, *rest, "--kafka", self.kafka.bootstrap]
        done = CliRunner().invoke(app, given)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def killed(self, failpoint: str) -> int:
        """Replay in a process of its own that dies at a failpoint; return its exit code."""
        command = [sys.executable, "-m", "sluicegate.cli", "dead-letters", "replay", self.letters]
        return subprocess.run(
            [*command, "--yes", "--kafka", self.kafka.bootstrap],
            env={**os.environ, VARIABLE: f"{failpoint}=kill-self"},
            capture_output=True,
            check=False,
            timeout=120,
        ).returncode

    def replayed(self, topic: str = "") -> list[Record]:
        """Return the records that a replay has sent."""
        records = read_topic(self.kafka.bootstrap, topic or self.source)
        return [record for record in records if FROM_HEADER in dict(record.headers)]


@pytest.fixture
def desk(services: Services) -> Desk:
    """Give topics of the test's own."""
    return Desk(services.kafka)


def test_list_groups_letters_by_reason_without_its_numbers(desk: Desk) -> None:
    desk.buried([b"a", b"b"], "refused by kafka.t: the record has 300 bytes")
    desk.buried([b"c"], "refused by kafka.t: the record has 301 bytes")
    desk.buried([b"d"], "late: closed")
    said = desk.run("list").output
    assert "3  refused by kafka.t: the record has # bytes" in said
    assert "1  late: closed" in said
    assert f"{desk.source}/0/3 'd'" in said


def test_list_of_a_topic_that_is_missing_says_so(desk: Desk) -> None:
    done = CliRunner().invoke(
        app, ["dead-letters", "list", "no_such_topic", "--kafka", desk.kafka.bootstrap]
    )
    assert done.exit_code == 64
    assert "there is no topic no_such_topic" in done.output


def test_show_brings_the_original_record(desk: Desk) -> None:
    desk.buried([b"\xff broken"])
    said = desk.run("show", "0/0").output
    assert r"record    b'\xff broken'" in said
    assert f"sent to {desk.source} as it was" in said


def test_replay_without_yes_sends_nothing(desk: Desk) -> None:
    desk.buried([b"a"])
    said = desk.run("replay").output
    assert f"1  would be sent to {desk.source} as it was" in said
    assert desk.replayed() == []


def test_a_record_is_sent_as_it_was_with_broken_bytes_and_without_value(desk: Desk) -> None:
    """Key, headers, partition and bytes are those of the source, not those of the letter's text."""
    desk.buried([b"\xff\xfe", b"x" * 100_000])
    (empty,) = desk.put([None])  # type: ignore[list-item]
    gone = desk.letter(b"", empty, "empty: no value", payload=None, payload_sha256=None)
    desk.put([gone], desk.letters)
    desk.run("replay", "--yes")
    sent = desk.replayed()
    assert sorted((r.value or b"") for r in sent) == [b"", b"x" * 100_000, b"\xff\xfe"]
    assert {(r.partition, r.key, dict(r.headers)["trace"]) for r in sent} == {(0, b"key", b"1")}


def test_a_second_replay_sends_nothing_again(desk: Desk) -> None:
    desk.buried([b"a", b"b"])
    desk.run("replay", "--yes")
    assert "sent" not in desk.run("replay", "--yes").output
    assert len(desk.replayed()) == 2
    assert "(replayed 2;" in desk.run("list").output


def test_what_a_filter_leaves_out_is_replayed_later(desk: Desk) -> None:
    """A letter that lies before others that were replayed is not forgotten."""
    desk.buried([b"early"], "unparsed: no line")
    desk.buried([b"later"], "late: closed")
    desk.run("replay", "--yes", "--reason", "late")
    assert [record.value for record in desk.replayed()] == [b"later"]
    desk.run("replay", "--yes")
    assert [record.value for record in desk.replayed()] == [b"later", b"early"]


def test_since_leaves_older_letters_out(desk: Desk) -> None:
    desk.buried([b"a"])
    assert "would be sent" not in desk.run("replay", "--since", iso(AT_MS + 1000)).output
    assert "would be sent" in desk.run("replay", "--since", iso(AT_MS - 1000)).output
    assert "would be sent" in desk.run("replay", "--since", "2h").output


def test_a_record_that_is_gone_is_taken_from_its_letter_if_the_hash_fits(desk: Desk) -> None:
    whole = desk.letter(b"whole", 999, "late: closed")
    cut = desk.letter(b"cut", 998, "late: closed", payload="c")
    nowhere = desk.letter(b"from a socket", None, "late: closed")
    desk.put([whole, cut, nowhere], desk.letters)
    said = desk.run("replay", "--yes").output
    assert [record.value for record in desk.replayed()] == [b"whole"]
    assert "1  NOT REPLAYABLE: its record is gone, and the letter has not all of it" in said
    assert "1  NOT REPLAYABLE: it names no topic; say one by --to" in said
    other = f"{desk.name}_other"
    desk.kafka.create_topic(other)
    desk.run("replay", "--yes", "--to", other)
    assert [record.value for record in desk.replayed(other)] == [b"from a socket"]


def test_another_record_at_the_same_place_is_not_sent(desk: Desk) -> None:
    """The source topic was made anew: what stands there now is not what the letter is about."""
    desk.put([b"new"])
    desk.put([desk.letter(b"old", 0, "late: closed", payload="o")], desk.letters)
    assert "the record at its source is another one" in desk.run("replay", "--yes").output
    assert desk.replayed() == []


def test_refused_rows_are_sent_only_if_told_and_their_record_once(desk: Desk) -> None:
    """Two rows of one record are two letters; the record is one."""
    (at,) = desk.put([b"record"])
    refused = desk.letter(b"[row]", at, "refused by t: too long", payload_of="staged row")
    desk.put([refused, refused], desk.letters)
    assert "2  NOT REPLAYABLE: of a refused row: give --refused" in desk.run("replay").output
    desk.run("replay", "--yes", "--refused")
    assert [record.value for record in desk.replayed()] == [b"record"]


def test_what_is_no_letter_is_left_alone_and_named(desk: Desk) -> None:
    desk.put([b"\xff no letter"], desk.letters)
    assert "unreadable: no letter of Sluicegate" in desk.run("list").output
    assert "NOT REPLAYABLE" in desk.run("replay", "--yes").output


@pytest.mark.slow
@pytest.mark.parametrize(
    "failpoint", ["replay-begun@1", "replay-written@0", "replay-written@1", "replay-committed@1"]
)
def test_killed_in_the_middle_and_run_again_each_letter_is_sent_once(
    desk: Desk, failpoint: str
) -> None:
    """A kill -9 with an open, a full and a committed transaction; the next run does the rest."""
    values = [b"%05d" % i for i in range(MANY)]
    desk.buried(values)
    assert desk.killed(failpoint) == -signal.SIGKILL
    done = desk.run("replay", "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(record.value or b"" for record in desk.replayed()) == values
    assert "sent and noted" not in desk.run("replay", "--yes").output


def test_a_replay_that_begins_fences_the_one_before(desk: Desk) -> None:
    """The earlier one sends nothing more; between them each letter is sent once."""
    desk.buried([b"a", b"b"])
    connection = Connection(desk.kafka.bootstrap)
    first = Replay(connection, desk.letters)
    first.take_over()
    known = first.replayed()
    letters = list(read_letters(connection, desk.letters))
    assert desk.run("replay", "--yes").exit_code == 0
    with pytest.raises(Exception, match="another replay has begun"):
        list(first.send(first.orders(letters), known))
    first.close()
    assert len(desk.replayed()) == 2
