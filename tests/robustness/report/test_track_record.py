"""The track record and the page of reviews name tests that exist."""

import re

import pytest

from infra.workspace import CHECKOUT

DOCS = CHECKOUT / "docs"
PAGES = (DOCS / "concepts" / "track-record.md", DOCS / "operations" / "reviews.md")
TEXT = "".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`(tests/\S+\.py(?:::\w+)?)`", TEXT))))
def test_a_named_test_exists(reference: str) -> None:
    file, _, name = reference.partition("::")
    assert f"def {name}" in (CHECKOUT / file).read_text(encoding="utf-8")
