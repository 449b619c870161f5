"""Nsight Systems reports, as ``nsys export --type sqlite`` writes them: one file a job, a node or a rank; several GPUs in each.

Every GPU of a process becomes a rank. Tables and columns differ from version to version: what is not there is not known.
Who is which rank, and how ranks of a communicator map onto them, is settled when all reports are read (`rank_traces.py`).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np

from taut.core.array_types import Ints
from taut.core.device_words import NO_BYTES, stream_lane
from taut.core.errors import InputRefused, NotATrace
from taut.core.ids import distinct
from taut.core.tables import NULL, Kind, Mark, Member, Table, Trace, Verb
from taut.read.communication_families import NO_VERB
from taut.read.contents import Gpu, Report
from taut.read.files import Member as File
from taut.read.host_ranges import host_ranges
from taut.read.limits import check_wall
from taut.read.nsys import cuda, target
from taut.read.nsys.nccl import Collective, Nccl
from taut.read.nsys.nvtx import is_api, is_torch, notes
from taut.read.nsys.sqlite import MAGIC, Database, is_unclosed, opened
from taut.read.op_rows import Message, Rows, after_device, coded, issuer
from taut.read.step_marks import PROCESS, cut_at_end, cut_note, loops

NOT_CLOSED = "an SQLite database that was not closed: what lies in its -wal or -journal file is not read"
_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


def sniff(head: bytes) -> bool:
    """Any SQLite database: its tables may be anywhere in the file."""
    return head[:16] == MAGIC


def is_report(member: File) -> bool:
    """Whether this is a report as nsys itself keeps it; refused unless its export lies beside it."""
    if not member.name.lower().endswith(_REPORTS):
        return False
    if member.path and os.path.exists(os.path.splitext(member.path)[0] + ".sqlite"):
        return True
    remedy = f"export it with: nsys export --type sqlite --include-blobs=true {member.label if member.path else member.name}"
    raise InputRefused(member.label, "an Nsight Systems report, which only nsys itself can open", remedy)


def load_member(member: File) -> Report:
    """What one export records of its GPUs."""
    unclosed = is_unclosed(member)
    with opened(member) as db:
        if not db.has("StringIds", "id", "value"):
            raise (
                _not_closed(member)
                if unclosed
                else NotATrace(
                    member.label, "an SQLite database, but no export of Nsight Systems", "use nsys export --type sqlite"
                )
            )
        report = _Reading(db, member.label).report()
    if not report.gpus and unclosed:
        raise _not_closed(member)
    if not report.gpus:
        raise InputRefused(member.label, "no GPU activity in this export", "record with nsys profile --trace=cuda,nvtx")
    if unclosed:
        first = report.gpus[0]
        first.trace = replace(first.trace, partial=[*first.trace.partial, f"{member.label}: {NOT_CLOSED}"])
    return report


def _not_closed(member: File) -> InputRefused:
    remedy = "close it (sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'), or export it again"
    return InputRefused(member.label, NOT_CLOSED, remedy)


class _Reading:
    """One pass over an open export."""

    def __init__(self, db: Database, label: str) -> None:
        self.db, self.label = db, label
        self.counts: Counter[str] = Counter()
        strings = {key: text for key, text in db.texts("StringIds", "id", "value", 4000) if type(key) is int}
        self.work = cuda.work(db, strings, self.counts)
        self.is_collective = self.work.collective()
        self.calls = cuda.calls(db, strings, self.work, self.counts)
        found = notes(db, strings)
        self.people = found.chosen(found.rows(lambda name: not is_api(name) and not is_torch(name)))
        launched = _launches(self.calls)
        self.nccl, self.loops = Nccl(found), loops(self.people, launched)
        self.marks, self.cut = {one: loop.marks() for one, loop in self.loops.items()}, 0
        for one, marks in self.marks.items():
            cut = cut_at_end(marks, launched[one], self.calls.lost.get(one, launched[one][:0]))
            self.marks[one], self.cut = marks.take(np.arange(len(marks) - cut)), max(self.cut, cut)
        self.shift = target.origin(db, int(self.work.end.max(initial=0)))
        self.host, self.models = target.host(db), target.models(db)

    def report(self) -> Report:
        """The GPUs, the first of which carries what concerns all."""
        mpi = target.mpi_ranks(self.db)
        report = Report(self.label, [], self.nccl.inits(), target.environment(self.db))
        for process, device, rows in self._gpus():
            report.gpus.append(Gpu(process, device, self._trace(process, device, rows), mpi.get(process, NULL)))
        if report.gpus:
            first = report.gpus[0].trace
            doubts = tuple(self._doubts(report.gpus))
            report.gpus[0].trace = replace(first, counts=dict(self.counts + Counter(first.counts)), partial=doubts)
        return report

    def _gpus(self) -> list[tuple[int, int, Ints]]:
        """(process, device, rows of work): the devices a process communicates on, else all it works on."""
        found = []
        for process in distinct(self.work.process).tolist():
            mine = np.flatnonzero(self.work.process == process)
            talking = mine[self.is_collective[mine]]
            devices = distinct(self.work.device[talking if len(talking) else mine]).tolist()
            for place, device in enumerate(devices):
                own = self.work.device[mine] == device
                # What a process left on another's device goes with its first.
                rows = mine[own | ~np.isin(self.work.device[mine], devices)] if place == 0 else mine[own]
                found.append((process, device, rows))
        return sorted(found, key=lambda gpu: (gpu[1], gpu[0]))

    def _trace(self, process: int, device: int, work: Ints) -> Trace:
        rows, w, c = Rows(), self.work, self.calls
        mine = np.flatnonzero(c.process == process)
        if (w.process == process).sum() > len(work):
            mine = mine[~c.launches[mine] | np.isin(c.issue[mine], w.issue[work])]
        by = issuer(c.issue[mine], w.issue[work])
        launch = np.append(self._add_calls(rows, mine, work), NULL)[by]
        collective = self.is_collective[work]
        self._add_work(rows, work[~collective], launch[~collective], device)
        call = np.append(mine, NULL)[by[collective]]
        thread, at = (np.where(call >= 0, np.append(column, NULL)[call], NULL) for column in (c.thread, c.start))
        about = self.nccl.described([w.names[code] for code in w.name[work[collective]].tolist()], thread, at)
        messages = [
            Message(c.verb, "" if c.comm is None else group_name(c.comm), c.size, c.peer, part=place, name=c.name)
            for place, c in enumerate(about)
        ]
        met = work[collective]
        rows.add_messages("nccl", messages, w.start[met], w.end[met], self._lanes(rows, met, device), launch[collective])
        marks = self.marks.get(process, Table(Mark, {}, 0))
        ops = _hops_apart(rows.table(NULL, marks), about)
        rows.counts[NO_VERB] += sum(not (c.verb or c.hops or c.name) for c in about)
        rows.counts["sends and receives that do not name a peer"] += sum(c.guessed for c in about)
        rows.counts[NO_BYTES] += sum(c.no_bytes for c in about)
        rows.counts["ops"] = len(ops)
        check_wall(ops.start_ns, ops.end_ns, self.label)
        gpu = device if 0 <= device < cuda.GPUS else NULL
        host, model = self.host, self.models.get((process >> 24 & 0xFFFFFF, device), "")
        return Trace(
            ops=_shifted(ops, self.shift),
            names=list(map(str, rows.names)),
            lanes=list(map(str, rows.lanes)),
            groups=list(map(str, rows.groups)),
            members=Table(
                Member,
                {"rank": [NULL], "host": _text(host), "device": _text(model), "gpu": [gpu], "base_ns": [self.shift]},
                1,
            ),
            marks=_shifted(marks, self.shift),
            host_ranges=_shifted(self._ranges(process, marks), self.shift),
            source=self.label,
            backend="" if all(c.name for c in about) else "nccl",
            counts=dict(+rows.counts),
        )

    def _ranges(self, process: int, marks: Table) -> Table:
        """What people named on the threads of a process."""
        named = self.people
        rows = np.flatnonzero((named.thread & PROCESS) == process)
        return host_ranges(named.names, named.name[rows], named.start[rows], named.end[rows], marks)

    def _add_calls(self, rows: Rows, mine: Ints, work: Ints) -> Ints:
        c = self.calls
        begin = after_device(c.start[mine], c.end[mine], ~c.launches[mine], self.work.end[work])
        lanes = coded(rows.lanes, c.thread[mine] & ~PROCESS, lambda thread: f"thread {thread}")
        names = coded(rows.names, c.name[mine], lambda code: c.names[code])
        return rows.add(begin, c.end[mine], kind=Kind.COORDINATE, lane=lanes, name=names)

    def _lanes(self, rows: Rows, work: Ints, device: int) -> Ints:
        key = self.work.device[work] << 40 | (self.work.stream[work] & (1 << 40) - 1)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        where, which = (column[work][first].tolist() for column in (self.work.device, self.work.stream))
        named = (stream_lane(s, None if d == device else d) for d, s in zip(where, which, strict=True))
        return np.append(rows.lanes.of(named), NULL)[inverse]

    def _add_work(self, rows: Rows, work: Ints, launch: Ints, device: int) -> None:
        w = self.work
        lane, name = self._lanes(rows, work, device), coded(rows.names, w.name[work], lambda code: w.names[code])
        kind = np.where(w.copied[work], Kind.COMMUNICATE, Kind.COMPUTE)
        rows.add(w.start[work], w.end[work], kind=kind, lane=lane, name=name, size=w.size[work], launch=launch)

    def _doubts(self, gpus: list[Gpu]) -> list[str]:
        """What the export leaves open, and what that does to the answer."""
        doubts = list[str]()
        if self.counts["cuda graphs recorded whole"]:
            n = self.counts["cuda graphs recorded whole"]
            doubts.append(
                f"{n} CUDA graph launches were recorded whole: collectives inside them cannot be seen"
                " (record with --cuda-graph-trace=node)"
            )
        if any(map(_lacks_communicator, gpus)) and len(gpus) > 1:
            doubts.append(
                "communicators are not in the export of NCCL's ranges: who meets whom is judged by time"
                " (export with --include-blobs=true)"
            )
        doubts += [cut_note(self.cut)] if self.cut else []
        doubts += sorted({f"NVTX ranges {loop.doubt}" for loop in self.loops.values() if loop.doubt})
        return doubts


def _lacks_communicator(gpu: Gpu) -> bool:
    """Whether a collective of NCCL does not tell its communicator; other libraries have none."""
    ops, nccl = gpu.trace.ops, np.array([name.startswith("nccl ") for name in gpu.trace.names], dtype=np.bool_)
    return bool(((ops.verb != Verb.NONE) & (ops.group < 0) & nccl[ops.name]).any())


def group_name(comm: int) -> str:
    """A communicator as a group."""
    return f"nccl {comm & 0xFFFFFFFFFFFFFFFF:#x}"


def _text(value: str) -> np.ndarray:
    return np.array([value], dtype=object)


def _shifted(table: Table, shift: int) -> Table:
    return table.replace(start_ns=table.start_ns + shift, end_ns=table.end_ns + shift)


def _launches(calls: cuda.Calls) -> dict[int, Ints]:
    """Process → when it called, in order."""
    order = np.lexsort((calls.start, calls.process))
    cuts = np.flatnonzero(np.diff(calls.process[order])) + 1
    return {int(calls.process[mine[0]]): calls.start[mine] for mine in np.split(order, cuts) if len(mine)}


def _hops_apart(ops: Table, about: list[Collective]) -> Table:
    """A kernel of several sends and receives becomes one op each, over the same time of the same lane.

    Until here ``part`` is the index of an op's kernel in ``about``.
    """
    hops = np.append(np.array([max(len(c.hops), 1) for c in about], dtype=np.int64), 1)
    count = hops[ops.part]
    ops, kernel = ops.take(np.repeat(np.arange(len(ops)), count)), ops.part
    position = np.append(np.cumsum(count) - count, NULL)
    columns = {name: ops.columns[name].copy() for name in ("verb", "peer", "size")}
    for row in np.flatnonzero(hops[kernel] > 1).tolist():
        for place, hop in enumerate(about[kernel[row]].hops):
            for column, value in zip(columns.values(), hop, strict=True):
                column[position[row] + place] = value
    return ops.replace(**columns, part=np.full(len(ops), NULL), launch=position[ops.launch])
