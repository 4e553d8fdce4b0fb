"""Which StreamingJob a checkpoint is of, and what can be done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluicegate.console.operations import operations, streaming_job, works_in
from sluicegate.protocol.record import SinkBinding
from sluicegate.storage.driver_start import DriverStart
from tests.unit.console.builders import epoch, job

NAMED = DriverStart(1, {"kubernetes.job": "shop/clicks"})


def resource(path: str = "", number: int | None = None) -> dict[str, Any]:
    """Return the StreamingJob `clicks` as the API server returns it."""
    checkpoint = {"volume": "store", **({"path": path} if path else {})}
    status = {} if number is None else {"status": {"checkpoint": {"number": number}}}
    return {"metadata": {"name": "clicks"}, "spec": {"checkpoint": checkpoint}, **status}


def test_a_job_of_kubernetes_shows_the_commands_of_the_plugin() -> None:
    commands = {each.name: each.command for each in operations(replace(job(), starts=(NAMED,)))}
    assert commands["suspend"] == "kubectl sluicegate -n shop suspend clicks"
    assert commands["move"] == "kubectl sluicegate -n shop savepoint clicks --stop"
    assert set(commands) == {"savepoint", "suspend", "resume", "restart", "move", "Spark's UI"}
    assert commands["Spark's UI"] == "kubectl sluicegate -n shop spark-ui clicks"


@pytest.mark.parametrize("name", ["", "clicks", "shop/clicks --now", "a/b/c", "shop/$(id)"])
def test_what_is_no_name_is_shown_in_no_command(name: str) -> None:
    facts = replace(job(), starts=(DriverStart(1, {"kubernetes.job": name}),))
    assert streaming_job(facts) is None
    assert operations(facts) == []


def test_dead_letters_in_a_topic_are_replayed_by_a_command() -> None:
    letters = replace(epoch(1), sinks={"dead": SinkBinding("kafka", "topic letters", 1, "d")})
    facts = replace(job(letters), starts=(DriverStart(1, {"dead-letters": "dead"}),))
    (replay,) = operations(facts)
    assert replay.command == "sluicegate dead-letters replay letters --kafka BROKERS"


@pytest.mark.parametrize(
    ("found", "address", "expected"),
    [
        (resource(), "s3://b/prefix/clicks/1", True),
        (resource(number=2), "s3://b/clicks/2", True),
        (resource("team/x", 3), "s3://b/team/x/3", True),
        (resource(number=2), "s3://b/clicks/1", False),
        (resource(), "s3://b/other-clicks/1", False),
        (resource("team/x"), "s3://b/clicks/1", False),
    ],
)
def test_a_job_works_in_the_checkpoint_at_its_path(
    found: dict[str, Any], address: str, *, expected: bool
) -> None:
    assert works_in(found, address) is expected
