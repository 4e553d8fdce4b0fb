"""How many jobs of the fleet are upgraded at a time, and in which order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    StartupStatus,
    StreamingJobStatus,
    UpgradeStatus,
)
from sluicegate_operator.reconcile.observed import Refusal
from sluicegate_operator.reconcile.pause import reconcile_pause
from sluicegate_operator.reconcile.upgrade_queue import (
    UPGRADE_QUEUED,
    is_under_way,
    next_in_order,
    waiting_since,
)
from tests.unit.operator.builders import NOW, alive, dead, ended, job, observed, pod, spec
from tests.unit.operator.rule_cases import RuleCase, check, decide

NEW = spec(image="jobs:2")
BUSY = "at most 20 at a time"
UNDER_WAY = UpgradeStatus(mode="LastState")
STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")
REFUSED = StartupStatus(reason="QuotaExceeded", message="pods=0", since=NOW, tries=9)

RULES = [
    RuleCase(
        "a job whose turn has not come keeps its driver, and says why",
        job(NEW, alive()),
        observed(pod(), upgrade_queued=BUSY),
        "Running",
        status={"upgrade": None},
        driver={"stop_reason": ""},
        conditions={UPGRADE_QUEUED: ("True", "LimitReached"), "Ready": ("True", "Running")},
    ),
    RuleCase(
        "restartNonce applies the new spec without waiting",
        job(dataclasses.replace(NEW, restart_nonce=1), alive()),
        observed(pod(), upgrade_queued=BUSY),
        "Upgrading",
        actions=["StopDriver"],
        driver={"stop_reason": "Upgrade"},
        events=["Upgrading"],
    ),
    RuleCase(
        "a job without a driver starts with the new spec without waiting",
        job(NEW, ended()),
        observed(upgrade_queued=BUSY),
        "Starting",
        actions=["CreateDriver"],
        status={"attempt": 2},
    ),
    RuleCase(
        "a stateless upgrade of a running job waits too",
        job(STATELESS, alive(attempt=2)),
        observed(pod(attempt=2), upgrade_queued=BUSY),
        "Running",
        status={"upgrade": None},
        driver={"stop_reason": ""},
        conditions={UPGRADE_QUEUED: ("True", "LimitReached")},
    ),
    RuleCase(
        "a job whose driver is being stopped anyway does not wait",
        job(NEW, alive(stop_reason="Stuck")),
        observed(pod(terminating=True), upgrade_queued=BUSY),
        "Upgrading",
        status={"upgrade": UNDER_WAY},
        events=["Upgrading"],
    ),
    RuleCase(
        "an unchanged job does not wait",
        job(spec(), alive()),
        observed(pod(), upgrade_queued=BUSY),
        "Running",
    ),
    RuleCase(
        "an upgrade that has begun goes on",
        job(NEW, alive(stop_reason="Upgrade", upgrade=UNDER_WAY)),
        observed(pod(), upgrade_queued=BUSY),
        "Upgrading",
        actions=["StopDriver"],
    ),
]


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def queued(since: float = NOW) -> StreamingJobStatus:
    """Return the status of a job that waits."""
    found = decide(job(NEW, alive()), observed(pod(), upgrade_queued=BUSY), since).status
    assert isinstance(found, StreamingJobStatus)
    return found


def test_the_time_of_waiting_is_in_the_status() -> None:
    later = decide(job(NEW, queued()), observed(pod(), upgrade_queued=BUSY), NOW + 60).status
    assert waiting_since(NEW, later) == NOW


@pytest.mark.parametrize("now_wanted", [NEW, spec()], ids=["its turn", "edited back"])
def test_a_job_that_no_longer_waits_says_so(now_wanted: Any) -> None:
    status = decide(job(now_wanted, queued()), observed(pod())).status
    assert waiting_since(now_wanted, status) is None
    found = next(one for one in status.conditions if one.type == UPGRADE_QUEUED)
    assert (found.status, found.reason) == ("False", "Resolved")


def test_a_suspended_job_does_not_wait() -> None:
    assert waiting_since(dataclasses.replace(NEW, suspend=True), queued()) is None


def test_a_paused_job_does_not_wait_and_keeps_its_place() -> None:
    paused = reconcile_pause(queued(), 1, NOW + 60, paused=True, deleted=False)
    assert paused is not None
    assert waiting_since(NEW, paused.status) is None
    resumed = reconcile_pause(paused.status, 1, NOW + 90, paused=False, deleted=False)
    assert resumed is not None
    assert waiting_since(NEW, resumed.status) == NOW


def has(kind: str, status: str, reason: str = "X") -> tuple[Condition, ...]:
    """Return conditions with one."""
    return (Condition(type=kind, status=status, reason=reason, last_transition_time=NOW),)


@pytest.mark.parametrize(
    ("suspend", "status", "counts"),
    [
        (False, {}, True),
        (False, {"conditions": has("VolumeReady", "True")}, True),
        (False, {"upgrade": None}, False),
        (True, {}, False),
        (False, {"failure_reason": "ConfigInvalid"}, False),
        (False, {"conditions": has("NodeLost", "True")}, False),
        (False, {"conditions": has("VolumeReady", "False")}, False),
        (False, {"conditions": has("Paused", "True")}, False),
        (False, {"conditions": has("Paused", "False")}, True),
        (False, {"startup": REFUSED}, False),
        (False, {"startup": REFUSED, "stop_reason": "Upgrade"}, True),
        (False, {"conditions": has("Ready", "False", "OldDriverAlive")}, False),
        (False, {"conditions": has("Ready", "False", "NotEnding")}, False),
        (False, {"conditions": has("Ready", "False", "BackingOff")}, False),
        (False, {"conditions": has("Ready", "False", "TakingSavepoint")}, True),
    ],
    ids=[
        "running",
        "volume ready",
        "no upgrade",
        "suspended",
        "failed",
        "node lost",
        "volume not ready",
        "paused",
        "resumed",
        "refused",
        "a driver that does not start is stopped",
        "an older driver is alive",
        "not ending",
        "backing off",
        "taking a savepoint",
    ],
)
def test_only_an_upgrade_that_can_go_on_holds_a_slot(
    suspend: object, status: dict[str, Any], counts: object
) -> None:
    job_spec = dataclasses.replace(NEW, suspend=bool(suspend))
    assert is_under_way(job_spec, alive(**{"upgrade": UNDER_WAY, **status})) is counts


def test_an_upgrade_whose_apply_only_driver_is_refused_holds_no_slot() -> None:
    """Otherwise a tenant without a quota would stop the upgrades of all others."""
    new = dataclasses.replace(NEW, upgrade_mode="Stateless")
    upgrading = alive(stop_reason="Upgrade", upgrade=UpgradeStatus(mode="Stateless"))
    status = decide(job(new, upgrading), observed(dead(137))).status
    assert status.driver.mode == APPLY_ONLY
    assert is_under_way(new, status)
    refusal = Refusal(status.attempt, status.driver.requests, "QuotaExceeded", "pods=0")
    refused = decide(job(new, status), observed(refusal=refusal)).status
    assert not is_under_way(new, refused)


def test_the_job_that_has_waited_longest_is_next() -> None:
    waiting = {("a", "x"): NOW, ("a", "y"): NOW - 5, ("a", "z"): NOW - 9}
    assert next_in_order([("a", "w")], waiting, 3) == (("a", "z"), ("a", "y"))


def test_namespaces_take_turns() -> None:
    """A mass upgrade that came first does not make the upgrade of another tenant wait for all of it."""
    waiting = {("big", f"j{n:03}"): NOW + n for n in range(100)} | {("small", "one"): NOW + 1000}
    order = next_in_order([("big", "x")], waiting, 4)
    assert order == (("small", "one"), ("big", "j000"), ("big", "j001"))


def test_without_a_free_slot_nobody_is_next() -> None:
    assert not next_in_order([("a", "x"), ("b", "y")], {("c", "z"): NOW}, 2)


def test_without_a_limit_all_are_next_in_the_order_in_which_they_came() -> None:
    waiting = {("a", "y"): NOW, ("b", "z"): NOW - 5}
    assert next_in_order([("a", "x")], waiting, 0) == (("b", "z"), ("a", "y"))
