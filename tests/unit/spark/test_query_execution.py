"""What a plan must have in common with the plan of a decided epoch."""

from __future__ import annotations

import pytest

from sluicegate.errors import ExitCode, RecordOfAnotherJob
from sluicegate.protocol.record import EventTime
from sluicegate.spark.query_execution import RunningExecution


def test_code_with_other_watermarks_over_a_decided_epoch_is_not_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restart would only repeat it: the decided epoch needs the former code once."""
    monkeypatch.setattr(RunningExecution, "_watermarks", [])
    execution = RunningExecution.__new__(RunningExecution)
    with pytest.raises(RecordOfAnotherJob, match="with 1 watermarks, and the job has 0") as raised:
        execution.restore_watermark((EventTime(1, 1, 1.0, 1),))
    assert raised.value.exit_code == ExitCode.HISTORY_BROKEN
    assert not raised.value.retryable
