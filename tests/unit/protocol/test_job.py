"""Whether a record, the offsets and the sinks are those of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import OffsetLogDiverged, RecordOfAnotherJob
from sluicegate.protocol.effects import LatestEpoch, ReadDiscarded, ReadOffsets
from sluicegate.protocol.job import sink_changed, verify_previous, verify_record
from sluicegate.protocol.markers import Marker
from sluicegate.settings.epoch import AT_LEAST_ONCE
from tests.unit.protocol.script import JOB, KAFKA, Played, record

ELSEWHERE = {"kafka": replace(KAFKA, cluster="other")}


def previous(job: Any = JOB, **changes: Any) -> Played:  # noqa: ANN401 - any field
    """Verify the record before an undecided epoch; its offsets are those of the decision."""
    return Played(verify_previous(job, record(**changes)), {ReadOffsets: "d3"})


def test_a_record_of_the_same_clusters_is_accepted() -> None:
    assert previous().error is None


def test_markers_on_another_cluster_stop_the_job() -> None:
    error = previous(sinks=ELSEWHERE).error
    assert isinstance(error, RecordOfAnotherJob)
    assert "is on cluster c; up to epoch 3 it was on cluster other" in error.what


def test_without_markers_the_cluster_may_change() -> None:
    job = replace(JOB, delivery=AT_LEAST_ONCE)
    assert previous(job, sinks=ELSEWHERE, delivery=AT_LEAST_ONCE).error is None


@pytest.mark.parametrize(
    "of", ["a sink that the record does not bind", "a sink that the job left out"]
)
def test_a_marker_of_a_sink_that_is_gone_has_no_cluster_to_compare(of: str) -> None:
    prev = {"gone": {0: Marker(1, "x")}}
    bound = {"gone": KAFKA} if of.endswith("left out") else {}
    job = replace(JOB, sinks={**JOB.sinks, **({} if bound else {"gone": KAFKA})})
    assert previous(job, prev=prev, sinks=record().sinks | bound).error is None  # type: ignore[operator]


@pytest.mark.parametrize(
    ("found", "words"), [(None, "does not exist"), ("else", "has other content")]
)
def test_offsets_that_are_not_those_of_the_decision_stop_the_job(
    found: str | None, words: str
) -> None:
    played = Played(verify_record(JOB, record()), {ReadOffsets: found, LatestEpoch: 3})
    assert isinstance(played.error, OffsetLogDiverged)
    assert f"Spark's offsets/3 {words}, but" in played.error.what


def test_a_changed_sink_is_named_with_both_targets() -> None:
    ours = replace(KAFKA, target="topic u")
    assert (
        "for sink kafka (topic t); this job has topic u"
        in sink_changed(record(), "kafka", ours).what
    )
    assert "this job has no such sink" in sink_changed(record(), "kafka", None).what


@pytest.mark.parametrize(
    ("discarded", "change", "accepted"),
    [
        ({"kafka"}, {"target": "topic u"}, True),
        ({"kafka"}, {"cluster": "other"}, True),
        ({"mysql"}, {"target": "topic u"}, False),
        ({"kafka"}, {"parts": 2}, False),
    ],
)
def test_rule_14_a_sink_may_change_once_the_rows_for_it_are_discarded(
    discarded: set[str],
    change: dict[str, Any],
    accepted: bool,  # noqa: FBT001
) -> None:
    job = replace(JOB, sinks={**JOB.sinks, "kafka": replace(KAFKA, **change)})
    answers = {ReadOffsets: "d3", ReadDiscarded: frozenset(discarded)}
    error = Played(verify_record(job, record()), answers).error
    assert error is None if accepted else isinstance(error, RecordOfAnotherJob)


def test_rule_14_a_sink_is_not_left_out_before_its_markers_have_moved() -> None:
    """They would not have the discarded epoch, and a later job with the sink would be refused."""
    job = replace(JOB, sinks={"mysql": JOB.sinks["mysql"]})
    answers = {ReadOffsets: "d3", ReadDiscarded: frozenset({"kafka"})}
    error = Played(verify_record(job, record()), answers).error
    assert isinstance(error, RecordOfAnotherJob)
    assert "this job has no such sink" in error.what


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("overlapped", [False, True])
def test_an_apply_runs_in_the_background_only_if_job_and_record_say_so(
    overlap: bool,  # noqa: FBT001
    overlapped: bool,  # noqa: FBT001
) -> None:
    job = replace(JOB, overlap=overlap)
    assert job.applies_in_background(record(overlapped=overlapped)) is (overlap and overlapped)
