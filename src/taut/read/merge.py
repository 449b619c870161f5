"""Traces of single files → one Trace: ranks named, cycles joined, missing ranks noted."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from taut.core.array_types import Ints
from taut.core.device_words import NO_DEVICE, UNREAD
from taut.core.errors import InputRefused
from taut.core.tables import NULL, HostRange, Mark, MatrixWork, Member, Op, Table, Trace, concat, constant, fields_of, joined
from taut.read.columns import Codes
from taut.read.one_job import Labelled, one_world, refuse_two_jobs, window

# Counts that become notes, and what each does to the answer.
EFFECTS = {
    "collectives that do not name their group": "they are matched only where their times show that all ranks take part",
    "grouped sends and receives without their calls": "their peers are not known, and they are not matched",
    "communication kernels that do not say what they do": "they are not matched, and waiting in them is not told apart",
    NO_DEVICE: "the device's side is missing, and all figures are the host's"
    " (record it: torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]))",
    UNREAD: "if a device wrote them, its side is missing, and all figures are the host's",
    "profiler steps that begin before the one before them ended": "a clock was set back, so the times of events are unreliable",
    "collectives called without a device event": "when they ran is not known, and no wait for them is seen",
}
_RANK = re.compile(r"(?:rank|worker|gpu|node)\D?(\d{1,7})(?!\d)", re.IGNORECASE)
_NAMED_RANK = re.compile(r"rank\D?(\d{1,7})(?!\d)", re.IGNORECASE)
# What torch's handler for TensorBoard calls the cycles of one process: worker.time.pt.trace.json.
_CYCLE = re.compile(r"\A(.+)\.\d{10,20}(?=\.pt\.trace\.json(?:\.gz)?\Z)")
_LAST_DIGITS = re.compile(r"(\d{1,7})\D*+\Z")


def merge(parts: Sequence[Labelled], refused: Sequence[InputRefused], *, name: str, source: str) -> Trace:
    """One Trace of a job; refuses what cannot be one job, and notes what is missing."""
    world_size = one_world(parts)
    parts, notes, guessed = _with_ranks(parts)
    refuse_two_jobs(parts, guessed)
    parts = sorted(parts, key=lambda part: (int(part[1].members.rank.min()), window(part[1])[0]))
    traces = [trace for _, trace in parts]
    names, lanes, groups = Codes(), Codes(), Codes()
    all_groups = _Groups(traces)
    codes = [
        {"name": names.of(trace.names), "lane": lanes.of(trace.lanes), "group": groups.of(group_names)}
        for trace, group_names in zip(traces, all_groups.names, strict=True)
    ]
    members = concat(Member, [trace.members for trace in traces])
    # A rank whose profiler ran in several cycles has a file, and a member, for each.
    members = members.take(np.unique(members.rank, return_index=True)[1])
    notes += [line for trace in traces for line in trace.partial]
    notes += left_out(refused)
    notes += missing_ranks(members.rank, world_size)
    counts = sum((Counter(trace.counts) for trace in traces), Counter[str]())
    notes += [f"{counts[reason]:,} {reason}: {so}" for reason, so in EFFECTS.items() if counts[reason]]
    return Trace(
        ops=_recoded([trace.ops for trace in traces], codes),
        names=list(map(str, names)),
        lanes=list(map(str, lanes)),
        groups=list(map(str, groups)),
        members=members,
        marks=concat(Mark, [trace.marks for trace in traces]),
        matrix_work=concat(MatrixWork, [trace.matrix_work for trace in traces]),
        host_ranges=concat(HostRange, [trace.host_ranges for trace in traces]),
        name=name,
        source=source,
        world_size=world_size,
        backend=next((trace.backend for trace in traces if trace.backend), ""),
        relative=any(trace.relative for trace in traces),
        timer_ns=max(trace.timer_ns for trace in traces),
        group_ranks=all_groups.ranks,
        partial=tuple(dict.fromkeys(notes)),
        counts=dict(counts),
    )


def left_out(refused: Sequence[InputRefused]) -> list[str]:
    """One note for every file that was refused while others were read."""
    return [f"{error.where} left out: {error.why}" for error in refused]


def _recoded(tables: Sequence[Table], codes: Sequence[Mapping[str, Ints]]) -> Table:
    """All ops in one table, column by column, with codes of the merged dictionaries and launches of the merged rows."""
    length, offsets = sum(map(len, tables)), np.cumsum([0, *map(len, tables)]).tolist()
    columns = {}
    for name in fields_of(Op):
        parts = [table.columns[name] for table in tables]
        if name in ("name", "lane", "group"):
            parts = [_of_all(part, code[name]) for part, code in zip(parts, codes, strict=True)]
        elif name == "launch":
            parts = [_after(part, offset) for part, offset in zip(parts, offsets, strict=False)]
        columns[name] = joined(parts, length)
    return Table(Op, columns, length)


def _of_all(column: Ints, codes: Ints) -> Ints:
    """A column in other codes; -1 stays -1, because the last entry is."""
    # Files of one program mostly use the same names in the same order: then nothing is copied.
    return column if np.array_equal(codes, np.arange(len(codes))) else np.append(codes, NULL)[column]


def _after(launch: Ints, offset: int) -> Ints:
    """Rows of launches where others come before them."""
    return launch if not offset or (constant(launch) and launch[0] < 0) else np.where(launch >= 0, launch + offset, NULL)


def _with_ranks(parts: Sequence[Labelled]) -> tuple[list[Labelled], list[str], list[str]]:
    """Ranks for traces that do not name theirs, from file names, else from the order; notes; labels where that is a guess."""
    nameless = [i for i, (_, trace) in enumerate(parts) if (trace.members.rank == NULL).any()]
    if not nameless:
        return list(parts), [], []
    taken = {int(rank) for i, (_, trace) in enumerate(parts) if i not in nameless for rank in trace.members.rank}
    workers = {i: _CYCLE.sub(r"\1", parts[i][0]) for i in nameless}
    alone = not taken and len(set(workers.values())) == 1
    guesses = {worker: rank_in(worker, alone) for worker in workers.values()}
    ranks = set(guesses.values())
    # File names count only if every one of them has a number, and no two the same.
    by_name = None not in ranks and len(ranks) == len(guesses) and not taken & ranks
    free = (rank for rank in range(len(parts) + len(taken)) if rank not in taken)
    given = {worker: guess if by_name and guess is not None else next(free) for worker, guess in guesses.items()}
    how = "the file name" if by_name else "the order of the files"
    result, notes = list(parts), []
    for i, worker in workers.items():
        # A single process without a rank is no part of a job that was assumed: it has none.
        if by_name or not alone:
            notes.append(f"{parts[i][0]} does not name its rank: taken as rank {given[worker]} from {how}")
        result[i] = (parts[i][0], as_rank(parts[i][1], given[worker]))
    # A number at the end of a name may be anything (a batch size, a date); only the word rank says that it is one.
    return result, notes, [parts[i][0] for i in nameless if not by_name or _RANK.search(_base(parts[i][0])) is None]


def rank_in(label: str, alone: bool) -> int | None:
    """The rank in a file name; of a single file the last number is none."""
    base = _base(label)
    found = _NAMED_RANK.search(base) or _RANK.search(base) or (None if alone else _LAST_DIGITS.search(base))
    return int(found[1]) if found else None


def _base(label: str) -> str:
    return re.split(r"[/\\:]", label)[-1]


def as_rank(trace: Trace, rank: int) -> Trace:
    """The trace of one rank, with this number for it."""

    def own(table: Table) -> Table:
        return table.replace(rank=np.full(len(table), rank))

    return replace(
        trace,
        ops=own(trace.ops),
        marks=own(trace.marks),
        members=own(trace.members),
        matrix_work=own(trace.matrix_work),
        host_ranges=own(trace.host_ranges),
    )


def missing_ranks(present: Sequence[int] | Ints, world_size: int | None) -> list[str]:
    """What a partial set of ranks does to the answer; empty if all are there."""
    if world_size is None:
        return []
    there = np.unique(np.asarray(present, dtype=np.int64))
    there = there[(there >= 0) & (there < world_size)]
    # Gaps between neighbours, not a list of ranks: a hostile world size must not cost memory.
    edges = np.concatenate([[-1], there, [world_size]])
    gaps = [(a + 1, b - 1) for a, b in itertools.pairwise(edges.tolist()) if b - a > 1]
    if not gaps:
        return []
    ranks = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in gaps[:12]) + (" …" if len(gaps) > 12 else "")
    several = len(gaps) > 1 or gaps[0][0] != gaps[0][1]
    return [
        f"rank{'s' if several else ''} {ranks} of {world_size} missing: waits for {'them' if several else 'it'} cannot be seen"
    ]


class _Groups:
    """Groups of all traces; one name used for two sets of ranks becomes two names."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.ranks: dict[str, list[int]] = {}
        self.names: list[list[str]] = []
        for trace in traces:
            self.names.append([self._named(group, trace.group_ranks) for group in trace.groups])
            for group in trace.group_ranks:
                self._named(group, trace.group_ranks)

    def _named(self, group: str, ranks_of: Mapping[str, Sequence[int]]) -> str:
        ranks = list(ranks_of.get(group, ()))
        known = self.ranks.get(group)
        if not ranks or known == ranks:
            return group
        if known is not None:
            group = f"{group} ({_compact(ranks)})"
        self.ranks[group] = ranks
        return group


def _compact(ranks: Sequence[int]) -> str:
    text = ",".join(map(str, ranks[:8]))
    return text if len(ranks) <= 8 else f"{text},… {len(ranks)} ranks"
