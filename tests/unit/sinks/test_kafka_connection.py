"""The file of connection settings, as settings of Python clients and of Java clients."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.local_services.process import free_ports
from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.kafka import connection
from sluicegate.sinks.kafka.connection import Connection

_TIMEOUTS = {
    "kafka.request.timeout.ms": "10000",
    "kafka.socket.connection.setup.timeout.ms": "5000",
    "kafka.socket.connection.setup.timeout.max.ms": "10000",
}
"""With which a job notices that a broker's pod has another address."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the environment names; it does not exist yet."""
    file = tmp_path / "kafka.properties"
    monkeypatch.setenv(connection.CONFIG_VARIABLE, str(file))
    monkeypatch.setenv(connection.SERVERS_VARIABLE, "broker:9093")
    return file


def test_without_a_file_clients_get_only_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(connection.CONFIG_VARIABLE, raising=False)
    assert connection.client_settings("broker:9092") == {"bootstrap.servers": "broker:9092"}
    options = connection.spark_options("broker:9092")
    assert options == {"kafka.bootstrap.servers": "broker:9092", **_TIMEOUTS}


def test_a_login_is_translated_for_java_and_its_quotes_are_escaped(config: Path) -> None:
    config.write_text(
        "# a comment\nsecurity.protocol = sasl_ssl\nsasl.mechanism=SCRAM-SHA-512\n"
        'sasl.username=jobs\nsasl.password=a"b\\c=d\n'
    )
    assert connection.spark_options() == {
        **_TIMEOUTS,
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="jobs" password="a\\"b\\\\c=d";'
        ),
    }


def test_certificates_travel_by_content(config: Path, tmp_path: Path) -> None:
    """Executors do not have the files."""
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"the {name}")
    config.write_text(
        f"security.protocol=ssl\nssl.ca.location={tmp_path}/ca\n"
        f"ssl.certificate.location={tmp_path}/certificate\nssl.key.location={tmp_path}/key\n"
    )
    assert connection.client_settings() == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "ssl",
        "ssl.ca.pem": "the ca",
        "ssl.certificate.pem": "the certificate",
        "ssl.key.pem": "the key",
    }
    java = connection.spark_options()
    assert java["kafka.ssl.truststore.certificates"] == "the ca"
    assert java["kafka.ssl.keystore.certificate.chain"] == "the certificate"
    assert java["kafka.ssl.keystore.key"] == "the key"


def test_settings_of_a_sink_override_the_file(config: Path) -> None:
    config.write_text("security.protocol=ssl\n")
    given = Connection.of("other:1", {"security.protocol": "plaintext"}).settings()
    assert (given["bootstrap.servers"], given["security.protocol"]) == ("other:1", "plaintext")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sasl.pasword=hunter2", "it has a line of 'sasl.pasword'"),
        ("hunter2 without an equals sign", "it has a line of 'hunter2'"),
        ("security.protocol=tls", "not one of plaintext, ssl"),
        ("sasl.username=jobs", "only one of sasl.username and sasl.password"),
        ("ssl.ca.location=/not/there", "/not/there"),
    ],
)
def test_an_invalid_file_is_refused_with_the_problem(config: Path, text: str, message: str) -> None:
    config.write_text(text)
    with pytest.raises(SettingsInvalid, match=message):
        connection.security()


def test_errors_never_contain_a_password(config: Path) -> None:
    config.write_text("sasl.pasword=hunter2\n")
    with pytest.raises(SettingsInvalid) as raised:
        connection.security()
    assert "hunter2" not in str(raised.value)


def test_a_missing_file_is_an_error_and_not_an_unencrypted_connection(config: Path) -> None:
    with pytest.raises(SettingsInvalid, match=config.name):
        connection.client_settings()


def test_missing_servers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(connection.SERVERS_VARIABLE, raising=False)
    with pytest.raises(SettingsInvalid, match="no Kafka servers"):
        connection.servers_of()


def test_a_client_without_its_broker_logs_each_failure_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tries again 80 times a second, also while nobody uses it."""
    (port,) = free_ports(1)
    settings = Connection.of(f"127.0.0.1:{port}").settings(group_id="g")
    with closing(Consumer(settings, logger=connection.RDKAFKA_LOG)) as consumer:
        with pytest.raises(KafkaException):
            consumer.committed([TopicPartition("t", 0)], timeout=0.5)
        consumer.poll(0)
    (failure,) = [record for record in caplog.records if "Connection refused" in record.message]
    assert str(port) in failure.message
