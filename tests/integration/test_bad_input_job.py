"""User errors about ip_count through the CLI: a clear error, and no row is lost or repeated.

The sinks' own checks are tested in test_kafka_bad_input and test_mysql_bad_input.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.local_services.process import free_ports
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    LINES,
    Ended,
    Scene,
    access_lines,
    feed,
    scene,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene with the default lines."""
    with scene(services, tmp_path) as played:
        yield played


def check_error(ended: Ended, kind: str, *words: str) -> None:
    """Assert that the driver failed with an error that names the cause, the data and the remedy."""
    assert ended.code > 0, ended.log
    _, separator, message = ended.log.partition(f"{kind}: ")
    assert separator, ended.log
    for word in (*words, "\n  data: ", "\n  do: "):
        assert word in message, f"{word!r} is not in: {message}"
    assert "Traceback" not in ended.log


def check_nothing_written(played: Scene) -> None:
    """Assert that no epoch has started, so no sink can have rows."""
    assert played.epoch_log().newest() is None
    assert not list((played.checkpoint / "offsets").glob("*"))


def query(services: Services, statement: str) -> None:
    """Run a statement on the database."""
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)


# --- invalid starts -------------------------------------------------------------------------


def test_broker_down(played: Scene) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    ended = played.but(kafka=address).run()
    check_error(ended, "SinkUnavailable", address)
    check_nothing_written(played)


def test_database_down(played: Scene, services: Services) -> None:
    port = free_ports(1)[0]
    down = services.mysql.url.replace(f":{services.mysql.port}/", f":{port}/")
    ended = played.but(mysql=down).run()
    check_error(ended, "SinkUnavailable", f"127.0.0.1:{port}", "SLUICEGATE_MYSQL")
    check_nothing_written(played)


def test_wrong_password(played: Scene, services: Services) -> None:
    """The error names the user and not the password."""
    wrong = services.mysql.url.replace(services.mysql.password, "opensesame")
    ended = played.but(mysql=wrong).run()
    check_error(ended, "AccessDenied", services.mysql.user)
    assert "opensesame" not in ended.log
    check_nothing_written(played)


@pytest.mark.parametrize("role", ["source", "topic", "dead_letters"])
def test_missing_topic(played: Scene, role: str) -> None:
    """It is named and not created."""
    ended = played.but(**{role: "no_such_topic"}).run()
    check_error(ended, "TargetMissing", "no_such_topic")
    assert ended.code == 64
    check_nothing_written(played)


def test_missing_table(played: Scene) -> None:
    ended = played.but(table="no_such_table").run()
    check_error(ended, "TargetMissing", "no_such_table")
    check_nothing_written(played)


def test_table_whose_columns_do_not_fit(played: Scene, services: Services) -> None:
    query(services, f"ALTER TABLE {played.settings.table} DROP COLUMN hits")
    ended = played.run()
    check_error(ended, "SchemaMismatch", played.settings.table, "hits")
    check_nothing_written(played)


def test_transaction_timeout_above_the_brokers_maximum(played: Scene) -> None:
    """Both values are named. ip_count has no setting for the timeout, so another job runs."""
    ended = played.run_job("too_long_transactions")
    check_error(ended, "TransactionTimeoutInvalid", "transaction.max.timeout.ms", "86400000")
    assert ended.code == 64
    check_nothing_written(played)


def test_the_same_checkpoint_works_once_the_cause_is_fixed(played: Scene) -> None:
    """Failed starts leave nothing that disturbs a later start."""
    assert played.but(table="no_such_table").run().code == 64
    assert played.but(source="no_such_topic").run().code == 64
    ended = played.run()
    assert ended.code == 0, ended.log
    played.check_exact()


# --- foreign or modified checkpoints -------------------------------------------------------------


def test_checkpoint_of_another_job(played: Scene) -> None:
    """Both jobs are named; the other job's checkpoint is unchanged."""
    played.checkpoint.mkdir()
    lineage = {"id": "0123456789abcdef", "job": "sessions", "first_epoch": 0}
    (played.checkpoint / "lineage.json").write_text(json.dumps(lineage))
    ended = played.run()
    check_error(ended, "CheckpointOfAnotherJob", "sessions", "ip_count")
    check_nothing_written(played)


def test_checkpoint_of_a_plain_spark_query(played: Scene) -> None:
    played.checkpoint.mkdir()
    (played.checkpoint / "metadata").write_text('{"id":"5f0a4c2e-9d0d-4c58-8a52-0f3a6e1f7a11"}')
    ended = played.run()
    check_error(ended, "CheckpointOfAnotherJob", "Sluicegate never ran")
    check_nothing_written(played)


def test_tampered_offset_log(played: Scene) -> None:
    """An edited offset of a decided epoch stops the job; with the original, the job is exact."""
    assert played.run("after-decide@2=kill-group").code == -signal.SIGKILL
    offsets = played.checkpoint / "offsets" / "2"
    shutil.copy(offsets, played.folder / "original")
    edited = offsets.read_text().splitlines()
    edited[-1] = edited[-1].replace('"0":', '"0":1')
    offsets.write_text("\n".join(edited))
    _remove_checksum(offsets)
    check_error(played.run(), "OffsetLogDiverged", "offsets/2")
    shutil.copy(played.folder / "original", offsets)
    ended = played.run()
    assert ended.code == 0, ended.log
    played.check_exact()


def _remove_checksum(file: Path) -> None:
    """Remove Hadoop's checksum, without which an edited file would not be read."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_second_driver_on_the_same_checkpoint(played: Scene, services: Services) -> None:
    """One of two drivers ends itself with the reason; their combined result is exact."""
    both = played.but(interval="200 milliseconds", max_records=100_000)
    first = both.start()
    first.wait_for("epoch 0 committed")
    second = both.start()
    second.wait_for("ip_count started")
    more = access_lines(40 * EPOCH_LINES)[LINES:]
    sent = 0
    while first.process.poll() is None and second.process.poll() is None:
        assert sent < len(more), f"both drivers still run:\n{first.text()}\n{second.text()}"
        feed(services.kafka.bootstrap, both.settings.source, more[sent : sent + 50])
        sent += 50
        time.sleep(0.2)  # for many epochs; which driver loses is random
    if first.process.poll() is None:
        first, second = second, first
    ended = first.wait()
    second.process.send_signal(signal.SIGTERM)
    second.wait()
    check_error(ended, "Fenced", "driver")
    assert ended.code == 65
    ended = played.but(max_records=100_000).run()
    assert ended.code == 0, ended.log
    played.check_exact(LINES + sent)


# --- rows that a sink refuses --------------------------------------------------------------------


def test_value_too_long(played: Scene, services: Services) -> None:
    """Counts whose address does not fit the column become dead letters; none is lost or in one sink only."""
    query(services, f"ALTER TABLE {played.settings.table} MODIFY ip VARCHAR(8) NOT NULL")
    ended = played.run()
    assert ended.code == 0, ended.log
    assert played.check_exact()["counts that a sink refused"] > 0


def test_message_over_the_brokers_limit(services: Services, tmp_path: Path) -> None:
    """Counts that exceed the topic's limit become dead letters; none is lost or in one sink only."""
    with scene(services, tmp_path, configs={"topic": {"max.message.bytes": "290"}}) as played:
        ended = played.run()
        assert ended.code == 0, ended.log
        checked = played.check_exact()
        assert checked["counts that a sink refused"] > 0
        assert checked["records in Kafka"] > 0


def test_dead_letter_over_the_brokers_limit(services: Services, tmp_path: Path) -> None:
    """A dead letter that exceeds its topic's limit is cut until it fits; the line is not lost."""
    lines = access_lines()
    lines[-1] = lines[0].replace(b"GET /0", b"GET /" + b"x" * 50_000)
    with scene(
        services, tmp_path, lines=lines, configs={"dead_letters": {"max.message.bytes": "4000"}}
    ) as played:
        ended = played.but(max_records=EPOCH_LINES).run()
        assert ended.code == 0, ended.log
        played.check_exact()
