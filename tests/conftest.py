"""Fixtures that every test may ask for. Called by pytest only."""

import os
from collections.abc import Iterator

import pytest

from infra.embedded import Services


def pytest_report_header() -> list[str]:
    """Say which servers the sinks are tested against, and what is not tested at all."""
    kafka, mysql, s3 = (
        os.environ.get(f"SLUICEGATE_{name}", "") for name in ("KAFKA", "MYSQL", "S3")
    )
    return [
        f"Kafka: {kafka or 'embedded broker'}",
        f"MySQL: {mysql.rpartition('@')[2] or 'embedded MariaDB, no real MySQL (SLUICEGATE_MYSQL)'}",
        f"S3: {s3 or 'not tested (SLUICEGATE_S3=s3://bucket/prefix, AWS_ENDPOINT and keys)'}",
    ]


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
