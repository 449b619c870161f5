"""Ops of one rank under construction, and what readers of several formats need for them: messages, steps, ranks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taut.core.array_types import Column, Ints, Mask
from taut.core.device_words import LAUNCHES, on_device
from taut.core.ids import dense
from taut.core.tables import NULL, Kind, Op, Table, Verb, fields_of
from taut.read.columns import Codes, serialise
from taut.read.limits import RANKS
from taut.read.verb_words import HOPS

NAME_LENGTH = 200
_RANKS, _RANK = re.compile(r"\[[\d,\s]{0,8000000}\]"), re.compile(r"\d{1,9}")


class Message(NamedTuple):
    """What an op of communication does and with whom; -1 or empty where that is not recorded."""

    verb: Verb
    group: str = ""
    size: int = NULL
    peer: int = NULL
    seq: int = NULL
    part: int = NULL
    name: str = ""
    """The class of the op, where library and verb do not say it."""


class Rows:
    """Ops of one rank, block by block; ``launch`` counts rows over all blocks."""

    def __init__(self) -> None:
        self.names, self.lanes, self.groups = Codes(), Codes(), Codes()
        self.counts: Counter[str] = Counter()
        self.length = 0
        self._blocks: list[tuple[int, dict[str, Column | int]]] = []

    def add(self, start: Ints, end: Ints, **columns: Column | int) -> Ints:
        """Append ops and return their rows."""
        n = len(start)
        self._blocks.append((n, {"start_ns": start, "end_ns": end, **columns}))
        self.length += n
        return np.arange(self.length - n, self.length, dtype=np.int64)

    def add_messages(
        self, library: str, messages: Sequence[Message], start: Ints, end: Ints, lane: Ints, launch: Ints | int = NULL
    ) -> Ints:
        """Append ops of communication, one for each message, and return their rows."""
        numbers = [
            (self.names[one.name or f"{library} {one.verb.word if one.verb else 'collective'}"], one.verb, *one[2:6])
            for one in messages
        ]
        columns = np.array(numbers, dtype=np.int64).reshape(-1, 6).T
        named = dict(zip(("name", "verb", "size", "peer", "seq", "part"), columns, strict=True))
        group = np.array([self.groups[one.group] if one.group else NULL for one in messages], dtype=np.int64)
        return self.add(start, end, kind=Kind.COMMUNICATE, lane=lane, launch=launch, group=group, **named)

    def columns(self) -> dict[str, Ints]:
        """All blocks as one dictionary of columns, unknown values filled in; the blocks are used up."""
        columns = {}
        for name, column in fields_of(Op).items():
            columns[name] = np.full(self.length, column.default, dtype=column.dtype)
            at = 0
            for size, block in self._blocks:
                columns[name][at : at + size] = block.pop(name, column.default)
                at += size
        return columns

    def table(self, rank: int, marks: Table) -> Table:
        """The ops in order of lane and start, every lane serial, every op in its step."""
        columns = self.columns()
        # Sends and receives of one grouped call share an interval on purpose: only the first of them is made serial.
        first = _first_of_interval(columns)
        alone = np.flatnonzero(first == np.arange(self.length))
        lane, start, end = (columns[name][alone] for name in ("lane", "start_ns", "end_ns"))
        lane, end, counts = serialise(lane, start, end, self.lanes)
        columns["lane"][alone], columns["end_ns"][alone] = lane, end
        columns["lane"], columns["end_ns"] = columns["lane"][first], columns["end_ns"][first]
        self.counts.update(counts)
        launch = columns["launch"]
        columns["step"] = steps_at(columns["start_ns"], marks)
        # Work on a device belongs to the step in which it was launched, however late it runs.
        launched = np.flatnonzero(launch >= 0)
        columns["step"][launched] = columns["step"][launch[launched]]
        self._place_unlaunched(columns)
        columns["rank"][:] = rank
        order = np.lexsort((columns["end_ns"], columns["start_ns"], columns["lane"]))
        position = np.append(np.empty(self.length, dtype=np.int64), NULL)  # the last entry is for launch == -1
        position[order] = np.arange(self.length)
        columns["launch"] = position[launch]
        return Table(Op, {name: columns.pop(name)[order] for name in list(columns)}, self.length)

    def _place_unlaunched(self, columns: dict[str, Ints]) -> None:
        """Give device work whose launch was not recorded the step of what ran before it on its stream.

        A stream runs in the order of launches; what comes before all launches was launched before the recording.
        """
        device = on_device(list(map(str, self.lanes)))[columns["lane"]]
        known = columns["launch"] >= 0
        self.counts[LAUNCHES] += int((device & known).sum())
        if not (device & ~known).any() or not (device & known).any():
            return
        rows = np.flatnonzero(device)
        rows = rows[np.lexsort((columns["start_ns"][rows], columns["lane"][rows]))]
        lane, launched = columns["lane"][rows], known[rows]
        first = np.flatnonzero(np.diff(lane, prepend=NULL))
        begin = np.repeat(first, np.diff(np.append(first, len(rows))))
        last = np.maximum.accumulate(np.where(launched, np.arange(len(rows)), -1))
        step = np.where(last >= begin, columns["step"][rows[last]], NULL)
        columns["step"][rows[~launched]] = step[~launched]


def _first_of_interval(columns: dict[str, Ints]) -> Ints:
    """For each op the first send or receive of the same interval of its lane (parts of one grouped call), else itself."""
    first = np.arange(len(columns["lane"]))
    rows = np.flatnonzero(np.isin(columns["verb"], HOPS) & (columns["launch"] >= 0))
    keys = [columns[name][rows] for name in ("lane", "start_ns", "end_ns", "launch")]
    order = np.lexsort(keys)
    same = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    begins = np.flatnonzero(np.concatenate([[True], ~same])) if len(rows) else rows
    first[rows[order]] = rows[np.repeat(order[begins], np.diff(np.append(begins, len(rows))))]
    return first


def coded(codes: Codes, keys: Ints, text: Callable[[int], str]) -> Ints:
    """Codes of the texts that stand for some keys; each text is made once."""
    used, ids = dense(keys)
    return codes.of(map(text, used.tolist()))[ids]


def steps_at(at: Ints, marks: Table) -> Ints:
    """The step whose mark covers each time; -1 outside."""
    step = np.full(len(at), NULL, dtype=np.int64)
    if len(marks) and len(at):
        before = np.searchsorted(marks.start_ns, at, "right") - 1
        inside = (before >= 0) & (at < marks.end_ns[before])
        step[inside] = marks.step[before[inside]]
    return step


def rank_list(value: object) -> list[int]:
    """Ranks out of a list or out of its text ``"[0, 1]"``; empty where the text is abbreviated or wrong."""
    if isinstance(value, str):
        if "..." in value or not _RANKS.fullmatch(value):
            return []
        return [rank for digits in _RANK.findall(value) if (rank := int(digits)) < RANKS]
    listed = value if isinstance(value, list) else []
    return [rank for rank in listed if type(rank) is int and 0 <= rank < RANKS]


def after_device(start: Ints, end: Ints, waits: Mask, done: Ints) -> Ints:
    """When calls begin to do something of their own: one that waits for the device does so once the device is done.

    ``done`` are the ends of what ran on the device. Read as work of the host, the wait would keep a step as long as it was,
    however much sooner the device were done.
    """
    if not len(done):
        return start
    done = np.sort(done)
    before = np.searchsorted(done, end, "right") - 1
    return np.where(waits & (before >= 0), np.maximum(start, done[before]), start)


def issuer(calls: Ints, work: Ints) -> Ints:
    """For each piece of device work the index of the call with the same positive number, or -1."""
    if not len(calls):
        return np.full(len(work), -1, dtype=np.int64)
    order = np.argsort(calls, kind="stable")
    ordered = calls[order]
    at = np.minimum(np.searchsorted(ordered, work, "left"), len(calls) - 1)
    return np.where((ordered[at] == work) & (work > 0), order[at], -1)
