"""`sluicegate dead-letters` on a real Kafka: its output, and that it sends each record exactly once."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from infra.local_services import Services
from infra.local_services.endpoints import KafkaEndpoint
from sluicegate.cli.app import app
from sluicegate.console.app import LOCAL_NAMES, create_app
from sluicegate.console.reader import Reader
from sluicegate.dead_letters.replay import FROM_HEADER, LETTERS_PER_TRANSACTION, Replay
from sluicegate.dead_letters.topic import read_dead_letters
from sluicegate.failpoints import VARIABLE
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.reader import Record
from sluicegate.storage.driver_start import DriverStart, write_start
from sluicegate.storage.epoch_log import StoredEpochLog
from tests.integration.kafka_reader import read_topic
from tests.unit.console.browser import finished, request

pytestmark = [pytest.mark.integration, pytest.mark.faults]

DEAD_LETTERS_IN_THREE_TRANSACTIONS = 2 * LETTERS_PER_TRANSACTION + 100
AT_MS = (int(time.time()) - 3600) * 1000
"""An hour ago; a broker soon deletes records beyond its retention."""


def iso(time_ms: int) -> str:
    """Format a time as in dead letters and options."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


@dataclass
class Topics:
    """A source topic of two partitions and its dead-letter topic, with writers of both."""

    kafka: KafkaEndpoint
    name: str = field(default_factory=lambda: f"dl{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.source, self.dead_letters = f"{self.name}_source", f"{self.name}_letters"
        self.kafka.create_topic(self.source, 2)
        self.kafka.create_topic(self.dead_letters, 2)

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

    def dead_letter(
        self, value: bytes, offset: int | None, reason: str, **changes: object
    ) -> bytes:
        """Return a dead letter as the packaged jobs write it."""
        position = {"topic": self.source, "partition": 0, "offset": offset}
        fields: dict[str, object] = {
            "reason": reason,
            "payload": value.decode(errors="replace"),
            "payload_sha256": hashlib.sha256(value).hexdigest(),
            "source": position | {"timestamp": iso(AT_MS)},
        }
        if offset is None:
            del fields["source"]
        return json.dumps(fields | changes).encode()

    def put_dead_letters(self, values: list[bytes], reason: str = "unparsed: no line") -> None:
        """Put records into the source and their dead letters, alternating, into both partitions."""
        dead_letters = [
            self.dead_letter(value, offset, reason)
            for value, offset in zip(values, self.put(values), strict=True)
        ]
        for partition in (0, 1):
            self.put(dead_letters[partition::2], self.dead_letters, partition)

    def run(self, *arguments: str) -> Result:
        """Run the command."""
        command, *rest = arguments
        command_line = [
            "dead-letters",
            command,
            self.dead_letters,
            *rest,
            "--kafka",
            self.kafka.bootstrap,
        ]
        result = CliRunner().invoke(app, command_line)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
        return result

    def replay_killed_at(self, failpoint: str) -> int:
        """Replay in a process that dies at a failpoint; return its exit code."""
        command = [
            sys.executable,
            "-m",
            "sluicegate.cli",
            "dead-letters",
            "replay",
            self.dead_letters,
        ]
        return subprocess.run(
            [*command, "--yes", "--kafka", self.kafka.bootstrap],
            env={**os.environ, VARIABLE: f"{failpoint}=kill-self"},
            capture_output=True,
            check=False,
            timeout=120,
        ).returncode

    def replayed(self, topic: str = "") -> list[Record]:
        """Return the records that replays have sent."""
        records = read_topic(self.kafka.bootstrap, topic or self.source)
        return [record for record in records if FROM_HEADER in dict(record.headers)]


@pytest.fixture
def topics(services: Services) -> Topics:
    """Create topics for one test."""
    return Topics(services.kafka)


def test_list_groups_by_reason_and_ignores_numbers(topics: Topics) -> None:
    topics.put_dead_letters([b"a", b"b"], "refused by kafka.t: the record has 300 bytes")
    topics.put_dead_letters([b"c"], "refused by kafka.t: the record has 301 bytes")
    topics.put_dead_letters([b"d"], "late: closed")
    output = topics.run("list").output
    assert "3  refused by kafka.t: the record has # bytes" in output
    assert "1  late: closed" in output
    assert f"{topics.source}/0/3 'd'" in output


def test_list_of_a_missing_topic_fails(topics: Topics) -> None:
    result = CliRunner().invoke(
        app, ["dead-letters", "list", "no_such_topic", "--kafka", topics.kafka.bootstrap]
    )
    assert result.exit_code == 64
    assert "topic no_such_topic does not exist" in result.output


def test_show_prints_the_original_record(topics: Topics) -> None:
    topics.put_dead_letters([b"\xff broken"])
    output = topics.run("show", "0/0").output
    assert r"record    b'\xff broken'" in output
    assert f"sent to {topics.source} as it was" in output


def test_replay_without_yes_sends_nothing(topics: Topics) -> None:
    topics.put_dead_letters([b"a"])
    output = topics.run("replay").output
    assert f"1  would be sent to {topics.source} as it was" in output
    assert topics.replayed() == []


def test_a_record_is_sent_unchanged_even_with_invalid_utf8_or_without_a_value(
    topics: Topics,
) -> None:
    """Key, headers, partition and bytes come from the source, not from the dead letter's text."""
    topics.put_dead_letters([b"\xff\xfe", b"x" * 100_000])
    (empty,) = topics.put([None])  # type: ignore[list-item]
    dead_letter = topics.dead_letter(
        b"", empty, "empty: no value", payload=None, payload_sha256=None
    )
    topics.put([dead_letter], topics.dead_letters)
    topics.run("replay", "--yes")
    sent = topics.replayed()
    assert sorted((record.value or b"") for record in sent) == [b"", b"x" * 100_000, b"\xff\xfe"]
    assert {(record.partition, record.key, dict(record.headers)["trace"]) for record in sent} == {
        (0, b"key", b"1")
    }


def test_a_second_replay_sends_nothing(topics: Topics) -> None:
    topics.put_dead_letters([b"a", b"b"])
    topics.run("replay", "--yes")
    assert "sent" not in topics.run("replay", "--yes").output
    assert len(topics.replayed()) == 2
    assert "(replayed 2;" in topics.run("list").output


def test_dead_letters_that_a_filter_skips_can_be_replayed_later(topics: Topics) -> None:
    """Even if they lie before others that were replayed."""
    topics.put_dead_letters([b"early"], "unparsed: no line")
    topics.put_dead_letters([b"later"], "late: closed")
    topics.run("replay", "--yes", "--reason", "late")
    assert [record.value for record in topics.replayed()] == [b"later"]
    topics.run("replay", "--yes")
    assert [record.value for record in topics.replayed()] == [b"later", b"early"]


def test_since_skips_older_dead_letters(topics: Topics) -> None:
    topics.put_dead_letters([b"a"])
    assert "would be sent" not in topics.run("replay", "--since", iso(AT_MS + 1000)).output
    assert "would be sent" in topics.run("replay", "--since", iso(AT_MS - 1000)).output
    assert "would be sent" in topics.run("replay", "--since", "2h").output


def test_a_deleted_record_is_restored_from_its_dead_letter_if_the_hash_matches(
    topics: Topics,
) -> None:
    complete = topics.dead_letter(b"whole", 999, "late: closed")
    truncated = topics.dead_letter(b"cut", 998, "late: closed", payload="c")
    without_source = topics.dead_letter(b"from a socket", None, "late: closed")
    topics.put([complete, truncated, without_source], topics.dead_letters)
    output = topics.run("replay", "--yes").output
    assert [record.value for record in topics.replayed()] == [b"whole"]
    assert "1  NOT REPLAYABLE: its record no longer exists, and the dead letter does not" in output
    assert "1  NOT REPLAYABLE: it names no topic; name one with --to" in output
    other_topic = f"{topics.name}_other"
    topics.kafka.create_topic(other_topic)
    topics.run("replay", "--yes", "--to", other_topic)
    assert [record.value for record in topics.replayed(other_topic)] == [b"from a socket"]


def test_another_record_at_the_same_offset_is_not_sent(topics: Topics) -> None:
    """The source topic was re-created, so the dead letter stands for another record."""
    topics.put([b"new"])
    topics.put([topics.dead_letter(b"old", 0, "late: closed", payload="o")], topics.dead_letters)
    assert "another record is now at its source" in topics.run("replay", "--yes").output
    assert topics.replayed() == []


def test_the_record_of_refused_rows_is_sent_only_on_request_and_once(topics: Topics) -> None:
    """Two rows of one record are two dead letters of one record."""
    (offset,) = topics.put([b"record"])
    refused = topics.dead_letter(
        b"[row]", offset, "refused by t: too long", payload_of="staged row"
    )
    topics.put([refused, refused], topics.dead_letters)
    assert "2  NOT REPLAYABLE: of a refused row; use --refused" in topics.run("replay").output
    output = topics.run("replay", "--yes", "--refused").output
    assert [record.value for record in topics.replayed()] == [b"record"]
    assert f"1  sent to {topics.source} as it was" in output
    assert f"1  noted: the record is in {topics.source} for another dead letter" in output


def test_a_record_that_was_sent_to_one_topic_can_be_sent_to_another(topics: Topics) -> None:
    """Two dead letters of one record may need two topics; each gets the record once."""
    (offset,) = topics.put([b"record"])
    late = topics.dead_letter(b"record", offset, "late: closed")
    refused = topics.dead_letter(
        b"[row]", offset, "refused by t: too long", payload_of="staged row"
    )
    topics.put([late, refused, refused], topics.dead_letters)
    rescue = f"{topics.name}_rescue"
    topics.kafka.create_topic(rescue)
    topics.run("replay", "--yes", "--reason", "late", "--to", rescue)
    topics.run("replay", "--yes", "--reason", "refused", "--refused")
    assert [record.value for record in topics.replayed(rescue)] == [b"record"]
    assert [record.value for record in topics.replayed()] == [b"record"]


def test_the_console_shows_samples_of_a_jobs_dead_letters_without_secrets(
    topics: Topics, tmp_path: Path
) -> None:
    topics.put_dead_letters([b"ann, password=hunter2", b"bob"], "unparsed: line 7")
    store = finished(tmp_path, "shop", 1)
    log = StoredEpochLog(store)
    record = log.read(0)
    assert record is not None
    (sink,) = record.sinks
    store.delete("epochs/0")
    binding = replace(record.sinks[sink], target=f"topic {topics.dead_letters}")
    # dead letters of these tests are an hour old
    log.create(replace(record, sinks={sink: binding}, decided_at_ms=AT_MS))
    write_start(store.url, DriverStart(1, {"dead-letters": sink}))
    reader = Reader([str(tmp_path)])
    try:
        console = create_app(reader, hosts=LOCAL_NAMES, refresh_s=0.0, kafka=topics.kafka.bootstrap)
        assert 'data-src="/dead-letters/shop"' in request(console, "/job/shop").body
        page = request(console, "/dead-letters/shop")
        topics.put_dead_letters([b"cid"], "unparsed: line 8")
        assert request(console, "/dead-letters/shop").text == page.text, "not read again yet"
    finally:
        reader.close()
    assert "unparsed: line # 2" in page.text
    assert "ann, password=(hidden)" in page.text
    assert "bob" in page.text
    assert "hunter2" not in page.body


def test_other_records_of_the_topic_are_listed_and_not_replayed(topics: Topics) -> None:
    topics.put([b"\xff no letter"], topics.dead_letters)
    assert "unreadable: not a dead letter of Sluicegate" in topics.run("list").output
    assert "NOT REPLAYABLE" in topics.run("replay", "--yes").output


@pytest.mark.slow
@pytest.mark.parametrize(
    "failpoint", ["replay-begun@1", "replay-written@0", "replay-written@1", "replay-committed@1"]
)
def test_a_replay_that_is_killed_and_repeated_sends_each_record_once(
    topics: Topics, failpoint: str
) -> None:
    """A kill -9 with an open, a written and a committed transaction; the next run sends the rest."""
    values = [b"%05d" % i for i in range(DEAD_LETTERS_IN_THREE_TRANSACTIONS)]
    topics.put_dead_letters(values)
    assert topics.replay_killed_at(failpoint) == -signal.SIGKILL
    result = topics.run("replay", "--yes")
    assert result.exit_code == 0, result.output
    assert sorted(record.value or b"" for record in topics.replayed()) == values
    assert "sent and noted" not in topics.run("replay", "--yes").output


def test_a_new_replay_fences_the_earlier_one(topics: Topics) -> None:
    """The earlier one sends nothing more; together they send each record once."""
    topics.put_dead_letters([b"a", b"b"])
    connection = Connection(topics.kafka.bootstrap)
    first = Replay(connection, topics.dead_letters)
    first.take_over()
    replayed = first.replayed()
    dead_letters = list(read_dead_letters(connection, topics.dead_letters))
    assert topics.run("replay", "--yes").exit_code == 0
    with pytest.raises(Exception, match="another replay has started"):
        list(first.send(first.plan(dead_letters), replayed))
    first.close()
    assert len(topics.replayed()) == 2
