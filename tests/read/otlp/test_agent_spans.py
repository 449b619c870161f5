"""Spans of agents as OpenInference, Langfuse and the console exporter write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.core.tables import Trace
from taut.read.otlp import agent_spans
from taut.read.otlp import reader as otlp
from taut.read.otlp.span_columns import facts


def at(second: float) -> str:
    return f"2026-01-01T00:00:{second:06.3f}Z"


def loaded(data: bytes) -> Trace:
    assert agent_spans.sniff(data)
    return otlp.gather([agent_spans.load(data, "a")], [], name="a", source="a")


def phoenix(
    name: str, begin: float, end: float, parent: str | None, kind: str, status: str = "OK", **more: Any
) -> dict[str, Any]:
    return {
        "name": name, "context": {"trace_id": "t", "span_id": name}, "span_kind": kind, "parent_id": parent,
        "start_time": at(begin), "end_time": at(end), "status_code": "OK", "status_message": "", "events": [], **more,
    }  # fmt: skip


MODEL = {"llm": {"model_name": "m-1", "token_count": {"prompt": 100, "completion": 10}}, "input": {"value": "hi"}}
FLAT = {"llm.model_name": "m-1", "llm.token_count.prompt": 100, "llm.token_count.completion": 10, "input.value": "hi"}


@pytest.mark.parametrize("attributes", [MODEL, FLAT])
@pytest.mark.parametrize("form", ["lines", "list", "page"])
def test_openinference(attributes: dict[str, Any], form: str) -> None:
    rows = [
        phoenix("turn", 0, 10, None, "AGENT"),
        phoenix("ask", 1, 6, "turn", "LLM", attributes=attributes),
        phoenix("look up", 6, 8, "turn", "TOOL", status_code="ERROR", status_message="TimeoutError: 2 s"),
    ]
    text = {"lines": "\n".join(map(json.dumps, rows)), "list": json.dumps(rows), "page": json.dumps({"data": rows}, indent=1)}
    trace = loaded(text[form].encode())
    assert list(trace.members.name) == ["application", "m-1"]
    assert (trace.counts["tokens in"], trace.counts["tokens out"], trace.counts["calls"]) == (100, 10, 2)
    assert list(zip(trace.failures.name, trace.failures.error, strict=True)) == [("application look up", "TimeoutError: 2 s")]


def test_openinference_by_otlp() -> None:
    raw = [{"key": key, "value": {"intValue": value} if isinstance(value, int) else {"stringValue": value}}
           for key, value in {**FLAT, "openinference.span.kind": "LLM"}.items()]  # fmt: skip
    known = facts(json.dumps(raw).encode())
    assert (known.operation, known.model, known.tokens_in, known.tokens_out, known.calls_model) == (
        "chat",
        "m-1",
        100,
        10,
        True,
    )


def test_the_console_exporter() -> None:
    rows = [
        {
            "name": name, "context": {"trace_id": "0xab", "span_id": f"0x{i}", "trace_state": "[]"}, "kind": f"SpanKind.{kind}",
            "parent_id": "0x0" if i else None, "start_time": at(i), "end_time": at(9 - i), "status": {"status_code": "UNSET"},
            "attributes": {"peer.service": "db"} if i else {}, "resource": {"attributes": {"service.name": "web"}},
        }
        for i, (name, kind) in enumerate([("GET /", "SERVER"), ("SELECT", "CLIENT")])
    ]  # fmt: skip
    trace = loaded("\n".join(json.dumps(row, indent=4) for row in rows).encode())
    assert list(trace.members.name) == ["web", "db"]


def observation(name: str, kind: str, begin: float, end: float, parent: str | None, **more: Any) -> dict[str, Any]:
    return {
        "id": name, "traceId": "t", "type": kind, "name": name, "startTime": at(begin), "endTime": at(end),
        "parentObservationId": parent, "level": "DEFAULT", "statusMessage": None, **more,
    }  # fmt: skip


OBSERVED = [
    observation("turn", "SPAN", 0, 10, None),
    observation("ask", "GENERATION", 1, 6, "turn", model="m-1", usageDetails={"input": 100, "output": 10}, input="hi"),
    observation("again", "GENERATION", 6, 8, "turn", model="m-1", usage={"input": 5, "output": 1}, level="ERROR",
                statusMessage="429 rate limited"),
    {**observation("note", "EVENT", 6, 6, "turn"), "endTime": None},
]  # fmt: skip
SNAKE = {
    "traceId": "trace_id", "startTime": "start_time", "endTime": "end_time", "parentObservationId": "parent_observation_id",
    "statusMessage": "status_message", "usageDetails": "usage_details", "model": "provided_model_name",
}  # fmt: skip


@pytest.mark.parametrize("form", ["observations", "trace", "snake"])
def test_langfuse(form: str) -> None:
    documents: dict[str, Any] = {
        "observations": {"data": OBSERVED, "meta": {"page": 1}},
        "trace": {"id": "t", "name": "turn", "timestamp": at(0), "observations": OBSERVED},
        "snake": [{SNAKE.get(key, key): value for key, value in row.items()} for row in OBSERVED],
    }
    trace = loaded(json.dumps(documents[form]).encode())
    assert list(trace.members.name) == ["application", "m-1"]
    assert (trace.counts["spans"], trace.counts["tokens in"]) == (3, 105)
    assert list(zip(trace.failures.name, trace.failures.error, strict=True)) == [("m-1 again", "429 rate limited")]


def test_runs_of_langsmith() -> None:
    runs = [
        {"id": name, "trace_id": "t", "name": name, "run_type": kind, "start_time": at(begin), "end_time": at(end),
         "parent_run_id": None if name == "turn" else "turn", "status": "error" if error else "success", "error": error, **more}
        for name, kind, begin, end, error, more in (
            ("turn", "chain", 0, 9, None, {}),
            ("ask", "llm", 1, 5, None, {"prompt_tokens": 7, "completion_tokens": 3}),
            ("look up", "tool", 5, 8, "TimeoutError()", {}),
        )
    ]  # fmt: skip
    trace = loaded("\n".join(map(json.dumps, runs)).encode())
    assert (trace.counts["tokens in"], trace.counts["tokens out"]) == (7, 3)
    assert list(zip(trace.failures.name, trace.failures.error, strict=True)) == [("application look up", "TimeoutError()")]


def test_traces_without_observations_are_refused_by_name() -> None:
    text = json.dumps({"data": [{"id": "t", "timestamp": at(0), "projectId": "p", "observations": ["a", "b"]}]}).encode()
    assert agent_spans.sniff(text)
    with pytest.raises(InputRefused, match="traces of Langfuse without their observations"):
        agent_spans.load(text, "l")
