"""Ranks that are slow together: equal culprits save nothing singly, so a set of them is found by level and priced as one.

Null hypothesis: the level of a rank (the median over steps of its excess over its peers, in all its work and gaps, in its
work, and in each class that matters, as a share of that work) is drawn from the same distribution as the levels of most of
the others. Where those lie and how far apart is told by the shortest half of all levels, which no minority moves; the
distance of a rank is held against Student's distribution (Bonferroni over ranks), and against its own steps, which may be
red. So ranks that are unequal for good count as unequal, and stay quiet inside that spread, or inside the spread that devices
of one model have anyway (``UNEQUAL``). Where every rank has one peer only, levels mirror each other, and the pairs that
differ least tell the spread. Two ranks at least must be beyond the limit, or one beyond a higher one. Where ranks are so
unequal that none is, a minority may still be a heap of its own: the gap below it is held against the spread inside the two
parts. A level that is missing in many of a rank's steps may be that of stops: then it counts only if the rank stops more
often than chance, as often as the others stop, makes it. Size and power: docs/diagnosis.md. Whether they are a finding is
decided by their price: all of them mended together in one replay. Members that the joint saving does not need are left out.
An attribute may name a set; it does not find it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import weighed
from taut.core.rank_words import listed
from taut.core.reporting import LISTED_SHARE
from taut.core.student import student_quantile, student_tail
from taut.core.tables import Kind
from taut.diagnose.accidents import by_accident
from taut.diagnose.finding import BESIDE, Evidence, why_listed
from taut.diagnose.ordinary import on_other_ranks
from taut.diagnose.slow_place import all_along
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.excess import by_step
from taut.replay.excess_kernels import excess_of_steps
from taut.replay.exposed import copies
from taut.replay.timeline import Change, Timeline, walls

FALSE_ALARMS = 0.01
"""Chance that a job without slow ranks has a heap of them."""
PAIR = 0.05
"""Chance that such a job has a rank whose level is beyond the limit; that it has two is seldom a fifth as likely."""
BOTH = 0.2
UNEQUAL, ASSUMED = 0.05, 8
"""Healthy ranks are taken to differ by at least this spread for the same work: devices of one model do, by 1 to 4 % in surveys
of large clusters (8 to 22 % from the slowest to the quickest), hosts add to it, and a run that shows less may have few of them.
A spread that is assumed counts like one that is known from so many degrees of freedom."""
DOUBTFUL = 0.03
"""The same where nobody is accused, and the run is only not called healthy."""
LEAST_CLASS = 0.1
"""Classes that hold less than this share of all own work are not tested apart."""
LEAST_PAIRS = 4
"""Of fewer pairs of ranks the differences tell no spread."""
LEAST_HEAPED = 6
"""Of fewer ranks the gap between two heaps tells nothing."""
LEAST_RANKS, LEAST_STEPS = 4, 2
"""Fewer ranks, or steps, tell no spread."""
SHRUNK = 0.85
"""The shortest half of n values is shorter than that of many by this share of √n (Gaussian levels)."""
QUARTILES = 1.349
"""Half of Gaussian values lie within so many spreads."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median, in those of a mean (Gaussian)."""
MOST_RED = 0.9
ALIKE = 0.5
"""Spans that have this share of their steps in common may be of one set."""
NEEDED = 0.05
"""Members without which the joint saving is less by no more than this share, all of them together, are left out."""
MORE_THAN_ALONE = 1.25
"""A set saves at least so many times what its members save one by one; else they are findings of their own, unless one that
would not be listed alone is needed for much of it and slower by a comparable time."""
COMPARABLE = 1 / 3
"""Share of the time by which the slowest is slower from which another is comparable."""
STEADY = 0.8
"""A level that stands in this share of a rank's steps is no heap of stops."""
NEARLY_ALL = 0.9
"""A member that alone saves this share of what all save is no set: the others hardly matter."""


class Apart(Struct, frozen=True):
    """How far the level of every rank lies from those of most others, in the series that tells it most clearly."""

    score: Floats
    """Distance from the middle of the shortest half, in spreads."""
    chance: Floats
    """Of such a distance in two ranks of a job, or of such a heap; corrected for all ranks and series."""
    beyond: Mask
    """Ranks that are slower than most others: two at least, or one that is far slower."""
    lone: Mask
    """Those that are far slower, each by itself."""


class Member(Struct, frozen=True):
    """One rank that may be slow with others."""

    rank: int
    """Index."""
    first: int
    last: int
    mode: str
    changes: tuple[Change, ...]
    confidence: float
    total_ns: float
    score: float
    """Standard errors above its own past, or spreads above its peers."""
    by_past: bool
    alone: bool
    """Whether it is a finding of its own where it hides nobody."""


class SlowSet(Struct, frozen=True):
    """Members that save far more together than one by one."""

    members: tuple[Member, ...]
    first: int
    last: int
    saved_ns: Ints
    """Per window, all of them mended."""
    alone_ns: int
    """The most that mending one of them saves."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """All of its members mended."""
        return tuple(change for member in self.members for change in member.changes)


def shortest_half(values: Floats) -> tuple[float, float]:
    """Middle and length of the shortest stretch that holds more than half of some values: a minority does not move it."""
    x = np.sort(values)
    half = len(x) // 2 + 1
    length = x[half - 1 :] - x[: len(x) - half + 1]
    at = int(np.argmin(length))
    return float(x[at : at + half].mean()), float(length[at])


def apart_from_peers(graph: Graph, blame: Blame) -> Apart | None:
    """The test of every rank's level against the others'; None where too few ranks or steps tell."""
    some = [share for share in _series(graph, blame) if np.isfinite(share).all(axis=1).sum() >= LEAST_RANKS]
    if not some or len(graph.steps) < LEAST_STEPS:
        return None
    found = [_apart(graph, share, len(some), k == 0) for k, share in enumerate(some)]
    chance = np.array([one.chance for one in found])
    clearest = np.argmin(chance, axis=0), np.arange(len(graph.ranks))
    score = np.array([one.score for one in found])[clearest]
    beyond, lone = (np.any([getattr(one, mask) for one in found], axis=0) for mask in ("beyond", "lone"))
    return Apart(score, chance[clearest], beyond, lone)


def _apart(graph: Graph, share: Floats, tests: int, heaps: bool) -> Apart:
    """The same for one series of every rank, one of so many."""
    known: Mask = np.asarray(np.isfinite(share).all(axis=1))
    level = np.where(known, np.median(np.where(known[:, None], share, 0.0), axis=1), np.nan)
    count = int(known.sum()) * tests
    middle, between, free = _between_pairs(level[known]) if _in_pairs(graph, known) else _between(level[known])
    free = free if between > UNEQUAL else max(free, ASSUMED)
    spread = np.maximum(max(between, UNEQUAL), _own_error(share, known))
    score = np.full(len(graph.ranks), -np.inf)
    score[known] = (level[known] - middle) / spread[known]
    chance = np.array([min(1.0, BOTH * count * student_tail(float(s), free)) if np.isfinite(s) else 1.0 for s in score])
    far: Mask = score > student_quantile(PAIR / count, free)
    lone: Mask = score > student_quantile(FALSE_ALARMS / count, free)
    heap, likely = _minority(level, known) if heaps else (np.zeros_like(far), 1.0)
    chance = np.where(heap, np.minimum(chance, likely), chance)
    rows, told = np.flatnonzero(known), far | heap
    stops = [rank for k, rank in enumerate(rows.tolist()) if told[rank] and _of_stops(share[rows], k, level[rank], middle)]
    for mask in far, lone, heap:
        mask[stops] = False
    return Apart(score, chance, (far if far.sum() > 1 else lone) | heap, lone)


def _of_stops(share: Floats, row: int, level: float, middle: float) -> bool:
    """Whether a level may be that of stops: not in nearly all steps, and as many as the other ranks' make likely."""
    high = share >= 0.5 * (middle + level)
    return bool(high[row].mean() < STEADY and by_accident(high, slice(row, row + 1))[0] >= FALSE_ALARMS)


def _between(level: Floats) -> tuple[float, float, int]:
    """Middle of most levels, their spread, and its degrees of freedom."""
    middle, length = shortest_half(level)
    return middle, length / QUARTILES / (1 - SHRUNK / np.sqrt(len(level))), max((len(level) - 1) // 2, 1)


def _in_pairs(graph: Graph, known: Mask) -> bool:
    """Whether every rank has one peer: then a slow rank makes another seem quick, and levels mirror each other."""
    _, members = np.unique(graph.role_of_rank[known], return_counts=True)
    return bool((members == 2).all()) and len(members) >= LEAST_PAIRS


def _between_pairs(level: Floats) -> tuple[float, float, int]:
    """The same where levels mirror each other: the spread is told by the half of all pairs that differ least."""
    apart = np.sort(np.abs(np.log1p(np.maximum(level, -0.99))))[::2]
    pairs, half = len(apart), len(apart) // 2
    # Expected size of that one of so many Gaussian differences (Blom).
    usual = NormalDist().inv_cdf(0.5 + 0.5 * (half - 0.375) / (pairs + 0.25))
    return 0.0, float(apart[half - 1]) / usual, half


def _minority(level: Floats, known: Mask) -> tuple[Mask, float]:
    """Ranks above the largest gap, of two ranks to less than half, if that gap is clear; and the chance of such a gap."""
    heap, rows = np.zeros(len(level), dtype=bool), np.flatnonzero(known)
    rows = rows[np.argsort(level[rows], kind="stable")]
    x, count = level[rows], len(rows)
    cuts = np.arange(count - (count - 1) // 2, count - 1)
    if count < LEAST_HEAPED:
        return heap, 1.0
    at = int(cuts[np.argmax(x[cuts] - x[cuts - 1])])
    likely = student_tail(_gap(x, at), (count - 1) // 2)
    heap[rows[at:]] = likely < FALSE_ALARMS
    return heap, likely


def _gap(x: Floats, at: int, least: float = UNEQUAL) -> float:
    """The gap below place ``at`` of sorted values, in spreads inside the two parts, of at least so much."""
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in (x[:at], x[at:]))
    return float((x[at] - x[at - 1]) / max(np.sqrt(squares / (len(x) - 2)), least))


def _series(graph: Graph, blame: Blame) -> list[Floats]:
    """Rank × window: excess over the peers as a share of their work; NaN where none is known.

    Of all own work and gaps, of own work alone, and of each class that matters.
    """
    own, gaps = own_with_peers(graph, blame), ~np.isnan(blame.gap_reference)
    shape = len(graph.ranks), len(graph.steps)
    name, value = graph.ops.name, blame.peers.value_ns

    def totals(rows: Mask) -> tuple[Floats, Floats]:
        excess, usual = excess_of_steps(*by_step(graph), rows, graph.work_ns, value)
        return excess.reshape(shape), usual.reshape(shape)

    def shares(excess: Floats, usual: Floats) -> Floats:
        mean = usual.mean(axis=1, keepdims=True)
        return np.where(mean > 0, excess / np.where(mean > 0, mean, 1.0), np.nan)

    excess, usual = totals(own)
    by_class = weighed(name[own], value[own])
    large = np.flatnonzero(by_class >= LEAST_CLASS * by_class.sum()).tolist()
    of_class = (own & (name == k) for k in large if len(large) > 1)
    classes = [shares(*totals(rows)) for rows in of_class]
    if not gaps.any():
        return [shares(excess, usual), *classes]
    paused = excess_of_steps(*by_step(graph), gaps, graph.gap_ns, blame.gap_reference)[0].reshape(shape)
    return [shares(excess + paused, usual), shares(excess, usual), *classes]


def own_with_peers(graph: Graph, blame: Blame) -> Mask:
    """Which ops are a rank's own work, and have peers to be compared with."""
    return np.asarray(((graph.ops.kind != Kind.COMMUNICATE) | copies(graph)) & ~np.isnan(blame.peers.value_ns))


def _own_error(share: Floats, known: Mask) -> Floats:
    """Standard error of each rank's level, from its own steps: they may be red, and what all ranks share is taken out."""
    windows = share.shape[1]
    rest = share - np.median(share[known], axis=0)
    rest = rest - np.median(rest, axis=1, keepdims=True)
    # Robust, because single hiccups do not move a median.
    spread = 1.4826 * np.median(np.abs(rest), axis=1)
    clipped = np.clip(rest, -3 * spread[:, None], 3 * spread[:, None])
    square = np.maximum((clipped**2).sum(axis=1), 1e-300)
    rho = (clipped[:, 1:] * clipped[:, :-1]).sum(axis=1) / square
    # Kendall: the estimate from n steps is too low by (1 + 4ρ)/n; kindred series share the redness.
    rho = np.clip(np.maximum(rho, np.median(rho[known])) + (1 + 4 * np.maximum(rho, 0)) / windows, 0.0, MOST_RED)
    error: Floats = MEDIAN_ERROR * spread * np.sqrt((1 + rho) / (1 - rho) / windows)
    return np.nan_to_num(error)


def like_peers(e: Evidence, rank: int, but: Sequence[int]) -> tuple[Change, Change]:
    """A rank's own work and its gaps, in all steps, as its peers have them (or the baseline), other slow ranks left out."""
    graph, blame = e.graph, e.blame
    mine, why = graph.rank_index == rank, f"rank {int(graph.ranks[rank])} like its peers"
    ops = np.flatnonzero(own_with_peers(graph, blame) & mine)
    gaps = np.flatnonzero(mine & (graph.gap_ns > blame.usual_gap_ns))
    work, gap = blame.usual_at(ops), blame.usual_gap_ns[gaps]
    if e.both is None:
        accidents, every = e.slowdowns.accidents(all_along(graph, rank)), np.flatnonzero(mine)
        work = usual_work(graph, blame, ops, but, accidents)
        as_others = on_other_ranks(graph, graph.gap_ns, every, but, accidents)[np.searchsorted(every, gaps)]
        gap = np.where(np.isnan(as_others), gap, as_others).astype(np.int64)
    return Change(ops, "work", "set", work, why), Change(gaps, "gap", "set", gap, why)


def usual_work(graph: Graph, blame: Blame, ops: Ints, but: Collection[int], accidents: Mask | None = None) -> Ints:
    """What some ops of a rank would take as on its peers, some ranks (indices) left out; as they were where none tells."""
    usual, known = blame.usual_at(ops), ~np.isnan(blame.peers.value_ns[ops])
    found = on_other_ranks(graph, graph.work_ns, ops, but, accidents)
    known &= ~np.isnan(found)
    usual[known] = np.rint(found[known]).astype(np.int64)
    return usual


def slow_sets(e: Evidence, members: Sequence[Member]) -> list[SlowSet]:
    """Sets that are worth mending together: of one mode, at about the same time."""
    left = sorted(members, key=lambda m: (-m.total_ns, m.rank))
    out = []
    while left:
        seed = left[0]
        alike = [m for m in left if m.mode == seed.mode and _in_common(m, seed) >= ALIKE]
        left = [m for m in left if m.mode != seed.mode or _in_common(m, seed) < ALIKE]
        # A rank of which two things are told at the same time is a member once, with what costs more.
        some = {m.rank: m for m in reversed(alike)}
        found = _priced(e, list(reversed(some.values()))) if len(some) > 1 else None
        out += [found] if found is not None else []
    return out


def _in_common(a: Member, b: Member) -> float:
    """Steps of two spans that are in both, as a share of those in either."""
    both = min(a.last, b.last) - max(a.first, b.first) + 1
    return max(both, 0) / (max(a.last, b.last) - min(a.first, b.first) + 1)


def _priced(e: Evidence, members: Sequence[Member]) -> SlowSet | None:
    """The members that the joint saving needs; None where that is not worth it, or not more than they save one by one."""
    work, gap, key = e.graph.work_ns.copy(), e.graph.gap_ns.copy(), np.full(len(e.graph), -1, dtype=np.int64)
    for k, member in enumerate(members):
        for change in member.changes:
            (work if change.what == "work" else gap)[change.ops] = change.value
            key[change.ops] = k
    count, observed, unmended = len(members), e.observed.window_ns, e.graph.work_ns
    other = None if np.array_equal(gap, e.graph.gap_ns) else gap
    alone_by_step = observed[:, None] - e.batch.walls(unmended, work, key, count, e.graph.gap_ns, other)
    alone = alone_by_step.sum(axis=0)
    joint = e.batch.walls(unmended, work, np.where(key >= 0, 0, -1), 1, e.graph.gap_ns, other).sum()
    back = None if other is None else e.graph.gap_ns
    needed = e.batch.walls(work, unmended, key, count, gap, back).sum(axis=0) - joint
    # Un-mending one shows all that it holds up, so members whose need is small may go together.
    order = np.argsort(needed, kind="stable")
    spare = np.cumsum(np.maximum(needed[order], 0)) <= NEEDED * max(e.observed.wall_ns - int(joint), 0)
    kept = sorted(order[~spare].tolist())
    if len(kept) < 2:
        return None
    chosen = tuple(members[k] for k in kept)
    saved = observed - walls(e.graph, [change for member in chosen for change in member.changes])
    # The middle member tells when; of two that differ, the longer span.
    first = sorted(member.first for member in chosen)[(len(chosen) - 1) // 2]
    last = sorted(member.last for member in chosen)[len(chosen) // 2]
    total = int(saved.sum())
    apart = any(m.alone for m in chosen) and total < MORE_THAN_ALONE * np.maximum(alone[kept], 0).sum()
    if apart and not _hides_one(e, chosen, alone_by_step[:, kept], needed[kept] >= BESIDE * total):
        return None
    if alone[kept].max() >= NEARLY_ALL * total or why_listed(saved, e.observed, first, last) is None:
        return None
    return SlowSet(chosen, first, last, saved, int(max(alone[kept].max(), 0)))


def _hides_one(e: Evidence, members: Sequence[Member], alone: Ints, needed: Mask) -> bool:
    """Whether a member that is needed (a mask) and comparably slow would not be listed for what it saves alone (per window)."""
    least = COMPARABLE * max(member.total_ns for member in members)
    return any(
        need and m.total_ns >= least and why_listed(saved, e.observed, m.first, m.last) is None
        for m, saved, need in zip(members, alone.T, needed, strict=True)
    )


def shared_place(graph: Graph, ranks: Sequence[int]) -> str:
    """What all of some ranks (indices) have in common and nobody else has: hosts, a stage, a device model, a group; or ''."""
    members, inside = graph.members, np.zeros(len(graph.ranks), dtype=bool)
    inside[list(ranks)] = True
    for word, values in (("host", members.host), ("device", members.device), ("stage", members.stage), ("role", members.role)):
        column = [str(value) for value in values]
        here = dict.fromkeys(column[i] for i in np.flatnonzero(inside))
        others = {column[i] for i in np.flatnonzero(~inside)}
        if here.keys() & {"", "-1"} or here.keys() & others or len(here) >= len(ranks):
            continue
        return f"{word} {next(iter(here))}" if len(here) == 1 else f"{word}s {listed(list(here))}"
    named = frozenset(int(graph.ranks[i]) for i in ranks)
    return next((f"group {name}" for name, group in sorted(graph.trace.group_ranks.items()) if frozenset(group) == named), "")


class TwoLevels(Struct, frozen=True):
    """Half of the ranks, or more, take longer than the others for the same work: nobody can tell which are right."""

    slower: tuple[int, ...]
    """Indices of ranks."""
    faster: tuple[int, ...]
    share: float
    """By how much the slower take longer, as a share of what the faster take."""
    saving: float
    """Share of the wall that the job would gain if all were like the faster."""


def two_levels(graph: Graph, blame: Blame, observed: Timeline) -> TwoLevels | None:
    """Two heaps of ranks, of which the slower is no minority; None where there is one heap, or it does not matter.

    Null hypothesis: one heap. Its largest gap is held against the spread inside the two parts (Student).
    """
    own = own_with_peers(graph, blame)
    count, windows = len(graph.ranks), len(graph.steps)
    if count < LEAST_RANKS or windows < LEAST_STEPS:
        return None
    cell = graph.rank_step[own]
    took = np.median(weighed(cell, graph.work_ns[own], count * windows).reshape(count, windows), axis=1)
    role = graph.role_of_rank
    usual = np.array([np.median(took[role == one]) for one in range(int(role.max()) + 1) if (role == one).any()])
    took = took / np.maximum(usual[np.unique(role, return_inverse=True)[1]], 1.0)
    order = np.argsort(took, kind="stable")
    x = took[order]
    cuts = np.arange(1, count // 2 + 1)  # so many are faster: half of them at most
    at = int(cuts[np.argmax(x[cuts] - x[cuts - 1])])
    faster, slower = x[:at], x[at:]
    # The cut is chosen, so half of the values tell.
    if student_tail(_gap(x, at, DOUBTFUL), max((count - 1) // 2, 2)) > FALSE_ALARMS or faster.mean() <= 0:
        return None
    share = float(slower.mean() / faster.mean() - 1)
    ops = np.flatnonzero(own & np.isin(graph.rank_index, order[at:]))
    saved = observed.wall_ns - int(walls(graph, [Change(ops, "work", "scale", 1 / (1 + share))]).sum())
    saving = saved / max(observed.wall_ns, 1)
    if saving < LISTED_SHARE:
        return None
    return TwoLevels(tuple(sorted(order[at:].tolist())), tuple(sorted(order[:at].tolist())), share, saving)
