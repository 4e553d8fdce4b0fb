"""compare_marker: every relation of found, expected and written marker has one outcome."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import Fenced, MarkerMismatch, SinkRegressed, SluicegateError
from sluicegate.protocol.markers import (
    NO_MARKER,
    Marker,
    Verdict,
    check_undecided,
    compare_marker,
    is_seed_of,
    marker_to_name,
)

attempts = st.sampled_from(["a", "b", "c"])
real = st.builds(Marker, epoch=st.integers(0, 6), attempt=attempts)
found_markers = st.one_of(st.none(), st.just(NO_MARKER), real)


@st.composite
def links(draw: st.DrawFn) -> tuple[Marker, Marker]:
    """Return (prev, this) as in a record: prev is older, or there is no marker."""
    this = draw(real)
    older = st.builds(Marker, epoch=st.integers(0, max(0, this.epoch - 1)), attempt=attempts)
    prev = draw(st.one_of(st.just(NO_MARKER), older)) if this.epoch else NO_MARKER
    return prev, this


def outcome(found: Marker | None, prev: Marker, this: Marker) -> str:
    try:
        return compare_marker(found, this=this, prev=prev, where="s/0").value
    except SluicegateError as error:
        return type(error).__name__


@given(found_markers, links())
def test_every_relation_has_an_outcome(found: Marker | None, link: tuple[Marker, Marker]) -> None:
    known = {"apply", "skip", "Fenced", "SinkRegressed", "MarkerMismatch"}
    assert outcome(found, *link) in known


@given(found_markers, links())
def test_rows_are_written_only_after_the_expected_marker(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    expected = found == prev or (found is None and prev == NO_MARKER)
    assert (outcome(found, prev, this) == "apply") == expected


@given(found_markers, links())
def test_an_epoch_is_skipped_only_for_its_own_attempt(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    assert (outcome(found, prev, this) == "skip") == (found == this)


@given(found_markers, links())
def test_fenced_means_that_the_sink_is_ahead_of_this_epoch(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    ahead = found is not None and found.epoch > this.epoch
    assert (outcome(found, prev, this) == "Fenced") == ahead


@given(found_markers, links())
def test_regressed_means_older_than_expected_and_not_empty(
    found: Marker | None, link: tuple[Marker, Marker]
) -> None:
    prev, this = link
    older = found is not None and found != NO_MARKER and found.epoch < prev.epoch
    assert (outcome(found, prev, this) == "SinkRegressed") == older


def test_a_record_that_was_applied_is_skipped() -> None:
    """Exhaustive for a few epochs and attempts."""
    markers = [Marker(e, a) for e, a in itertools.product(range(4), "ab")]
    for prev, this in itertools.product([NO_MARKER, *markers], markers):
        if prev.epoch >= this.epoch:
            continue
        assert compare_marker(prev, this=this, prev=prev, where="") is Verdict.APPLY
        assert compare_marker(this, this=this, prev=prev, where="") is Verdict.SKIP


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (None, MarkerMismatch),
        (NO_MARKER, MarkerMismatch),
        (Marker(2, "x"), SinkRegressed),
        (Marker(3, "foreign"), MarkerMismatch),
        (Marker(4, "x"), MarkerMismatch),
        (Marker(5, "foreign"), MarkerMismatch),
        (Marker(6, "x"), Fenced),
    ],
)
def test_each_error_by_example(found: Marker | None, kind: type[SluicegateError]) -> None:
    with pytest.raises(kind) as caught:
        compare_marker(found, this=Marker(5, "t"), prev=Marker(3, "p"), where="sink s part 0")
    assert "sink s part 0" in caught.value.what
    assert caught.value.data
    assert caught.value.do


def test_a_marker_is_printed_as_words() -> None:
    assert (str(Marker(3, "x")), str(NO_MARKER)) == ("epoch 3, attempt x", "none yet")


@pytest.mark.parametrize(
    ("found", "words"), [(None, "is absent"), (Marker(3, "foreign"), "is epoch 3, attempt foreign")]
)
def test_an_error_names_the_marker_that_was_found(found: Marker | None, words: str) -> None:
    with pytest.raises(MarkerMismatch, match=words):
        compare_marker(found, this=Marker(5, "t"), prev=Marker(3, "p"), where="")


@pytest.mark.parametrize(
    ("found", "is_seed"),
    [
        (Marker(3, "seeded.x"), True),
        (Marker(2, "seeded.x"), False),
        (Marker(3, "x"), False),
        (None, False),
    ],
)
def test_a_seed_stands_for_the_marker_of_its_epoch(found: Marker | None, is_seed: bool) -> None:  # noqa: FBT001
    assert is_seed_of(found, Marker(3, "p")) is is_seed


@pytest.mark.parametrize(
    ("found", "expected", "may_expire", "named"),
    [
        (Marker(3, "seeded.x"), Marker(3, "p"), True, Marker(3, "seeded.x")),
        (None, Marker(3, "p"), True, Marker(3, "seeded.new")),
        (None, Marker(3, "p"), False, Marker(3, "p")),
        (None, NO_MARKER, False, Marker(-1, "seeded.new")),
        (NO_MARKER, NO_MARKER, False, Marker(-1, "seeded.new")),
        (NO_MARKER, Marker(3, "p"), True, Marker(3, "p")),
        (Marker(2, "foreign"), NO_MARKER, True, NO_MARKER),
        (Marker(2, "foreign"), Marker(3, "p"), True, Marker(3, "p")),
    ],
)
def test_a_record_names_a_seed_only_where_the_sink_has_no_marker(
    found: Marker | None,
    expected: Marker,
    may_expire: bool,  # noqa: FBT001
    named: Marker,
) -> None:
    """A marker that is not the expected one stays an error."""
    assert named == marker_to_name(found, expected=expected, new_id="new", may_expire=may_expire)


@pytest.mark.parametrize("found", [None, NO_MARKER, Marker(3, "foreign"), Marker(2, "x")])
def test_only_an_older_marker_may_be_brought_forward(found: Marker | None) -> None:
    this, prev = Marker(5, "t"), Marker(3, "p")
    with pytest.raises((MarkerMismatch, SinkRegressed)):
        check_undecided(found, this=this, prev=prev, where="", may_regress=False)
    if found == Marker(2, "x"):
        check_undecided(found, this=this, prev=prev, where="", may_regress=True)
    else:
        with pytest.raises(MarkerMismatch):
            check_undecided(found, this=this, prev=prev, where="", may_regress=True)
