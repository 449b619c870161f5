"""Spans of agents as JSON objects: OpenInference (Phoenix), Langfuse, LangSmith, OpenTelemetry's console exporter.

One object a line, one after the other, a list, or a page of an API (``{"data": […]}``). A generation, or a span of kind LLM or
EMBEDDING, is a call to its model, which becomes a far end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.read.actions.control_log import moments
from taut.read.contents import Facts, Service, Spans
from taut.read.json_fields import under
from taut.read.otlp.span_columns import CLIENT, CONSUMER, PRODUCER, SERVER
from taut.read.otlp.span_facts import MODEL_CALLS, OPERATIONS, Number, content_of, facts_of, scalar, text_of, whole

BOM = b"\xef\xbb\xbf"
KINDS = {"SERVER": SERVER, "CLIENT": CLIENT, "PRODUCER": PRODUCER, "CONSUMER": CONSUMER}
NOBODY = "application"
"""The service of spans that name none."""
WANTED = frozenset(
    {
        "llm",
        "input",
        "tool",
        "openinference",
        "gen_ai",
        "embedding",
        "reranker",
        "error",
        "exception",
        "http",
        "url",
        "db",
        "server",
        "net",
        "peer",
    }
)
"""First words of attributes that are looked at."""
DEPTH = 6
_NULL = msgspec.Raw(b"null")
_TYPE = re.compile(
    rb'"type"\s*+:\s*+"(?:GENERATION|SPAN|EVENT|AGENT|TOOL|CHAIN|RETRIEVER|EMBEDDING|EVALUATOR|GUARDRAIL)"', re.IGNORECASE
)
_TRACE = re.compile(rb'"(?:context\.)?trace_?[iI]d"\s*+:')
_SPAN = re.compile(rb'"(?:context\.)?span_id"\s*+:')
_START = re.compile(rb'"start_?[tT]ime"\s*+:')
_TRACES = re.compile(rb'"(?:observations|htmlPath)"\s*+:')
_DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Context(msgspec.Struct, gc=False):
    trace_id: str = ""
    span_id: str = ""


class _Usage(msgspec.Struct, gc=False):
    input: Number = None
    output: Number = None
    promptTokens: Number = None
    completionTokens: Number = None
    prompt_tokens: Number = None
    completion_tokens: Number = None
    input_tokens: Number = None
    output_tokens: Number = None


class _Row(msgspec.Struct):
    """A span of Phoenix or of the console exporter, an observation of Langfuse, or a page of them."""

    name: str | None = None
    context: _Context | None = None
    flat_trace: str | None = msgspec.field(default=None, name="context.trace_id")
    flat_span: str | None = msgspec.field(default=None, name="context.span_id")
    id: Json = None
    span_id: str | None = None
    traceId: str | None = None
    trace_id: str | None = None
    parent_id: str | None = None
    parentObservationId: str | None = None
    parent_observation_id: str | None = None
    kind: Json = None
    span_kind: Json = None
    type: Json = None
    start_time: Json = None
    end_time: Json = None
    startTime: Json = None
    endTime: Json = None
    status: Json = None
    status_code: Json = None
    status_message: Json = None
    statusMessage: Json = None
    level: Json = None
    attributes: msgspec.Raw = _NULL
    resource: msgspec.Raw = _NULL
    metadata: msgspec.Raw = _NULL
    model: Json = None
    providedModelName: Json = None
    provided_model_name: Json = None
    usage: msgspec.Raw = _NULL
    usageDetails: msgspec.Raw = _NULL
    usage_details: msgspec.Raw = _NULL
    input: msgspec.Raw = _NULL
    error: Json = None
    run_type: Json = None
    parent_run_id: str | None = None
    prompt_tokens: Number = None
    completion_tokens: Number = None
    observations: msgspec.Raw = _NULL
    data: msgspec.Raw = _NULL
    spans: msgspec.Raw = _NULL


def sniff(head: bytes) -> bool:
    """Objects with the ids and times of a span in one of these spellings, or traces of Langfuse."""
    text = head.removeprefix(BOM).lstrip()
    if text[:1] not in (b"{", b"[") or b'"resourceSpans"' in text[:4096]:
        return False
    if _TRACES.search(text) and re.search(rb'"(?:timestamp|projectId)"\s*+:', text):
        return True
    if not _TRACE.search(text) or not _START.search(text):
        return False
    keys = (b'"parentObservationId"', b'"parent_observation_id"', b'"parent_run_id"')
    observed = _TYPE.search(text) is not None or any(key in text for key in keys)
    return observed or (_SPAN.search(text) is not None and b'"parent_id"' in text)


def load(data: bytes, label: str) -> Spans:
    """The spans of one file."""
    out, rows = Spans(label), []
    services: dict[Service, int] = {}
    for row in _rows(bytes(data).removeprefix(BOM), label, out.partial):
        if _text(row.type).upper() != "EVENT":
            _add(out, row, services)
            rows.append(row)
    if not rows:
        why = (
            "traces of Langfuse without their observations" if _TRACES.search(bytes(data[:65536])) else "no spans in this file"
        )
        raise InputRefused(label, why, "export observations: /api/public/observations, or traces with them")
    out.services = list(services)
    out.start_ns = moments([_text(row.start_time or row.startTime) for row in rows])[0]
    out.end_ns = moments([_text(row.end_time or row.endTime) for row in rows])[0]
    return out


def _rows(data: bytes, label: str, partial: list[str]) -> Iterator[_Row]:
    """The spans of a list, of a page, of traces, of lines, or of objects one after the other."""
    try:
        yield from _unfolded(msgspec.json.decode(data, type=list[_Row] | _Row))
        return
    except _DAMAGE as error:
        if b"\n{" not in data:
            why = f"not readable as spans ({str(error)[:100]})"
            raise InputRefused(label, why, "export it again, as JSON or JSON lines") from None
    decoder = msgspec.json.Decoder(_Row)
    parts = re.split(rb"\n(?=\{)", data.strip())
    for number, part in enumerate(parts, 1):
        try:
            yield from _unfolded(decoder.decode(part))
        except _DAMAGE:
            if number < len(parts):
                raise InputRefused(f"{label}, object {number}", "not readable as a span", "cut the file before it") from None
            partial.append(f"{label} breaks off in its last span: that span is left out")


def _unfolded(found: list[_Row] | _Row) -> Iterator[_Row]:
    for row in found if isinstance(found, list) else [found]:
        inner = [part for part in (row.data, row.spans, row.observations) if _opens(part, b"[")]
        if not inner or row.startTime or row.start_time:
            if row.startTime or row.start_time:
                yield row
            continue
        for part in inner:
            if bytes(part).lstrip(b"[ \n\t")[:1] == b"{":
                yield from _unfolded(msgspec.json.decode(part, type=list[_Row]))


def _add(out: Spans, row: _Row, services: dict[Service, int]) -> None:
    at = len(out.span)
    trace, span, parent = _ids(row)
    kind = KINDS.get(_text(row.kind).rpartition(".")[2].rpartition("_")[2].upper(), 0) if row.kind is not None else 0
    said = _kind_of_work(row)
    failed = _failed(row)
    known = _facts(row, said.upper())
    if known.calls_model and not kind:
        kind = CLIENT
    if failed and not known.error:
        known.error = _error(row)
    service = services.setdefault(_service(row), len(services))
    out.trace.append(trace)
    out.span.append(span or f"span {at}")
    out.parent.append(parent)
    out.name.append(row.name or said.lower() or "span")
    out.kind.append(kind)
    out.failed.append(failed)
    out.service.append(service)
    if known != Facts():
        out.facts[at] = known


def _ids(row: _Row) -> tuple[str, str, str]:
    """Ids of the trace, of the span and of the one above it, in whichever spelling they come; empty without one."""
    context = row.context or _Context()
    return (
        context.trace_id or row.traceId or row.trace_id or row.flat_trace or "",
        context.span_id or row.flat_span or row.span_id or _text(row.id),
        row.parent_id or row.parentObservationId or row.parent_observation_id or row.parent_run_id or "",
    )


def _kind_of_work(row: _Row) -> str:
    """What kind of work a span says it is."""
    return _text(row.type) or _text(row.run_type) or ("" if _text(row.span_kind).upper() in KINDS else _text(row.span_kind))


def _error(row: _Row) -> str:
    """What a span that failed says of it."""
    words = (row.statusMessage, row.status_message, row.error, under(row.status, "description"))
    return next((_text(word)[:100] for word in words if _text(word)), "")


def _failed(row: _Row) -> bool:
    if row.status is None and row.status_code is None:
        return row.level == "ERROR" or bool(row.run_type and row.error)
    words = (row.status_code, row.level, row.status, under(row.status, "status_code"), under(row.status, "code"))
    return any(_text(word).rpartition(".")[2].upper() in ("ERROR", "STATUS_CODE_ERROR") for word in words)


def _facts(row: _Row, said: str) -> Facts:
    known = facts_of(_flat(row.attributes, "", 0), scalar) if len(row.attributes) > 4 else Facts()
    if said:
        known.operation = known.operation or OPERATIONS.get(said, "")
        known.calls_model |= said in MODEL_CALLS
    model = _text(row.model or row.providedModelName or row.provided_model_name)
    known.model, known.far = known.model or model, known.far or model
    for used in (row.usageDetails, row.usage_details, row.usage):
        if len(used) > 4:
            _add_tokens(known, used)
    known.tokens_in = known.tokens_in if row.prompt_tokens is None else whole(row.prompt_tokens)
    known.tokens_out = known.tokens_out if row.completion_tokens is None else whole(row.completion_tokens)
    if len(row.input) > 4 and not known.content and known.operation:
        known.content = content_of([b"input.value\0" + bytes(row.input)])
    return known


def _add_tokens(known: Facts, used: bytes) -> None:
    try:
        count = msgspec.json.decode(used, type=_Usage)
    except _DAMAGE:
        return
    if known.tokens_in < 0:
        known.tokens_in = whole(_first(count.input, count.promptTokens, count.prompt_tokens, count.input_tokens))
    if known.tokens_out < 0:
        known.tokens_out = whole(_first(count.output, count.completionTokens, count.completion_tokens, count.output_tokens))


def _opens(raw: bytes, sign: bytes) -> bool:
    return memoryview(raw)[:1].tobytes() == sign


def _first(*values: Number) -> Number:
    return next((value for value in values if value is not None), None)


def _flat(raw: bytes, prefix: str, depth: int) -> Iterator[tuple[str, msgspec.Raw]]:
    """Attributes with dots in the place of what is nested."""
    if not _opens(raw, b"{") or depth > DEPTH:
        return
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except _DAMAGE:
        return
    for key, value in found.items():
        if prefix or key.partition(".")[0] in WANTED:
            if _opens(value, b"{"):
                yield from _flat(value, f"{prefix}{key}.", depth + 1)
            else:
                yield f"{prefix}{key}", value


def _service(row: _Row) -> Service:
    """Who emitted a span: its resource, or what Langfuse keeps of that."""
    for raw, path in ((row.resource, ("attributes",)), (row.metadata, ("resourceAttributes",))):
        if b"service.name" in bytes(raw):
            try:
                found = under(msgspec.json.decode(raw), *path)
            except _DAMAGE:
                continue
            if isinstance(found, dict):
                name, instance = _text(found.get("service.name")), _text(found.get("service.instance.id"))
                return Service(name or NOBODY, instance, _text(found.get("host.name")))
    return Service(NOBODY, "", "")


def _text(value: Json) -> str:
    return text_of(value) if isinstance(value, (str, int)) else str(value) if isinstance(value, float) else ""
