"""A reader of records whose brokers do not answer."""

from __future__ import annotations

import pytest

from sluicegate.errors import SinkUnavailable
from sluicegate.sinks.kafka import reader
from sluicegate.sinks.kafka.connection import Connection


@pytest.mark.parametrize("ends", [None, {0: 9}], ids=["follow", "read"])
def test_a_partition_that_never_answers_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, ends: dict[int, int] | None
) -> None:
    """Also if the reader follows a topic; events of failing connections are no answers."""
    monkeypatch.setattr(reader, "_ANSWER_S", 1.0)
    with (
        reader.CommittedReader(Connection.of("127.0.0.1:1")) as unreachable,
        pytest.raises(SinkUnavailable, match=r"nothing arrived for 1 s"),
    ):
        list(unreachable._consume("topic", {0: 5}, ends))
