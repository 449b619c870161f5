"""XLA profiles for the tests: a few lines of protobuf's wire format, and small jobs on GPUs and TPUs."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass, field
from typing import Any

US = 1_000
"""One microsecond in ns."""


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def put(number: int, value: int | bytes | str | float) -> bytes:
    """One field; numbers that are 0 are left out, as protobuf does."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


@dataclass
class Event:
    """One event; times in ns of the file."""

    name: str
    start: int
    duration: int
    stats: dict[str, Any] = field(default_factory=dict)
    shown: str = ""


@dataclass
class Line:
    """A thread, a stream, or a line that tells the same again."""

    name: str
    events: list[Event]
    timestamp_ns: int = 0


@dataclass
class Ref:
    """A text that is written as a reference to the name of a statistic."""

    text: str


class _Numbers(dict[Any, int]):
    def __missing__(self, key: Any) -> int:
        self[key] = len(self) + 1
        return self[key]


def plane(name: str, *lines: Line, **about: Any) -> bytes:
    """One plane with the dictionaries that its events need."""
    names, stats = _Numbers(), _Numbers()

    def stat(key: str, value: Any) -> bytes:
        number = {int: 4, float: 2, str: 5, Ref: 7, bytes: 6}[type(value)]
        return put(1, stats[key]) + put(number, stats[value.text] if isinstance(value, Ref) else value)

    def event(one: Event, origin: int) -> bytes:
        held = put(1, names[one.name, one.shown]) + put(2, (one.start - origin) * 1000) + put(3, one.duration * 1000)
        return held + b"".join(put(4, stat(key, value)) for key, value in one.stats.items())

    body = b""
    for number, one in enumerate(lines, 1):
        events = b"".join(put(4, event(e, one.timestamp_ns)) for e in one.events)
        body += put(3, put(1, number) + put(2, one.name) + put(3, one.timestamp_ns) + events)
    details = b"".join(put(6, stat(key, value)) for key, value in about.items())
    for (text, shown), number in names.items():
        metadata = put(1, number) + put(2, text) + (put(4, shown) if shown else b"")
        body += put(4, put(1, number) + put(2, metadata))
    for text, number in stats.items():
        body += put(5, put(1, number) + put(2, put(1, number) + put(2, text)))
    return put(1, 1) + put(2, name) + body + details


def module(number: int, *instructions: bytes) -> bytes:
    """The plane of metadata with one HLO module in it."""
    held = put(1, "jit_train") + put(3, put(1, "main") + b"".join(put(2, one) for one in instructions))
    entry = put(1, number) + put(2, f"jit_train({number})") + put(5, put(1, 1) + put(6, put(1, held)))
    return put(2, "/host:metadata") + put(4, put(1, number) + put(2, entry)) + put(5, put(1, 1) + put(2, put(2, "Hlo Proto")))


def instruction(name: str, opcode: str, elements: int, groups: bytes = b"") -> bytes:
    """An instruction of 32-bit floats; ``groups`` are fields as HLO writes them."""
    shape = put(2, 11) + put(3, varint(elements))
    return put(1, name) + put(2, opcode) + put(3, shape) + groups


def listed(*groups: tuple[int, ...]) -> bytes:
    """Groups of replicas, one after the other."""
    return put(87, b"".join(put(1, put(1, bytes(group))) for group in groups))


def counted(groups: int, each: int, dims: tuple[int, ...], order: tuple[int, ...]) -> bytes:
    """Groups of replicas counted through a grid."""
    return put(87, put(2, put(1, groups) + put(2, each) + put(3, bytes(dims)) + put(4, bytes(order))))


def meshed(sizes: tuple[int, ...], axes: tuple[int, ...]) -> bytes:
    """Groups of replicas along axes of a mesh."""
    mesh = b"".join(put(1, put(1, f"axis_{k}") + put(2, size)) for k, size in enumerate(sizes))
    return put(93, put(1, mesh) + b"".join(put(2, put(1, axis)) for axis in axes))


def space(*planes: bytes, host: str = "node0", start_ns: int = 0, stop_ns: int = 0) -> bytes:
    """A whole file."""
    task = [plane("Task Environment", profile_start_time=start_ns, profile_stop_time=stop_ns)] if start_ns else []
    return b"".join(put(1, one) for one in [*planes, *task]) + (put(4, host) if host else b"")


def gpu_job(devices: int = 2, steps: int = 4, slow: int = 0, host: str = "node0") -> bytes:
    """GPUs of one process: a kernel, an all-reduce that all wait for, a copy; one device computes longer than the others.

    A step takes a millisecond, the host launches half a millisecond ahead, and derived lines repeat the streams.
    """
    planes, calls = [], []
    for device in range(devices):
        compute, copies, modules = [], [], []
        for step in range(steps):
            at, work = 1000 * US * (step + 1), 600 * US if device == slow else 300 * US
            number = 100 * (step * devices + device) + 1
            hlo = {"hlo_module": Ref("jit_train"), "program_id": 7}
            compute.append(Event("loop_fusion_1", at, work, {"correlation_id": number, "hlo_op": Ref("loop_fusion.1"), **hlo}))
            met = {"correlation_id": number + 1, "hlo_op": Ref("all-reduce-start.1"), **hlo}
            compute.append(Event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + work, 700 * US - work, met))
            details = {"correlation_id": number + 2, "memcpy_details": "kind_src:pinned size:4096 dest:0 async:1"}
            copies.append(Event("MemcpyH2D", at + 750 * US, 100 * US, details))
            modules.append(Event("jit_train(7)", at, 900 * US))
            before = at - 500 * US + 10 * US * device
            for k, name in enumerate(("cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyHtoDAsync")):
                calls.append(Event(name, before + 2 * US * k, US, {"correlation_id": number + k}))
        lines = [Line("Stream #13(Compute)", compute), Line("Stream #14(MemcpyH2D)", copies), Line("XLA Modules", modules)]
        planes.append(plane(f"/device:GPU:{device}", *lines, device_vendor="Nvidia"))
    marked = [Event("train", 1000 * US * (s + 1) - 510 * US, 300 * US, {"step_num": s + 5}) for s in range(steps)]
    python = Line("python", [Event("$loop.py:1 main", 0, 1000 * US), *marked])
    threads = plane("/host:CPU", python, Line("Host Threads/1", sorted(calls, key=lambda e: e.start)))
    return space(threads, *planes, host=host, start_ns=10**18, stop_ns=10**18 + 10**10)


HLO = "%{0} = f32[1024]{{0}} {1}(f32[1024]{{0}} %x), channel_id=1, replica_groups={2}, to_apply=%add"


def tpu_job(devices: int = 2, steps: int = 3, beside: bool = True, groups: str = "{{0,1}}") -> bytes:
    """TPUs: a loop around two fusions, an all-reduce in flight under the second, its end awaited; steps on the device."""
    planes = []
    for device in range(devices):
        ops, flights, marks = [], [], []
        for step in range(steps):
            at = 1000 * US * step + 10 * US
            late = 50 * US * device
            ops.append(Event("%while.1 = (f32[]) while(%t)", at, 900 * US, shown="while.1"))
            ops.append(Event("%fusion.1 = f32[8]{0} fusion(%p)", at, 300 * US + late, shown="fusion.1"))
            begun = at + 300 * US + late
            reduce = HLO.format("all-reduce-start.1", "all-reduce-start", groups)
            ops.append(Event(reduce, begun, 10 * US, shown="all-reduce-start.1"))
            ops.append(Event("%fusion.2 = f32[8]{0} fusion(%p)", begun + 10 * US, 200 * US, shown="fusion.2"))
            done = HLO.format("all-reduce-done.1", "all-reduce-done", groups)
            ops.append(Event(done, begun + 210 * US, at + 800 * US - begun - 210 * US, shown="all-reduce-done.1"))
            flights.append(Event(reduce, begun, at + 800 * US - begun, shown="all-reduce-start.1"))
            marks.append(Event(str(step), at, 900 * US, {"step_name": str(step)}))
        lines = [Line("Steps", marks), Line("XLA Modules", marks), Line("XLA Ops", ops)]
        lines += [Line("Async XLA Ops", flights)] if beside else []
        planes.append(plane(f"/device:TPU:{device}", *lines, device_type_string="TPU v4"))
    return space(*planes, plane("/host:CPU", Line("python", [])))


def as_viewed(data: bytes) -> bytes:
    """The same profile as the trace viewer's file has it."""
    from taut.read.xplane.space import decode

    events: list[dict[str, Any]] = []
    for pid, one in enumerate(decode(data, "a", lambda _, names: [True] * len(names)).planes, 1):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": one.name}})
        for tid, line in enumerate(one.lines, 1):
            events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": line.name}})
            for k in range(len(line)):
                args = {key: str(v[k]) for key, v in line.numbers.items() if v[k] >= 0}
                args |= {key: one.texts[v[k]] for key, v in line.texts.items() if v[k] >= 0}
                program = one.programs[line.name_of[k]]
                args |= {"long_name": program} if " = " in program else {}
                at, name = int(line.start[k]), one.names[line.name_of[k]]
                dur = int(line.end[k] - line.start[k]) / 1000
                events.append({"ph": "X", "pid": pid, "tid": tid, "ts": at / 1000, "dur": dur, "name": name, "args": args})
    document = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}
    return gzip.compress(json.dumps(document).encode())
