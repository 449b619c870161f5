"""PyTorch Kineto traces: one JSON file per rank and profiler cycle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from taut.core.array_types import Json
from taut.core.device_words import NO_DEVICE, UNREAD
from taut.core.errors import InputRefused
from taut.core.tables import NULL, MatrixWork, Member, Table, Trace
from taut.read.files import Member as File
from taut.read.host_ranges import host_ranges
from taut.read.json_values import integer
from taut.read.kineto.device_side import add_device_side, is_input
from taut.read.kineto.event_columns import Events, decode, decode_flow, shows_device
from taut.read.kineto.event_kinds import ANNOTATION, DEVICE, RUNTIME, UNUSED, is_checkpoint, is_comm, is_launch
from taut.read.kineto.event_ops import is_step, step_marks
from taut.read.kineto.host_collectives import add_host_collectives
from taut.read.kineto.host_side import add_host_side
from taut.read.kineto.json_events import Header, Piece
from taut.read.kineto.matrix_work import is_product_kernel
from taut.read.kineto.process_groups import Groups
from taut.read.kineto.reused_numbers import tell_apart
from taut.read.limits import RANKS
from taut.read.op_rows import Rows

# Up to this size a file is held whole: then what is wrong in it can be looked at from all sides.
WHOLE_BYTES = 64 << 20
BOM = b"\xef\xbb\xbf"
_KEYS = (
    b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"',
    b'"rocprofiler-sdk-tool"',
)  # fmt: skip
_EVENT_LIST = re.compile(rb'\s*\[\s*\{[^\]]{0,4096}?"ph"\s*:')
# How traces of other profilers begin: rocprof (whose first event is empty), rocprofv3, and the profiler before torch.profiler.
_ROCPROF = re.compile(rb'\s*\{\s*"(?:traceEvents"\s*:\s*\[\s*\{\s*\}\s*,|rocprofiler-sdk-tool")')
_AUTOGRAD = re.compile(rb'\s*\[\s*\{[^{]{0,4096}?"pid"\s*:\s*"C(?:PU|UDA) functions"')
RECORD = "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"


def sniff(head: bytes) -> bool:
    """A JSON object with the keys of a Chrome trace, or a bare list of its events."""
    text = head.removeprefix(BOM).lstrip()
    if text[:1] == b"{":
        return any(word in text for word in _KEYS)
    return _EVENT_LIST.match(text) is not None


def load(data: Piece, label: str) -> Trace:
    """The ops of one file; the rank is -1 where the trace does not name it."""
    return _trace([decode(_without_bom(data), label)], label)


def load_member(member: File) -> Trace:
    """The ops of one file, of any size: what is larger than can well be held is decoded while it flows."""
    _refuse_other_profilers(member)
    held = [member.front(WHOLE_BYTES + 1)]
    if len(held[0]) <= WHOLE_BYTES:
        return load(held.pop(), member.label)
    # Device events come late, and decide what is needed of the rest.
    device = shows_device([*member.samples(), *held])
    return flow(_handed(held, member.chunks(already=WHOLE_BYTES + 1)), member.label, device)


def _refuse_other_profilers(member: File) -> None:
    """Refuse by name what looks like a trace and tells neither launches nor collectives nor steps."""
    if _ROCPROF.match(member.head) and (b'"BeginNs"' in member.head or b'"rocprofiler-sdk-tool"' in member.head):
        why = "a trace of rocprof, which does not tell collectives and steps"
        raise InputRefused(member.label, why, f"{RECORD}, which records AMD's devices, too")
    if _AUTOGRAD.match(member.head):
        why = "an export of torch.autograd.profiler, which has no events of devices"
        raise InputRefused(member.label, why, RECORD)


def flow(chunks: Iterator[Piece], label: str, device: bool) -> Trace:
    """The ops of a file that is not held; ``device`` tells whether it seems to hold device events."""
    return _trace([decode_flow(chain([_without_bom(next(chunks, b""))], chunks), label, device)], label)


def _handed(held: list[memoryview], rest: Iterator[bytes]) -> Iterator[Piece]:
    """What is held and what comes after it; nobody keeps what was handed on."""
    yield held.pop()
    yield from rest


def _without_bom(data: Piece) -> Piece:
    return data[3:] if data[:3] == BOM else data


def _trace(decoded: list[Events], label: str) -> Trace:
    """A trace out of decoded events, which are taken from the list and let go before the ops are put in order."""
    events = decoded.pop()
    if not len(events.kind):
        raise _nothing(label, events.counts)
    tell_apart(events)
    header, counts = events.header, events.counts
    distributed: dict[str, Json] = header.distributedInfo if isinstance(header.distributedInfo, dict) else {}
    rank, world_size = integer(distributed.get("rank")), integer(distributed.get("world_size"))
    rank, world_size = (number if 0 <= number < RANKS else NULL for number in (rank, world_size))
    rows, groups = Rows(), Groups(distributed, events.comm.distinct)
    marks, notes = step_marks(events, rank, rows.counts)
    if events.has_device:
        add_device_side(events, rows, groups)
        add_host_collectives(events, rows, groups)
    else:
        add_host_side(events, rows, groups)
        rows.counts[NO_DEVICE] += len(events.chosen(RUNTIME, is_launch))
        unread = _unread(counts)
        rows.counts[UNREAD] += sum(unread.values())
    gpu = events.main_device()
    base = events.base
    matrix_work, ranges = _matrix_work(events, rank, marks), _ranges(events, rank, marks)
    del events
    ops = rows.table(rank, marks)
    counts += rows.counts
    if not len(ops):
        raise _nothing(label, counts)
    counts["ops"] = len(ops)
    backend = distributed.get("backend")
    return Trace(
        ops=ops,
        names=list(map(str, rows.names)),
        lanes=list(map(str, rows.lanes)),
        groups=list(map(str, rows.groups)),
        members=_member(header, rank, gpu, base),
        marks=marks,
        source=label,
        world_size=world_size if world_size > 0 else None,
        backend=backend if isinstance(backend, str) else "",
        group_ranks={name: ranks for name, ranks in groups.ranks.items() if ranks},
        partial=notes,
        counts=dict(counts),
        matrix_work=matrix_work,
        host_ranges=ranges,
    )


def _unread(counts: Mapping[str, int]) -> dict[str, int]:
    """Categories of dropped events that no version of PyTorch writes beside a device's, and how many of each there are."""
    dropped = {key.partition(": ")[2]: n for key, n in counts.items() if key.startswith("dropped: ") and n}
    return {category: n for category, n in dropped.items() if category.lower() not in UNUSED}


def _ranges(events: Events, rank: int, marks: Table) -> Table:
    """Annotations of the host that are no steps, waits for input or notes of collectives."""
    rows = events.chosen(ANNOTATION, lambda name: not (is_input(name) or is_comm(name) or is_checkpoint(name) or is_step(name)))
    rows = rows if events.has_device else rows[:0]
    found = host_ranges(events.names, events.name[rows], events.start[rows], events.end[rows], marks)
    return found.replace(rank=np.full(len(found), rank))


def _matrix_work(events: Events, rank: int, marks: Table) -> Table:
    """FLOPs by step, from operators of the host and what they launched."""
    if not events.matrix.start:
        return Table(MatrixWork, {}, 0)
    calls, work = events.rows(RUNTIME), events.rows(DEVICE)
    product = events.named(work, is_product_kernel)
    took = events.end[work] - events.start[work]
    by_calls = events.place[calls], events.start[calls], events.correlation[calls]
    return events.matrix.table(rank, by_calls, (events.correlation[work], took, product), marks)


def _nothing(label: str, counts: Mapping[str, int]) -> InputRefused:
    """The refusal of a trace without any op, which says what is in it instead."""
    why = "no operator events in this trace"
    if counts.get(NO_DEVICE):
        why += f": {counts[NO_DEVICE]:,} {NO_DEVICE}"
    unread = _unread(counts)
    if unread and not counts.get(NO_DEVICE):
        most = sorted(unread, key=lambda category: -unread[category])[:4]
        why += f": its events are of categories that are not known ({', '.join(repr(category[:40]) for category in most)})"
    return InputRefused(label, why, "profile with CPU or CUDA activities enabled")


def _member(header: Header, rank: int, gpu: int, base: int) -> Table:
    host = header.host_name if isinstance(header.host_name, str) else ""
    devices = header.deviceProperties if isinstance(header.deviceProperties, list) else []
    names = (device.get("name") for device in devices if isinstance(device, dict))
    device = next((name for name in names if isinstance(name, str)), "")
    text = {"host": np.array([host], dtype=object), "device": np.array([device], dtype=object)}
    return Table(Member, {"rank": np.array([rank]), "gpu": np.array([gpu]), "base_ns": np.array([base]), **text}, 1)
