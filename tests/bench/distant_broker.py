"""A Kafka broker that is some milliseconds away from its clients, as in another zone or region.

It has a listener for clients that advertises the address of a `delaying_proxy`, so they cannot bypass it.
The broker's own connections, such as those that write transaction markers, are not delayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.local_services import KafkaEndpoint, MySQLEndpoint
from infra.local_services.kafka import KafkaBroker
from infra.local_services.process import ServiceError, free_ports
from tests.bench import delaying_proxy

_METADATA_TIMEOUT_S: Final = 30.0
_SETTINGS: Final = """\
listeners=PLAINTEXT://127.0.0.1:{near},CONTROLLER://127.0.0.1:{controller},DISTANT://127.0.0.1:{target}
advertised.listeners=PLAINTEXT://127.0.0.1:{near},DISTANT://127.0.0.1:{proxy}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,DISTANT:PLAINTEXT
"""


@dataclass(frozen=True)
class DistantServers:
    """The servers of a workload whose broker is distant."""

    kafka: KafkaEndpoint
    mysql: MySQLEndpoint


class DistantBroker(KafkaBroker):
    """A broker that keeps its data over its runs.

    Args:
        folder: of its data.
        round_trip_ms: how long a request and its response are on their way, in milliseconds.
    """

    def __init__(self, folder: Path, round_trip_ms: float) -> None:
        super().__init__(folder)
        self._target_port, self._proxy_port = free_ports(2)
        self._round_trip_ms = round_trip_ms

    def _more_settings(self) -> str:
        near, controller = self._cluster.ports[self.number - 1]
        return _SETTINGS.format(
            near=near, controller=controller, target=self._target_port, proxy=self._proxy_port
        )

    @contextmanager
    def running(self) -> Iterator[KafkaEndpoint]:
        """Run broker and proxy while the block runs; yield the address of the proxy."""
        self.start()
        try:
            with delaying_proxy.running(
                self._proxy_port,
                self._target_port,
                self._round_trip_ms,
                self._folder / "proxy.log",
            ):
                distant = KafkaEndpoint(f"127.0.0.1:{self._proxy_port}")
                self._check_advertised(distant)
                yield distant
        finally:
            self.stop()

    def _check_advertised(self, distant: KafkaEndpoint) -> None:
        brokers = distant.admin().list_topics(timeout=_METADATA_TIMEOUT_S).brokers.values()
        if {broker.port for broker in brokers} != {self._proxy_port}:
            raise ServiceError(
                f"The broker advertises {brokers} to clients, so they would bypass the proxy and nothing "
                "was measured. Correct its listeners in tests/bench/distant_broker.py."
            )
