"""Events of the trace viewer's file of an XLA profile → its devices."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.columns import Codes
from taut.read.contents import Profile
from taut.read.kineto.json_events import Batch, Buffer, Event, args_of, slices
from taut.read.xplane.line_roles import wanted
from taut.read.xplane.profile_ranks import profile
from taut.read.xplane.space import EVENTS, FEWER, LIMIT, NUMBERS, TEXTS, Line, Plane, Space

VIEWED = 1_000_000
"""Events after which the viewer's file stops."""
DIGITS = 18
HOST = 200
"""Letters of a host's name, from its end, that are kept."""
_NAMES = ("process_name", "thread_name")
Value = str | int | float | None
Key = tuple[object, object]


class _Args(msgspec.Struct, gc=False):
    """What an event of the viewer tells; numbers are written as texts."""

    correlation_id: Value = None
    step_num: Value = None
    device_ordinal: Value = None
    program_id: Value = None
    hlo_op: Value = None
    memcpy_details: Value = None
    kernel_details: Value = None
    step_name: Value = None
    long_name: Value = None


class _Name(msgspec.Struct, gc=False):
    name: Value = None


def load_chunks(chunks: Iterator[bytes], label: str) -> Profile:
    """The devices of one file, from pieces of its text."""
    buffer = Buffer(chunks)
    try:
        space = _space(slices(buffer), label)
    except (RecursionError, OverflowError) as error:
        raise TooLarge(label, str(error) if isinstance(error, OverflowError) else "nested too deeply to be a trace") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        size = buffer.passed + len(buffer.bytes) - buffer.at
        broken = "truncated" in str(error)
        why = f"the JSON breaks off at byte {size:,}" if broken else f"not valid trace JSON: {error}"
        raise InputRefused(label, why, "write the trace again, or leave this file out") from None
    found = profile(space)
    found.viewed = True
    return found


def _space(batches: Iterator[Batch], label: str) -> Space:
    columns = _Columns(label)
    for _, batch, odd in batches:
        columns.space.counts["events"] += len(batch) + odd
        columns.space.counts["dropped: not an event"] += odd
        if columns.space.counts["events"] > EVENTS:
            raise TooLarge(label, f"more than {EVENTS:,} events", FEWER)
        columns.add(batch)
    return columns.finish()


def _hosts(label: str) -> list[str]:
    """The host that a file is of, which the profiler names it after; none if it has another name."""
    whole = label.removesuffix(".gz")
    path = whole.removesuffix(".trace.json")
    host = path[max(map(path.rfind, "/\\:")) + 1 :][-HOST:]
    return [host] if host and path != whole else []


class _Columns:
    """Grows the lines of all processes batch by batch."""

    def __init__(self, label: str) -> None:
        self.space = Space(label, hosts=_hosts(label))
        self._lines, self._names, self._texts = Codes(), Codes(), Codes()
        self._long: dict[int, str] = {}
        self._titles: dict[tuple[str, Key], str] = {}
        self._parts: list[Ints] = []

    def add(self, events: list[Event]) -> None:
        self._title([event for event in events if event.ph == "M" and event.name in _NAMES])
        found = [event for event in events if event.ph == "X"]
        start, end, good = self._times(found)
        found = [event for event, usable in zip(found, good.tolist(), strict=True) if usable]
        line = self._lines.of((event.pid, event.tid) for event in found)
        name = self._names.of((event.name or "") for event in found)
        args = args_of(found, _Args)
        for code, one in zip(name.tolist(), args, strict=True):
            if one.long_name is not None:
                self._long.setdefault(code, str(one.long_name)[:4096])
        numbers = [_numbers([getattr(one, key) for one in args]) for key in NUMBERS]
        texts = [self._coded([getattr(one, key) for one in args]) for key in TEXTS]
        self._parts.append(np.array([line, name, start, end, *numbers, *texts]).reshape(4 + len(NUMBERS) + len(TEXTS), -1))

    def _title(self, events: list[Event]) -> None:
        for event, args in zip(events, args_of(events, _Name), strict=True):
            key = event.pid, event.tid if event.name == "thread_name" else None
            self._titles[str(event.name), key] = str(args.name or "")[:200]

    def _times(self, events: list[Event]) -> tuple[Ints, Ints, Mask]:
        """Start and end in ns of the events whose times can be used, and which those are."""
        ts, dur = (np.array([getattr(e, key) for e in events], dtype=np.float64) for key in ("ts", "dur"))
        with np.errstate(invalid="ignore", over="ignore"):
            good = np.isfinite(ts) & (dur >= 0) & (np.abs(ts) * 1e3 + dur * 1e3 < LIMIT)
        self.space.counts["dropped: no time or duration"] += int((~good).sum())
        whole = np.floor(ts[good])
        # A time of the calendar in ns exceeds 53 bits: whole and broken microseconds are scaled apart.
        start = whole.astype(np.int64) * 1000 + np.rint((ts[good] - whole) * 1000).astype(np.int64)
        return start, start + np.rint(dur[good] * 1000).astype(np.int64), good

    def _coded(self, values: list[Value]) -> Ints:
        codes = self._texts
        return np.array([NULL if value is None else codes[str(value)[:4096]] for value in values], dtype=np.int64)

    def finish(self) -> Space:
        """All lines of the processes that tell of devices and of hosts."""
        table = np.concatenate(self._parts, axis=1) if self._parts else np.zeros((4 + len(NUMBERS) + len(TEXTS), 0), np.int64)
        names, texts = list(map(str, self._names)), list(map(str, self._texts))
        programs = [self._long.get(code, name) for code, name in enumerate(names)]
        order = np.argsort(table[0], kind="stable")
        begins = np.searchsorted(table[0][order], np.arange(len(self._lines) + 1))
        planes: dict[object, list[tuple[str, Ints]]] = {}
        for code, (pid, tid) in enumerate(self._lines):
            title = self._titles.get(("thread_name", (pid, tid)), str(tid)[:200])
            planes.setdefault(pid, []).append((title, order[begins[code] : begins[code + 1]]))
        for pid, lines in planes.items():
            plane = Plane(self._titles.get(("process_name", (pid, None)), ""), names=names, programs=programs, texts=texts)
            chosen = wanted(plane.name, [title for title, _ in lines])
            plane.lines = [_line(title, table[:, rows]) for (title, rows), yes in zip(lines, chosen, strict=True) if yes]
            left = sum(len(rows) for (_, rows), yes in zip(lines, chosen, strict=True) if not yes)
            self.space.counts["dropped: lines that repeat the time of others"] += left
            self.space.planes.append(plane)
        if self.space.counts["events"] >= VIEWED:
            self.space.notes.append(f"the trace viewer's file stops at {VIEWED:,} events: give the .xplane.pb beside it")
        return self.space


def _line(title: str, columns: Ints) -> Line:
    _, name, start, end, *rest = columns
    return Line(
        title, start, end, name, dict(zip(NUMBERS, rest, strict=False)), dict(zip(TEXTS, rest[len(NUMBERS) :], strict=True))
    )


def _numbers(values: list[Value]) -> Ints:
    """Whole numbers, or the texts of some; -1 for anything else."""
    return np.array([NULL if value is None else _number(value) for value in values], dtype=np.int64)


def _number(value: Value) -> int:
    if isinstance(value, str):
        return int(value) if len(value) <= DIGITS and value.isdecimal() and value.isascii() else NULL
    return value if type(value) is int and abs(value) < LIMIT else NULL
