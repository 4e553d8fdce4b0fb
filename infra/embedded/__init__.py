"""Kafka, MariaDB and Valkey on this machine, without containers: for tests, the demo and a laptop.

Not for production: one server of each, no TLS, loopback only. The public names are here; the
rest of the package is private to it.
"""

from infra.embedded.endpoints import KafkaEndpoint, MySQLEndpoint, RedisEndpoint
from infra.embedded.kafka import KafkaBroker
from infra.embedded.mariadb import MariaDB
from infra.embedded.process import ServiceError
from infra.embedded.redis import RedisServer
from infra.embedded.services import Services

__all__ = [
    "KafkaBroker",
    "KafkaEndpoint",
    "MariaDB",
    "MySQLEndpoint",
    "RedisEndpoint",
    "RedisServer",
    "ServiceError",
    "Services",
]
