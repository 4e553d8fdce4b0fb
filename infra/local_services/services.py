"""Kafka, MySQL, Redis and optionally S3: started on this machine, or those that the environment names."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TextIO, TypeVar

from infra.local_services.endpoints import KafkaEndpoint, MySQLEndpoint, RedisEndpoint
from infra.local_services.kafka import KafkaBroker, broker_cluster
from infra.local_services.mariadb import MariaDB
from infra.local_services.process import Server, ServiceError
from infra.local_services.s3 import S3Server
from infra.local_services.valkey import REDIS_VARIABLE, RedisServer
from infra.workspace import work_folder

KAFKA_VARIABLE: Final = "SLUICEGATE_KAFKA"
MYSQL_VARIABLE: Final = "SLUICEGATE_MYSQL"
S3_VARIABLE: Final = "SLUICEGATE_S3"

_Server = TypeVar("_Server", bound=Server)


class Services:
    """A Kafka and a MySQL, and optionally an S3, for the duration of a `with` block.

    Redis starts at its first use. Without a folder the data are removed at the end; with one they are
    kept. A server named by SLUICEGATE_KAFKA, _MYSQL or _REDIS is used as it is: it is never stopped and
    its data are never removed.

    Args:
        folder: where the data are kept; None for a temporary one.
        s3: whether an S3 is started too.
        brokers: how many nodes Kafka has.
    """

    def __init__(self, folder: Path | None = None, *, s3: bool = False, brokers: int = 1) -> None:
        """Read the environment; nothing starts yet."""
        self._wants_s3, self._keep, self._nodes = s3, folder, brokers
        self._folder: Path | None = None
        self._claim: TextIO | None = None
        self._brokers: tuple[KafkaBroker, ...] = ()
        self._database: MariaDB | None = None
        self._redis_server: RedisServer | None = None
        self._store: S3Server | None = None
        self._running = False
        kafka, mysql, redis = map(os.environ.get, (KAFKA_VARIABLE, MYSQL_VARIABLE, REDIS_VARIABLE))
        self._kafka = KafkaEndpoint(kafka) if kafka else None
        self._mysql = MySQLEndpoint.parse(mysql) if mysql else None
        self._redis = RedisEndpoint(redis) if redis else None

    @property
    def kafka(self) -> KafkaEndpoint:
        """The address of Kafka."""
        if self._kafka:
            return self._kafka
        return KafkaEndpoint(",".join(node.endpoint.bootstrap for node in self.brokers))

    @property
    def mysql(self) -> MySQLEndpoint:
        """The address of MySQL."""
        return self._mysql or self.database.endpoint

    @property
    def redis(self) -> RedisEndpoint:
        """The address of Redis; the first use starts the server, since most runs need none."""
        return self._redis or self.redis_server.endpoint

    @property
    def broker(self) -> KafkaBroker:
        """The only broker that this process started, to restart or kill it."""
        (broker,) = self.brokers
        return broker

    @property
    def brokers(self) -> tuple[KafkaBroker, ...]:
        """The brokers that this process started, to restart or kill them."""
        if self._kafka:
            raise ServiceError(_NOT_OURS.format("Kafka", KAFKA_VARIABLE))
        if not self._brokers:
            raise ServiceError(_NOT_STARTED)
        return self._brokers

    @property
    def database(self) -> MariaDB:
        """The database server that this process started, to restart or kill it."""
        if self._mysql:
            raise ServiceError(_NOT_OURS.format("MySQL", MYSQL_VARIABLE))
        return _started(self._database)

    @property
    def redis_server(self) -> RedisServer:
        """The Redis server that this process runs, to restart or kill it. The first use starts it."""
        if self._redis:
            raise ServiceError(_NOT_OURS.format("Redis", REDIS_VARIABLE))
        if self._redis_server is None and self._running:
            self._folder = self._folder or self._claim_folder()
            self._redis_server = RedisServer(self._folder)
            self._redis_server.start()
        return _started(self._redis_server)

    @property
    def store(self) -> S3Server:
        """The S3 server that this process started."""
        return _started(self._store)

    def start(self) -> Self:
        """Start the servers that the environment does not name, all at the same time."""
        try:
            if self._wants_s3 or not (self._kafka and self._mysql):
                self._folder = self._claim_folder()
                self._brokers = () if self._kafka else self._new_brokers(self._folder)
                self._database = None if self._mysql else MariaDB(self._folder)
                self._store = S3Server(self._folder) if self._wants_s3 else None
            start_all((*self._brokers, self._database, self._store))
        except BaseException:
            self.stop()
            raise
        self._running = True
        return self

    def stop(self) -> None:
        """Stop the servers that this process started. Safe to repeat."""
        _of_each(Server.stop, *self._brokers, self._database, self._redis_server, self._store)
        self._brokers = ()
        self._database = self._redis_server = self._store = None
        self._running = False
        if self._folder and self._keep is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._claim:
            self._claim.close()
        self._folder = self._claim = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _new_brokers(self, folder: Path) -> tuple[KafkaBroker, ...]:
        # the data of a kept folder stay where they are
        return (KafkaBroker(folder),) if self._nodes == 1 else broker_cluster(folder, self._nodes)

    def _claim_folder(self) -> Path:
        """Return a folder that no live process uses, and remove those that ended processes left."""
        if self._keep:
            self._keep.mkdir(parents=True, exist_ok=True)
            claim = _lock(self._keep)
            if claim is None:
                raise ServiceError(
                    f"{self._keep} is in use by other services. Stop them or name another folder."
                )
            self._claim = claim
            return self._keep.resolve()
        base = work_folder() / "services"
        base.mkdir(parents=True, exist_ok=True)
        _sweep(base)
        while True:
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=base))
            self._claim = _lock(folder)
            if self._claim:  # otherwise the sweep of another process removed it
                return folder


_NOT_STARTED: Final = (
    "The services are not started. Use them inside `with Services() as services:`."
)
_NOT_OURS: Final = (
    "This {} was given by {}: it may hold real data, so it is never stopped or killed. Unset the"
    " variable to run this against a server that is started for it."
)


def _started(server: _Server | None) -> _Server:
    if server is None:
        raise ServiceError(_NOT_STARTED)
    return server


def start_all(servers: Sequence[Server | None]) -> None:
    """Start servers, all at the same time: a Kafka node is not ready without most of the others."""
    _of_each(Server.start, *servers)


def _of_each(call: Callable[[Server], None], *servers: Server | None) -> None:
    """Start or stop servers, all at the same time."""
    with ThreadPoolExecutor(max_workers=len(servers)) as pool:
        for done in [pool.submit(call, server) for server in servers if server]:
            done.result()


def _lock(folder: Path) -> TextIO | None:
    """Lock a folder until this process ends; the kernel releases the lock."""
    claim = (folder / ".lock").open("w", encoding="utf-8")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        return None
    return claim


def _sweep(base: Path) -> None:
    for folder in base.glob("run-*"):
        if not (folder / ".lock").exists():
            continue  # another process has just created it and is about to lock it
        claim = _lock(folder)
        if claim is not None:
            shutil.rmtree(folder, ignore_errors=True)
            claim.close()
