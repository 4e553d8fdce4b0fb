"""RFC 3339 timestamps."""

from hypothesis import given
from hypothesis import strategies as st

from sluicegate_operator.kube.timestamps import to_instant, to_text


@given(st.integers(0, 4_000_000_000_000))
def test_an_instant_survives_a_round_trip(ms: int) -> None:
    """Otherwise the status would differ at every reconciliation and be written each time."""
    instant = round(ms / 1000, 3)
    assert to_instant(to_text(instant)) == instant


def test_an_instant_with_a_utc_offset_is_read() -> None:
    assert to_text(to_instant("2027-01-15T09:00:00+01:00")) == "2027-01-15T08:00:00.000Z"
