"""Fixtures of the console's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from sluicegate.console.app import LOCAL_NAMES, create_app
from sluicegate.console.reader import Reader


@pytest.fixture
def apps() -> Iterator[list[Reader]]:
    readers: list[Reader] = []
    yield readers
    for reader in readers:
        reader.close()


@pytest.fixture
def console(tmp_path: Path, apps: list[Reader]) -> ASGIApp:
    """Return a console of what is below the test's folder."""
    apps.append(Reader([str(tmp_path)]))
    return create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0)
