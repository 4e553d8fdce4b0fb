"""When the tests of the platform give up on a job whose sinks are not exact."""

from __future__ import annotations

import pytest

from tests.e2e.platform import proves_wrong

LOST = "  12  source lines\nLOST: 1\n    a window\nNOT EXACT\n"
DUPLICATED = "  12  source lines\nDUPLICATED: 1\n    a window\nNOT EXACT\n"
BETWEEN_SINKS = "an epoch is decided and not applied"


@pytest.mark.parametrize(
    ("output", "wrong"),
    [(DUPLICATED, True), (LOST, False), (BETWEEN_SINKS, False)],
    ids=["a duplicate", "in an epoch that is decided", "between two sinks"],
)
def test_a_finding_that_cannot_go_away_is_a_failure(output: str, *, wrong: bool) -> None:
    assert proves_wrong(output) == wrong
