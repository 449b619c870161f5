"""What the lines of a device are: the work itself, or the same time repeated as modules, steps, ops of a framework.

On GPUs the streams are the work and all other lines are made from them. On TPUs the line of XLA ops is the work; transfers
that run beside it have a line of their own. A device of another kind has whatever lines it has.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

_DEVICE = re.compile(r"/device:([A-Za-z]\w*):(\d{1,6})(?:\s+(SparseCore \d{1,3}|.{1,200}))?")
# Kind, number and part of a device; what has no number is none (``/device:CUSTOM:Megascale Trace``).
_STREAM = re.compile(r"Stream #(\w{1,20})")
_OPS, _ASYNC, _STEPS, _MODULES = "XLA Ops", "Async XLA Ops", "Steps", "XLA Modules"
# Lines that repeat the time of others, summarise them, or hold counters.
_REPEATED = frozenset(
    {_STEPS, _MODULES, "XLA TraceMe", "Framework Ops", "Framework Name Scope", "TensorFlow Ops", "TensorFlow Name Scope"}
    | {"Source code", "Source", "Launch Stats", "_counters_", "Tensor Core", "HLO Ops", "Power", "Thread Blocks"}
)


class Role(enum.Enum):
    """What a line is to its device."""

    WORK = "work"
    BESIDE = "beside"
    """Transfers beside the work, which overlap one another."""
    STEPS = "steps"
    REPEATED = "repeated"


def roles(names: Sequence[str]) -> list[Role]:
    """The roles of the lines of one device."""
    found = [Role.STEPS if name == _STEPS else Role.REPEATED for name in names]
    streams = list(map(is_stream, names))
    if any(streams):
        work = streams
    elif _OPS in names:
        work = [name == _OPS for name in names]
        found = [Role.BESIDE if name == _ASYNC else role for name, role in zip(names, found, strict=True)]
    else:
        work = [name not in _REPEATED for name in names]
        if not any(work):  # nothing finer was recorded
            work = [name == _MODULES for name in names]
    return [Role.WORK if mine else role for mine, role in zip(work, found, strict=True)]


def is_host(plane: str) -> bool:
    """Whether a plane holds threads of the host."""
    return plane.startswith("/host:") and plane != "/host:metadata"


def device_of(plane: str) -> tuple[str, int, str] | None:
    """(kind, number, part) of the accelerator that a plane tells of; None for any other plane."""
    found = _DEVICE.fullmatch(plane)
    if found is None or found[1] == "CPU":
        return None
    return found[1], int(found[2]), found[3] if (found[3] or "").startswith("SparseCore") else ""


def wanted(plane: str, names: list[str]) -> list[bool]:
    """Which lines of a plane are to be decoded."""
    if device_of(plane):
        return [role is not Role.REPEATED for role in roles(names)]
    return [is_host(plane)] * len(names)


def is_stream(line: str) -> bool:
    """Whether a line is a stream of a GPU."""
    return _STREAM.match(line) is not None


def stream_of(line: str) -> str:
    """What to call the stream that a line is."""
    found = _STREAM.match(line)
    return found[1] if found else line
