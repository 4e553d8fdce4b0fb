"""A Kafka broker that is some milliseconds away from its clients, as in another zone or region.

It has a listener for clients that advertises the address of a `delaying_proxy`, so they cannot bypass it.
The broker's own connections, such as those that write transaction markers, are not delayed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.local_services import KafkaEndpoint, MySQLEndpoint
from infra.local_services.kafka import KafkaBroker
from infra.local_services.process import ServiceError, accepts, free_ports
from tests.bench.child import running_command

_PROXY_TIMEOUT_S: Final = 30.0
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
        self._delay_ms = round_trip_ms / 2

    def _more_settings(self) -> str:
        near, controller = self._cluster.ports[self.number - 1]
        return _SETTINGS.format(
            near=near, controller=controller, target=self._target_port, proxy=self._proxy_port
        )

    @contextmanager
    def running(self) -> Iterator[KafkaEndpoint]:
        """Run broker and proxy while the block runs; yield the address of the proxy."""
        ports = (self._proxy_port, self._target_port)
        command = [sys.executable, "-m", "tests.bench.delaying_proxy", *map(str, ports)]
        self.start()
        try:
            with running_command([*command, str(self._delay_ms)], self._folder / "proxy.log"):
                distant = KafkaEndpoint(f"127.0.0.1:{self._proxy_port}")
                self._await_proxy(distant)
                yield distant
        finally:
            self.stop()

    def _await_proxy(self, distant: KafkaEndpoint) -> None:
        end = time.monotonic() + _PROXY_TIMEOUT_S
        while not accepts(self._proxy_port):
            if time.monotonic() > end:
                raise ServiceError(
                    f"The proxy of the distant broker was not ready after {_PROXY_TIMEOUT_S:.0f} s, so "
                    f"nothing was measured. Read {self._folder / 'proxy.log'}."
                )
            time.sleep(0.05)
        brokers = distant.admin().list_topics(timeout=_PROXY_TIMEOUT_S).brokers.values()
        if {broker.port for broker in brokers} != {self._proxy_port}:
            raise ServiceError(
                f"The broker advertises {brokers} to clients, so they would bypass the proxy and nothing "
                "was measured. Correct its listeners in tests/bench/distant_broker.py."
            )
