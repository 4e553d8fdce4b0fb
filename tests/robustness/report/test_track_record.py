"""The track record names tests that exist."""

import re
from pathlib import Path

import pytest

from infra.workspace import CHECKOUT

PAGE = Path(__file__).with_name("README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("reference", re.findall(r"`(tests/\S+\.py::\w+)`", PAGE))
def test_a_named_test_exists(reference: str) -> None:
    file, _, name = reference.partition("::")
    assert f"def {name}(" in (CHECKOUT / file).read_text(encoding="utf-8")
