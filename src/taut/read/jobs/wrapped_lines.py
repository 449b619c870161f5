"""Plain lines that a container runtime or journald wrapped in JSON, a line each: unwrapped, with their time in front."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import UNSET, DecodeError, Struct, UnsetType, field
from msgspec.json import Decoder

_DOCKER = re.compile(rb'\s*\{"log":"')
_JOURNAL = re.compile(rb'\s*\{[^\n]{0,4000}"(?:__REALTIME_TIMESTAMP|MESSAGE)"\s{0,4}:')


class _Line(Struct):
    log: str | UnsetType = UNSET
    time: str = ""
    message: str | UnsetType = field(default=UNSET, name="MESSAGE")
    micros: str = field(default="", name="__REALTIME_TIMESTAMP")


def sniff(head: bytes) -> bool:
    """Whether the first line is one of Docker's ``json-file`` or of ``journalctl -o json``."""
    return _DOCKER.match(head) is not None or _JOURNAL.match(head) is not None


def plain(data: bytes) -> bytes:
    """The lines themselves; what is not wrapped stays as it is."""
    if not sniff(data[:8192]):
        return data
    decoder, out = Decoder(_Line), []
    for raw in bytes(data).split(b"\n"):
        try:
            line = decoder.decode(raw)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            continue  # torn, or binary
        text = line.log if line.log is not UNSET else line.message
        if text is not UNSET:
            out.append(f"{line.time or _iso(line.micros)} {text.rstrip()}")
    return "\n".join(out).encode("utf-8", "replace")


def _iso(micros: str) -> str:
    if not micros.isdecimal() or len(micros) > 17:
        return ""
    return datetime.fromtimestamp(int(micros) / 1e6, tz=UTC).isoformat()
