"""Processor time is read off between samples, and unknown outside of them."""

from __future__ import annotations

import pytest

from tests.bench.cpu import spent_s

SAMPLES = [(1000.0, 1.0), (2000.0, 3.0), (3000.0, 3.5)]


def test_time_between_samples_is_on_the_line_between_them() -> None:
    assert spent_s(SAMPLES, 1500.0, 2500.0) == pytest.approx(1.25)


def test_a_moment_at_a_sample_is_that_sample() -> None:
    assert spent_s(SAMPLES, 1500.0, 2000.0) == pytest.approx(1.0)


@pytest.mark.parametrize(("begin_ms", "end_ms"), [(500.0, 2500.0), (1500.0, 3500.0)])
def test_what_the_samples_do_not_cover_is_unknown(begin_ms: float, end_ms: float) -> None:
    assert spent_s(SAMPLES, begin_ms, end_ms) is None


def test_without_samples_nothing_is_known() -> None:
    assert spent_s([], 1.0, 2.0) is None
