"""How Kafka is reached and what lets a client in, said once for every client of a process.

The variable SLUICEGATE_KAFKA names the brokers, unless a job does. SLUICEGATE_KAFKA_CONFIG names a
file of lines `key=value` in librdkafka's words, such as a mounted Secret: encryption, a login, and the
files of certificates. Both the Python clients and Spark's source, which is a Java client, get what it
says. Certificates travel by content, so that executors need no such file. Called by the sink, the
commands and the packaged jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sluicegate.protocol.errors import SettingsInvalid

SERVERS_VARIABLE = "SLUICEGATE_KAFKA"
CONFIG_VARIABLE = "SLUICEGATE_KAFKA_CONFIG"

_CONTENTS = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Of a file, and of what is in it."""

_CHOICES = {
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "ssl.endpoint.identification.algorithm": ("https", "none"),
}
_KNOWN = (*_CHOICES, "sasl.username", "sasl.password", *_CONTENTS, "ssl.key.password")

_LOGIN = "org.apache.kafka.common.security"


def servers_of(given: str = "", topic: str = "") -> str:
    """Return the brokers that are given, else the environment's.

    Args:
        given: by the user; empty: nothing is.
        topic: that is looked for, to be named in the error; empty: no certain one.

    Raises:
        SettingsInvalid: neither names any.
    """
    servers = given or os.environ.get(SERVERS_VARIABLE, "")
    if not servers:
        raise SettingsInvalid(
            f"no Kafka servers are given{topic and f' for topic {topic}'}",
            data="nothing was read or written",
            do=f"set {SERVERS_VARIABLE}, or give the servers (--kafka, bootstrap=)",
        )
    return servers


def security() -> dict[str, str]:
    """Return what lets a librdkafka client in; nothing where no file is named.

    Raises:
        SettingsInvalid: the file, or one that it names, cannot be read, or says what is not known.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    if not named:
        return {}
    said = dict(_lines(named, _read(named)))
    for key, choices in _CHOICES.items():
        if key in said and said[key] not in choices and said[key].lower() not in choices:
            raise _invalid(named, f"{key} is {said[key]!r}, and none of {', '.join(choices)}")
    if ("sasl.username" in said) != ("sasl.password" in said):
        raise _invalid(named, "it has one of sasl.username and sasl.password, and not the other")
    return {_CONTENTS.get(k, k): _read(v) if k in _CONTENTS else v for k, v in said.items()}


def client_settings(given: str = "") -> dict[str, str | int | float | bool]:
    """Return the settings by which a librdkafka client gets in; raises as `servers_of`, `security`."""
    return {**security(), "bootstrap.servers": servers_of(given)}


def spark_options(given: str = "") -> dict[str, str]:
    """Return the options by which Spark's Kafka source gets in; raises as `client_settings`."""
    java = {"bootstrap.servers": servers_of(given), **_in_java(security())}
    return {f"kafka.{key}": value for key, value in java.items()}


def _in_java(said: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings in the words of the Java client (KIP-651 for PEM)."""
    java = {}
    if "security.protocol" in said:
        java["security.protocol"] = said["security.protocol"].upper()
    mechanism = said.get("sasl.mechanism", "")
    if mechanism:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in said:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        user, password = (_quoted(said[key]) for key in ("sasl.username", "sasl.password"))
        java["sasl.jaas.config"] = (
            f"{_LOGIN}.{module} required username={user} password={password};"
        )
    if "ssl.ca.pem" in said:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": said["ssl.ca.pem"]}
    if "ssl.key.pem" in said:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": said["ssl.key.pem"]}
        java["ssl.keystore.certificate.chain"] = said.get("ssl.certificate.pem", "")
    if "ssl.key.password" in said:
        java["ssl.key.password"] = said["ssl.key.password"]
    if said.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _lines(file: str, text: str) -> Iterator[tuple[str, str]]:
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            continue
        key, equals, value = (piece.strip() for piece in line.partition("="))
        if not equals or key not in _KNOWN:
            # not the line: it may hold a password
            raise _invalid(file, f"it has a line of {key.split()[0]!r}; known: {', '.join(_KNOWN)}")
        yield key, value


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(file, f"it cannot be read: {error}") from error


def _invalid(file: str, what: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"{file}, of {CONFIG_VARIABLE}: {what}",
        data="nothing was read or written",
        do="correct the file: lines of key=value, in librdkafka's words",
    )
