"""Ranks that are late by their own work: which, since when, in which classes, and what mending them would save.

Two null hypotheses. In time: the rank's own work and gaps, against what the others did in the same steps, have the same
level in every span of the run (``change.py``). Between peers, for what was there from the first step on: the net excess
of the last arriver over its waiting peers is ordinary variation, inside the prediction interval that the peers
themselves give (Bonferroni over all waits of the run, see ``replay/blame.py``).
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.change_points import LEAST_STEPS
from taut.core.ids import weighed
from taut.core.reporting import spell
from taut.diagnose.as_before import pauses_before, rank_before, takes
from taut.diagnose.finding import NOISE, Evidence, Finding, confidence, episodes, worth
from taut.diagnose.slowdowns import Place
from taut.graph import Graph
from taut.replay.timeline import Change

RECURS = 3
"""Steps in which a rank must have held the others up, where there are enough to tell: an accident is no habit."""
LEAST = 0.01
"""Excess of less than this share of the wall is not looked into."""
MOST = 0.5
"""Share of a rank's excess in the loader or the checkpoint from which that is the failure mode."""


def late_ranks(e: Evidence) -> list[Finding]:
    """Findings about ranks, of whatever mode."""
    least = LEAST * e.observed.wall_ns
    places = [place for place in e.slower.ranks if place.total_ns >= least]
    return [*(_in_time(e, place) for place in places), *_among_peers(e, places)]


def absorbed(e: Evidence, links: Place) -> bool:
    """Whether slow transfers are the work of a slow rank among those whose links they are."""
    return any(takes(e.slower, rank, links) for rank in e.slower.ranks)


def _in_time(e: Evidence, place: Place) -> Finding:
    graph, a, b = e.graph, place.first, place.last
    within = (graph.window >= a) & (graph.window <= b)
    changes = rank_before(e.slower, place, e.blame.peers.value_ns)
    mine, usual = changes[0].ops, changes[0].value
    by_name = weighed(graph.ops.name[mine], np.asarray(graph.work_ns[mine] - usual), len(graph.names))
    classes = [graph.names[i] for i in np.argsort(-by_name)[:3] if by_name[i] > 0]
    mode = _mode(e, place, by_name)
    rank, steps = int(graph.ranks[place.rank]), (int(graph.steps[a]), int(graph.steps[b]))
    waited = e.blame.waits.opener
    opened = (graph.rank_index[waited] == place.rank) & within[waited]
    lost = int(e.exposed.waiting[e.blame.waits.op[opened]].sum())
    how = "now and then far more" if place.spikes else "more with every step" if place.grows else "more"
    return Finding(
        mode, (rank,), (), _stage(graph, place.rank), tuple(classes), steps, lost, 0,
        confidence(place.score, place.tests),
        f"rank {rank} spends {spell(place.extra_ns)} a step {how} in its own work from step {steps[0]} on, most of it in "
        f"{classes[0] if classes else 'gaps'}, against its own steps before and what the others did meanwhile "
        f"({place.score:.1f} standard errors); they wait for it",
        changes=changes,
    )  # fmt: skip


def _mode(e: Evidence, place: Place, by_name: Floats) -> str:
    """Which failure mode an excess in time is: of a group out of step, a stall, growing, or a straggler's."""
    if e.apart is not None and e.apart.holds(place.rank, place.first, place.last):
        return "partial synchronisation loss"
    mode = _mode_of(e.graph, by_name)
    return "silent degradation" if place.grows and mode == "straggler cascade" else mode


def _mode_of(graph: Graph, by_name: Floats) -> str:
    """Which failure mode an excess is, from the classes that hold it; a gap is the shadow of an op on another lane."""
    total = np.maximum(by_name, 0).sum()
    for mode, words in (("input stall", ("input", "data_load", "dataload")), ("checkpoint stall", ("checkpoint",))):
        here = sum(by_name[i] for i, name in enumerate(graph.names) if name.lower().startswith(words))
        if here >= MOST * total > 0:
            return mode
    return "straggler cascade"


def recurring(e: Evidence, known: list[Place]) -> list[tuple[int, int, int]]:
    """(rank, first, last window) where a rank held the others up time and again, whatever it cost; not what is known."""
    graph, caused = e.graph, _caused(e)
    score = _excess_score(e).reshape(len(graph.ranks), -1)
    late = np.flatnonzero(caused.sum(axis=1) > 0).tolist()
    least = RECURS if len(graph.steps) >= LEAST_STEPS else 1
    spans = [(r, a, b) for r in late for a, b in episodes(score[r]) if np.count_nonzero(caused[r, a : b + 1]) >= least]
    return [(r, a, b) for r, a, b in spans if not any(p.rank == r and min(p.last, b) >= max(p.first, a) for p in known)]


def _caused(e: Evidence) -> Floats:
    """Rank × window: wait of others that excess in the rank's own work caused, rank-ns."""
    size = len(e.graph.ranks) * len(e.graph.steps)
    caused = weighed(_cells(e)[e.slower.own], e.blame.fault_ns[e.slower.own], size)
    return caused.reshape(len(e.graph.ranks), -1)


def _cells(e: Evidence) -> Ints:
    return e.graph.rank_index * len(e.graph.steps) + e.graph.window


def _among_peers(e: Evidence, known: list[Place]) -> list[Finding]:
    """Ranks that are slower than their peers, where they are not already known to be."""
    graph, blame, own, index = e.graph, e.blame, e.slower.own, e.graph.rank_index
    spans, caused = recurring(e, known), _caused(e)
    if not spans:
        return []
    key = np.full(len(graph), -1, dtype=np.int64)
    for k, (r, a, b) in enumerate(spans):
        key[own & (index == r) & (graph.window >= a) & (graph.window <= b)] = k
    usual = blame.usual_ns
    walls = e.batch.walls(graph.work_ns, usual, key, len(spans), graph.gap_ns)
    saved = e.observed.window_ns[:, None] - walls
    top = _top_scores(e)
    out = []
    for k, (r, a, b) in enumerate(spans):
        recovered, habit = int(saved[:, k].sum()), _habit(saved[:, k])
        if worth(int(habit.sum()), int(habit[a : b + 1].sum()), e.observed, a, b) is None:
            continue
        rank = int(graph.ranks[r])
        mine = (key == k) & (blame.fault_ns > 0)
        names = weighed(graph.ops.name[mine], blame.fault_ns[mine])
        classes = tuple(graph.names[i] for i in np.argsort(-names)[:3] if names[i] > 0)
        lost = int(caused[r, a : b + 1].sum())
        mode = _mode_of(graph, weighed(graph.ops.name[key == k], blame.excess_ns[key == k], len(graph.names)))
        excess = spell(float(blame.excess_ns[key == k].sum()) / (b - a + 1))
        out.append(
            Finding(
                mode, (rank,), (), _stage(graph, r), classes, (int(graph.steps[a]), int(graph.steps[b])), lost, recovered,
                confidence(top[r], len(blame.waits) * len(graph.ranks)),
                f"rank {rank} spends {excess} a step more in {classes[0] if classes else 'its work'} than its peers "
                f"do, {top[r]:.3g} times their spread (alarm at {blame.threshold:.2f}); the others wait for it",
                changes=(
                    Change(np.flatnonzero(key == k), "work", "set", usual[key == k], f"rank {rank} like its peers"),
                    *pauses_before(e.slower, Place(a, b, 0.0, False, 0.0, rank=r, gates=e.slower.stopped(r))),
                ),
            )
        )  # fmt: skip
    return out


def _habit(saved: Ints) -> Ints:
    """Savings per window without those of the costliest that could be accidents, where there are windows enough to tell."""
    out = saved.copy()
    if len(out) >= LEAST_STEPS:
        out[np.argsort(-out, kind="stable")[: RECURS - 1]] = 0
    return out


def _excess_score(e: Evidence) -> Floats:
    """Excess of every rank in every window, less what its peers' ordinary spread would bring."""
    peers, size, own, cells = e.blame.peers, len(e.graph.ranks) * len(e.graph.steps), e.slower.own, _cells(e)

    def total(values: Floats) -> Floats:
        return weighed(cells[own], np.nan_to_num(values[own]), size)

    spread = np.sqrt(total(peers.within_ns**2) + total(peers.between_ns) ** 2)
    return total(e.blame.excess_ns) - NOISE * spread


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
