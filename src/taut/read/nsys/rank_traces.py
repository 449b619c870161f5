"""Reports of Nsight Systems → traces of ranks: who is who, once all reports of a job are read.

The first source that names every GPU differently is believed, with a note where it is an assumption. Ranks inside a
communicator become ranks of the job through the calls that made it; where those lie before the recording, the members are
taken in order of rank, but only if then every send finds its receive: a wrong match is worse than none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.core.array_types import Ints
from taut.core.tables import NULL, Trace, Verb
from taut.read.contents import Gpu, Init, Report
from taut.read.merge import as_rank, rank_in
from taut.read.nsys.cut_collectives import by_group, without_edges
from taut.read.nsys.reader import group_name
from taut.read.verb_words import HOPS

Placed = tuple[Report, Gpu]
_RANK_OF = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", ""),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_NODE_OF = ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID")
# A recording may cut off this many hops of a channel at either end.
EDGE = 1


@dataclass(frozen=True)
class Naming:
    """Ranks of all GPUs, and how they are known."""

    ranks: Sequence[int]
    how: str = ""
    """The assumption, for a note; empty where the export itself names the ranks."""
    world_size: int | None = None


def traces(reports: Sequence[Report]) -> list[tuple[str, Trace]]:
    """The traces of all GPUs of all reports, with their ranks."""
    gpus = [(report, gpu) for report in reports for gpu in report.gpus]
    if not gpus:
        return []
    naming = _recorded(gpus) or _assumed(gpus)
    groups = _groups(gpus, naming)
    notes = [f"ranks are assumed: {naming.how}"] if naming.how else []
    notes += sorted({line for lines in groups.values() for line in lines.doubts})
    placed = [_placed(gpu.trace, rank, groups, naming) for (_, gpu), rank in zip(gpus, naming.ranks, strict=True)]
    placed, cut = without_edges(placed)
    notes += (
        [f"{cut} collectives at the edges of the recording have no counterpart on other ranks and are not matched"]
        if cut
        else []
    )
    placed[0] = replace(placed[0], partial=(*placed[0].partial, *notes))
    labels = (report.label if len(report.gpus) == 1 else f"{report.label}:gpu {gpu.device}" for report, gpu in gpus)
    return list(zip(labels, placed, strict=True))


def _recorded(gpus: list[Placed]) -> Naming | None:
    """The ranks that the reports name themselves."""
    for naming in (Naming([gpu.mpi_rank for _, gpu in gpus]), _by_environment(gpus)):
        if naming and min(naming.ranks) >= 0 and (_apart(naming.ranks) or _apart([naming.ranks[k] for k in _first(gpus)])):
            return naming
    return None


def _assumed(gpus: list[Placed]) -> Naming:
    """The best guess, that names all that differ differently."""
    same = _identities(gpus)
    unique = [gpus[place] for place in _first(gpus)]
    several = len({report.label for report, _ in unique}) > 1
    order = "the order of the files, and of the devices in each" if several else "the order of the devices"
    guesses = (source(unique) for source in (_by_communicator, _by_node, _by_file))
    naming = next((n for n in guesses if n and min(n.ranks) >= 0 and _apart(n.ranks)), Naming(range(len(unique)), order))
    rank_of = dict(zip(_first(gpus), naming.ranks, strict=True))
    return replace(naming, ranks=[rank_of[place] for place in same])


def _apart(ranks: Sequence[int]) -> bool:
    return len(set(ranks)) == len(ranks)


def _first(gpus: list[Placed]) -> list[int]:
    return [place for place, same in enumerate(_identities(gpus)) if same == place]


def _identities(gpus: list[Placed]) -> list[int]:
    """For each GPU the first that is the same: a process recorded at two times, or twice the same recording."""
    seen: dict[tuple[str, int, int], list[int]] = {}
    same = list(range(len(gpus)))
    for place, (_, gpu) in enumerate(gpus):
        mine = seen.setdefault((str(gpu.trace.members.host[0]), gpu.process, gpu.device), [])
        found = (other for other in mine if _once(gpus[other][1].trace, gpu.trace))
        same[place] = same[next(found, place)]
        mine.append(place)
    return same


def _once(one: Trace, other: Trace) -> bool:
    (a, b), (c, d) = ((int(t.ops.start_ns.min()), int(t.ops.end_ns.max())) for t in (one, other))
    return b <= c or d <= a or a == c


def _by_environment(gpus: list[Placed]) -> Naming | None:
    """Where nsys was started once a rank, its environment is the rank's."""
    if any(len(report.gpus) > 1 for report, _ in gpus):
        return None
    for rank, size in _RANK_OF:
        ranks = [_number(report, rank) for report, _ in gpus]
        sizes = {_number(report, size) for report, _ in gpus}
        # A batch script is process 0 of its job, whatever it starts.
        if min(ranks) >= 0 and (rank != "SLURM_PROCID" or min(sizes) > 1):
            return Naming(ranks, world_size=sizes.pop() if len(sizes) == 1 and min(sizes) > max(ranks) else None)
    return None


def _by_communicator(gpus: list[Placed]) -> Naming | None:
    """The largest communicator is the job, if every GPU is in it."""
    inits = _all_inits(gpus)
    world = max((init.ranks for init in inits), default=0)
    places = [_places(report, gpu) for report, gpu in gpus]
    # Several communicators may span the job; the first that holds every GPU names the ranks.
    for comm in dict.fromkeys(init.comm for init in inits if init.ranks == world):
        if all(comm in place for place in places):
            how = f"those in the largest NCCL communicator, of {world} ranks"
            return Naming([place[comm] for place in places], how, world)
    return None


def _by_node(gpus: list[Placed]) -> Naming | None:
    """Nodes of equally many GPUs, one after the other."""
    each = {len(report.gpus) for report, _ in gpus}
    if len(each) != 1:
        return None
    size = each.pop()
    for name in _NODE_OF:
        nodes = [_number(report, name) for report, _ in gpus]
        if min(nodes) >= 0:
            local = [report.gpus.index(gpu) for report, gpu in gpus]
            ranks = [node * size + place for node, place in zip(nodes, local, strict=True)]
            return Naming(ranks, f"{name} of the environment times {size}, plus the order of the devices")
    return None


def _by_file(gpus: list[Placed]) -> Naming | None:
    if any(len(report.gpus) > 1 for report, _ in gpus):
        return None
    ranks = [rank_in(report.label, alone=len(gpus) == 1) for report, _ in gpus]
    return Naming([NULL if rank is None else rank for rank in ranks], "from the file names")


def _number(report: Report, name: str) -> int:
    text = report.environment.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,9}", text) else NULL


def _places(report: Report, gpu: Gpu) -> dict[int, int]:
    """Communicator → rank of this GPU in it."""
    alone = sum(other.process == gpu.process for other in report.gpus) == 1
    mine = report.inits.get(gpu.process, [])
    return {init.comm: init.rank for init in mine if alone or init.device == gpu.device}


def _all_inits(gpus: list[Placed]) -> list[Init]:
    reports = {id(report): report for report, _ in gpus}.values()
    return [init for report in reports for inits in report.inits.values() for init in inits]


@dataclass
class _Group:
    """Ranks of the job by rank of the communicator, and its size where that is known."""

    ranks: dict[int, int]
    size: int
    doubts: tuple[str, ...] = ()

    def complete(self) -> list[int]:
        full = len(self.ranks) == self.size and all(0 <= place < self.size for place in self.ranks)
        return [self.ranks[place] for place in sorted(self.ranks)] if full else []


def _groups(gpus: list[Placed], naming: Naming) -> dict[str, _Group]:
    """What is known of every communicator, by the name of its group."""
    found: dict[str, _Group] = {}
    for init in _all_inits(gpus):
        found.setdefault(group_name(init.comm), _Group({}, init.ranks))
    users: dict[str, list[tuple[int, Trace, Ints]]] = {}
    for (report, gpu), rank in zip(gpus, naming.ranks, strict=True):
        for comm, place in _places(report, gpu).items():
            found[group_name(comm)].ranks[place] = rank
        hops = np.flatnonzero(np.isin(gpu.trace.ops.verb, HOPS))
        of = by_group(gpu.trace, hops)
        for name in gpu.trace.groups:
            users.setdefault(name, []).append((rank, gpu.trace, of.get(name, hops[:0])))
    for name, some in users.items():
        if name not in found:
            found[name] = _in_order(sorted(some, key=lambda user: user[0]))
    return found


def _in_order(users: list[tuple[int, Trace, Ints]]) -> _Group:
    """A communicator nobody was seen to make: its users in order of rank, if their sends and receives then agree."""
    counts: Counter[tuple[int, int, Verb]] = Counter()
    for place, (_, trace, mine) in enumerate(users):
        for verb, peer in zip(trace.ops.verb[mine].tolist(), trace.ops.peer[mine].tolist(), strict=True):
            counts[(place, peer, Verb.SEND) if verb == Verb.SEND else (peer, place, Verb.RECV)] += 1
    agree = all(
        max(a, b) < len(users) and a != b and abs(n - counts[a, b, Verb.RECV if verb is Verb.SEND else Verb.SEND]) <= EDGE
        for (a, b, verb), n in counts.items()
    )
    if not counts or not agree:
        return _Group({}, NULL)
    doubt = "ranks inside communicators made before the recording are assumed to be in order: every send then has its receive"
    return _Group({place: rank for place, (rank, _, _) in enumerate(users)}, len(users), (doubt,))


def _placed(trace: Trace, rank: int, groups: dict[str, _Group], naming: Naming) -> Trace:
    """The trace as this rank's; peers as ranks of the job, -1 where they are not known."""
    ops = trace.ops
    peer = np.full(len(ops), NULL, dtype=np.int64)
    for name, mine in by_group(trace, np.flatnonzero(ops.peer >= 0)).items():
        known = groups[name].ranks if name in groups else {}
        peer[mine] = [known.get(place, NULL) for place in ops.peer[mine].tolist()]
    complete = {name: groups[name].complete() for name in trace.groups if name in groups}
    return replace(
        as_rank(replace(trace, ops=ops.replace(peer=peer)), rank),
        group_ranks={name: ranks for name, ranks in complete.items() if ranks},
        world_size=naming.world_size,
    )
