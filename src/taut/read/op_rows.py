"""What the device and the host side of a Kineto trace share: rows under construction, process groups, steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from taut.core.tables import NULL, Kind, Mark, Op, Table, Verb
from taut.read.columns import Codes, Ints, serialise
from taut.read.kineto.event_columns import NOTE, Events
from taut.read.kineto.json_events import CommArgs, integer
from taut.read.limits import RANKS

NAME_LENGTH = 200
GROUP_RANKS = 1 << 20
SET_BACK, SET_BACK_NS = "profiler steps that begin before the one before them ended", 1_000_000
_RANKS, _RANK = re.compile(r"\[[\d,\s]{0,8000000}\]"), re.compile(r"\d{1,9}")
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")


class Rows:
    """Ops of one rank, block by block; ``launch`` counts rows over all blocks."""

    def __init__(self) -> None:
        self.names, self.lanes, self.groups = Codes(), Codes(), Codes()
        self.counts: Counter[str] = Counter()
        self.length = 0
        self._blocks: list[dict[str, Any]] = []

    def add(self, start: Ints, end: Ints, **columns: Any) -> Ints:
        """Append ops and return their rows."""
        n = len(start)
        self._blocks.append({"rows": n, "start_ns": start, "end_ns": end, **columns})
        self.length += n
        return np.arange(self.length - n, self.length, dtype=np.int64)

    def renamed(self, events: Events, rows: Ints) -> Ints:
        """Codes in ``names`` of these events' own names."""
        used, inverse = np.unique(events.name[rows], return_inverse=True)
        return self.names.of(events.names[code][:NAME_LENGTH] for code in used.tolist())[inverse]

    def columns(self) -> dict[str, Ints]:
        """All blocks as one dictionary of columns, unknown values filled in; the blocks are used up."""
        columns = {}
        for name, row_field in Op.__dataclass_fields__.items():
            columns[name] = np.full(self.length, row_field.default, dtype=row_field.metadata["dtype"])
            at = 0
            for block in self._blocks:
                after = at + block["rows"]
                columns[name][at:after] = block.pop(name, row_field.default)
                at = after
        return columns

    def table(self, rank: int, marks: Table) -> Table:
        """The ops in order of lane and start, every lane serial, every op in its step."""
        columns = self.columns()
        first = _first_of_interval(columns)
        alone = np.flatnonzero(first == np.arange(self.length))
        lane, start, end = (columns[name][alone] for name in ("lane", "start_ns", "end_ns"))
        lane, end, counts = serialise(lane, start, end, self.lanes)
        columns["lane"][alone], columns["end_ns"][alone] = lane, end
        columns["lane"], columns["end_ns"] = columns["lane"][first], columns["end_ns"][first]
        self.counts.update(counts)
        launch = columns["launch"]
        columns["step"] = steps_at(columns["start_ns"], marks)
        launched = np.flatnonzero(launch >= 0)
        columns["step"][launched] = columns["step"][launch[launched]]
        columns["rank"][:] = rank
        order = np.lexsort((columns["end_ns"], columns["start_ns"], columns["lane"]))
        position = np.append(np.empty(self.length, dtype=np.int64), NULL)
        position[order] = np.arange(self.length)
        columns["launch"] = position[launch]
        return Table(Op, {name: columns.pop(name)[order] for name in list(columns)}, self.length)


def _first_of_interval(columns: dict[str, Ints]) -> Ints:
    """For each op the first that communicates in the same interval of its lane (parts of one grouped call), else itself."""
    first = np.arange(len(columns["lane"]))
    rows = np.flatnonzero((columns["kind"] == Kind.COMMUNICATE) & (columns["launch"] >= 0))
    keys = [columns[name][rows] for name in ("lane", "start_ns", "end_ns", "launch")]
    order = np.lexsort(keys)
    same = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    begins = np.flatnonzero(np.concatenate([[True], ~same])) if len(rows) else rows
    first[rows[order]] = rows[np.repeat(order[begins], np.diff(np.append(begins, len(rows))))]
    return first


def steps_at(at: Ints, marks: Table) -> Ints:
    """The step whose mark covers each time; -1 outside."""
    step = np.full(len(at), NULL, dtype=np.int64)
    if len(marks) and len(at):
        before = np.searchsorted(marks.start_ns, at, "right") - 1
        inside = (before >= 0) & (at < marks.end_ns[before])
        step[inside] = marks.step[before[inside]]
    return step


def marks_of(events: Events, rank: int, counts: Counter[str]) -> Table:
    """ProfilerStep annotations as steps; micro-steps of one optimiser step are joined."""
    rows = events.chosen(NOTE, lambda name: _STEP.match(name) is not None)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    rows = rows[np.sort(np.unique(events.name[rows], return_index=True)[1])]
    step = np.array([int(events.names[code].split("#")[1]) for code in events.name[rows].tolist()], dtype=np.int64)
    start, end = events.start[rows], events.end[rows]
    counts[SET_BACK] += int((start[np.argsort(step)][1:] < end[np.argsort(step)][:-1] - SET_BACK_NS).sum())
    optimiser = np.sort(events.start[events.chosen(NOTE, lambda name: name.startswith("Optimizer.step#"))])
    updates = np.searchsorted(optimiser, end, "left") > np.searchsorted(optimiser, start, "left")
    if updates.any() and not updates.all():
        step, start, end = _joined(step, start, end, updates, counts)
    return Table(Mark, {"rank": np.full(len(step), rank), "step": step, "start_ns": start, "end_ns": end}, len(step))


def _joined(step: Ints, start: Ints, end: Ints, updates: Any, counts: Counter[str]) -> tuple[Ints, Ints, Ints]:
    last = np.flatnonzero(updates)
    first = np.concatenate([[0], last[:-1] + 1])
    counts["profiler steps joined by gradient accumulation"] += int((last - first).sum())
    unfinished = len(step) - int(last[-1]) - 1
    if unfinished:
        counts["profiler steps without their optimiser step"] += unfinished
    return step[first], start[first], end[last]


class Groups:
    """Process groups as the header declares them and as collectives mention them."""

    def __init__(self, distributed: dict[str, Any], comm: Iterable[CommArgs]) -> None:
        self.ranks: dict[str, list[int]] = {}
        config = distributed.get("pg_config")
        self._library: dict[str, str] = {}
        for entry in config if isinstance(config, list) else []:
            if isinstance(entry, dict) and entry.get("pg_name") is not None:
                self.ranks[str(entry["pg_name"])] = rank_list(entry.get("ranks"))
                self._library[str(entry["pg_name"])] = str(entry.get("backend_config", ""))
        self._named = any(_name_of(said) for said in comm)
        self._spelled: dict[tuple[int, int, int], list[int]] = {}
        self._room = GROUP_RANKS

    def name(self, sources: Sequence[CommArgs], library: str) -> str:
        """The group a collective belongs to; empty where there are several and it names none."""
        ranks = next((r for r in map(self._ranks_of, sources) if r), [])
        name = next(filter(None, map(_name_of, sources)), "")
        if name:
            return self._noted(name, ranks)
        if ranks and len(self._library) != 1:
            return self._noted(f"ranks {ranks[0]}-{ranks[-1]} ({len(ranks)})", ranks)
        able = [group for group, said in self._library.items() if library in said or _OTHER[library] not in said]
        if len(able) == 1:
            return able[0]
        return "" if self._named or able else "default"

    def _noted(self, name: str, ranks: list[int]) -> str:
        if ranks and not self.ranks.get(name):
            self.ranks[name] = ranks
        return name

    def _ranks_of(self, source: CommArgs) -> list[int]:
        if source.ranks is None and source.group_size is None:
            return []
        ranks = rank_list(source.ranks)
        size, first, stride = integer(source.group_size), integer(source.rank_start), integer(source.rank_stride)
        if len(ranks) < size and first >= 0 and stride > 0:
            return self._spell(size, first, stride)
        return ranks if size < 0 or len(ranks) == size else []

    def _spell(self, size: int, first: int, stride: int) -> list[int]:
        """The ranks that three numbers stand for; none once all such lists together are longer than any job."""
        known = self._spelled.get((size, first, stride))
        if known is not None:
            return known
        if size > self._room or first + size * stride > RANKS:
            return []
        self._room -= size
        spelled = self._spelled[size, first, stride] = list(range(first, first + size * stride, stride))
        return spelled

    def member(self, group: str, index: int) -> int:
        """The global rank of a group's member."""
        ranks = self.ranks.get(group, [])
        return ranks[index] if 0 <= index < len(ranks) else index


_OTHER = {"nccl": "gloo", "gloo": "nccl"}


def _name_of(said: CommArgs) -> str:
    """The group that an event names."""
    return next((str(name) for name in (said.group, said.group_id) if isinstance(name, str | int) and str(name)), "")


def rank_list(value: Any) -> list[int]:
    """Ranks out of a list or out of its text ``"[0, 1]"``; empty where the text is abbreviated or wrong."""
    if isinstance(value, str):
        if "..." in value or not _RANKS.fullmatch(value):
            return []
        value = [int(digits) for digits in _RANK.findall(value)]
    if not isinstance(value, list):
        return []
    return [rank for rank in value if type(rank) is int and 0 <= rank < RANKS]


def issuer(calls: Ints, work: Ints) -> Ints:
    """For each device event the index of the call of the same correlation, or -1."""
    if not len(calls):
        return np.full(len(work), -1, dtype=np.int64)
    order = np.argsort(calls, kind="stable")
    at = np.minimum(np.searchsorted(calls[order], work, "left"), len(calls) - 1)
    return np.where((calls[order][at] == work) & (work > 0), order[at], -1)


def thread_lanes(events: Events, rows: Rows, chosen: Ints, word: str) -> Ints:
    """Lanes ``word T`` of these host events, T being the thread."""
    used, inverse = np.unique(events.place[chosen], return_inverse=True)
    return rows.lanes.of(f"{word} {events.threads[t]}" for t in used.tolist())[inverse]


def coordinate(rows: Rows, events: Events, chosen: Ints, lane: str, name: str) -> None:
    """Host-side waits (loader, checkpoint) as ops on a lane of their own."""
    if len(chosen):
        rows.add(
            events.start[chosen],
            events.end[chosen],
            kind=Kind.COORDINATE,
            lane=thread_lanes(events, rows, chosen, lane),
            name=rows.names[name],
        )


def communicate_name(rows: Rows, library: str, verb: Verb) -> int:
    """The class name of a collective: ``nccl all-reduce``."""
    return rows.names[f"{library} {verb.word if verb else 'collective'}"]
