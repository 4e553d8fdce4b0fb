"""The trace context of an epoch, as records and Kafka headers carry it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.tracing import OTLP_VARIABLE, TRACE_FILE_VARIABLE, Tracing


@pytest.mark.parametrize(("sampler", "flags"), [("always_on", "01"), ("always_off", "00")])
def test_a_trace_that_is_not_sampled_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sampler: str, flags: str
) -> None:
    """Otherwise a consumer that continues the trace exports spans without their parent."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv(TRACE_FILE_VARIABLE, str(tmp_path / "spans.jsonl"))
    tracing = Tracing("job")
    with tracing.root("epoch"):
        version, trace_id, span_id, found = Tracing.traceparent().split("-")
    tracing.close()
    assert (version, len(trace_id), len(span_id), found) == ("00", 32, 16, flags)


def test_without_an_exporter_there_is_no_trace_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each record names a parent that nobody has."""
    for variable in (TRACE_FILE_VARIABLE, OTLP_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    tracing = Tracing("job")
    with tracing.root("epoch"), tracing.span("stage"):
        assert not Tracing.traceparent()
    tracing.close()


def test_without_a_span_there_is_no_trace_context() -> None:
    assert not Tracing.traceparent()
