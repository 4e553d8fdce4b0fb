"""Drops packets between one driver and its servers: all, some at random, or the replies alone.

Every other process keeps its connections.
All packets are dropped without a word, so neither side learns of it: unlike the death of a process, after
which its kernel resets its connections, and unlike a stopped process, whose kernel goes on acknowledging.
Where some are dropped, TCP sends them again after 0.2 s and more: such a network is slow, and loses nothing.
A driver is known by its group id. The rules are those of a network namespace that only the run is in.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from tests.robustness.failpoints import namespace
from tests.robustness.traffic.long_lived_job import Driver

PROGRAMS: Final = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
    "setpriv": "util-linux",
}
"""What it runs, with the Debian package that contains it."""
_LOOPBACK_UP: Final = ("ip", "link", "set", "lo", "up")
_NFT: Final = ("nft", "-f", "-")
_FIRST_GROUP: Final = 70_000
"""No group of the machine has such an id."""

_LOST_PERCENT: Final = 20
"""In each direction."""

_TABLE: Final = """
table inet robustness {
  chain leaving { type filter hook output priority mangle; }
  chain arriving { type filter hook input priority filter; }
}
"""


def missing() -> str:
    """Return why this user cannot have a network namespace; empty if nothing is missing."""
    return namespace.missing(PROGRAMS)


def in_own_namespace() -> None:
    """Start this process again in a new network namespace, unless it is in one already."""
    namespace.enter("--net")
    subprocess.run(_LOOPBACK_UP, check=True)


def as_driver(number: int) -> tuple[str, ...]:
    """Return a command that executes another one, a driver, in a group of its own."""
    return ("setpriv", "--regid", str(_FIRST_GROUP + number), "--keep-groups")


class Network:
    """The network between drivers and servers, in a namespace without other rules."""

    def __init__(self) -> None:
        _nft(_TABLE)

    def cut(self, driver: Driver, ports: Collection[int]) -> AbstractContextManager[None]:
        """Drop all packets between a driver and some ports, in both directions, while the block runs."""
        return _dropping(driver, ports, "drop")

    def lose_replies(self, driver: Driver, ports: Collection[int]) -> AbstractContextManager[None]:
        """Drop what some ports send to a driver: its requests arrive, and it does not learn of it.

        TCP sends the replies again after the block, to a driver that still waits for them.
        """
        return _dropping(driver, ports, "drop", from_driver="accept")

    def slow(self, driver: Driver, ports: Collection[int]) -> AbstractContextManager[None]:
        """Drop some of these packets, at random."""
        return _dropping(driver, ports, f"numgen random mod 100 < {_LOST_PERCENT} drop")


@contextmanager
def _dropping(
    driver: Driver, ports: Collection[int], verdict: str, from_driver: str = ""
) -> Iterator[None]:
    """Judge packets of a driver while the block runs; those that it sends by `from_driver`, if given.

    What the driver sends marks its connection, by which the replies are known as well.
    """
    group, servers = driver.group, f"{{ {', '.join(map(str, ports))} }}"
    rules = (
        f"leaving tcp dport {servers} meta skgid {group} ct mark set {group}",
        f"arriving ct mark {group} tcp dport {servers} {from_driver or verdict}",
        f"arriving ct mark {group} tcp sport {servers} {verdict}",
    )
    _nft("".join(f"add rule inet robustness {rule}\n" for rule in rules))
    try:
        yield
    finally:
        _nft("flush table inet robustness\n")


def _nft(rules: str) -> None:
    subprocess.run(_NFT, input=rules, text=True, check=True)
