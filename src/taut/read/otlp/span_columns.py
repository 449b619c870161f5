"""OTLP/JSON → columns: one JSON line (or document) after the other, the attributes only of spans that need them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import InputRefused
from taut.read.contents import Facts, Service, Spans
from taut.read.otlp.span_facts import FAR_NS, Number, facts_of, scalar, text_of, whole

# Span kinds of OpenTelemetry; whatever else is internal.
SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5
_KINDS: dict[int | str | None, int] = {
    f"SPAN_KIND_{word}": kind
    for word, kind in (("SERVER", SERVER), ("CLIENT", CLIENT), ("PRODUCER", PRODUCER), ("CONSUMER", CONSUMER))
} | {kind: kind for kind in range(CONSUMER + 1)}
_ERRORS = (2, "2", "STATUS_CODE_ERROR")
# What is kept of the message of a failed span.
MESSAGE = 100
_NONE = msgspec.Raw(b"[]")
_NO_STATUS = msgspec.Raw(b"{}")


class Span(msgspec.Struct, gc=False):
    """One span, as far as taut uses it."""

    traceId: str = ""
    spanId: str = ""
    parentSpanId: str | None = None
    name: str | None = None
    kind: int | str | None = None
    startTimeUnixNano: Number = None
    endTimeUnixNano: Number = None
    attributes: msgspec.Raw = _NONE
    events: msgspec.Raw = _NONE
    links: msgspec.Raw = _NONE
    status: msgspec.Raw = _NO_STATUS


class Pair(msgspec.Struct, gc=False):
    """One attribute; its value is decoded where it is wanted."""

    key: str = ""
    value: msgspec.Raw = _NO_STATUS


class Value(msgspec.Struct, gc=False):
    """A plain attribute value."""

    stringValue: str | None = None
    intValue: Number = None
    doubleValue: Number = None


class Event(msgspec.Struct, gc=False):
    """An event inside a span."""

    name: str | None = None
    timeUnixNano: Number = None


class Link(msgspec.Struct, gc=False):
    """A span's reference to another."""

    traceId: str = ""
    spanId: str = ""


class Status(msgspec.Struct, gc=False):
    """How a span ended."""

    code: int | str | None = None
    message: str | None = None


class Resource(msgspec.Struct):
    """What emitted the spans."""

    attributes: list[Pair] = []


class Scope(msgspec.Struct):
    """Spans of one instrumentation library."""

    spans: list[Span] = []


class ResourceSpans(msgspec.Struct):
    """Spans of one service instance."""

    resource: Resource = msgspec.field(default_factory=Resource)
    scopeSpans: list[Scope] = []
    instrumentationLibrarySpans: list[Scope] = []


class Document(msgspec.Struct):
    """One export: what a line of the file holds."""

    resourceSpans: list[ResourceSpans] = []
    batches: list[ResourceSpans] = []
    """What Tempo calls them."""
    trace: Document | None = None
    """What Tempo puts around them."""

    @property
    def parts(self) -> list[ResourceSpans]:
        """The spans by service instance."""
        return self.resourceSpans or self.batches or (self.trace.resourceSpans or self.trace.batches if self.trace else [])


_DOCUMENT, _DOCUMENTS = msgspec.json.Decoder(Document), msgspec.json.Decoder(list[Document])
_PAIRS, _VALUE, _STATUS = msgspec.json.Decoder(list[Pair]), msgspec.json.Decoder(Value), msgspec.json.Decoder(Status)
_TABLE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_EVENTS, _LINKS = msgspec.json.Decoder(list[Event]), msgspec.json.Decoder(list[Link])


def decode(data: bytes | bytearray, label: str) -> Spans:
    """The spans of one file of JSON lines, or of one document."""
    out = Spans(label)
    start, end = list[Number](), list[Number]()
    for document in _documents(data, label, out.partial):
        for part in document.parts:
            service = len(out.services)
            out.services.append(_service(part.resource))
            for scope in (*part.scopeSpans, *part.instrumentationLibrarySpans):
                spans = scope.spans
                _add_columns(out, spans, service)
                _add_details(out, spans, len(out.span) - len(spans))
                start += [span.startTimeUnixNano for span in spans]
                end += [span.endTimeUnixNano for span in spans]
    if not out.span:
        raise InputRefused(label, "no spans in this file", "export traces, not only metrics or logs")
    out.start_ns, out.end_ns = _times(start), _times(end)
    return out


def _documents(whole: bytes | bytearray, label: str, partial: list[str]) -> Iterator[Document]:
    """Line by line where the first line is a document, else the whole as one."""
    ends, data = _line_ends(whole), memoryview(whole)
    first = _decoded(data[: ends[0]]) if len(ends) > 1 else None
    if first is None:
        yield from _whole(data, label)
        return
    yield first
    for number, (begin, end) in enumerate(itertools.pairwise(ends), 2):
        line = data[begin:end]
        document = _decoded(line)
        if document is not None:
            yield document
        elif bytes(line).strip():
            if number == len(ends):
                partial.append(f"{label} breaks off in its last line: that line is left out")
                return
            raise InputRefused(f"{label}:{number}", "not an OTLP/JSON line", "cut the file before this line")


def _line_ends(data: bytes | bytearray) -> list[int]:
    ends, at = [], data.find(b"\n") + 1
    while at:
        ends.append(at)
        at = data.find(b"\n", at) + 1
    return ends if ends and ends[-1] == len(data) else [*ends, len(data)]


def _decoded(line: memoryview) -> Document | None:
    try:
        return _DOCUMENT.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _whole(data: memoryview, label: str) -> list[Document]:
    try:
        if bytes(data[:64]).lstrip()[:1] == b"[":
            return _DOCUMENTS.decode(data)
        return [_DOCUMENT.decode(data)]
    except RecursionError:
        raise InputRefused(label, "nested too deeply", "export it again") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = f"not OTLP/JSON ({str(error)[:100]})"
        raise InputRefused(label, why, "export spans with the OTLP/JSON file exporter") from None


def _add_columns(out: Spans, spans: list[Span], service: int) -> None:
    """Append what every span has."""
    out.trace += [s.traceId for s in spans]
    out.span += [s.spanId for s in spans]
    out.parent += [s.parentSpanId or "" for s in spans]
    out.name += [s.name or "" for s in spans]
    out.kind += [_KINDS.get(s.kind, 0) for s in spans]
    out.failed += [len(s.status) > 2 and _failed(s.status) for s in spans]
    out.service += [service] * len(spans)


def _add_details(out: Spans, spans: list[Span], first: int) -> None:
    """Keep attributes, queue times and links of the spans, of which the first has this row; two bytes are an empty list."""
    kind, failed = out.kind, out.failed
    for row, s in enumerate(spans, first):
        if len(s.attributes) > 2:
            raw = bytes(s.attributes)
            if b"gen_ai." in raw or b"resend_count" in raw or b"openinference." in raw:
                known = out.facts[row] = facts(raw)
                if kind[row] < SERVER and known.calls_model:
                    kind[row] = CLIENT
            elif kind[row] == CLIENT or kind[row] == PRODUCER or failed[row]:
                out.raw[row] = raw
        if len(s.events) > 2 and b"queue" in bytes(s.events):
            _add_queue_time(out, row, s)
        if len(s.links) > 2:
            _add_link(out, row, s)
        if failed[row]:
            _add_message(out, row, s)


def _add_message(out: Spans, row: int, span: Span) -> None:
    """Keep what a failed span says of its failure, where no attribute names it."""
    if b'"message"' not in bytes(span.status):
        return
    known = out.facts.get(row) or facts(out.raw.get(row, b"[]"))
    if not known.error:
        known.error = text_of(_STATUS.decode(span.status).message)[:MESSAGE]
        out.facts[row] = known


def _failed(status: msgspec.Raw) -> bool:
    try:
        return _STATUS.decode(status).code in _ERRORS
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def facts(raw: bytes) -> Facts:
    """What attributes record, a list of pairs or (Zipkin) a table; nothing where they cannot be decoded."""
    try:
        if raw[:1] == b"{":
            return facts_of(_TABLE.decode(raw).items(), _plain)
        pairs = _PAIRS.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Facts()
    return facts_of([(pair.key, pair.value) for pair in pairs], _plain)


def _plain(raw: msgspec.Raw) -> Number:
    """The value of an attribute, None if it is a list or a table; plain text, which most are, is cut out of the JSON."""
    text = bytes(raw)
    if text[:1] != b"{":  # Jaeger's tags have bare values
        return scalar(text)
    if text.startswith(b'{"stringValue":"') and b"\\" not in text and text.count(b'"') == 4:
        return text[16:-2].decode("utf-8", "replace")
    try:
        value = _VALUE.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if value.stringValue is not None:
        return value.stringValue
    return value.intValue if value.intValue is not None else value.doubleValue


def _add_queue_time(out: Spans, row: int, span: Span) -> None:
    """Keep how long a span was queued: its time before the event with which it left the queue."""
    try:
        events = _EVENTS.decode(span.events)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
    for event in events:
        if event.name and "dequeue" in event.name.lower():
            waited = whole(event.timeUnixNano) - whole(span.startTimeUnixNano)
            if 0 < waited < FAR_NS:
                known = out.facts.setdefault(row, Facts())
                known.queued_ns = waited
            return


def _add_link(out: Spans, row: int, span: Span) -> None:
    """Keep the span that this one points at."""
    try:
        links = _LINKS.decode(span.links)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
    if len(links) == 1:  # several links are a batch, not a second attempt
        out.links[row] = links[0].traceId, links[0].spanId


def _times(values: list[Number]) -> Ints:
    try:
        times = np.array(list(map(int, values)), dtype=np.int64)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        times = np.array([whole(v) for v in values], dtype=np.int64)
    return np.where((times > 0) & (times < FAR_NS), times, -1)


_INSTANCE = ("service.instance.id", "k8s.pod.name", "container.id")
_HOST = ("host.id", "host.name", "k8s.node.name")


def _service(resource: Resource) -> Service:
    found = {pair.key: text_of(_plain(pair.value)) for pair in resource.attributes}
    host = next((found[key] for key in _HOST if found.get(key)), "")
    instance = next((found[key] for key in _INSTANCE if found.get(key)), "")
    if not instance:
        instance = "/".join(filter(None, (found.get("host.name") or host, found.get("process.pid"))))
    return Service(found.get("service.name") or "unknown service", instance, host)
