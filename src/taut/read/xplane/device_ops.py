"""Planes of one device → the ops of one rank: work on streams, transfers beside it, the calls that launched it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints, Texts
from taut.core.device_words import COPY_CLASSES, stream_lane
from taut.core.ids import numbered, rows_of_ids
from taut.core.tables import NULL, Kind, Mark, Table, Trace, Verb
from taut.core.tables import Member as Rank
from taut.read.op_rows import NAME_LENGTH, Rows, coded, issuer, steps_at
from taut.read.xplane.hlo_programs import Modules
from taut.read.xplane.host_threads import Calls, marks
from taut.read.xplane.line_roles import Role, device_of, is_stream, roles, stream_of
from taut.read.xplane.nesting import innermost
from taut.read.xplane.op_words import Meaning, meaning
from taut.read.xplane.replica_groups import ReplicaGroups
from taut.read.xplane.space import Line, Plane

BESIDE = "async"
_SIZE = re.compile(r"(?<![a-z])size:(\d{1,17})(?!\d)")
_GRID = re.compile(r"\b(grid|block):(\d{1,10}(?:,\d{1,10}){0,2})\b")
_STEP = re.compile(r"\d{1,9}")


@dataclass
class _Work:
    """Events of one lane with what they mean, code by code."""

    lane: str
    start: Ints
    end: Ints
    code: Ints
    """Index into the meanings."""
    size: Ints
    launch: Ints
    """Index into the calls, -1 for none."""
    meanings: list[Meaning]


class DeviceOps:
    """The ops of one device under construction."""

    def __init__(self, calls: Calls, modules: Modules, groups: ReplicaGroups) -> None:
        self.calls, self.modules, self.groups, self.rows = calls, modules, groups, Rows()
        self.steps: list[tuple[Ints, Ints, Ints]] = []
        self._work: list[_Work] = []

    def add(self, plane: Plane) -> None:
        """Take over the lines of one plane."""
        part = (device_of(plane.name) or ("", 0, ""))[2]
        of = roles([line.name for line in plane.lines])
        beside = Role.BESIDE in of
        for line, role in zip(plane.lines, of, strict=True):
            if role is Role.STEPS and not part:
                self.steps.append(_steps(line, plane))
            elif role in (Role.WORK, Role.BESIDE):
                name = BESIDE if role is Role.BESIDE else stream_of(line.name)
                work = self._meant(line, plane, stream_lane(f"{part} {name}".strip()))
                if is_stream(line.name):
                    # A kernel is the whole of its collective. Those of one stream may run at once (graphs).
                    work.meanings = [m._replace(phase="") for m in work.meanings]
                elif role is Role.WORK:
                    self._work += [] if beside else _in_flight(work, stream_lane(f"{part} {BESIDE}".strip()))
                    work = _as_pieces(work)
                self._work.append(work)

    def __len__(self) -> int:
        return sum(len(work.start) for work in self._work)

    @property
    def beside(self) -> bool:
        """Whether transfers were recorded beside the work."""
        return any(work.lane.endswith(BESIDE) for work in self._work)

    def _meant(self, line: Line, plane: Plane, lane: str) -> _Work:
        """A line with the meaning of each event, asked once for each combination of names."""
        launch = issuer(self.calls.number, line.numbers["correlation_id"])
        call = np.append(self.calls.name, NULL)[launch]
        columns = line.name_of, line.texts["hlo_op"], call, line.numbers["program_id"]
        code, count = numbered(*columns)
        first = rows_of_ids(code, count)
        texts, names = [*plane.texts, ""], [*self.calls.names, ""]  # the last is for -1
        meanings = []
        for n, h, c, p in zip(*(column[first].tolist() for column in columns), strict=True):
            fact = self.modules.get(p, texts[h] or plane.names[n].removeprefix("%"))
            meanings.append(meaning(plane.names[n][:4000], plane.programs[n], texts[h], names[c], fact))
        size = np.array([m.size for m in meanings], dtype=np.int64)[code]
        # Kernels that only compute have their threads for a shape; copies have their bytes.
        computes = np.array([m.kind == Kind.COMPUTE for m in meanings], dtype=np.bool_)[code]
        for key, parse in (("memcpy_details", _copied_bytes), ("kernel_details", _threads)):
            found = np.array([*map(parse, plane.texts), NULL], dtype=np.int64)[line.texts[key]]
            size = np.where((size < 0) & (computes == (parse is _threads)), found, size)
        return _Work(lane, line.start, line.end, code, size, launch, meanings)

    def trace(self, rank: int, host_marks: Table, about: dict[str, Texts], label: str) -> Trace:
        """The ops in order; steps are those of the device's own line, else those that the host marked."""
        own = marks(*map(np.concatenate, zip(*self.steps, strict=True))) if self.steps else Table(Mark, {}, 0)
        found = own if len(own) else host_marks
        found = found.replace(rank=np.full(len(found), rank))
        self._add_all()
        ops = self.rows.table(rank, found)
        if len(own):
            ops = _in_device_steps(ops, own)
        counts = self.rows.counts
        counts["ops"] = len(ops)
        groups = list(map(str, self.rows.groups))
        return Trace(
            ops=ops,
            names=list(map(str, self.rows.names)),
            lanes=list(map(str, self.rows.lanes)),
            groups=groups,
            group_ranks=self.groups.ranks,
            members=Table(Rank, {"rank": [rank], "gpu": [rank], **about}, 1),
            marks=found,
            source=label,
            backend="nccl" if any(name.startswith(("nccl", "rccl")) for name in self.rows.names) else "",
            counts=dict(+counts),
        )

    def _add_all(self) -> None:
        rows, calls = self.rows, self.calls
        used = np.unique(np.concatenate([work.launch for work in self._work])) if self._work else np.zeros(0, np.int64)
        used = used[used >= 0]
        # Waits of threads that launched some of the work are waits for it.
        waits = np.array([name.find("Synchronize") >= 0 for name in calls.names], dtype=np.bool_)
        if waits.any():
            used = np.union1d(used, np.flatnonzero(waits[calls.name] & np.isin(calls.thread, calls.thread[used])))
        lanes = coded(rows.lanes, calls.thread[used], lambda thread: f"thread {calls.threads[thread]}")
        # Some profilers call the launch as they call the kernel.
        kernels = {m.name for work in self._work for m in work.meanings}
        names = coded(
            rows.names,
            calls.name[used],
            lambda n: "launch" if calls.names[n][:NAME_LENGTH] in kernels else calls.names[n][:NAME_LENGTH],
        )
        place = np.full(len(calls.number) + 1, NULL, dtype=np.int64)
        place[used] = rows.add(calls.start[used], calls.end[used], kind=Kind.COORDINATE, lane=lanes, name=names)
        for work in self._work:
            if not len(work.start):
                continue
            kinds, verbs, names, groups = (np.array(column, dtype=np.int64) for column in zip(*self._coded(work), strict=True))
            rows.add(
                work.start,
                work.end,
                kind=kinds[work.code],
                verb=verbs[work.code],
                name=names[work.code],
                group=groups[work.code],
                lane=rows.lanes[work.lane],
                size=work.size,
                launch=place[work.launch],
            )

    def _coded(self, work: _Work) -> Iterator[tuple[int, int, int, int]]:
        """(kind, verb, name, group) of every meaning; of a transfer in two halves neither half meets anybody."""
        halves = not work.lane.endswith(BESIDE)
        for m in work.meanings:
            verb = Verb.NONE if (halves and m.phase) or m.phase == "done" else m.verb
            group = self.groups.of(m.groups) if verb else ""
            if group is None:
                verb = Verb.NONE
            name = f"{m.name}-{m.phase}" if halves and m.phase and m.name not in COPY_CLASSES else m.name
            yield int(m.kind), int(verb), self.rows.names[name], self.rows.groups[group] if verb and group else NULL


def _steps(line: Line, plane: Plane) -> tuple[Ints, Ints, Ints]:
    """(step, start, end) of a line of steps: numbered by their names, else in order."""
    named = [plane.texts[t] if t >= 0 else plane.names[n] for t, n in _pairs(line.texts["step_name"], line.name_of)]
    found = [int(name) if _STEP.fullmatch(name) else NULL for name in named]
    step = np.array(found, dtype=np.int64)
    if len(set(found)) < len(found) or NULL in found:
        step = np.empty(len(line), dtype=np.int64)
        step[np.argsort(line.start, kind="stable")] = np.arange(len(line))
    return step, line.start, line.end


def _pairs(one: Ints, other: Ints) -> Iterator[tuple[int, int]]:
    return zip(one.tolist(), other.tolist(), strict=True)


def _copied_bytes(text: str) -> int:
    """Bytes in the details of a copy (``size:4096 dest:0 async:1``); -1 where they are not recorded."""
    found = _SIZE.search(text[:400])
    return int(found[1]) or NULL if found else NULL


def _threads(text: str) -> int:
    """Threads in the details of a kernel (``regs:38 grid:160,1,1 block:1024,1,1``); -1 where they are not recorded."""
    found = dict(_GRID.findall(text[:400]))
    if len(found) < 2:
        return NULL
    threads = math.prod(int(number) for three in found.values() for number in three.split(","))
    return threads if 0 < threads < 1 << 55 else NULL


def _as_pieces(work: _Work) -> _Work:
    """The same without nesting: a loop on a device is an event around those of its body."""
    order = np.argsort(work.start, kind="stable")
    latest = np.maximum.accumulate(work.end[order]) if len(order) else work.end
    inside = work.end[order][1:] <= latest[:-1]
    if not (inside & (work.start[order][1:] < latest[:-1])).any():
        return work
    owner, start, end = innermost(work.start, work.end)
    return _Work(work.lane, start, end, work.code[owner], work.size[owner], work.launch[owner], work.meanings)


def _in_flight(work: _Work, lane: str) -> list[_Work]:
    """Transfers from where they start to where they are done, paired in order, where no line shows them."""
    phased = [(code, m) for code, m in enumerate(work.meanings) if m.phase and m.verb]
    if not phased:
        return []
    rows = np.flatnonzero(np.isin(work.code, [code for code, _ in phased]))
    rows = rows[np.argsort(work.start[rows], kind="stable")]
    waiting: dict[str, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for row in rows.tolist():
        m = work.meanings[work.code[row]]
        if m.phase == "start":
            waiting.setdefault(m.name, []).append(row)
        elif waiting.get(m.name):
            pairs.append((waiting[m.name].pop(0), row))
    if not pairs:
        return []
    begun, done = np.array(pairs, dtype=np.int64).T
    return [
        _Work(lane, work.start[begun], work.end[done], work.code[begun], work.size[begun], work.launch[begun], work.meanings)
    ]


def _in_device_steps(ops: Table, own: Table) -> Table:
    """Steps on the device's clock: its ops by their own times, the calls by what they launched."""
    step, launched = steps_at(ops.start_ns, own), np.flatnonzero(ops.launch >= 0)
    step[ops.launch[launched]] = step[launched]
    return ops.replace(step=step)


def device_model(planes: Sequence[Plane]) -> str:
    """What the planes of a device call it; empty where they do not."""
    about = {**{k: v for plane in planes for k, v in plane.about.items()}}
    return about.get("device_type_string") or about.get("device_vendor") or ""
