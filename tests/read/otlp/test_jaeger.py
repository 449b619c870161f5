"""Traces of Jaeger become the same spans as their export by OTLP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.core.errors import InputRefused
from taut.read.otlp import jaeger
from taut.read.otlp import reader as otlp

BASE_US = 1_700_000_000_000_000


def span(name: str, begin: int, took: int, process: str, parent: str = "", **tags: Any) -> dict[str, Any]:
    link = [{"refType": "CHILD_OF", "traceID": "t1", "spanID": parent}] if parent else []
    return {
        "traceID": "t1", "spanID": name, "operationName": name, "references": link,
        "startTime": BASE_US + begin, "duration": took,
        "tags": [{"key": key.replace("__", "."), "type": "string", "value": value} for key, value in tags.items()],
        "logs": [], "processID": process,
    }  # fmt: skip


TRACE = {
    "traceID": "t1",
    "spans": [
        span("handle", 0, 10_000, "p1", span__kind="server"),
        span("POST", 2000, 6000, "p1", "handle", span__kind="client"),
        span("query", 3000, 4000, "p2", "POST", span__kind="server", error=True, http__status_code=503),
    ],
    "processes": {
        "p1": {"serviceName": "web", "tags": [{"key": "hostname", "value": "h1"}]},
        "p2": {"serviceName": "db", "tags": [{"key": "hostname", "value": "h2"}]},
    },
    "warnings": None,
}


@pytest.mark.parametrize("document", [TRACE, [TRACE], {"data": [TRACE], "total": 0, "errors": None}])
def test_calls_services_and_times(document: Any) -> None:
    data = json.dumps(document, indent=2).encode()
    assert jaeger.sniff(data)
    assert not otlp.sniff(data)
    trace = otlp.gather([jaeger.load(data, "j")], [], name="j", source="j")
    assert list(trace.members.name) == ["db", "web"]
    assert list(trace.members.host) == ["h2", "h1"]
    took = {trace.names[n]: int(e - s) for n, s, e in zip(trace.ops.name, trace.ops.start_ns, trace.ops.end_ns, strict=True)}
    assert took["db query"] == 4_000_000
    assert (trace.failures.name.tolist(), trace.failures.error.tolist()) == (["db query"], ["HTTP 503"])


def test_what_only_follows_from_a_span_is_waited_for_by_nobody() -> None:
    later = {
        **span("mail", 9000, 50_000, "p2"),
        "references": [{"refType": "FOLLOWS_FROM", "traceID": "t1", "spanID": "handle"}],
    }
    found = jaeger.load(json.dumps({**TRACE, "spans": [*TRACE["spans"], later]}).encode(), "j")
    assert (found.parent[-1], found.kind[-1]) == ("handle", 5)


@pytest.mark.parametrize(
    "text", ['{"data": [], "total": 0}', '{"traceID": "a", "spans": [{"spanID": 3, "operationName": "x"}]}']
)
def test_refusals(text: str) -> None:
    assert jaeger.sniff(text.encode())
    with pytest.raises(InputRefused, match="Jaeger"):
        jaeger.load(text.encode(), "j")


def test_a_real_trace(shared: Path) -> None:
    result = taut.analyze(shared / "wild/logs/jaeger_genai.json").result
    assert (result.failed.failed, result.failed.spans) == (1, 57)
    assert result.verdict.text.startswith(
        "1 of 57 spans failed (1.8 %), at 2026-02-02 02:40:00 UTC: 1 of 3 k8s-api GET /api/v1/pods"
    )
    assert result.redundant.of_tokens_in > 0
