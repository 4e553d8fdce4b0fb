"""The pages of docs/reference say what the code says."""

from __future__ import annotations

from infra.reference_docs.__main__ import pages
from infra.workspace import outdated


def test_generated_pages_are_up_to_date() -> None:
    assert outdated(pages()) == [], "run `make docs`"
