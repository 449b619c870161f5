"""Conflict: one controller undoes on the same knob of the same target what another has just done.

Statistic: actions of A that are followed next by an opposite action of B within τ, where demand did not turn meanwhile.
τ is scanned: fractions of the usual time between two actions of the same controller, which no shift changes. Each count is
taken in standard deviations of its null, and the largest counts; p is twice that of the likelier of the two who undoes.

Null hypothesis: when B acts has nothing to do with when A acts. Circular shifts of B's actions on each target keep every
stream's own rhythm and break only what ties the two together.

From few actions no chance is told, nor where both act by the clock: the accounting is exact, and is listed where nearly
all of A's actions of one direction were undone at once and by turns. Two controllers of which one scales up and the other
down are by turns too, but not at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.job_attempts import Jobs, jobs
from taut.control.relation import Relation, spell
from taut.core.jit import expect, kernel

KIND = "conflict"
LEAST = 20
"""Actions of each controller from which a chance is told."""
FRACTIONS = (1 / 32, 1 / 8, 1 / 4, 1 / 2)
"""τ in usual times between two actions of one controller."""
SHIFTS = (99, 999, 9999)
"""Shifts that are tried one after the other, as long as hardly any of them reaches what was seen."""
REACHED = 2
"""Shifts that may reach it for more to be worth trying."""
MOST_WORK, SMALL_WORK = 100_000_000, 3_000_000
"""Actions × shifts of all pairs together, and of one that is always worth it: bounds the time. Of more actions than that
allows the first are tested."""
LEAST_EACH = 2
"""Actions of each controller on a target from which shifts can tell anything."""
MOST_PAIRS = 2000
"""Pairs of controllers and knobs that are tested, those with the most actions."""
UNSURE = 0.05
"""A chance above this tells nothing."""
MOST_MEETINGS = 150_000
"""Two controllers at one knob of one target: so many are looked at, those at the busiest targets first."""
BY_CHANCE = 0.05
"""Chance, over all targets looked at, that answers which know nothing of each other take such turns."""
FEW, NEARLY, AT_ONCE, BY_TURNS = 5, 0.9, 0.25, 0.01
"""Few actions: so many undone, so large a share of all, in so small a part of the time until they are done again, and the
chance that as many of each fall by turns in any order."""
GRID = 4096
"""Places at which demand is looked up."""


@dataclass(frozen=True)
class Pair:
    """The actions of two controllers on a knob, target after target."""

    first: int
    second: int
    knob: int
    rows: tuple[Any, Any]
    """Rows of the first and of the second controller."""
    cuts: tuple[Any, Any]
    """Where each target's rows begin."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Every pair of controllers that share a knob of a target."""
    rows: list[tuple[Relation | None, list[tuple[float, Relation]]]] = []
    examined = 0
    found, held = pairs(log), jobs(log.attempts)
    for pair in found:
        tested = None
        if min(len(pair.rows[0]), len(pair.rows[1])) >= LEAST:
            work = max(MOST_WORK // len(found), SMALL_WORK)
            tested = _tested(log, _first(log, pair, work // SHIFTS[0]), work, rng)
        # Two that act by the clock can be shifted onto each other: what shifts cannot tell, accounting may.
        counted, looked = _counted(log, pair, held) if tested is None or (tested.p or 0.0) > UNSURE else ([], 0)
        rows.append((tested, counted))
        examined += looked
    out = []
    for tested, counted in rows:
        out += [one for chance, one in counted if chance * examined <= BY_CHANCE] or ([tested] if tested else [])
    return out


def meetings(log: Log) -> tuple[Any, Any, Any, list[list[int]]]:
    """Rows by target, knob and controller, where each such run begins and ends, and the runs that share a knob of a target."""
    rows = np.flatnonzero((log.direction != 0) & (log.target >= 0) & (log.controller >= 0))
    place = (log.target.astype(np.int64) * (len(log.words["knob"]) + 1) + log.knob + 1)[rows]
    order = rows[np.lexsort((log.controller[rows], place))]
    place = np.sort(place)
    runs = np.flatnonzero(np.diff(place) | np.diff(log.controller[order])) + 1 if len(order) else np.zeros(0, int)
    begin, end = np.concatenate([[0], runs]), np.concatenate([runs, [len(order)]])
    often = end - begin >= LEAST_EACH
    begin, end = begin[often], end[often]
    shared = np.flatnonzero(np.diff(place[begin]) == 0) if len(order) else np.zeros(0, int)
    sharing: dict[int, list[int]] = {}
    for k in shared:
        sharing.setdefault(int(place[begin[k]]), [int(k)]).append(int(k) + 1)
    return order, begin, end, list(sharing.values())


def pairs(log: Log) -> list[Pair]:
    """Controllers that act up and down on the same knob of the same target."""
    order, begin, end, sharing = meetings(log)
    found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    looked = 0
    for k, runs_here in enumerate(sorted(sharing, key=lambda here: int(begin[here[0]] - end[here[-1]]))):
        looked += len(runs_here) * (len(runs_here) - 1) // 2
        if looked > MOST_MEETINGS:
            log.notes.append(f"conflicts are looked for on the {k:,} busiest of {len(sharing):,} knobs that controllers share")
            break
        for a, b in combinations(runs_here, 2):
            at = order[begin[a]], order[begin[b]]
            key = int(log.controller[at[0]]), int(log.controller[at[1]]), int(log.knob[at[0]])
            found.setdefault(key, []).append((a, b))
    made = [
        Pair(a, b, knob, *zip(*(_joined(order, begin, end, [run[side] for run in both]) for side in (0, 1)), strict=True))
        for (a, b, knob), both in found.items()
    ]
    return sorted(made, key=lambda pair: -len(pair.rows[0]) - len(pair.rows[1]))[:MOST_PAIRS]


def _joined(order: Any, begin: Any, end: Any, runs: list[int]) -> tuple[Any, Any]:
    rows = [order[begin[k] : end[k]] for k in runs]
    return np.concatenate(rows), np.cumsum([0, *map(len, rows)])


def _first(log: Log, pair: Pair, most: int) -> Pair:
    """The pair with about so many of its actions: its first targets, and of the last of these what came first."""
    sizes = np.diff(pair.cuts[0]) + np.diff(pair.cuts[1])
    if sizes.sum() <= most:
        return pair
    targets = int(np.searchsorted(np.cumsum(sizes), most)) + 1
    last = [rows[cuts[targets - 1] : cuts[targets]] for rows, cuts in zip(pair.rows, pair.cuts, strict=True)]
    room = max(most - int(sizes[: targets - 1].sum()), 2 * LEAST_EACH)
    until = np.sort(log.time_ns[np.concatenate(last)])[min(room, int(sizes[targets - 1])) - 1]
    kept = [max(int((log.time_ns[rows] <= until).sum()), 1) for rows in last]
    rows = tuple(rows[: cuts[targets - 1] + n] for rows, cuts, n in zip(pair.rows, pair.cuts, kept, strict=True))
    cuts = tuple(np.append(cuts[:targets], cuts[targets - 1] + n) for cuts, n in zip(pair.cuts, kept, strict=True))
    return Pair(pair.first, pair.second, pair.knob, (rows[0], rows[1]), (cuts[0], cuts[1]))


def _windows(log: Log, pair: Pair) -> tuple[Any, Any]:
    """When each target's window begins and how long it is: from the first action to a usual time after the last."""
    first, last, count = [], [], []
    for rows, cuts in zip(pair.rows, pair.cuts, strict=True):
        first.append(log.time_ns[rows[cuts[:-1]]])
        last.append(log.time_ns[rows[cuts[1:] - 1]])
        count.append(np.diff(cuts))
    begin, end = np.minimum(*first), np.maximum(*last)
    return begin, (end - begin) + (end - begin) // np.maximum(count[0] + count[1] - 1, 1) + 1


def _scan(log: Log, pair: Pair) -> Any:
    """The τ that are tried, in nanoseconds."""
    usual = []
    for rows, cuts in zip(pair.rows, pair.cuts, strict=True):
        gaps = np.diff(log.time_ns[rows])
        inside = np.ones(len(gaps), dtype=bool)
        inside[cuts[1:-1] - 1] = False
        usual.append(float(np.median(gaps[inside])) if inside.any() else np.inf)
    least = min(usual)
    return np.array(FRACTIONS) * (least if np.isfinite(least) else 0.0)


def _demand(log: Log, pair: Pair, begin: Any, length: Any) -> tuple[Any, float, float]:
    """Demand at equal distances, where one series holds for all targets of the pair: values, first time and distance."""
    targets = np.unique(log.target[pair.rows[0]])
    known = log.demand_of(int(targets[0])) if len(targets) == 1 else log.demand.get(-1)
    if known is None or known.own:
        return np.zeros(1), 0.0, 1.0
    first, last = float(begin.min()), float((begin + length).max())
    step = (last - first) / GRID
    return known.at(first + step * np.arange(GRID + 1)), first, step


def _tested(log: Log, pair: Pair, most_work: int, rng: np.random.Generator) -> Relation:
    begin, length = _windows(log, pair)
    taus = _scan(log, pair)
    demand, origin, step = _demand(log, pair, begin, length)
    sides = [
        ((log.time_ns[rows] - np.repeat(begin, np.diff(cuts))).astype(np.float64), log.direction[rows], cuts)
        for rows, cuts in zip(pair.rows, pair.cuts, strict=True)
    ]
    size = len(pair.rows[0]) + len(pair.rows[1])
    seen, null, reached = np.zeros((2, len(taus))), np.zeros((0, 2, len(taus))), np.ones(2)
    for shifts in SHIFTS:
        if shifts * size > most_work and len(null):
            break
        expect(shifts * size)
        moved = rng.random((shifts, len(begin))) * length
        moved = np.concatenate([np.zeros((1, len(begin))), moved])
        counts = undone(
            *sides[0], *sides[1], begin.astype(np.float64), length.astype(np.float64), moved, taus, demand, origin, step
        )
        seen, null = counts[0], counts[1:]
        spread = np.maximum(counts.std(axis=0), 0.5)
        score = ((counts - counts.mean(axis=0)) / spread).max(axis=2)
        reached = (score[1:] >= score[0] - 1e-9).sum(axis=0)
        if reached.min() > REACHED:
            break
    side = int(np.argmin(reached))
    p = min(1.0, 2 * (1 + float(reached[side])) / (1 + len(null)))
    best = int(np.argmax((seen - null.mean(axis=0))[side] / np.maximum(null.std(axis=0)[side], 0.5)))
    usual = float(null[:, side, best].mean())
    did, undid = (pair.first, pair.second) if side == 0 else (pair.second, pair.first)
    count = int(seen[side, best])
    names = tuple(log.word("controller", c) for c in (did, undid))
    rank_ns, tokens = log.cost(np.concatenate(pair.rows))
    because = (
        f"{names[1]} undid {count} of {len(pair.rows[side])} actions of {names[0]} within {spell(taus[best])}, "
        f"where {usual:.3g} would fall so by chance ({len(null)} shifts)"
    )
    return Relation(KIND, names, _target(log, pair), log.word("knob", pair.knob), count, count / max(usual, 0.5), p, because,
                    rank_ns, tokens)  # fmt: skip


def _target(log: Log, pair: Pair) -> str:
    """The target with most actions."""
    targets, counts = np.unique(log.target[np.concatenate(pair.rows)], return_counts=True)
    return log.word("target", int(targets[np.argmax(counts)]))


def _counted(log: Log, pair: Pair, held: Jobs) -> tuple[list[tuple[float, Relation]], int]:
    """Exact accounting of few actions, target by target, each with the chance of such turns; and how many were looked at."""
    out, looked = [], 0
    ups = [np.add.reduceat(log.direction[rows] > 0, cuts[:-1]) for rows, cuts in zip(pair.rows, pair.cuts, strict=True)]
    downs = [np.diff(cuts) - up for cuts, up in zip(pair.cuts, ups, strict=True)]
    for side, way in product((0, 1), (1, -1)):
        mine, theirs = (ups[side], downs[1 - side]) if way > 0 else (downs[side], ups[1 - side])
        for k in np.flatnonzero(np.minimum(mine, theirs) >= FEW):
            did, undid = (pair.rows[s][pair.cuts[s][k] : pair.cuts[s][k + 1]] for s in (side, 1 - side))
            found = _at_once(log, did[log.direction[did] == way], undid[log.direction[undid] == -way], held)
            out += [found] if found else []
            looked += 1
    return out, looked


def _at_once(log: Log, did: Any, undid: Any, held: Jobs) -> tuple[float, Relation] | None:
    fewer = min(len(did), len(undid))
    if fewer < LEAST and 2 / comb(len(did) + len(undid), fewer) > BY_TURNS:
        return None
    target = int(log.target[did[0]])
    after = np.searchsorted(log.time_ns[undid], log.time_ns[did], side="right")
    has = after < len(undid)
    answer = undid[np.minimum(after, len(undid) - 1)]
    following = np.append(log.time_ns[did[1:]], np.iinfo(np.int64).max)
    back = has & (log.time_ns[answer] <= following)
    known = log.demand_of(target)
    if known is not None and not known.own:
        moved = known.at(log.time_ns[answer]) - known.at(log.time_ns[did])
        back &= moved * log.direction[answer] <= 0
    again = back & (following < np.iinfo(np.int64).max)
    if back.sum() < FEW or back.sum() < NEARLY * len(did) or not again.any():
        return None
    lags = log.time_ns[answer[back]] - log.time_ns[did[back]]
    lag = float(np.median(lags))
    until = float(np.median((following - log.time_ns[answer])[again]))
    if lag > AT_ONCE * until:
        return None
    rank_ns, tokens = log.cost(np.concatenate([did, undid]))
    lost = held.rank_ns(held.ended_at(log.word("target", target), log.time_ns[did]))
    names = tuple(log.word("controller", int(log.controller[r[0]])) for r in (did, undid))
    period = float(np.median(np.diff(log.time_ns[did])))
    few = "too few" if len(did) < LEAST else "too regular"
    because = (
        f"{names[1]} undid {int(back.sum())} of {len(did)} actions of {names[0]} about {spell(lag)} after each, and each was "
        f"done again: {len(did)} cycles of about {spell(period)}; {few} for a p-value"
    )
    # Answers that know nothing of what they undo would fall anywhere in a cycle.
    chance = min(float(lags.max()) / max(period, 1.0), 1.0) ** int(back.sum())
    return chance, Relation(
        KIND, names, log.word("target", target), log.word("knob", int(log.knob[did[0]])), int(back.sum()),
        float(back.mean()), None, because, rank_ns if lost is None else lost, tokens,
    )  # fmt: skip


@kernel()
def undone(
    at: Any, way: Any, cut: Any, other_at: Any, other_way: Any, other_cut: Any, begin: Any, length: Any, moved: Any, taus: Any,
    demand: Any, origin: float, step: float,
) -> Any:  # fmt: skip
    """Actions undone next by the other controller within each τ, for every shift of the other; both ways round.

    Times count from the begin of their target's window; a merge of the two streams of each target, target after target.
    """
    shifts, targets = moved.shape
    out = np.zeros((shifts, 2, len(taus)))
    cells = len(demand) - 1
    for s in range(shifts):
        for k in range(targets):
            i, last = cut[k], cut[k + 1]
            low, high = other_cut[k], other_cut[k + 1]
            count, start = high - low, low
            for j in range(low, high):
                if other_at[j] + moved[s, k] < length[k]:
                    start = j + 1
            done, who, before, way_before, demand_before = 0, -1, 0.0, 0, 0.0
            while i < last or done < count:
                when, mine = 0.0, True
                if done < count:
                    j = start + done
                    j = j - count if j >= high else j
                    when = other_at[j] + moved[s, k]
                    when = when - length[k] if when >= length[k] else when
                    mine = False
                if i < last and (done >= count or at[i] <= when):
                    when, mine = at[i], True
                turn = way[i] if mine else other_way[j]
                level = 0.0
                if cells > 0:
                    cell = int((begin[k] + when - origin) / step)
                    level = demand[min(max(cell, 0), cells)]
                if who >= 0 and (who == 0) != mine and turn == -way_before and (level - demand_before) * turn <= 0.0:
                    for t in range(len(taus)):
                        if when - before <= taus[t]:
                            out[s, who, t] += 1.0
                who, before, way_before, demand_before = (0 if mine else 1), when, turn, level
                if mine:
                    i += 1
                else:
                    done += 1
    return out
