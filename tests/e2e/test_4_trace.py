"""The collector has the complete trace of an epoch, and Kafka headers have its context."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Object, eventually
from tests.e2e.platform import CLIENT_POD, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_HEADERS = """
import json
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.reader import read_committed
headers = (h for record in read_committed(Connection.of(), "ip_count_sink") for h in record.headers)
print(json.dumps(sorted({value.decode() for key, value in headers if key == "traceparent"})))
"""


def spans(platform: Platform) -> Iterator[Object]:
    """Yield the spans that the collector has written."""
    (pod,) = platform.cluster.list_objects("pods", "app.kubernetes.io/name=collector")
    text = platform.cluster.execute(pod["metadata"]["name"], "cat", "/var/lib/otelcol/traces.json")
    for line in text.splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


def test_an_epoch_is_one_complete_trace_and_its_records_name_it(platform: Platform) -> None:
    """Executors' staging, the decision, and each sink's begin, write, flush and commit."""

    def complete_trace() -> str:
        traces: dict[str, list[Object]] = defaultdict(list)
        for span in spans(platform):
            traces[span["traceId"]].append(span)
        for trace, spans_of_trace in traces.items():
            names = [span["name"] for span in spans_of_trace]
            both_sinks = all(
                names.count(name) >= 2 for name in ("begin", "write", "flush", "commit")
            )
            if (
                both_sinks
                and {"epoch", "stage", "decide"} <= set(names)
                and _one_root(spans_of_trace)
            ):
                return trace
        return ""

    eventually(complete_trace, "a complete trace of an epoch", within_s=60.0)
    headers = json.loads(platform.cluster.execute(CLIENT_POD, "python", "-c", _HEADERS))
    trace_ids = {span["traceId"] for span in spans(platform)}
    assert any(header.split("-")[1] in trace_ids for header in headers), headers[:3]


def _one_root(trace_spans: list[Object]) -> bool:
    """Return whether exactly one span has no parent and all other parents exist."""
    ids = {span["spanId"] for span in trace_spans}
    parents = [span.get("parentSpanId", "") for span in trace_spans]
    return parents.count("") == 1 and all(parent in ids for parent in parents if parent)
