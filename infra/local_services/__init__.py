"""Kafka, MariaDB, Valkey and S3 on this machine, without containers: for tests, the demo and a laptop.

Not for production: one server of each, no TLS, loopback only. The public names are here; the
rest of the package is private to it.
"""

from infra.local_services.endpoints import KafkaEndpoint, MySQLEndpoint, RedisEndpoint
from infra.local_services.kafka import KafkaBroker
from infra.local_services.mariadb import MariaDB
from infra.local_services.process import ServiceError
from infra.local_services.s3 import S3Endpoint, S3Server
from infra.local_services.services import Services
from infra.local_services.valkey import RedisServer

__all__ = [
    "KafkaBroker",
    "KafkaEndpoint",
    "MariaDB",
    "MySQLEndpoint",
    "RedisEndpoint",
    "RedisServer",
    "S3Endpoint",
    "S3Server",
    "ServiceError",
    "Services",
]
