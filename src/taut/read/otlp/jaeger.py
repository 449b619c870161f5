"""Traces of Jaeger as JSON: what its query service answers (``{"data": [trace, …]}``), its UI saves, or one trace of these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

import msgspec
import numpy as np

from taut.core.errors import InputRefused
from taut.read.contents import Service, Spans
from taut.read.otlp.span_columns import CLIENT, CONSUMER, PRODUCER, SERVER, facts
from taut.read.otlp.span_facts import FAR_NS, scalar, text_of

BOM = b"\xef\xbb\xbf"
KINDS = {b"server": SERVER, b"client": CLIENT, b"producer": PRODUCER, b"consumer": CONSUMER}
TRUE = (b"true", b'"true"', b"1")
INSTANCE = ("service.instance.id", "k8s.pod.name", "container.id", "client-uuid")
HOST = ("host.id", "host.name", "hostname", "k8s.node.name", "ip")
# Longer than any operation, µs.
LONGEST_US = 10**13


_NONE = msgspec.Raw(b"[]")
_KIND = re.compile(rb'"span\.kind"\s*+,(?:\s*+"type"\s*+:\s*+"\w*+"\s*+,)?\s*+"value"\s*+:\s*+"(\w{1,20})"')


class _Tag(msgspec.Struct, gc=False):
    key: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Reference(msgspec.Struct, gc=False):
    refType: str = ""
    traceID: str = ""
    spanID: str = ""


class _Process(msgspec.Struct):
    serviceName: str = ""
    tags: list[_Tag] = []


class _Span(msgspec.Struct):
    traceID: str = ""
    spanID: str = ""
    parentSpanID: str | None = None
    operationName: str = ""
    references: list[_Reference] | None = None
    startTime: int | float | None = None
    duration: int | float | None = None
    tags: msgspec.Raw = _NONE
    processID: str = ""
    process: _Process | None = None


class _Trace(msgspec.Struct):
    traceID: str = ""
    spans: list[_Span] = []
    processes: dict[str, msgspec.Raw] = {}
    data: list[_Trace] | None = None


_PROCESS = msgspec.json.Decoder(_Process)
_TAGS = msgspec.json.Decoder(list[_Tag])


def sniff(head: bytes) -> bool:
    """JSON with the keys of Jaeger's spans; or an answer of its query service, which may be empty."""
    text = head.removeprefix(BOM).lstrip()
    if text[:1] not in (b"{", b"["):
        return False
    if b'"traceID"' in text and (b'"operationName"' in text or b'"spanID"' in text):
        return True
    return re.match(rb'\{\s*+"data"\s*+:\s*+(?:\[\s*+\]|null)\s*+,\s*+"(?:total|errors|limit)"', text) is not None


def load(data: bytes, label: str) -> Spans:
    """The spans of one file."""
    raw = bytes(data).removeprefix(BOM)
    try:
        found = msgspec.json.decode(raw, type=list[_Trace] | _Trace)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not readable as traces of Jaeger ({str(error)[:100]})", "save them again as JSON") from None
    out = Spans(label)
    known_services: dict[bytes, Service] = {}
    start: list[int] = []
    end: list[int] = []
    for trace in chain.from_iterable(one.data or [one] for one in (found if isinstance(found, list) else [found])):
        first = len(out.services)
        services = {key: first + place for place, key in enumerate(trace.processes)}
        for process in map(bytes, trace.processes.values()):
            known_service = known_services.get(process)
            if known_service is None:
                known_service = known_services[process] = _service(_process(process))
            out.services.append(known_service)
        for span in trace.spans:
            _add(out, span, trace, services)
            began, took = _micros(span.startTime), _micros(span.duration)
            known = began > 0 and 0 <= took < LONGEST_US
            start.append(began * 1000 if known else -1)
            end.append((began + took) * 1000 if known else -1)
    if not out.span:
        raise InputRefused(label, "an answer of Jaeger without spans", "ask for a service and a time that have traces")
    out.start_ns, out.end_ns = np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)
    return out


def _micros(value: float | None) -> int:
    return int(value) if value is not None and 0 <= value < FAR_NS / 1000 else -1


def _add(out: Spans, span: _Span, trace: _Trace, services: dict[str, int]) -> None:
    row, raw = len(out.span), bytes(span.tags)
    told = _KIND.match(raw, raw.find(b'"span.kind"'))
    kind = KINDS.get(told[1].lower(), 0) if told else 0
    failed = False
    if b'"error"' in raw or b"otel.status_code" in raw or (not told and b"span.kind" in raw):
        kind, failed = _looked_up(raw, kind)
    parent, follows = _parent(span, trace.traceID)
    kind = CONSUMER if follows and not kind else kind
    if failed or b"gen_ai." in raw or b"openinference." in raw or b"resend_count" in raw:
        known = out.facts[row] = facts(raw)
        kind = CLIENT if not kind and known.calls_model else kind
        if failed and not known.error:
            known.error = _error(raw)
    elif kind in (CLIENT, PRODUCER):
        out.raw[row] = raw
    out.trace.append(span.traceID or trace.traceID)
    out.span.append(span.spanID)
    out.parent.append(parent)
    out.name.append(span.operationName)
    out.kind.append(kind)
    out.failed.append(failed)
    out.service.append(_place(span, services, out.services))


def _place(span: _Span, services: dict[str, int], known: list[Service]) -> int:
    """Which of the known services a span is of; one that is not among them becomes one."""
    if span.process is None and span.processID in services:
        return services[span.processID]
    if span.process is None:
        services[span.processID] = len(known)
    known.append(Service("unknown service", "", "") if span.process is None else _service(span.process))
    return len(known) - 1


def _error(raw: bytes) -> str:
    """What the tags of a span that failed say of it."""
    tags = {tag.key: tag.value for tag in _tags(raw)}
    said = tags.get("otel.status_description") or tags.get("error.message")
    return text_of(scalar(said))[:100] if said is not None else ""


def _tags(raw: bytes) -> list[_Tag]:
    """Tags; none where they cannot be read."""
    try:
        return _TAGS.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def _process(raw: bytes) -> _Process:
    try:
        return _PROCESS.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Process()


def _looked_up(raw: bytes, kind: int) -> tuple[int, bool]:
    """The kind of a span, and whether it failed, out of all of its tags."""
    failed = False
    for tag in _tags(raw):
        value = bytes(tag.value)
        if tag.key == "span.kind":
            kind = KINDS.get(value.strip(b'"').lower(), 0)
        elif tag.key in ("error", "otel.status_code"):
            failed |= value.lower() in TRUE or value == b'"ERROR"'
    return kind, failed


def _parent(span: _Span, trace: str) -> tuple[str, bool]:
    """The span above, and whether this one only follows from it: nobody waits for it then."""
    own = span.traceID or trace
    references = [one for one in span.references or () if one.traceID in ("", own)]
    child = next((one.spanID for one in references if one.refType != "FOLLOWS_FROM"), "")
    if child or span.parentSpanID:
        return child or span.parentSpanID or "", False
    return (references[0].spanID, True) if references else ("", False)


def _service(process: _Process) -> Service:
    tags = {tag.key: text_of(scalar(tag.value)) for tag in process.tags}
    return Service(process.serviceName or "unknown service", _first(tags, INSTANCE), _first(tags, HOST))


def _first(tags: dict[str, str], keys: Iterable[str]) -> str:
    return next((tags[key] for key in keys if tags.get(key)), "")
