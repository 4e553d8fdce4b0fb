"""Clients of a distant broker cannot bypass the proxy, and its own connections do not use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.distant_broker import DistantBroker


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Return the settings of a broker; the last value of each counts, as for Kafka."""
    broker = DistantBroker(tmp_path, 5.0)
    text = broker._cluster.settings(1, tmp_path) + broker._more_settings()
    return dict(line.split("=", 1) for line in text.splitlines())


def addresses(setting: str) -> dict[str, str]:
    return dict(listener.split("://") for listener in setting.split(","))


def test_the_listener_of_clients_advertises_another_port_than_its_own(
    settings: dict[str, str],
) -> None:
    bound, advertised = (
        addresses(settings[name]) for name in ("listeners", "advertised.listeners")
    )
    assert advertised["DISTANT"] not in bound.values()


def test_the_connections_of_brokers_are_not_delayed(settings: dict[str, str]) -> None:
    bound, advertised = (
        addresses(settings[name]) for name in ("listeners", "advertised.listeners")
    )
    name = settings["inter.broker.listener.name"]
    assert advertised[name] == bound[name]


def test_each_listener_has_a_port_and_a_protocol(settings: dict[str, str]) -> None:
    bound = addresses(settings["listeners"])
    assert len(set(bound.values())) == len(bound) == 3
    protocols = settings["listener.security.protocol.map"].split(",")
    assert {protocol.partition(":")[0] for protocol in protocols} == bound.keys()
