"""Traces of epochs as OpenTelemetry spans, written to a file of JSON lines and exported by OTLP.

The root span is `epoch`. Its children are `stage` with a span per staged chunk, `decide`, and
`apply` per sink with `begin`, `write`, `flush` and `commit`. A span is written to the file as soon
as it ends, so the file has everything that a killed driver had completed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Span, TraceFlags, format_span_id, format_trace_id

TRACE_FILE_VARIABLE = "SLUICEGATE_TRACE_FILE"
"""A file to which spans are appended, one JSON object per line."""
OTLP_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The endpoint for OTLP over HTTP; the other standard OTEL_* variables apply too."""


class FileExporter(SpanExporter):
    """Appends each finished span to a file as one line of JSON."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # unbuffered: a line is one append, also if several threads end spans
        self._file = path.open("ab", buffering=0)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            self._file.write(json.dumps(_as_dict(span)).encode() + b"\n")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._file.close()


def _as_dict(span: ReadableSpan) -> dict[str, object]:
    context = span.get_span_context()
    return {
        "trace_id": format_trace_id(context.trace_id) if context else None,
        "span_id": format_span_id(context.span_id) if context else None,
        "parent_id": format_span_id(span.parent.span_id) if span.parent else None,
        "name": span.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "attributes": dict(span.attributes or {}),
        "error": span.status.description,
    }


class Tracing:
    """The tracer of one driver; the job's name is part of every span.

    Without an exporter there are no spans, and so no trace context in records and headers.
    """

    def __init__(self, job: str) -> None:
        resource = Resource.create({"service.name": f"sluicegate.{job}"})
        self._provider = TracerProvider(resource=resource)
        file, otlp = os.environ.get(TRACE_FILE_VARIABLE), os.environ.get(OTLP_VARIABLE)
        if file:
            self._provider.add_span_processor(SimpleSpanProcessor(FileExporter(Path(file))))
        if otlp:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer: trace.Tracer = trace.NoOpTracer()
        if file or otlp:
            self._tracer = self._provider.get_tracer("sluicegate")

    def span(self, name: str, **attributes: str | int | bool) -> AbstractContextManager[Span]:
        """Time a block as a child of the current span; an error is recorded and re-raised."""
        return self._tracer.start_as_current_span(name, attributes=attributes)

    @contextmanager
    def root(self, name: str, **attributes: str | int | bool) -> Iterator[Span]:
        """Start a trace; its span outlives the block and must be ended, unless the block raises."""
        span = self._tracer.start_span(name, context=Context(), attributes=attributes)
        with self.within(span):
            yield span

    @contextmanager
    def within(self, span: Span) -> Iterator[Span]:
        """Make a span the current one, in any thread; an error is recorded and ends the span."""
        try:
            with trace.use_span(span):
                yield span
        except BaseException:
            span.end()
            raise

    def record(self, name: str, start_ns: int, end_ns: int, /, **attributes: str | int) -> None:
        """Add a span that was timed elsewhere, such as in an executor."""
        self._tracer.start_span(name, start_time=start_ns, attributes=attributes).end(end_ns)

    @staticmethod
    def traceparent() -> str:
        """Return the W3C trace context of the current span, empty if there is none."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return ""
        trace_id, span_id = format_trace_id(context.trace_id), format_span_id(context.span_id)
        return f"00-{trace_id}-{span_id}-{context.trace_flags & TraceFlags.SAMPLED:02x}"

    def close(self) -> None:
        """Export what is still buffered."""
        self._provider.shutdown()
