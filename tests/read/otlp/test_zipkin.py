"""Spans of Zipkin, whose servers may share the id of their caller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.read.otlp import reader as otlp
from taut.read.otlp import zipkin
from taut.read.otlp.span_columns import facts


def span(name: str, kind: str | None, begin: int, took: int, service: str, **more: Any) -> dict[str, Any]:
    return {"traceId": "t", "id": name, "name": name, "kind": kind, "timestamp": 1_700_000_000_000_000 + begin,
            "duration": took, "localEndpoint": {"serviceName": service, "ipv4": f"10.0.0.{len(service)}"}, **more}  # fmt: skip


SPANS = [
    span("handle", "SERVER", 0, 10_000, "web"),
    span("query", "CLIENT", 2000, 6000, "web", parentId="handle"),
    span("query", "SERVER", 3000, 4000, "database", shared=True, tags={"error": "503"}),
    span("index", None, 3500, 1000, "database", parentId="query"),
]


@pytest.mark.parametrize("document", [SPANS, [SPANS]])
def test_spans(document: Any) -> None:
    data = json.dumps(document).encode()
    assert zipkin.sniff(data)
    assert zipkin.load(data, "z").parent == ["", "handle", "query", "query served"]
    trace = otlp.gather([zipkin.load(data, "z")], [], name="z", source="z")
    assert list(trace.members.name) == ["database", "web"]
    assert (trace.failures.name.tolist(), trace.failures.error.tolist()) == (["database query"], ["503"])


def test_refusals() -> None:
    with pytest.raises(InputRefused, match="Zipkin"):
        zipkin.load(b'[{"traceId": 3, "localEndpoint": {}, "timestamp": 1}]', "z")


@pytest.mark.parametrize("tags", [{}, None, {"http.url": "http://a/b"}, {"http.path": "a:b"}])
def test_a_remote_endpoint_names_the_far_end(tags: dict[str, str] | None) -> None:
    far = {"serviceName": 'the "store"', "port": 80}
    call = span("get", "CLIENT", 0, 10, "web", remoteEndpoint=far, tags=tags)
    spans = zipkin.load(json.dumps([call]).encode(), "z")
    assert facts(spans.raw[0]).far == 'the "store"'
