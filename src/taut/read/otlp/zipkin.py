"""Spans of Zipkin as JSON (version 2): a list of spans, or a list of traces, which are lists of spans."""

from __future__ import annotations

import re
from itertools import chain

import msgspec
import numpy as np

from taut.core.errors import InputRefused
from taut.read.contents import Service, Spans
from taut.read.otlp.jaeger import LONGEST_US
from taut.read.otlp.span_columns import CLIENT, CONSUMER, PRODUCER, SERVER
from taut.read.otlp.span_facts import FAR_NS, facts_of, text_of

KINDS = {"SERVER": SERVER, "CLIENT": CLIENT, "PRODUCER": PRODUCER, "CONSUMER": CONSUMER}
SERVED = " served"
"""Set behind the id of a server that shares it with its caller."""
_START = re.compile(rb"\s*+\[\s*+(?:\[\s*+)?\{")


class _Endpoint(msgspec.Struct, gc=False):
    serviceName: str | None = None
    ipv4: str | None = None


class _Span(msgspec.Struct):
    traceId: str = ""
    id: str = ""
    parentId: str | None = None
    kind: str | None = None
    name: str | None = None
    timestamp: int | float | None = None
    duration: int | float | None = None
    localEndpoint: _Endpoint | None = None
    remoteEndpoint: _Endpoint | None = None
    shared: bool | None = None
    tags: dict[str, str] = {}


def sniff(head: bytes) -> bool:
    """A list whose objects have the ids and endpoints of Zipkin."""
    if not _START.match(head):
        return False
    return b'"traceId"' in head and b'"localEndpoint"' in head and b'"timestamp"' in head


def load(data: bytes, label: str) -> Spans:
    """The spans of one file."""
    try:
        found = msgspec.json.decode(data, type=list[_Span | list[_Span]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not readable as spans of Zipkin ({str(error)[:100]})", "save them again as JSON") from None
    out, services = Spans(label), dict[Service, int]()
    times: list[tuple[int, int]] = []
    for span in chain.from_iterable(one if isinstance(one, list) else [one] for one in found):
        # A server that shares its caller's id is a span of its own, below it.
        own, above = (span.id + SERVED, span.id) if span.shared else (span.id, span.parentId or "")
        here = span.localEndpoint or _Endpoint()
        service = Service(here.serviceName or "unknown service", "", here.ipv4 or "")
        kind, failed = KINDS.get((span.kind or "").upper(), 0), "error" in span.tags
        if span.tags:
            known = facts_of(((key, value.encode()) for key, value in span.tags.items()), bytes.decode)
            known.error = known.error or (text_of(span.tags["error"])[:100] if failed else "")
            if not known.far and span.remoteEndpoint is not None:
                known.far = text_of(span.remoteEndpoint.serviceName)
            out.facts[len(out.span)] = known
        out.trace.append(span.traceId)
        out.span.append(own)
        out.parent.append(above)
        out.name.append(span.name or "")
        out.kind.append(kind)
        out.failed.append(failed)
        out.service.append(services.setdefault(service, len(services)))
        times.append(_interval(span))
    if not times:
        raise InputRefused(label, "an answer of Zipkin without spans", "ask for a service and a time that have traces")
    _below_servers(out)
    out.services = list(services)
    out.start_ns, out.end_ns = (np.array(column, dtype=np.int64) for column in zip(*times, strict=True))
    return out


def _below_servers(out: Spans) -> None:
    """Put what a server did below it, where it shares its caller's id."""
    served = {
        (trace, own): service
        for trace, own, service in zip(out.trace, out.span, out.service, strict=True)
        if own.endswith(SERVED)
    }
    if not served:
        return
    for row, (trace, above, service) in enumerate(zip(out.trace, out.parent, out.service, strict=True)):
        if served.get((trace, above + SERVED)) == service and not out.span[row].endswith(SERVED):
            out.parent[row] = above + SERVED


def _interval(span: _Span) -> tuple[int, int]:
    start, took = span.timestamp, span.duration
    if start is None or took is None or not (0 < start < FAR_NS / 1000 and 0 <= took < LONGEST_US):
        return -1, -1
    return int(start) * 1000, int(start + took) * 1000
