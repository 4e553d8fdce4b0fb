"""Addresses of Kafka, MySQL and Redis, with the few admin calls that tests need. Starts nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import pymysql
from confluent_kafka.admin import AdminClient, NewTopic
from pymysql.connections import Connection

from infra.local_services.process import ServiceError

if TYPE_CHECKING:
    from redis import Redis

_QUIET = 0  # librdkafka writes every refused connection to stderr while a broker starts, at its default level


@dataclass(frozen=True)
class KafkaEndpoint:
    """A Kafka cluster that clients can reach."""

    bootstrap: str

    def admin(self) -> AdminClient:
        """Return an admin client. Keep it in a name until its results are there."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": _QUIET})

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, replicated as the cluster's default says, and wait for it."""
        topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
        admin = self.admin()  # a name: when the client is collected, its pending results are lost
        admin.create_topics([topic], operation_timeout=30.0)[name].result(timeout=60.0)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait for it."""
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=30.0)[name].result(timeout=60.0)

    def topics(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Return the cluster's topics with their partition counts."""
        found = self.admin().list_topics(timeout=timeout_s).topics
        return {name: len(topic.partitions) for name, topic in found.items()}


@dataclass(frozen=True)
class MySQLEndpoint:
    """A MySQL or MariaDB database that clients can reach."""

    host: str
    port: int
    user: str
    password: str
    database: str

    @classmethod
    def parse(cls, url: str) -> "MySQLEndpoint":
        """Read `mysql://user:password@host:port/database`."""
        parts = urlsplit(url)
        database = parts.path.strip("/")
        if parts.scheme != "mysql" or not (parts.hostname and parts.username and database):
            # The URL holds a password: it is not repeated in the message.
            raise ServiceError(
                "The MySQL URL is not mysql://user:password@host:port/database. Correct it."
            )
        return cls(
            parts.hostname,
            parts.port or 3306,
            unquote(parts.username),
            unquote(parts.password or ""),
            unquote(database),
        )

    @property
    def url(self) -> str:
        """The URL that parse reads."""
        credentials = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"mysql://{credentials}@{self.host}:{self.port}/{quote(self.database, safe='')}"

    def __repr__(self) -> str:
        """Show everything but the password: pytest prints this when a test fails."""
        return f"MySQLEndpoint({self.user}@{self.host}:{self.port}/{self.database})"

    def connect(self, **options: Any) -> "Connection[Any]":  # noqa: ANN401 - pymysql's own
        """Open a connection; options go to pymysql."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=self.database,
            **{"charset": "utf8mb4", "connect_timeout": 5, **options},
        )


@dataclass(frozen=True)
class RedisEndpoint:
    """A Redis or Valkey that clients can reach."""

    url: str

    def __repr__(self) -> str:
        """Show everything but a password: pytest prints this when a test fails."""
        return f"RedisEndpoint({self.url.rpartition('@')[2]})"

    def connect(self) -> "Redis":
        """Return a client whose keys and values are text."""
        from redis import Redis  # noqa: PLC0415 - half a second that most have no use for

        return Redis.from_url(self.url, decode_responses=True, socket_timeout=5.0)
