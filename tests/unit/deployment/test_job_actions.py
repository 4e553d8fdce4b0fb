"""The changes that people make to StreamingJobs, and their commands."""

from __future__ import annotations

import shlex

import pytest

from sluicegate.deployment.job_actions import (
    Action,
    JobName,
    kubectl_command,
    plugin_command,
    spec_change,
)

CLICKS = JobName("shop", "clicks")


@pytest.mark.parametrize(
    "text",
    ["", "clicks", "shop/", "/clicks", "shop/clicks/x", "Shop/clicks", "shop/cl icks", "a.b/c"],
)
def test_a_text_that_names_no_resource_is_no_job(text: str) -> None:
    assert JobName.parse(text) is None


def test_a_name_is_read_as_it_was_written() -> None:
    assert JobName.parse("shop/clicks") == CLICKS
    assert JobName.parse(str(CLICKS)) == CLICKS


@pytest.mark.parametrize(("spec", "nonce"), [({}, 1), ({"restartNonce": 4}, 5)])
def test_a_restart_is_another_nonce(spec: dict[str, int], nonce: int) -> None:
    assert spec_change(Action.RESTART, {"spec": spec}) == {"restartNonce": nonce}


def test_a_savepoint_changes_no_job() -> None:
    assert spec_change(Action.SAVEPOINT, {}) == {}


def test_a_command_can_be_pasted_into_a_shell() -> None:
    command = kubectl_command(CLICKS, {"suspend": True})
    assert shlex.split(command)[-1] == '--patch={"spec": {"suspend": true}}'
    assert plugin_command(Action.SUSPEND, CLICKS) == "kubectl sluicegate -n shop suspend clicks"
