"""The judgement of an apply: every relation of found, expected and written marker has one outcome."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.protocol.errors import Fenced, MarkerMismatch, SinkWentBack, SluicegateError
from sluicegate.protocol.markers import GENESIS, Marker, Verdict, judge

attempts = st.sampled_from(["a", "b", "c"])
real = st.builds(Marker, epoch=st.integers(0, 6), attempt=attempts)
found_markers = st.one_of(st.none(), st.just(GENESIS), real)


@st.composite
def links(draw: st.DrawFn) -> tuple[Marker, Marker]:
    """Return (prev, this) as a record has them: prev is older, or genesis."""
    this = draw(real)
    older = st.builds(Marker, epoch=st.integers(0, max(0, this.epoch - 1)), attempt=attempts)
    prev = draw(st.one_of(st.just(GENESIS), older)) if this.epoch else GENESIS
    return prev, this


def outcome(found: Marker | None, prev: Marker, this: Marker) -> str:
    try:
        return judge(found, this=this, prev=prev, where="s/0").value
    except SluicegateError as error:
        return type(error).__name__


@given(found_markers, links())
def test_every_relation_has_an_outcome(found: Marker | None, link: tuple[Marker, Marker]) -> None:
    known = {"apply", "skip", "Fenced", "SinkWentBack", "MarkerMismatch"}
    assert outcome(found, *link) in known


@given(found_markers, links())
def test_rows_are_written_only_onto_what_the_record_expects(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    expected = found == prev or (found is None and prev == GENESIS)
    assert (outcome(found, prev, this) == "apply") == expected


@given(found_markers, links())
def test_an_epoch_is_skipped_only_for_its_own_attempt(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    assert (outcome(found, prev, this) == "skip") == (found == this)


@given(found_markers, links())
def test_fenced_means_that_the_sink_is_beyond_this_epoch(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    beyond = found is not None and found.epoch > this.epoch
    assert (outcome(found, prev, this) == "Fenced") == beyond


@given(found_markers, links())
def test_gone_back_means_older_than_expected_and_not_empty(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    back = found is not None and found != GENESIS and found.epoch < prev.epoch
    assert (outcome(found, prev, this) == "SinkWentBack") == back


def test_no_marker_is_both_applied_and_skipped() -> None:
    """Over a small world, exhaustively: after an apply the same record is always skipped."""
    markers = [Marker(e, a) for e, a in itertools.product(range(4), "ab")]
    for prev, this in itertools.product([GENESIS, *markers], markers):
        if prev.epoch >= this.epoch:
            continue
        assert judge(prev, this=this, prev=prev, where="") is Verdict.APPLY
        assert judge(this, this=this, prev=prev, where="") is Verdict.SKIP


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (None, MarkerMismatch),
        (GENESIS, MarkerMismatch),
        (Marker(2, "x"), SinkWentBack),
        (Marker(3, "foreign"), MarkerMismatch),
        (Marker(4, "x"), MarkerMismatch),
        (Marker(5, "foreign"), MarkerMismatch),
        (Marker(6, "x"), Fenced),
    ],
)
def test_each_refusal_by_example(found: Marker | None, kind: type[SluicegateError]) -> None:
    with pytest.raises(kind) as caught:
        judge(found, this=Marker(5, "t"), prev=Marker(3, "p"), where="sink s part 0")
    assert "sink s part 0" in caught.value.what
    assert caught.value.data
    assert caught.value.do


def test_a_marker_reads_as_words() -> None:
    assert (str(Marker(3, "x")), str(GENESIS)) == ("epoch 3, attempt x", "none yet")
