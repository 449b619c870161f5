"""Threads of the host in a profile: calls that launched work on devices, marks of steps, and XLA ops that ran there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints
from taut.core.tables import NULL, Mark, Table
from taut.read.columns import Codes
from taut.read.step_marks import reaching
from taut.read.xplane.line_roles import is_host
from taut.read.xplane.space import Line, Plane, Space

STEP_LIMIT = 2**31
HALF = 0.5
_JITTED = re.compile(r"PjitFunction\((.{1,200})\)")
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Calls:
    """Calls of the host that launched device work, by the number that both carry."""

    number: Ints
    start: Ints
    end: Ints
    thread: Ints
    name: Ints
    threads: Sequence[str]
    names: Sequence[str]


def calls(space: Space) -> Calls:
    """The launching calls of all threads."""
    names, threads = Codes(), Codes()
    parts: list[tuple[Ints, ...]] = [(_NONE,) * 5]
    for plane in _hosts(space):
        for line in plane.lines:
            rows = np.flatnonzero(line.numbers["correlation_id"] > 0)
            if len(rows):
                code = names.of(plane.names)[line.name_of[rows]]
                thread = np.full(len(rows), threads[line.name])
                parts.append((line.numbers["correlation_id"][rows], line.start[rows], line.end[rows], thread, code))
    number, start, end, thread, code = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Calls(number, start, end, thread, code, list(map(str, threads)), list(map(str, names)))


def host_marks(space: Space, launched: Ints) -> Table:
    """Steps that the host marked: annotations with a step number, of the name that marks most of them.

    ``launched`` are the times of all launches, in order.
    """
    found: dict[tuple[str, str], tuple[Ints, Ints, Ints]] = {}
    for plane in _hosts(space):
        for line in plane.lines:
            rows = np.flatnonzero((line.numbers["step_num"] >= 0) & (line.numbers["step_num"] < STEP_LIMIT))
            for code in np.unique(line.name_of[rows]).tolist():
                mine = rows[line.name_of[rows] == code]
                key = line.name, plane.names[code]
                found[key] = line.numbers["step_num"][mine], line.start[mine], line.end[mine]
    if not found:
        return Table(Mark, {}, 0)
    usual = Counter({key: len(step) for key, (step, _, _) in found.items()}).most_common(1)[0][0]
    step, start, end = (column[np.argsort(found[usual][1], kind="stable")] for column in found[usual])
    # What follows a mark belongs to it up to the next one, and as much of it behind the last.
    return marks(step, start, reaching(start, end, launched, cut=False)[0])


def called_steps(space: Space, calls: Calls) -> tuple[Table, str]:
    """Calls of the jitted function that launched most of the work, as steps, and its name; none where none launched half."""
    most, best, named = HALF * len(calls.number), (_NONE, _NONE), ""
    threads = {name: code for code, name in enumerate(calls.threads)}
    for plane in _hosts(space):
        jitted = {code: found[1] for code, name in enumerate(plane.names) if (found := _JITTED.fullmatch(name))}
        for line in plane.lines if jitted else []:
            launched = np.sort(calls.start[calls.thread == threads.get(line.name, NULL)])
            for code in np.intersect1d(line.name_of, list(jitted)).tolist() if len(launched) else []:
                start, end = _outermost(line, np.flatnonzero(line.name_of == code))
                inside = int((np.searchsorted(launched, end) - np.searchsorted(launched, start)).sum())
                if inside > most:
                    most, named = inside, jitted[code]
                    best = start, reaching(start, end, launched, cut=False)[0]
    return marks(np.arange(len(best[0])), *best), named


def _outermost(line: Line, rows: Ints) -> tuple[Ints, Ints]:
    """(starts, ends) of those that lie inside no other, in order."""
    rows = rows[np.lexsort((-line.end[rows], line.start[rows]))]
    ended = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(line.end[rows])[:-1]])
    rows = rows[line.start[rows] >= ended]
    return line.start[rows], line.end[rows]


def marks(step: Ints, start: Ints, end: Ints) -> Table:
    """One mark a step, in order; each reaches to the next where that follows, and never beyond it."""
    order = np.argsort(start, kind="stable")
    order = order[np.sort(np.unique(step[order], return_index=True)[1])]  # the first of each number
    step, start, end = step[order], start[order], end[order]
    if len(step):
        following = np.diff(step) == 1
        end = np.append(np.where(following, start[1:], np.minimum(end[:-1], start[1:])), end[-1:])
    return Table(Mark, {"rank": np.full(len(step), NULL), "step": step, "start_ns": start, "end_ns": end}, len(step))


def _hosts(space: Space) -> Iterable[Plane]:
    return (plane for plane in space.planes if is_host(plane.name))


@dataclass(frozen=True)
class HostOps:
    """XLA ops that ran on threads of the host, of one device that the host stood in for."""

    device: int
    start: Ints
    end: Ints
    thread: Ints
    name: Ints
    """Index into the names."""
    threads: Sequence[str]
    names: Sequence[tuple[int, str]]
    """Number of the program and name of the instruction."""


def host_ops(space: Space) -> list[HostOps]:
    """The XLA ops of the host, device by device."""
    names, threads = Codes(), Codes()
    parts: list[tuple[Ints, ...]] = [(_NONE,) * 5]
    for plane in _hosts(space):
        for line in plane.lines:
            rows = np.flatnonzero((line.texts["hlo_op"] >= 0) & (line.end > line.start))
            if len(rows):
                thread = np.full(len(rows), threads[line.name])
                device = np.clip(line.numbers["device_ordinal"][rows], 0, 1 << 20)
                both = zip(line.numbers["program_id"][rows].tolist(), line.texts["hlo_op"][rows].tolist(), strict=True)
                named = names.of((program, plane.texts[op]) for program, op in both)
                parts.append((device, line.start[rows], line.end[rows], thread, named))
    device, start, end, thread, name = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = []
    for one in np.unique(device).tolist():
        mine = device == one
        found.append(HostOps(one, start[mine], end[mine], thread[mine], name[mine], list(map(str, threads)), list(names)))
    return found
