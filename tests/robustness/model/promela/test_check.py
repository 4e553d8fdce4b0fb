"""What a search of Spin has printed is read as what it says. The texts are Spin 6.5.2's, shortened."""

from __future__ import annotations

import pytest

from infra.toolchain.host import HostError
from tests.robustness.model.promela.check import parse

COMPLETE = """
(Spin Version 6.5.2 -- 6 December 2019)
State-vector 76 byte, depth reached 161, errors: 0
      195 states, stored
        8 states, matched
unreached in proctype Driver
\tprotocol.pml:137, state 12, "replayed = 1"
\tprotocol.pml:78, state 89, "sealed = epoch"
\tprotocol.pml:298, state 300, "-end-"
\t(3 of 294 states)
"""

VIOLATED = """pan:1: assertion violated (once||(rows[((sink*(2+1))+applying)]==0)) (at depth 185)
pan: wrote protocol.pml.trail

Warning: Search not completed
State-vector 92 byte, depth reached 186, errors: 1
      694 states, stored
"""

OUT_OF_MEMORY = """pan: reached -DMEMLIM bound
\t1.41558e+08 bytes limit

Warning: Search not completed
State-vector 92 byte, depth reached 219, errors: 0
   160919 states, stored
"""

TOO_DEEP = """error: max search depth too small
State-vector 92 byte, depth reached 9999, errors: 0
      694 states, stored
"""


def test_a_complete_search_violates_nothing() -> None:
    assert parse(COMPLETE).states == 195
    assert not parse(COMPLETE).violated


def test_only_statements_that_could_be_reached_are_named() -> None:
    """Ends of processes and statements of a shared macro cannot."""
    assert parse(COMPLETE).unreached == ("replayed = 1",)


def test_the_violated_invariant_is_named() -> None:
    assert parse(VIOLATED).violated == "once"


@pytest.mark.parametrize(
    "report",
    [OUT_OF_MEMORY, TOO_DEEP, COMPLETE.replace("errors: 0", "errors: 1"), ""],
    ids=["out of memory", "too deep", "another error", "nothing"],
)
def test_a_search_that_did_not_end_proves_nothing(report: str) -> None:
    with pytest.raises(HostError, match="did not end as expected"):
        parse(report)
