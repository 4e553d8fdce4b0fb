"""When the network rule counts as enforced; tests/integration/test_cluster_network.py tests its effect."""

from typing import Any

import pytest

from infra.offline.kind_node import network

RULE: list[dict[str, Any]] = [
    {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "br-sluicegate"}},
    {"match": {"op": "!=", "left": {"meta": {"key": "oifname"}}, "right": "br-sluicegate"}},
    {"counter": {"packets": 3, "bytes": 180}},
    {"reject": {"type": "icmpx", "expr": "admin-prohibited"}},
]


def listed(rule: list[dict[str, Any]], hook: str = "forward") -> dict[str, Any]:
    chain = {"family": "inet", "name": "leaving", "hook": hook}
    return {"nftables": [{"metainfo": {}}, {"chain": chain}, {"rule": {"expr": rule}}]}


def test_the_packets_that_it_refused_are_counted() -> None:
    assert network.counted(listed(RULE)) == 3


@pytest.mark.parametrize(
    "other",
    [
        listed(RULE, hook="output"),
        listed([]),
        listed([*RULE[:3], {"accept": None}]),
        listed(RULE[1:]),
        listed([{**RULE[0], "match": {**RULE[0]["match"], "right": "docker0"}}, *RULE[1:]]),
        {"nftables": [{"chain": {"hook": "forward"}}]},
        {},
    ],
)
def test_any_other_rule_is_not_in_force(other: dict[str, Any]) -> None:
    assert network.counted(other) is None


def test_a_rule_that_is_set_again_replaces_the_old_one_in_one_transaction() -> None:
    first, second, *_ = network.rule().splitlines()
    assert (first, second) == ("table inet sluicegate", "delete table inet sluicegate")


def test_a_name_of_a_bridge_fits_into_linux() -> None:
    assert len(network.BRIDGE) <= 15
