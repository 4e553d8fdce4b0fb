"""How every client of a process reaches Kafka and logs in; names and deadlines of the clients.

SLUICEGATE_KAFKA names the brokers, unless a job does. SLUICEGATE_KAFKA_CONFIG names a file of lines
`key=value` in librdkafka's terms, such as a mounted Secret: encryption, login and certificate files.
The Python clients and Spark's source, a Java client, both use it. Certificates travel by content, so
executors need no such file.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.errors import SettingsInvalid

MARKERS_TOPIC = "sluicegate.markers"
"""Group offsets on this topic are the markers, and its records are the durable markers. On the sink's
own topic, a part beyond the partition count would fail after the decision, and re-creating it would
erase markers."""

MARKERS_PARTITIONS = 64

_MARKERS_GROUP = re.compile(r"sluicegate\.[0-9a-f]{16}\.")
"""How each group of markers begins: with the id of a lineage."""

LOG = logging.getLogger("sluicegate.sinks.kafka")
RDKAFKA_LOG = logging.getLogger("sluicegate.sinks.kafka.librdkafka")


class RepeatedFailures(logging.Filter):
    """Drops a failure that a client of librdkafka logged within the last EVERY_S seconds.

    A client without its broker tries again 80 times a second, idle or not, whatever
    reconnect.backoff.max.ms is, and its lines arrive together when it is used again.
    """

    EVERY_S = 10.0

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        text = record.getMessage()
        if not text.startswith("FAIL "):
            return True
        failure, _, _ = text.partition(" (after ")  # the rest is a time
        now = time.monotonic()
        self._logged = {f: at for f, at in self._logged.items() if at > now - self.EVERY_S}
        return self._logged.setdefault(failure, now) == now


RDKAFKA_LOG.addFilter(RepeatedFailures())

RESERVED_SETTINGS = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "compression.type",
        "compression.codec",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "error_cb",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "log_level",
        "logger",
        "metadata.broker.list",
        "on_delivery",
        "request.required.acks",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""Settings that exactly-once depends on, or that have a parameter of their own."""

Settings = dict[str, object]

SERVERS_VARIABLE = "SLUICEGATE_KAFKA"
CONFIG_VARIABLE = "SLUICEGATE_KAFKA_CONFIG"

_CONTENTS = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""The setting for a file -> the setting for its content."""

_CHOICES = {
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "ssl.endpoint.identification.algorithm": ("https", "none"),
}
_KNOWN = (*_CHOICES, "sasl.username", "sasl.password", *_CONTENTS, "ssl.key.password")

_LOGIN = "org.apache.kafka.common.security"

ANSWER_MS = 15_000
"""After which a client of librdkafka gives up a request, and its connection, and connects again."""

_SOURCE_TIMEOUTS = {
    "request.timeout.ms": "10000",
    "socket.connection.setup.timeout.ms": "5000",
    "socket.connection.setup.timeout.max.ms": "10000",
}
"""A broker's pod that is killed comes back with another address, and nothing answers at the former one. A
Java client asks DNS again only after these times. With its own defaults (30, 10 and 30 seconds) a kill
stopped a job for up to 75 s, because an AdminClient that waits for a connection checks none of them
before request.timeout.ms has passed."""


def servers_of(given: str = "", topic: str = "") -> str:
    """Return the given brokers, or those of the environment; an error names the topic.

    Raises:
        SettingsInvalid: neither names any broker.
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
    """Return the encryption and login settings of a librdkafka client; empty if no file is named.

    Raises:
        SettingsInvalid: the file, or one that it names, cannot be read, or has an unknown setting.
    """
    file = os.environ.get(CONFIG_VARIABLE)
    if not file:
        return {}
    settings = dict(_lines(file, _read(file)))
    for key, choices in _CHOICES.items():
        value = settings.get(key)
        if value is not None and value not in choices and value.lower() not in choices:
            raise _invalid(file, f"{key} is {value!r}, not one of {', '.join(choices)}")
    if ("sasl.username" in settings) != ("sasl.password" in settings):
        raise _invalid(file, "it sets only one of sasl.username and sasl.password")
    return {_CONTENTS.get(k, k): _read(v) if k in _CONTENTS else v for k, v in settings.items()}


def client_settings(given: str = "") -> dict[str, str | int | float | bool]:
    """Return the connection settings of a librdkafka client; raises as `servers_of` and `security`."""
    return {**security(), "bootstrap.servers": servers_of(given)}


def spark_options(given: str = "") -> dict[str, str]:
    """Return the connection options of Spark's Kafka source; raises as `client_settings`."""
    servers = {"bootstrap.servers": servers_of(given)}
    java = servers | _SOURCE_TIMEOUTS | _java_settings(security())
    return {f"kafka.{key}": value for key, value in java.items()}


def _java_settings(rdkafka: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings in the terms of the Java client (KIP-651 for PEM)."""
    java = {key: rdkafka[key] for key in ("sasl.mechanism", "ssl.key.password") if key in rdkafka}
    if "security.protocol" in rdkafka:
        java["security.protocol"] = rdkafka["security.protocol"].upper()
    if "sasl.username" in rdkafka:
        plain = rdkafka.get("sasl.mechanism") == "PLAIN"
        module = "plain.PlainLoginModule" if plain else "scram.ScramLoginModule"
        user, password = (_quoted(rdkafka[key]) for key in ("sasl.username", "sasl.password"))
        java["sasl.jaas.config"] = (
            f"{_LOGIN}.{module} required username={user} password={password};"
        )
    if "ssl.ca.pem" in rdkafka:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": rdkafka["ssl.ca.pem"]}
    if "ssl.key.pem" in rdkafka:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": rdkafka["ssl.key.pem"]}
        java["ssl.keystore.certificate.chain"] = rdkafka.get("ssl.certificate.pem", "")
    if rdkafka.get("ssl.endpoint.identification.algorithm") == "none":
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
            # Not the whole line: it may contain a password.
            raise _invalid(file, f"it has a line of {key.split()[0]!r}; known: {', '.join(_KNOWN)}")
        yield key, value


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(file, f"it cannot be read: {error}") from error


def _invalid(file: str, what: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"{file}, from {CONFIG_VARIABLE}: {what}",
        data="nothing was read or written",
        do="correct the file: lines of key=value, with librdkafka's settings",
    )


@dataclass(frozen=True)
class Connection:
    """The brokers and how to log in. `config` may contain a password: it has no repr."""

    bootstrap: str
    config: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of(
        cls, servers: str = "", config: Mapping[str, object] | None = None, *, topic: str = ""
    ) -> Connection:
        """Return a connection with the settings of the environment; see the module.

        Args:
            servers: brokers; empty: the environment's.
            config: more settings; they override the environment's.
            topic: named in an error; may be empty.

        Raises:
            SettingsInvalid: no brokers are known, or the login settings cannot be read.
        """
        return cls(servers_of(servers, topic), {**security(), **(config or {})})

    def settings(self, **more: object) -> Settings:
        """Return the settings that all clients share, with `more` ('_' read as '.')."""
        return {
            # The defaults of 100 ms each make init_transactions take 60 ms instead of 18.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1000,
            "retry.backoff.ms": 20,
            # by default 30 s; nothing answers at the former address of a pod
            "socket.connection.setup.timeout.ms": 10_000,
            # by default 60 s, as much as an apply may take: a pod that is killed leaves connections
            # that nobody resets, and a request on one of them gets no answer. Brokers answer within
            # 10 s after another one has gone, their session timeout
            "socket.timeout.ms": ANSWER_MS,
            "log.connection.close": False,
            **self.config,
            "bootstrap.servers": self.bootstrap,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


def transactional_id(lineage: str, sink: str, part: int) -> str:
    """Return the id by which a writer of a part fences its predecessor."""
    return f"sluicegate.{lineage}.{sink}.{part}"


def group_id(lineage: str, sink: str) -> str:
    """Return the consumer group whose offsets are the markers of a sink."""
    return f"sluicegate.{lineage}.{sink}"


def is_markers_group(group: str) -> bool:
    """Return whether a consumer group may be that of a sink's markers; see `group_id`."""
    return _MARKERS_GROUP.match(group) is not None


class Deadline:
    """A point in time by which an operation must be done."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def passed(self) -> bool:
        """Return whether the time is up."""
        return time.monotonic() >= self._end

    def left(self, at_most: float = float("inf")) -> float:
        """Return the seconds left; never 0 or less, which mean 'forever' or 'now' to librdkafka."""
        return max(0.05, min(at_most, self._end - time.monotonic()))
