"""The usual random schedules find each protocol that is broken on purpose.

If a change of the protocol or of the steps hides one, adjust the weights of `random_schedules`.
"""

from __future__ import annotations

import pytest

from infra.workspace import CHECKOUT
from tests.robustness.validate.broken_protocols import BROKEN, Edit, first_schedule

PAGE = CHECKOUT / "docs" / "operations" / "mutation-testing.md"


@pytest.mark.parametrize("name", BROKEN)
def test_a_random_schedule_finds_it(name: str) -> None:
    assert first_schedule(BROKEN[name]) is not None


def test_the_documentation_lists_each() -> None:
    rows = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if "|" in line]
    assert [row for row in rows if row in BROKEN] == list(BROKEN)


def test_an_edit_of_a_text_that_the_function_does_not_contain_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not contain once: nothing"):
        Edit(first_schedule, "nothing", "")(pytest.MonkeyPatch())
