"""The guarantees of infra.local_services, on which other tests rely."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from infra.local_services import KafkaEndpoint, MySQLEndpoint, ServiceError, Services
from infra.local_services.valkey import redis_command
from infra.workspace import CHECKOUT

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_services() -> Iterator[Services]:
    """Yield services that a test may stop and kill."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("SLUICEGATE_KAFKA", raising=False)
        environment.delenv("SLUICEGATE_MYSQL", raising=False)
        with Services() as services:
            yield services


def produce(kafka: KafkaEndpoint, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(30.0) == 0


def consume(kafka: KafkaEndpoint, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + 30.0
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return sorted(values)


def insert(mysql: MySQLEndpoint, table: str, number: int) -> None:
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} (n INT PRIMARY KEY) ENGINE=InnoDB")
        cursor.execute(f"INSERT INTO {table} VALUES ({number})")
        connection.commit()


def read_rows(mysql: MySQLEndpoint, table: str) -> list[int]:
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT n FROM {table} ORDER BY n")
        return [row[0] for row in cursor.fetchall()]


def test_a_restart_in_place_keeps_topics_and_records(own_services: Services) -> None:
    own_services.kafka.create_topic("kept", partitions=3)
    produce(own_services.kafka, "kept", ["a", "b"])
    before = own_services.kafka.bootstrap
    own_services.broker.restart()
    assert own_services.kafka.bootstrap == before
    assert own_services.kafka.topics()["kept"] == 3
    assert consume(own_services.kafka, "kept", 2) == ["a", "b"]


def test_a_restart_in_place_keeps_tables_and_rows(own_services: Services) -> None:
    insert(own_services.mysql, "kept", 1)
    before = own_services.mysql.url
    own_services.database.restart()
    assert own_services.mysql.url == before
    assert read_rows(own_services.mysql, "kept") == [1]


@pytest.mark.faults
def test_a_killed_broker_comes_back_with_acknowledged_records(own_services: Services) -> None:
    own_services.kafka.create_topic("survives")
    produce(own_services.kafka, "survives", ["a"])
    own_services.broker.kill()
    assert own_services.broker.pid is None
    own_services.broker.start()
    assert consume(own_services.kafka, "survives", 1) == ["a"]


@pytest.mark.faults
def test_a_killed_database_comes_back_with_committed_rows(own_services: Services) -> None:
    insert(own_services.mysql, "survives", 1)
    own_services.database.kill()
    assert own_services.database.pid is None
    own_services.database.start()
    assert read_rows(own_services.mysql, "survives") == [1]


def test_the_database_is_strict_and_uses_utf8mb4(own_services: Services) -> None:
    with own_services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT @@sql_mode, @@character_set_server, @@innodb_flush_log_at_trx_commit,"
            " @@max_allowed_packet"
        )
        mode, charset, flush, packet = cursor.fetchone() or ("", "", 0, 0)
    assert "STRICT_ALL_TABLES" in mode
    assert (charset, flush, packet) == ("utf8mb4", 1, 64 << 20)


def test_both_servers_listen_on_loopback_only(own_services: Services) -> None:
    for pid in (own_services.broker.pid, own_services.database.pid):
        addresses = [
            connection.laddr.ip
            for connection in psutil.Process(pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert addresses
        assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}


def test_a_second_user_of_a_folder_is_refused(tmp_path: Path) -> None:
    with (
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("SLUICEGATE_KAFKA", "127.0.0.1:1")
        environment.delenv("SLUICEGATE_MYSQL", raising=False)
        with Services(tmp_path), pytest.raises(ServiceError, match="in use"):
            Services(tmp_path).start()


def test_a_server_of_the_environment_is_used_and_never_stopped(
    own_services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE_KAFKA", own_services.kafka.bootstrap)
    monkeypatch.setenv("SLUICEGATE_MYSQL", own_services.mysql.url)
    pids = (own_services.broker.pid, own_services.database.pid)
    with Services() as services:
        assert services.kafka.bootstrap == own_services.kafka.bootstrap
        assert services.mysql == own_services.mysql
        with pytest.raises(ServiceError, match="SLUICEGATE_KAFKA"):
            services.broker.kill()
        with pytest.raises(ServiceError, match="SLUICEGATE_MYSQL"):
            services.database.kill()
    assert (own_services.broker.pid, own_services.database.pid) == pids
    assert own_services.kafka.topics() is not None
    insert(own_services.mysql, "still_there", 1)


@pytest.mark.skipif(
    redis_command() is None, reason="there is no Redis; the header of the test run has the reason"
)
def test_redis_runs_from_its_first_use_until_services_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("SLUICEGATE_MYSQL", "mysql://nobody@127.0.0.1:1/none")
    monkeypatch.delenv("SLUICEGATE_REDIS", raising=False)
    with Services() as services:
        assert services._redis_server is None
        with services.redis.connect() as client:
            assert client.ping()
        server = psutil.Process(services.redis_server.pid)
        folder = services.redis_server.log.parent
    assert not server.is_running()
    assert not folder.exists()


def test_a_redis_of_the_environment_is_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("SLUICEGATE_MYSQL", "mysql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("SLUICEGATE_REDIS", "redis://127.0.0.1:1/0")
    with Services() as services:
        assert services.redis.url == "redis://127.0.0.1:1/0"
        with pytest.raises(ServiceError, match="SLUICEGATE_REDIS"):
            services.redis_server.kill()


@pytest.mark.faults
@pytest.mark.parametrize(
    "end_signal",
    [signal.SIGINT, signal.SIGTERM, signal.SIGKILL],
    ids=lambda end_signal: end_signal.name,
)
def test_no_server_outlives_its_owner(end_signal: signal.Signals) -> None:
    environment = dict(os.environ)
    environment.pop("SLUICEGATE_KAFKA", None)
    environment.pop("SLUICEGATE_MYSQL", None)
    with subprocess.Popen(
        [sys.executable, "-m", "infra.local_services"],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        for line in owner.stdout:
            if "Ctrl-C" in line:
                break
        children = psutil.Process(owner.pid).children(recursive=True)
        names = " ".join(process.name() for process in children)
        assert "java" in names
        assert "mariadbd" in names
        owner.send_signal(end_signal)
        owner.wait(60.0)
    _, alive = psutil.wait_procs(children, timeout=30.0)
    assert alive == []


def test_stop_leaves_no_process_and_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_KAFKA", "127.0.0.1:1")
    monkeypatch.delenv("SLUICEGATE_MYSQL", raising=False)
    services = Services().start()
    log = services.database.log
    # a process that an earlier test killed may not be reaped yet
    children = psutil.Process().children(recursive=True)
    running = [p for p in children if p.status() != psutil.STATUS_ZOMBIE]
    server = psutil.Process(services.database.pid)
    watchdogs = [p for p in running if "watchdog.py" in " ".join(p.cmdline())]
    services.stop()
    services.stop()
    assert not server.is_running()
    assert len([p for p in watchdogs if not p.is_running()]) == 1
    assert not log.parent.exists()
