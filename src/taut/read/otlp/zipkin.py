"""Spans of Zipkin as JSON (version 2): a list of spans, or a list of traces, which are lists of spans."""

from __future__ import annotations

import re
from itertools import chain

import msgspec
import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import InputRefused
from taut.read.contents import Service, Spans
from taut.read.otlp.jaeger import LONGEST_US
from taut.read.otlp.span_columns import CLIENT, CONSUMER, PRODUCER, SERVER, facts
from taut.read.otlp.span_facts import FAR_NS, text_of

KINDS = {"SERVER": SERVER, "CLIENT": CLIENT, "PRODUCER": PRODUCER, "CONSUMER": CONSUMER}
SERVED = " served"
"""Set behind the id of a server that shares it with its caller."""
_START = re.compile(rb"\s*+\[\s*+(?:\[\s*+)?\{")


_NONE, _NO_TAGS = msgspec.Raw(b"{}"), 2


class _Endpoint(msgspec.Struct, gc=False):
    serviceName: str | None = None
    ipv4: str | None = None


class _Span(msgspec.Struct, gc=False):
    traceId: str = ""
    id: str = ""
    parentId: str | None = None
    kind: str | None = None
    name: str | None = None
    timestamp: int | float | None = None
    duration: int | float | None = None
    localEndpoint: msgspec.Raw = _NONE
    remoteEndpoint: msgspec.Raw = _NONE
    shared: bool | None = None
    tags: msgspec.Raw = _NONE


_ENDPOINT = msgspec.json.Decoder(_Endpoint | None)
_TAGS = msgspec.json.Decoder(dict[str, str])


def sniff(head: bytes) -> bool:
    """A list whose objects have the ids and endpoints of Zipkin."""
    if not _START.match(head):
        return False
    return b'"traceId"' in head and b'"localEndpoint"' in head and b'"timestamp"' in head


def load(data: bytes, label: str) -> Spans:
    """The spans of one file."""
    out = Spans(label)
    try:
        found = msgspec.json.decode(data, type=list[_Span | list[_Span]])
        spans = list(chain.from_iterable(one if isinstance(one, list) else (one,) for one in found))
        _add_columns(out, spans)
        _add_details(out, spans)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not readable as spans of Zipkin ({str(error)[:100]})", "save them again as JSON") from None
    if not spans:
        raise InputRefused(label, "an answer of Zipkin without spans", "ask for a service and a time that have traces")
    _below_servers(out)
    out.start_ns, out.end_ns = _intervals(spans)
    return out


def _add_columns(out: Spans, spans: list[_Span]) -> None:
    out.trace = [span.traceId for span in spans]
    # A server that shares its caller's id is a span of its own, below it.
    out.span = [span.id + SERVED if span.shared else span.id for span in spans]
    out.parent = [span.id if span.shared else span.parentId or "" for span in spans]
    out.name = [span.name or "" for span in spans]
    out.kind = [KINDS.get(span.kind.upper(), 0) if span.kind else 0 for span in spans]
    out.failed = [False] * len(spans)
    services: dict[Service, int] = {}
    places: dict[bytes, int] = {}
    for span in spans:
        raw = bytes(span.localEndpoint)
        place = places.get(raw)
        if place is None:
            here = _ENDPOINT.decode(raw) or _Endpoint()
            service = Service(here.serviceName or "unknown service", "", here.ipv4 or "")
            place = places[raw] = services.setdefault(service, len(services))
        out.service.append(place)
    out.services = list(services)


def _add_details(out: Spans, spans: list[_Span]) -> None:
    """Whether spans failed, and the tags of calls and failures."""
    for row, span in enumerate(spans):
        raw = bytes(span.tags) if len(span.tags) > _NO_TAGS else b""
        raw = raw if b":" in raw else b""
        failed = b'"error"' in raw and "error" in (tags := _TAGS.decode(raw))
        calls = out.kind[row] in (CLIENT, PRODUCER)
        if calls and b'"serviceName"' in bytes(span.remoteEndpoint) and b'"peer.service"' not in raw:
            far = _ENDPOINT.decode(span.remoteEndpoint)
            named = b'{"peer.service":' + msgspec.json.encode(far.serviceName if far else None)
            raw = named + (b"," + raw.lstrip()[1:] if raw else b"}")
        if failed:
            out.failed[row] = True
            known = out.facts[row] = facts(raw)
            known.error = known.error or text_of(tags["error"])[:100]
        elif raw and (b"gen_ai." in raw or b"openinference." in raw or b"resend_count" in raw):
            out.facts[row] = facts(raw)
        elif raw and calls:
            out.raw[row] = raw


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


def _intervals(spans: list[_Span]) -> tuple[Ints, Ints]:
    """Begin and end in ns, -1 where one of them is not told."""
    start, took = (
        np.array([-1.0 if value is None else value for value in values], dtype=np.float64)
        for values in ([span.timestamp for span in spans], [span.duration for span in spans])
    )
    known = (start > 0) & (start < FAR_NS / 1000) & (took >= 0) & (took < LONGEST_US)
    begin, end = (np.where(known, value, 0).astype(np.int64) * 1000 for value in (start, start + took))
    return np.where(known, begin, -1), np.where(known, end, -1)
