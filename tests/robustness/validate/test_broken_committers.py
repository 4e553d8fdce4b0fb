"""The checker finds every committer that is broken on purpose, and nothing wrong with the real one."""

from __future__ import annotations

import pytest

from infra.workspace import CHECKOUT
from tests.robustness.validate.broken_committers import BROKEN, OWN_IDS, REAL, REAL_ELSEWHERE
from tests.robustness.validate.fault_search import Committer, search, table_row

README = CHECKOUT / "tests" / "robustness" / "report" / "README.md"


@pytest.mark.parametrize("broken", BROKEN, ids=lambda committer: committer.name)
def test_the_fewest_faults_that_show_it_are_those_of_the_report(broken: Committer) -> None:
    row = table_row(broken)
    assert "not found" not in row
    assert row in README.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "real", [REAL, *REAL_ELSEWHERE, OWN_IDS], ids=lambda c: f"{c.name}-{c.scenario.__name__}"
)
def test_the_same_search_finds_nothing_without_the_break(real: Committer) -> None:
    assert search(real, most_faults=1) is None
