"""Failpoints: their syntax, when they fire, and that a wrong name is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import failpoints
from sluicegate.failpoints import POINTS, Failpoint, FailpointHit, arm, hook, parse, reach

PROCESSES = {
    *("driver", "executor", "applier", "pruning", "takeover"),
    *("savepoint", "restore", "receiver", "replay"),
}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Disarm all failpoints after each test."""
    yield
    arm("")
    failpoints._hooks.clear()


@given(
    point=st.sampled_from(sorted(POINTS)),
    sink=st.sampled_from(["", "ip_count", "dead-letters"]),
    epoch=st.none() | st.integers(0, 99),
    action=st.sampled_from(["raise", "kill-group", "my-own"]),
    once=st.none() | st.just(Path("somewhere/once")),
)
def test_a_parsed_failpoint_has_all_its_parts(
    point: str, sink: str, epoch: int | None, action: str, once: Path | None
) -> None:
    text = point + (f":{sink}" if sink else "") + ("" if epoch is None else f"@{epoch}")
    text += f"={action}" + (f"~{once}" if once else "")
    assert parse(text) == {point: [Failpoint(point, sink, epoch, action, once)]}


def test_several_failpoints_are_separated_by_semicolons() -> None:
    armed = parse(" after-decide@3=raise ; ;after-apply:a=raise;after-apply:b=hang; ")
    assert {point: len(found) for point, found in armed.items()} == {
        "after-decide": 1,
        "after-apply": 2,
    }


def test_an_empty_list_arms_nothing() -> None:
    assert parse("") == {}


@pytest.mark.parametrize(
    "text", ["after-lunch=raise", "after-decide", "=raise", "after-decide@x=raise"]
)
def test_a_wrong_list_is_rejected_when_it_is_parsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"known:|invalid literal"):
        parse(text)


def test_an_unknown_action_is_reported_when_it_fires() -> None:
    """Not earlier, because the Spark runtime registers its own actions later."""
    arm("after-decide=dance")
    with pytest.raises(ValueError, match="unknown action"):
        reach("after-decide", epoch=0)


def test_a_hook_registers_an_action() -> None:
    calls: list[str] = []
    hook("dance", lambda: calls.append("danced"))
    arm("after-decide=dance")
    reach("after-decide", epoch=0)
    assert calls == ["danced"]


def fires(text: str, point: str, epoch: int, sink: str = "") -> bool:
    arm(text)
    try:
        reach(point, epoch=epoch, sink=sink)
    except FailpointHit:
        return True
    return False


def test_without_epoch_and_sink_it_fires_at_each_pass() -> None:
    assert fires("before-apply=raise", "before-apply", 0, "a")
    assert fires("before-apply=raise", "before-apply", 7, "b")


def test_it_fires_only_at_its_own_point_epoch_and_sink() -> None:
    text = "before-apply:a@3=raise"
    assert fires(text, "before-apply", 3, "a")
    assert not fires(text, "before-apply", 3, "b")
    assert not fires(text, "before-apply", 4, "a")
    assert not fires(text, "after-apply", 3, "a")


def test_unarmed_it_does_nothing() -> None:
    assert not fires("", "before-apply", 3, "a")


def test_with_a_once_file_it_fires_once(tmp_path: Path) -> None:
    text = f"after-decide=raise~{tmp_path / 'once'}"
    assert fires(text, "after-decide", 1)
    assert not fires(text, "after-decide", 1)


def test_arming_replaces_the_armed_failpoints() -> None:
    arm("after-decide=raise")
    assert not fires("before-decide=raise", "after-decide", 1)


def test_a_process_reads_its_failpoints_from_the_environment() -> None:
    program = (
        "from sluicegate import failpoints\n"
        "failpoints.reach('after-decide', epoch=2)\n"
        "print('lived')\n"
        "failpoints.reach('after-decide', epoch=3)\n"
    )
    environment = os.environ | {
        failpoints.VARIABLE: "after-decide@3=kill-self",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("lived\n", -9)


def test_every_point_names_the_process_that_passes_it() -> None:
    assert all(text.split(":")[0] in PROCESSES for text in POINTS.values())
