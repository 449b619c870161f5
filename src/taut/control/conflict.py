"""Conflict: one controller undoes on the same knob of the same target what another has just done.

Statistic: actions of A that are followed next by an opposite action of B within τ, where demand did not turn meanwhile.
τ is scanned: fractions of the usual time between two actions of the same controller, which no shift changes. Each count is
taken in standard deviations of its null, and the largest counts; p is twice that of the likelier of the two who undoes.

Null hypothesis: when B acts has nothing to do with when A acts. Circular shifts of B's actions on each target keep every
stream's own rhythm and break only what ties the two together.

From few actions no chance is given, nor where both act by the clock: the accounting is exact, and is listed where nearly
all of A's actions of one direction were undone at once and by turns. Two controllers of which one scales up and the other
down are by turns too, but not at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, since, spell, thing
from taut.core.array_types import Codes, Floats, Ints
from taut.core.jit import expect, kernel

KIND = "conflict"
LEAST = 20
"""Actions of each controller from which a chance is given."""
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
class Side:
    """The actions of one controller on a knob, target after target."""

    rows: Ints
    cuts: Ints
    """Where each target's rows begin, and where the last ends."""

    def of(self, target: int) -> Ints:
        """The rows of a target, by its place among those of the pair."""
        return self.rows[self.cuts[target] : self.cuts[target + 1]]

    def first(self, targets: int, of_last: int) -> Side:
        """What belongs to the first targets, and of the last of these so many rows."""
        end = self.cuts[targets - 1] + of_last
        return Side(self.rows[:end], np.append(self.cuts[:targets], end))


Pair = tuple[Side, Side]
"""Two controllers that act on one knob of the same targets."""


@dataclass(frozen=True)
class Tested:
    """Actions of one controller that the other undid, against shifts of the other in time."""

    did: int
    """Which side of the pair was undone."""
    count: int
    tau_ns: float
    expected: float
    """How many shifts have undone on average."""
    shifts: int
    p: float


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Every pair of controllers that share a knob of a target."""
    candidates: list[tuple[Relation | None, list[tuple[float, Relation]]]] = []
    examined = 0
    found = pairs(log)
    for pair in found:
        tested = None
        if min(len(side.rows) for side in pair) >= LEAST:
            work = max(MOST_WORK // len(found), SMALL_WORK)
            tested = _relation(log, _first(log, pair, work // SHIFTS[0]), work, rng)
        # Two that act by the clock can be shifted onto each other: what shifts cannot tell, accounting may.
        counted, looked = _counted(log, pair) if tested is None or (tested.p or 0.0) > UNSURE else ([], 0)
        candidates.append((tested, counted))
        examined += looked
    out = []
    for tested, counted in candidates:
        out += [one for chance, one in counted if chance * examined <= BY_CHANCE] or ([tested] if tested else [])
    return out


def meetings(log: Log) -> tuple[Ints, Ints, list[list[int]]]:
    """Rows by target, knob and controller, where each run of one controller begins and ends, and the runs that share a knob."""
    rows = np.flatnonzero((log.direction != 0) & (log.target >= 0) & (log.controller >= 0))
    place = (log.target.astype(np.int64) * (len(log.words["knob"]) + 1) + log.knob + 1)[rows]
    order = rows[np.lexsort((log.controller[rows], place))]
    place = np.sort(place)
    cuts = np.flatnonzero(np.diff(place) | np.diff(log.controller[order])) + 1
    runs = np.stack([np.append(0, cuts), np.append(cuts, len(order))], axis=1)
    runs = runs[runs[:, 1] - runs[:, 0] >= LEAST_EACH]
    sharing: dict[int, list[int]] = {}
    # Runs are sorted by place: two neighbours of one place are two controllers at the same knob.
    for k in np.flatnonzero(np.diff(place[runs[:, 0]]) == 0).tolist():
        sharing.setdefault(int(place[runs[k, 0]]), [k]).append(k + 1)
    return order, runs, list(sharing.values())


def pairs(log: Log) -> list[Pair]:
    """Controllers that act up and down on the same knob of the same target, those with the most actions first."""
    order, runs, sharing = meetings(log)
    found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    looked = 0
    for k, here in enumerate(sorted(sharing, key=lambda here: int(runs[here[0], 0] - runs[here[-1], 1]))):
        looked += len(here) * (len(here) - 1) // 2
        if looked > MOST_MEETINGS:
            log.notes.append(f"conflicts are looked for on the {k:,} busiest of {len(sharing):,} knobs that controllers share")
            break
        for a, b in combinations(here, 2):
            one, two = order[runs[a, 0]], order[runs[b, 0]]
            key = int(log.controller[one]), int(log.controller[two]), int(log.knob[one])
            found.setdefault(key, []).append((a, b))
    made = [(_side(order, runs[[a for a, _ in both]]), _side(order, runs[[b for _, b in both]])) for both in found.values()]
    return sorted(made, key=lambda pair: -sum(len(side.rows) for side in pair))[:MOST_PAIRS]


def _side(order: Ints, runs: Ints) -> Side:
    return Side(np.concatenate([order[begin:end] for begin, end in runs]), np.append(0, np.cumsum(runs[:, 1] - runs[:, 0])))


def _first(log: Log, pair: Pair, most: int) -> Pair:
    """The pair with about so many of its actions: its first targets, and of the last of these what came first."""
    sizes = np.diff(pair[0].cuts) + np.diff(pair[1].cuts)
    if sizes.sum() <= most:
        return pair
    targets = int(np.searchsorted(np.cumsum(sizes), most)) + 1
    last = [side.of(targets - 1) for side in pair]
    room = max(most - int(sizes[: targets - 1].sum()), 2 * LEAST_EACH)
    until = np.sort(log.time_ns[np.concatenate(last)])[min(room, int(sizes[targets - 1])) - 1]
    kept = [max(int((log.time_ns[rows] <= until).sum()), 1) for rows in last]
    return pair[0].first(targets, kept[0]), pair[1].first(targets, kept[1])


def _windows(log: Log, pair: Pair) -> tuple[Ints, Ints]:
    """When each target's window begins and how long it is: from the first action to a usual time after the last."""
    begin = np.minimum(*(log.time_ns[side.rows[side.cuts[:-1]]] for side in pair))
    end = np.maximum(*(log.time_ns[side.rows[side.cuts[1:] - 1]] for side in pair))
    count = np.diff(pair[0].cuts) + np.diff(pair[1].cuts)
    return begin, (end - begin) + (end - begin) // np.maximum(count - 1, 1) + 1


def _scan(log: Log, pair: Pair) -> Floats:
    """The τ that are tried, in nanoseconds."""
    usual = []
    for side in pair:
        gaps = np.delete(np.diff(log.time_ns[side.rows]), side.cuts[1:-1] - 1)  # not from one target to the next
        usual += [float(np.median(gaps))] if len(gaps) else []
    return np.array(FRACTIONS) * min(usual, default=0.0)


def _demand(log: Log, pair: Pair, begin: Ints, length: Ints) -> tuple[Floats, float, float]:
    """Demand at equal distances, where one series holds for all targets of the pair: values, first time and distance."""
    targets = np.unique(log.target[pair[0].rows])
    known = log.outside_demand(int(targets[0]) if len(targets) == 1 else -1)
    if known is None:
        return np.zeros(1), 0.0, 1.0
    first, last = float(begin.min()), float((begin + length).max())
    step = (last - first) / GRID
    return known.at(first + step * np.arange(GRID + 1, dtype=np.float64)), first, step


def _tested(log: Log, pair: Pair, most_work: int, rng: np.random.Generator) -> Tested:
    begin, length = _windows(log, pair)
    taus = _scan(log, pair)
    demand, origin, step = _demand(log, pair, begin, length)
    since = [(log.time_ns[side.rows] - np.repeat(begin, np.diff(side.cuts))).astype(np.float64) for side in pair]
    sides = [(at, log.direction[side.rows], side.cuts) for at, side in zip(since, pair, strict=True)]
    size = len(pair[0].rows) + len(pair[1].rows)
    seen, null, reached = np.zeros((2, len(taus))), np.zeros((0, 2, len(taus))), np.ones(2)
    for shifts in SHIFTS:
        if shifts * size > most_work and len(null):
            break
        expect(shifts * size)
        moved = np.concatenate([np.zeros((1, len(begin))), rng.random((shifts, len(begin))) * length])
        counts = undone(
            *sides[0], *sides[1], begin.astype(np.float64), length.astype(np.float64), moved, taus, demand, origin, step
        )
        seen, null = counts[0], counts[1:]
        # The largest of several τ counts, so that each is taken in standard deviations before.
        score = ((counts - counts.mean(axis=0)) / np.maximum(counts.std(axis=0), 0.5)).max(axis=2)
        reached = (score[1:] >= score[0] - 1e-9).sum(axis=0)
        if reached.min() > REACHED:
            break
    side = int(np.argmin(reached))
    p = min(1.0, 2 * (1 + float(reached[side])) / (1 + len(null)))  # twice: either may be the one who undoes
    best = int(np.argmax((seen - null.mean(axis=0))[side] / np.maximum(null.std(axis=0)[side], 0.5)))
    return Tested(side, int(seen[side, best]), float(taus[best]), float(null[:, side, best].mean()), len(null), p)


def _relation(log: Log, pair: Pair, most_work: int, rng: np.random.Generator) -> Relation:
    found = _tested(log, pair, most_work, rng)
    did, undid = pair[found.did].rows, pair[1 - found.did].rows
    names = log.name("controller", did[0]), log.name("controller", undid[0])
    rows = np.concatenate([side.rows for side in pair])
    targets, counts = np.unique(log.target[rows], return_counts=True)
    target, knob = log.word("target", int(targets[np.argmax(counts)])), log.name("knob", did[0])
    others = f" and {len(targets) - 1} other targets" if len(targets) > 1 else ""
    because = (
        f"{names[1]} undoes {names[0]}'s {_what(log, did)} of {thing(target)}{others}: {found.count} of {len(did)} times "
        f"within {spell(found.tau_ns)}; {found.expected:.3g} would fall so by chance ({found.shifts} shifts), and neither "
        f"setting lasts{since(log.time_ns[rows])}; let one of the two own {knob or 'the setting'}"
    )
    times = found.count / max(found.expected, 0.5)
    return Relation(KIND, names, target, knob, found.count, times, found.p, because, *log.cost(rows))


def _what(log: Log, rows: Ints) -> str:
    """What actions do: preempt, where they say so, else change their knob."""
    preempted = log.matching("trigger", "preempt") | log.matching("after", "preempt") | log.matching("outcome", "preempt")
    return "preemption" if preempted[rows].mean() > 0.5 else f"changes to {log.name('knob', rows[0]) or 'a setting'}"


def _counted(log: Log, pair: Pair) -> tuple[list[tuple[float, Relation]], int]:
    """Exact accounting of few actions, target by target, each with the chance of such turns; and how many were looked at."""
    out, looked = [], 0
    ups = [np.add.reduceat(log.direction[side.rows] > 0, side.cuts[:-1]) for side in pair]
    downs = [np.diff(side.cuts) - up for side, up in zip(pair, ups, strict=True)]
    for side, way in product((0, 1), (1, -1)):
        mine, theirs = (ups[side], downs[1 - side]) if way > 0 else (downs[side], ups[1 - side])
        for k in np.flatnonzero(np.minimum(mine, theirs) >= FEW).tolist():
            did, undid = pair[side].of(k), pair[1 - side].of(k)
            found = _at_once(log, did[log.direction[did] == way], undid[log.direction[undid] == -way])
            out += [found] if found else []
            looked += 1
    return out, looked


def _at_once(log: Log, did: Ints, undid: Ints) -> tuple[float, Relation] | None:
    fewer = min(len(did), len(undid))
    # Of all orders of so many actions of two, two are strictly by turns.
    if fewer < LEAST and 2 / comb(len(did) + len(undid), fewer) > BY_TURNS:
        return None
    after = np.searchsorted(log.time_ns[undid], log.time_ns[did], side="right")
    answer = undid[np.minimum(after, len(undid) - 1)]
    following = np.append(log.time_ns[did[1:]], np.iinfo(np.int64).max)
    back = (after < len(undid)) & (log.time_ns[answer] <= following)
    known = log.outside_demand(int(log.target[did[0]]))
    if known is not None:
        moved = known.at(log.time_ns[answer]) - known.at(log.time_ns[did])
        back &= moved * log.direction[answer] <= 0
    again = back & (following < np.iinfo(np.int64).max)
    count = int(back.sum())
    if count < FEW or count < NEARLY * len(did) or not again.any():
        return None
    lags = log.time_ns[answer[back]] - log.time_ns[did[back]]
    lag, until = float(np.median(lags)), float(np.median((following - log.time_ns[answer])[again]))
    if lag > AT_ONCE * until:
        return None
    target, knob = log.name("target", did[0]), log.name("knob", did[0])
    rank_ns, tokens = log.cost(np.concatenate([did, undid]))
    lost = log.jobs.rank_ns(log.jobs.ended_at(target, log.time_ns[did]))
    names = log.name("controller", did[0]), log.name("controller", undid[0])
    period = float(np.median(np.diff(log.time_ns[did])))
    because = (
        f"{names[1]} undoes {names[0]}'s {_what(log, did)} of {thing(target)}: {count} of {len(did)} times, every "
        f"{spell(period)}; each was undone after about {spell(lag)} and done again, so that neither lasts; too "
        f"{'few' if len(did) < LEAST else 'regular'} for a p-value{since(log.time_ns[did])}; let one of the two own "
        f"{knob or 'the setting'}, or wait for longer than {spell(period)} before it acts again"
    )
    # Answers that know nothing of what they undo would fall anywhere in a cycle.
    chance = min(float(lags.max()) / max(period, 1.0), 1.0) ** count
    cost = rank_ns if lost is None else lost
    return chance, Relation(KIND, names, target, knob, count, float(back.mean()), None, because, cost, tokens)


@kernel()
def undone(
    at: Floats,
    way: Codes,
    cut: Ints,
    other_at: Floats,
    other_way: Codes,
    other_cut: Ints,
    begin: Floats,
    length: Floats,
    moved: Floats,
    taus: Floats,
    demand: Floats,
    origin: float,
    step: float,
) -> Floats:
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
            # A shift is circular: what is moved beyond the window comes in again at its begin, so ``start`` comes first.
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
                # Undone: the action before was the other's, went the other way, and demand has not moved this one's way.
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
