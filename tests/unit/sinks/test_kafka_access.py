"""Tests of the file that lets Kafka's clients in: what it becomes for Python and for Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.sinks.kafka import access
from sluicegate.sinks.kafka.clients import Connection


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the environment names; it is not there yet."""
    file = tmp_path / "kafka.properties"
    monkeypatch.setenv(access.CONFIG_VARIABLE, str(file))
    monkeypatch.setenv(access.SERVERS_VARIABLE, "broker:9093")
    return file


def test_without_a_file_clients_are_told_the_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(access.CONFIG_VARIABLE, raising=False)
    assert access.client_settings("broker:9092") == {"bootstrap.servers": "broker:9092"}
    assert access.spark_options("broker:9092") == {"kafka.bootstrap.servers": "broker:9092"}


def test_a_login_in_the_words_of_java_with_its_quotes_escaped(config: Path) -> None:
    config.write_text(
        "# a comment\nsecurity.protocol = sasl_ssl\nsasl.mechanism=SCRAM-SHA-512\n"
        'sasl.username=jobs\nsasl.password=a"b\\c=d\n'
    )
    assert access.spark_options() == {
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="jobs" password="a\\"b\\\\c=d";'
        ),
    }


def test_certificates_travel_by_content(config: Path, tmp_path: Path) -> None:
    """An executor has no such files."""
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"the {name}")
    config.write_text(
        f"security.protocol=ssl\nssl.ca.location={tmp_path}/ca\n"
        f"ssl.certificate.location={tmp_path}/certificate\nssl.key.location={tmp_path}/key\n"
    )
    assert access.client_settings() == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "ssl",
        "ssl.ca.pem": "the ca",
        "ssl.certificate.pem": "the certificate",
        "ssl.key.pem": "the key",
    }
    java = access.spark_options()
    assert java["kafka.ssl.truststore.certificates"] == "the ca"
    assert java["kafka.ssl.keystore.certificate.chain"] == "the certificate"
    assert java["kafka.ssl.keystore.key"] == "the key"


def test_what_a_sink_is_given_wins_over_the_file(config: Path) -> None:
    config.write_text("security.protocol=ssl\n")
    given = Connection.of("other:1", {"security.protocol": "plaintext"}).settings()
    assert (given["bootstrap.servers"], given["security.protocol"]) == ("other:1", "plaintext")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.pasword=hunter2", "it has a line of 'sasl.pasword'"),
        ("hunter2 without an equals sign", "it has a line of 'hunter2'"),
        ("security.protocol=tls", "none of plaintext, ssl"),
        ("sasl.username=jobs", "not the other"),
        ("ssl.ca.location=/not/there", "/not/there"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_what_is_wrong(
    config: Path, text: str, said: str
) -> None:
    config.write_text(text)
    with pytest.raises(SettingsInvalid, match=said):
        access.security()


def test_a_password_is_in_no_error(config: Path) -> None:
    config.write_text("sasl.pasword=hunter2\n")
    with pytest.raises(SettingsInvalid) as raised:
        access.security()
    assert "hunter2" not in str(raised.value)


def test_a_file_that_is_not_there_is_an_error_and_not_plain_text(config: Path) -> None:
    with pytest.raises(SettingsInvalid, match=config.name):
        access.client_settings()


def test_servers_that_nobody_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(access.SERVERS_VARIABLE, raising=False)
    with pytest.raises(SettingsInvalid, match="no Kafka servers"):
        access.servers_of()
