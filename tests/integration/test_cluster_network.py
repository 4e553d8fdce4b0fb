"""infra/offline/kind_node/network.py's rule in a machine of network namespaces: no packet leaves by the bridge.

Three namespaces of this machine: a pod on the bridge, the machine itself, and an outside that is
routed. Nothing of the real machine's network takes part. Needs root on Linux, `ip` and `nft`.
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

_GAP = (
    "needs root on Linux"
    if sys.platform != "linux" or os.geteuid() != 0
    else next((f"needs {name}" for name in ("ip", "nft") if not shutil.which(name)), "")
)
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(_GAP), reason=_GAP)]

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
"""What Linux makes of "administratively prohibited", by ICMP and ICMPv6."""
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


class Machine:
    """A pod, the machine with the bridge, and an outside, each a namespace."""

    def __init__(self, family: str) -> None:
        """Name them; nothing is made yet."""
        self._names = {part: f"sg{os.getpid()}-{part}" for part in ("pod", "host", "out")}
        self._family = family
        self._inner, self._outer = ADDRESSES[family]
        self.gateway = self._inner.format(1).partition("/")[0]
        self.outside = self._outer.format(2).partition("/")[0]

    def make(self) -> None:
        """Make them, without the rule."""
        inner, outer = self._inner, self._outer
        for name in self._names.values():
            _run("ip", "netns", "add", name)
        self._ip("host", "link", "add", network.BRIDGE, "type", "bridge")
        self._cable("pod", "b0")
        self._cable("out", "o0")
        self._ip("host", "link", "set", "b0", "master", network.BRIDGE)
        for part, device, address in (
            ("host", network.BRIDGE, inner.format(1)),
            ("pod", "eth0", inner.format(2)),
            ("host", "o0", outer.format(1)),
            ("out", "eth0", outer.format(2)),
        ):
            self._ip(part, "addr", "add", address, "dev", device, *_at_once(self._family))
            self._ip(part, "link", "set", device, "up")
        for part, gateway in (("pod", inner), ("out", outer)):
            via = gateway.format(1).partition("/")[0]
            self._ip(part, "route", "add", "default", "via", via)
        for key in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            script = f"echo 1 > /proc/sys/net/{key}"
            self._in("host", "sh", "-c", script)

    def close_off(self, rules: Path) -> None:
        """Put the rule in force on the machine."""
        rules.write_text(network.rule(), encoding="utf-8")
        self._in("host", "nft", "-f", str(rules))

    def refused(self) -> int | None:
        """Return what the rule has counted."""
        said = self._in("host", "nft", "-j", "list", "chain", "inet", network.TABLE, "leaving")
        return network.counted(json.loads(said))

    def reached(self, part: str, address: str) -> str:
        """Return what comes of a pod's try to connect to an address of a part that listens."""
        argv = ["ip", "netns", "exec", self._names[part], sys.executable, "-c", LISTEN, address]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            assert listener.stdin
            assert listener.stdout
            assert listener.stdout.readline() == b"listening\n"
            found = self._in("pod", sys.executable, "-c", CONNECT, address).strip()
            listener.stdin.close()
        return found

    def remove(self) -> None:
        """Remove the namespaces, and with them all that is in them."""
        for name in self._names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)  # noqa: S607

    def _cable(self, part: str, device: str) -> None:
        peer = ["peer", "name", "eth0", "netns", self._names[part]]
        self._ip("host", "link", "add", device, "type", "veth", *peer)
        self._ip("host", "link", "set", device, "up")

    def _ip(self, part: str, *words: str) -> None:
        _run("ip", "-n", self._names[part], *words)

    def _in(self, part: str, *argv: str) -> str:
        return _run("ip", "netns", "exec", self._names[part], *argv)


def _at_once(family: str) -> list[str]:
    """Return what makes an address usable without a wait for others that might have it."""
    return ["nodad"] if family == "IPv6" else []


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.fixture(params=ADDRESSES)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    made = Machine(request.param)
    try:
        made.make()
        yield made
    finally:
        made.remove()


def test_without_the_rule_a_pod_reaches_the_outside(machine: Machine) -> None:
    """The control: else the next test would pass on a machine whose routes are wrong."""
    assert machine.reached("out", machine.outside) == "connected"


def test_with_the_rule_a_pod_is_refused_at_once_and_counted(
    machine: Machine, tmp_path: Path
) -> None:
    machine.close_off(tmp_path / "rules")
    assert machine.refused() == 0
    assert machine.reached("out", machine.outside) in REFUSED
    assert machine.refused()


def test_with_the_rule_a_pod_reaches_its_own_machine(machine: Machine, tmp_path: Path) -> None:
    machine.close_off(tmp_path / "rules")
    assert machine.reached("host", machine.gateway) == "connected"
    assert machine.refused() == 0


def test_the_rule_set_again_is_in_force(machine: Machine, tmp_path: Path) -> None:
    machine.close_off(tmp_path / "rules")
    machine.close_off(tmp_path / "rules")
    assert machine.reached("out", machine.outside) in REFUSED
    assert machine.refused()
