"""A checkpoint, a folder for its savepoints, and failpoints that no test leaves armed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import failpoints
from sluicegate.failpoints import arm
from tests.unit.savepoints.builders import checkpoint


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Disarm all failpoints after a test."""
    yield
    arm("")
    failpoints._hooks.clear()


@pytest.fixture
def parent(tmp_path: Path) -> str:
    """Return a checkpoint on which epochs 0 to 4 are complete."""
    return checkpoint(tmp_path / "parent", 5)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return a folder for savepoints."""
    return str(tmp_path / "savepoints")
