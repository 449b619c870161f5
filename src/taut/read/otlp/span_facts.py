"""Attributes of a span → what taut uses of them, by the conventions of OpenTelemetry and of OpenInference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from taut.read.contents import Facts

# Times beyond this many ns are no times, and their sums would overflow.
FAR_NS = 4_000_000_000_000_000_000
MOST_QUEUED_S = 1e6
# What names the far end of a call that left no span of its own, the most specific first.
FAR = (
    "peer.service", "gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "embedding.model_name",
    "reranker.model_name", "db.system.name", "db.system", "messaging.destination.name", "rpc.service", "server.address",
    "net.peer.name", "gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system",
)  # fmt: skip
# Attributes by which two calls are known to ask the same; so are those that begin with one of GEN_AI_CONTENT.
CONTENT = frozenset(["url.full", "http.url", "http.target", "db.query.text", "db.statement", "rpc.method", "input.value"])
GEN_AI_CONTENT = ("gen_ai.input.", "gen_ai.prompt", "gen_ai.tool.call.arguments")
OPERATIONS = {
    "LLM": "chat", "EMBEDDING": "embeddings", "TOOL": "execute_tool", "RETRIEVER": "retrieval", "AGENT": "invoke_agent",
    "GENERATION": "chat",
}  # fmt: skip
"""Kinds of spans of OpenInference and Langfuse → operations of OpenTelemetry."""
MODEL_CALLS = frozenset({"LLM", "EMBEDDING", "GENERATION", "RERANKER"})
"""Those of which somebody else does the work."""

Number = int | str | float | None
T = TypeVar("T", bound=bytes)


def text_of(value: Number) -> str:
    """A name, cut."""
    return str(value)[:200] if isinstance(value, (str, int)) else ""


def whole(value: Number) -> int:
    """A count or a time out of a number or its text; -1 for anything else."""
    try:
        found = -1 if value is None else int(value)
    except (ValueError, OverflowError):
        return -1
    return found if 0 <= found < FAR_NS else -1


def _queued(seconds: Number) -> int:
    try:
        value = 0.0 if seconds is None else float(seconds)
    except (ValueError, OverflowError):
        return 0
    return round(value * 1e9) if 0 < value < MOST_QUEUED_S else 0


def _refused(status: Number) -> str:
    """A status of HTTP that is a failure."""
    return f"HTTP {status}" if whole(status) >= 400 else ""


FIELDS: dict[str, tuple[str, Callable[[Number], str | int]]] = {
    "gen_ai.operation.name": ("operation", text_of), "gen_ai.tool.name": ("tool", text_of), "error.type": ("error", text_of),
    "gen_ai.request.model": ("model", text_of),
    "http.request.resend_count": ("resend", lambda value: min(max(whole(value), 0), 1 << 30)),
    "gen_ai.usage.input_tokens": ("tokens_in", whole), "gen_ai.usage.prompt_tokens": ("tokens_in", whole),
    "gen_ai.usage.output_tokens": ("tokens_out", whole), "gen_ai.usage.completion_tokens": ("tokens_out", whole),
    "gen_ai.latency.time_in_queue": ("queued_ns", _queued),
}  # fmt: skip
LESSER: dict[str, tuple[str, Callable[[Number], str | int]]] = {
    "openinference.span.kind": ("operation", lambda value: OPERATIONS.get(str(value).upper(), "")),
    "tool.name": ("tool", text_of), "llm.model_name": ("model", text_of), "embedding.model_name": ("model", text_of),
    "llm.token_count.prompt": ("tokens_in", whole), "llm.token_count.completion": ("tokens_out", whole),
    "exception.type": ("error", text_of), "http.response.status_code": ("error", _refused),
    "http.status_code": ("error", _refused),
}  # fmt: skip
"""Attributes that say the same, where none of the others does."""
_FAR = {key: place for place, key in enumerate(FAR)}
_UNSET = ("", -1)


def facts_of(pairs: Iterable[tuple[str, T]], plain: Callable[[T], Number]) -> Facts:
    """What attributes record; ``plain`` decodes a value, None for a list or a table."""
    out, best = Facts(), len(FAR)
    content: list[bytes] = []
    lesser: list[tuple[str, T]] = []
    for key, raw in pairs:
        field_of = FIELDS.get(key)
        place = _FAR.get(key, best)
        if field_of is not None or place < best:
            value = plain(raw)
            if field_of is not None:
                setattr(out, field_of[0], field_of[1](value))
            if place < best and (text := text_of(value)):
                out.far, best = text, place
        elif key in CONTENT or key.startswith(GEN_AI_CONTENT):
            content.append(key.encode("utf-8", "replace") + b"\0" + bytes(raw))
        if key in LESSER:
            lesser.append((key, raw))
    for key, raw in lesser:
        name, turn = LESSER[key]
        if getattr(out, name) in _UNSET:
            setattr(out, name, turn(plain(raw)))
        out.calls_model |= key == "openinference.span.kind" and str(plain(raw)).upper() in MODEL_CALLS
    if content:
        out.content = content_of(content)
    return out


def content_of(parts: list[bytes]) -> int:
    """A number for what was asked: the same for the same."""
    digest = hashlib.blake2b(b"\0".join(sorted(parts)), digest_size=7).digest()
    return int.from_bytes(digest, "big") or 1  # 0 stands for nothing recorded


def scalar(raw: bytes) -> Number:
    """A number or a text of JSON; None for anything else."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return value if isinstance(value, (str, int, float)) else None
