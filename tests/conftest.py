"""Fixtures that every test may ask for. Called by pytest only."""

from collections.abc import Iterator

import pytest

from infra.embedded import Services


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for the services, so that `-m "not integration"` leaves it out."""
    for item in items:
        if isinstance(item, pytest.Function) and "services" in item.fixturenames:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Give one Kafka and one MySQL to all tests: name topics and tables apart, or after the test.

    A test that stops or kills a server starts its own (`Services()`), so that no other test's
    outcome depends on the order.
    """
    with Services() as running:
        yield running
