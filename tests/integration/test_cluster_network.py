"""The nftables rule of infra/offline/kind_node/network.py: no packet of a pod leaves the machine.

Three network namespaces simulate a pod on the bridge, the machine with the bridge, and an external
network behind a route. The real network is not used. Needs root on Linux, `ip` and `nft`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.offline.kind_node import network

_MISSING_REASON = (
    "needs root on Linux"
    if sys.platform != "linux" or os.geteuid() != 0
    else next((f"needs {name}" for name in ("ip", "nft") if not shutil.which(name)), "")
)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(_MISSING_REASON), reason=_MISSING_REASON),
]

PORT = 8080
ADDRESSES = {
    "IPv4": ("172.31.0.{}/24", "198.51.100.{}/24"),
    "IPv6": ("fd00:1::{}/64", "fd00:2::{}/64"),
}
LISTEN = f"""
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], {PORT}), family=family)
print("listening", flush=True)
sys.stdin.read()
"""
REFUSED = {"EHOSTUNREACH", "EACCES"}
"""The errors that Linux reports for "administratively prohibited", over ICMP and ICMPv6."""
CONNECT = f"""
import errno, socket, sys
try:
    socket.create_connection((sys.argv[1], {PORT}), timeout=5).close()
    print("connected")
except TimeoutError:
    print("no answer")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


class SimulatedNetwork:
    """A simulated network: a pod, the machine with the bridge, and an external host."""

    def __init__(self, family: str) -> None:
        """Choose names and addresses; no namespace exists yet."""
        self._names = {
            namespace: f"sg{os.getpid()}-{namespace}" for namespace in ("pod", "host", "out")
        }
        self._family = family
        self._inner, self._outer = ADDRESSES[family]
        self.gateway = self._inner.format(1).partition("/")[0]
        self.outside = self._outer.format(2).partition("/")[0]

    def create(self) -> None:
        """Create the namespaces and the routes, without the rule."""
        inner, outer = self._inner, self._outer
        for name in self._names.values():
            _run("ip", "netns", "add", name)
        self._ip("host", "link", "add", network.BRIDGE, "type", "bridge")
        self._connect("pod", "b0")
        self._connect("out", "o0")
        self._ip("host", "link", "set", "b0", "master", network.BRIDGE)
        for namespace, device, address in (
            ("host", network.BRIDGE, inner.format(1)),
            ("pod", "eth0", inner.format(2)),
            ("host", "o0", outer.format(1)),
            ("out", "eth0", outer.format(2)),
        ):
            self._ip(
                namespace, "addr", "add", address, "dev", device, *_address_options(self._family)
            )
            self._ip(namespace, "link", "set", device, "up")
        for namespace, gateway in (("pod", inner), ("out", outer)):
            via = gateway.format(1).partition("/")[0]
            self._ip(namespace, "route", "add", "default", "via", via)
        for key in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            script = f"echo 1 > /proc/sys/net/{key}"
            self._execute("host", "sh", "-c", script)

    def load_rule(self, rules: Path) -> None:
        """Load the rule on the machine."""
        rules.write_text(network.rule(), encoding="utf-8")
        self._execute("host", "nft", "-f", str(rules))

    def refused_packets(self) -> int | None:
        """Return how many packets the rule has refused; None without a counter."""
        ruleset = self._execute(
            "host", "nft", "-j", "list", "chain", "inet", network.TABLE, "leaving"
        )
        return network.counted(json.loads(ruleset))

    def connect_from_pod(self, namespace: str, address: str) -> str:
        """Listen on an address in a namespace; return the outcome of a connection from the pod."""
        argv = [
            "ip",
            "netns",
            "exec",
            self._names[namespace],
            sys.executable,
            "-c",
            LISTEN,
            address,
        ]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            assert listener.stdin
            assert listener.stdout
            assert listener.stdout.readline() == b"listening\n"
            outcome = self._execute("pod", sys.executable, "-c", CONNECT, address).strip()
            listener.stdin.close()
        return outcome

    def remove(self) -> None:
        """Delete the namespaces with their devices and rules."""
        for name in self._names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)  # noqa: S607

    def _connect(self, namespace: str, device: str) -> None:
        peer = ["peer", "name", "eth0", "netns", self._names[namespace]]
        self._ip("host", "link", "add", device, "type", "veth", *peer)
        self._ip("host", "link", "set", device, "up")

    def _ip(self, namespace: str, *arguments: str) -> None:
        _run("ip", "-n", self._names[namespace], *arguments)

    def _execute(self, namespace: str, *argv: str) -> str:
        return _run("ip", "netns", "exec", self._names[namespace], *argv)


def _address_options(family: str) -> list[str]:
    """Return the option that disables duplicate address detection, so that an address works at once."""
    return ["nodad"] if family == "IPv6" else []


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.fixture(params=ADDRESSES)
def simulated_network(request: pytest.FixtureRequest) -> Iterator[SimulatedNetwork]:
    simulated = SimulatedNetwork(request.param)
    try:
        simulated.create()
        yield simulated
    finally:
        simulated.remove()


def test_without_the_rule_a_pod_reaches_external_hosts(simulated_network: SimulatedNetwork) -> None:
    """A control: without it the next test would also pass with wrong routes."""
    assert simulated_network.connect_from_pod("out", simulated_network.outside) == "connected"


def test_with_the_rule_external_connections_are_refused_at_once_and_counted(
    simulated_network: SimulatedNetwork, tmp_path: Path
) -> None:
    simulated_network.load_rule(tmp_path / "rules")
    assert simulated_network.refused_packets() == 0
    assert simulated_network.connect_from_pod("out", simulated_network.outside) in REFUSED
    assert simulated_network.refused_packets()


def test_with_the_rule_a_pod_reaches_its_own_machine(
    simulated_network: SimulatedNetwork, tmp_path: Path
) -> None:
    simulated_network.load_rule(tmp_path / "rules")
    assert simulated_network.connect_from_pod("host", simulated_network.gateway) == "connected"
    assert simulated_network.refused_packets() == 0


def test_the_rule_can_be_loaded_twice(simulated_network: SimulatedNetwork, tmp_path: Path) -> None:
    simulated_network.load_rule(tmp_path / "rules")
    simulated_network.load_rule(tmp_path / "rules")
    assert simulated_network.connect_from_pod("out", simulated_network.outside) in REFUSED
    assert simulated_network.refused_packets()
