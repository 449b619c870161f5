"""Ranks that are late by their own work: which, since when, in which classes, and what mending them would save.

Ranks that hide each other are in ``slow_sets.py``. Two null hypotheses for one rank. In time: the rank's own work and gaps,
against what the others did in the same steps, have the same level in every span of the run (``core/change_points.py``).
Between peers, for what was there from the first step on: the net excess of the last arriver over its waiting peers is
ordinary variation, inside the prediction interval that the peers themselves give (Bonferroni over all waits of the run, see
``replay/blame.py``), or outside it no more often than hiccups, which happen to any rank, make it.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Mask, Numbers
from taut.core.change_points import LEAST_STEPS
from taut.core.ids import weighed
from taut.core.interval import FALSE_ALARMS
from taut.core.rank_words import rank_label, rank_labels
from taut.core.reporting import spell
from taut.core.student import student_quantile
from taut.diagnose.accidents import as_large_by_accident, by_accident
from taut.diagnose.against_baseline import slow_ranks
from taut.diagnose.as_before import pauses_before, rank_before
from taut.diagnose.finding import (
    NOISE,
    Evidence,
    Finding,
    confidence,
    episodes,
    recovered,
    top_classes,
    why_listed,
)
from taut.diagnose.slow_place import RECURS, Place, all_along
from taut.diagnose.slow_sets import MORE_THAN_ALONE, Member, SlowSet, like_peers, shared_place, slow_sets, usual_work
from taut.graph import Graph
from taut.replay.excess import by_step
from taut.replay.excess_kernels import spread_of_steps
from taut.replay.timeline import Change

OUT_OF_STEP = "partial synchronisation loss"
AGAIN = 0.01
"""Chance for one rank in one step to be as late as counts, once it was late beyond all doubt in another."""
EXPLAINS = 3
"""A span of at least one in so many steps explains why the level of a rank, a median over all steps, is high."""
LEAST = 0.01
"""Excess of less than this share of the wall is not looked into."""
GAPS = "gaps between operators"
MOST = 0.5
"""Share of a rank's excess in the loader or the checkpoint from which that is the failure mode."""


def late_ranks(e: Evidence) -> list[Finding]:
    """Findings about ranks, of whatever mode: those that only together hold the others up, and those that do alone."""
    least = LEAST * e.observed.wall_ns
    places = [place for place in e.slowdowns.ranks if place.total_ns >= least]
    timed = [_in_time(e, place) for place in places]
    of_baseline = slow_ranks(e, {place.rank: place.total_ns for place in places})
    everywhere = [all_along(e.graph, rank) for rank in _indices(e.graph, of_baseline)]
    level = _level_members(e, [*places, *everywhere])
    spans = recurring(e, [*places, *everywhere])
    again = _recurring_members(e, [span for span in spans if span[0] not in {member.rank for member in level}])
    sets = [*slow_sets(e, [*_timed_members(places, timed), *level]), *slow_sets(e, again)]
    inside = {(member.rank, member.first, member.last) for one in sets for member in one.members}
    alone = [f for p, f in zip(places, timed, strict=True) if (p.rank, p.first, p.last) not in inside]
    among = _among_peers(e, spans, inside)
    named = {*_indices(e.graph, among), *(rank for rank, _, _ in inside)}
    along = [_always(e, m) for m in level if m.rank not in named and e.apart is not None and e.apart.lone[m.rank]]
    return [*(_together(e, one) for one in sets), *alone, *of_baseline, *among, *along]


def _indices(graph: Graph, findings: list[Finding]) -> list[int]:
    """Indices of the ranks that some findings name."""
    return np.flatnonzero(np.isin(graph.ranks, [rank for finding in findings for rank in finding.ranks])).tolist()


def _timed_members(places: list[Place], found: list[Finding]) -> list[Member]:
    """Ranks that became slower than they were, as members of sets; groups out of step are a mode of their own."""
    return [
        Member(p.rank, p.first, p.last, f.mode, f.changes, f.confidence, p.total_ns, p.score, True, True)
        for p, f in zip(places, found, strict=True)
        if f.mode != OUT_OF_STEP
    ]


def _level_members(e: Evidence, places: list[Place]) -> list[Member]:
    """Ranks that were slower than most others all along (or further from a baseline), where nothing else explains it."""
    apart, graph, last = e.apart, e.graph, len(e.graph.steps) - 1
    if apart is None:
        return []
    known = {place.rank for place in places if EXPLAINS * (place.last - place.first + 1) >= last + 1}
    out, beyond = [], np.flatnonzero(apart.beyond).tolist()
    for rank in beyond:
        if rank in known:
            continue
        work, gaps = changes = like_peers(e, rank, beyond)
        excess, sure = e.blame.excess_at(work.ops), 1 - float(apart.chance[rank])
        total = float(excess.sum()) + float((graph.gap_ns[gaps.ops] - gaps.value).sum())
        found = Member(
            rank, 0, last, mode_of(graph, work.ops, excess), changes, sure, total, float(apart.score[rank]), False, False
        )
        out += [found] if total >= LEAST * e.observed.wall_ns else []
    return out


def _recurring_members(e: Evidence, spans: list[tuple[int, int, int]]) -> list[Member]:
    """Ranks that held the others up time and again, as members of sets: what stops a host stops its ranks at the same time."""
    graph, blame, top, out = e.graph, e.blame, _top_scores(e), []
    # Of half of all ranks nobody can say that these stop and not the others: busy cores stop whoever runs on them.
    late = {r for r, _, _ in spans}
    for r, a, b in spans if 1 < len(late) < len(graph.ranks) / 2 else []:
        changes = _as_peers(e, (r, a, b), late)
        excess = blame.excess_at(changes[0].ops)
        sure = confidence(top[r], len(blame.waits) * len(graph.ranks), blame.free)
        mode = mode_of(graph, changes[0].ops, excess)
        out.append(Member(r, a, b, mode, changes, sure, float(excess.sum()), float(top[r]), False, True))
    return out


def _as_peers(e: Evidence, span: tuple[int, int, int], but: Collection[int]) -> tuple[Change, ...]:
    """A rank's own work in a span like that of its peers (or of the baseline), its gaps and what it stops as usual.

    Some ranks (indices) are slow as well, and tell nothing.
    """
    graph, (r, a, b) = e.graph, span
    ops = np.flatnonzero(e.slowdowns.own & (graph.rank_index == r) & (graph.window >= a) & (graph.window <= b))
    like = "like its peers" if e.both is None else "as in the baseline"
    pauses = Place(a, b, 0.0, False, 0.0, rank=r, gates=e.slowdowns.stopped(r))
    usual = usual_work(graph, e.blame, ops, but) if e.both is None else e.blame.usual_at(ops)
    return Change(ops, "work", "set", usual, f"rank {int(graph.ranks[r])} {like}"), *pauses_before(e.slowdowns, pauses, but)


def _always(e: Evidence, member: Member) -> Finding:
    """The finding about a rank that alone is slower than most others, all along."""
    saved = recovered(e, member.changes)
    return _together(e, SlowSet((member,), member.first, member.last, saved, int(saved.sum())))


def _together(e: Evidence, found: SlowSet) -> Finding:
    """The finding about ranks that are slow together, or about one that always was."""
    graph, rows = e.graph, [member.rank for member in found.members]
    ranks = tuple(sorted(int(graph.ranks[rank]) for rank in rows))
    work = [change for change in found.changes if change.what == "work"]
    own = [e.slowdowns.own[change.ops] for change in work]
    ops = np.concatenate([np.asarray(change.ops)[mine] for change, mine in zip(work, own, strict=True)])
    usual = np.concatenate([np.asarray(change.value)[mine] for change, mine in zip(work, own, strict=True)])
    excess = graph.work_ns[ops] - usual
    classes = top_classes(graph, ops, excess)
    gaps = [change for change in found.changes if change.what == "gap"]
    paused = sum(float((graph.gap_ns[change.ops] - change.value).sum()) for change in gaps)
    most = classes[0] if classes and excess.sum() >= paused else GAPS
    opener, span = e.blame.waits.opener, (found.first, found.last)
    opened = np.isin(graph.rank_index[opener], rows) & (graph.window[opener] >= span[0]) & (graph.window[opener] <= span[1])
    where = shared_place(graph, rows)
    share = 100 * (float(excess.sum()) + paused) / max(float(usual.sum()), 1.0)
    return Finding(
        mode=found.members[0].mode,
        ranks=ranks,
        stages=tuple(sorted({stage for rank in rows for stage in _stage(graph, rank)})),
        classes=classes,
        steps=e.steps(*span),
        lost_rank_ns=int(e.exposed.waiting[e.blame.waits.op[opened]].sum()),
        recoverable_wall_ns=int(found.saved_ns.sum()),
        confidence=min(member.confidence for member in found.members),
        because=_why_together(e, found, where, share, most),
        changes=found.changes,
        where=where,
        reference="past" if all(member.by_past for member in found.members) else "peers" if e.both is None else "baseline",
    )


def _why_together(e: Evidence, found: SlowSet, where: str, share: float, most: str) -> str:
    """By how much the members of a set are slower, than what, and what mending one or all of them saves."""
    members, wall = found.members, max(e.observed.wall_ns, 1)
    ranks = rank_labels(sorted(int(e.graph.ranks[member.rank]) for member in members), e.graph.members)
    past = sum(member.by_past for member in members)
    others = "the others" if e.both is None else "in the baseline"
    than = "before" if past == len(members) else f"before, or than {others}" if past else others
    unit = "standard errors" if past == len(members) else "spreads or standard errors" if past else "spreads of the others"
    least, all_of_them = min(member.score for member in members), "both" if len(members) == 2 else f"all {len(members)}"
    alone, together = 100 * found.alone_ns / wall, 100 * int(found.saved_ns.sum()) / wall
    named = f" (all of {where}, and nobody else)" if where else ""
    if len(members) == 1:
        how = f"{share:.0f} % longer in its own work and gaps than {than}, by {least:.1f} {unit}"
        return f"{ranks} takes {how}, most of it in {most}; the others wait for it"
    hidden = "they hide each other: " if together >= MORE_THAN_ALONE * alone else ""
    own = "their own work and gaps" if most == GAPS else "their own work"
    return (
        f"{ranks}{named} take {share:.0f} % longer in {own} than {than}, each by at least {least:.1f} {unit}, most of "
        f"it in {most}; {hidden}mending one of them saves at most {alone:.1f} % of the run, {all_of_them} together "
        f"{together:.1f} %"
    )


def _in_time(e: Evidence, place: Place) -> Finding:
    """The finding about a rank that became slower than it was itself."""
    graph = e.graph
    changes = rank_before(e.slowdowns, place, e.blame.peers.value_ns)
    mine = changes[0].ops
    excess = np.asarray(graph.work_ns[mine] - changes[0].value)
    classes = top_classes(graph, mine, excess)
    # Lanes run side by side: what all of them have more would count the same time twice.
    more = _in_class(graph, mine, excess, classes[0]) / (place.last - place.first + 1) if classes else place.extra_ns
    rank, steps = int(graph.ranks[place.rank]), e.steps(place.first, place.last)
    opener = e.blame.waits.opener
    opened = (graph.rank_index[opener] == place.rank) & place.holds(graph.window[opener])
    how = " in some of them" if place.spikes else ", more in each" if place.grows else ""
    return Finding(
        mode=_mode(e, place, mine, excess),
        ranks=(rank,),
        stages=_stage(graph, place.rank),
        classes=classes,
        steps=steps,
        lost_rank_ns=int(e.exposed.waiting[e.blame.waits.op[opened]].sum()),
        confidence=confidence(place.score, place.tests),
        because=f"from step {steps[0]} on, {rank_label(rank, graph.members)} spends {spell(more)} more a step in "
        f"{classes[0] if classes else 'gaps'} than in its other steps{how}; its work as a whole is higher by "
        f"{place.score:.1f} standard errors, what the other ranks changed meanwhile taken off; the others wait for it",
        changes=changes,
        reference="past",
    )


def _mode(e: Evidence, place: Place, ops: Indices | Mask, excess: Numbers) -> str:
    """Which failure mode an excess in time is: of a group out of step, a stall, growing, or a straggler's."""
    if e.split is not None and e.split.holds(place.rank, place.first, place.last):
        return OUT_OF_STEP
    mode = mode_of(e.graph, ops, excess)
    return "silent degradation" if place.grows and mode == "straggler cascade" else mode


def mode_of(graph: Graph, ops: Indices | Mask, excess: Numbers) -> str:
    """Which failure mode an excess is, from the classes that hold it; a gap is the shadow of an op on another lane."""
    by_name = weighed(graph.ops.name[ops], excess, len(graph.names))
    total = np.maximum(by_name, 0).sum()
    for mode, words in (("input stall", ("input", "data_load", "dataload")), ("checkpoint stall", ("checkpoint",))):
        here = sum(by_name[i] for i, name in enumerate(graph.names) if name.lower().startswith(words))
        if here >= MOST * total > 0:
            return mode
    return "straggler cascade"


def _in_class(graph: Graph, ops: Indices | Mask, excess: Numbers, name: str) -> float:
    """Excess of the ops of one class name, ns."""
    return float(excess[graph.ops.name[ops] == graph.names.index(name)].sum())


def recurring(e: Evidence, known: list[Place]) -> list[tuple[int, int, int]]:
    """(rank, first, last window) where a rank held the others up time and again, whatever it cost; not what is known.

    Outside the prediction interval is what happens once in so many runs, and hiccups, which happen to anybody: a rank must
    be late more often than hiccups, as often as the other ranks have them, make it by chance.
    """
    graph, caused = e.graph, _caused(e) > 0
    excess, spread = _excess_and_spread(e)
    score = excess - NOISE * spread
    late = np.flatnonzero(caused.any(axis=1)).tolist()
    # Where a rank held others up, it may do so less clearly in other steps: these count as well, on all ranks.
    apart = caused | (excess > student_quantile(AGAIN, e.blame.free) * np.maximum(spread, 1.0))
    # Three ways to count, of which the clearest is taken; in few steps there is one.
    chances = [by_accident(caused), by_accident(apart)]
    if len(graph.steps) >= LEAST_STEPS:
        chances.append(as_large_by_accident(caused, excess))
    looks = len(chances) if len(graph.steps) >= LEAST_STEPS else 1
    habit = looks * np.min(chances, axis=0) < FALSE_ALARMS
    # In a run of one step there is nothing else to ask: the finding says so.
    habit |= len(graph.steps) == 1
    spans = [(r, a, b) for r in late if habit[r] for a, b in episodes(score[r]) if caused[r, a : b + 1].any()]
    return [(r, a, b) for r, a, b in spans if not any(p.rank == r and min(p.last, b) >= max(p.first, a) for p in known)]


def _caused(e: Evidence) -> Floats:
    """Rank × window: wait of others that excess in the rank's own work caused, rank-ns."""
    size, fault = len(e.graph.ranks) * len(e.graph.steps), e.blame.fault
    own = e.slowdowns.own[fault.ops]
    caused = weighed(e.graph.rank_step[fault.ops[own]], fault.ns[own], size)
    return caused.reshape(len(e.graph.ranks), -1)


def _among_peers(e: Evidence, spans: list[tuple[int, int, int]], in_sets: set[tuple[int, int, int]]) -> list[Finding]:
    """Ranks that held the others up time and again, where they are not already known to."""
    graph, blame, caused = e.graph, e.blame, _caused(e)
    spans = [(r, a, b) for r, a, b in spans if not any(r == m and min(b, z) >= max(a, y) for m, y, z in in_sets)]
    if not spans:
        return []
    key = np.full(len(graph), -1, dtype=np.int64)
    for k, (r, a, b) in enumerate(spans):
        key[e.slowdowns.own & (graph.rank_index == r) & (graph.window >= a) & (graph.window <= b)] = k
    walls = e.batch.walls(graph.work_ns, blame.usual_ns, key, len(spans), graph.gap_ns)
    saved = e.observed.window_ns[:, None] - walls
    top = _top_scores(e)
    against, whose = ("its peers", "their") if e.both is None else ("in the baseline", "its")
    out = []
    for k, (r, a, b) in enumerate(spans):
        habit = _without_accidents(saved[:, k])
        if why_listed(habit, e.observed, a, b) is None:
            continue
        rank, ops = int(graph.ranks[r]), np.flatnonzero(key == k)
        mine = key[blame.fault.ops] == k
        classes = top_classes(graph, blame.fault.ops[mine], blame.fault.ns[mine])
        excess = blame.excess_at(ops)
        more = (_in_class(graph, ops, excess, classes[0]) if classes else float(excess.sum())) / (b - a + 1)
        out.append(
            Finding(
                mode=mode_of(graph, ops, excess),
                ranks=(rank,),
                stages=_stage(graph, r),
                classes=classes,
                steps=e.steps(a, b),
                lost_rank_ns=int(caused[r, a : b + 1].sum()),
                recoverable_wall_ns=int(saved[:, k].sum()),
                confidence=confidence(top[r], len(blame.waits) * len(graph.ranks), blame.free),
                because=f"{rank_label(rank, graph.members)} spends {spell(more)} more a step in "
                f"{classes[0] if classes else 'its work'} than {against}, {top[r]:.3g} times {whose} spread (alarm at "
                f"{blame.threshold:.2f}); the others wait for it",
                reference="peers" if e.both is None else "baseline",
                changes=_as_peers(e, (r, a, b), {rank for rank, _, _ in spans}),
            )
        )
    return out


def _without_accidents(saved: Ints) -> Ints:
    """Savings per window without the few largest, which could be accidents, where there are windows enough to tell."""
    out = saved.copy()
    if len(out) >= LEAST_STEPS:
        out[np.argsort(-out, kind="stable")[: RECURS - 1]] = 0
    return out


def _excess_and_spread(e: Evidence) -> tuple[Floats, Floats]:
    """Rank × window: excess over its peers, and what ordinary variation would bring, ns."""
    graph, shape = e.graph, (len(e.graph.ranks), len(e.graph.steps))
    found = spread_of_steps(*by_step(graph), e.slowdowns.own, graph.work_ns, *e.blame.peers.arrays)[:3]
    excess, variance, shared = (one.reshape(shape) for one in found)
    # Variation within a rank is independent from op to op, so squares add up; ranks that differ do so in every op.
    return excess, np.sqrt(variance + shared**2)


def _top_scores(e: Evidence) -> Floats:
    """Largest score among the waits that each rank opened."""
    waits, score = e.blame.waits, np.nan_to_num(e.blame.score)
    top = np.zeros(len(e.graph.ranks))
    at_fault = waits.fault_ns > 0
    np.maximum.at(top, e.graph.rank_index[waits.opener[at_fault]], score[at_fault])
    return top


def _stage(graph: Graph, index: int) -> tuple[int, ...]:
    stage = int(graph.members.stage[index])
    return (stage,) if stage >= 0 else ()
