"""The cluster's own network, and the rule that no packet of it leaves this machine.

Before kube-proxy has programmed a Service's address, a packet to it would follow the default route,
out of the machine; and what runs in a pod may try any address. The rule is an nftables table of its own,
set before the network exists, and set again and read back at every start. It needs root on Linux:
elsewhere (Docker Desktop, say) the machine's packet filter is not changed, and the cluster starts only with
the stock node image, which is for machines with network access anyway.
"""

import json
import tempfile
from typing import Any, Final

from infra.toolchain.host import HostError, answers, linux, need, root, run

NETWORK: Final = "sluicegate"
"""Of Docker. Not kind's default one: other clusters of this machine keep their way out."""
BRIDGE: Final = "br-sluicegate"
TABLE: Final = "sluicegate"

_WHY: Final = "no packet of a cluster may leave this machine, and the rule for it is not in force"


def rule(bridge: str = BRIDGE) -> str:
    """Return the rule for `nft -f`, which replaces the previous one in one transaction.

    Replies to outside addresses and existing connections are dropped too, of IPv4 and IPv6: nothing outside
    has a reason to talk to a pod.
    """
    return f"""table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain leaving {{
        type filter hook forward priority filter - 10; policy accept;
        iifname "{bridge}" oifname != "{bridge}" counter reject with icmpx admin-prohibited
    }}
}}
"""


def ours_to_set() -> bool:
    """Return whether this process may set the rule."""
    return linux() and root()


def close() -> None:
    """Put the rule in force and read it back; a HostError means that no cluster may be made."""
    need({"nft": "nftables"})
    with tempfile.NamedTemporaryFile("w", suffix=".nft") as file:
        file.write(rule())
        file.flush()
        run(["nft", "-f", file.name], what=_WHY)
    if refused() is None:
        raise HostError(f"{_WHY}: nft took it, but does not list it.")


def refused() -> int | None:
    """Return how many packets the rule has refused since it was set; None: it is not in force."""
    said = answers(["nft", "-j", "list", "chain", "inet", TABLE, "leaving"])
    return counted(json.loads(said)) if said else None


def counted(listed: dict[str, Any], bridge: str = BRIDGE) -> int | None:
    """Return the packets of the rule in what nft lists (JSON: libnftables-json), or None.

    None too where the chain hangs elsewhere, or the rule is another one or not the first.
    """
    parts = listed.get("nftables", [])
    chains = [part["chain"] for part in parts if "chain" in part]
    rules = [part["rule"] for part in parts if "rule" in part]
    if [chain.get("hook") for chain in chains] != ["forward"] or not rules:
        return None
    match rules[0]["expr"]:
        case [
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": from_}},
            {"match": {"op": "!=", "left": {"meta": {"key": "oifname"}}, "right": to}},
            {"counter": {"packets": int(packets)}},
            {"reject": _},
        ] if from_ == to == bridge:
            return packets
    return None


def make() -> None:
    """Make the network unless it is there."""
    option = "com.docker.network.bridge.name"
    look = ["docker", "network", "inspect", NETWORK, "--format"]
    found = answers([*look, f'{{{{index .Options "{option}"}}}}'])
    if found is None:
        create = ["docker", "network", "create", "--opt", f"{option}={BRIDGE}", NETWORK]
        run(create, what=f"Docker's network {NETWORK} could not be made")
    elif found.strip() != BRIDGE:
        raise HostError(
            f"Docker has a network {NETWORK} on another bridge ({found.strip() or 'unnamed'}), which the "
            f"rule does not know; remove it (docker network rm {NETWORK}) and try again."
        )


def remove() -> None:
    """Remove the network and then the rule; nothing happens where something still uses them."""
    if answers(["docker", "network", "inspect", NETWORK]) is not None:
        run(["docker", "network", "rm", NETWORK], what=f"Docker's network {NETWORK} is in use")
    if ours_to_set() and refused() is not None:
        run(["nft", "delete", "table", "inet", TABLE], what="the network rule stays in force")
