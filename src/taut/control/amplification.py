"""Amplification: retries that make more load than the work that was asked for.

Linked attempts (logical work, parents) are counted exactly. Layers of retries multiply: three retries over a client that
tries three times are twelve attempts. Listed: works on which several layers retried, and a target of which repeats are
most of the load (more than two attempts a work, with its interval).

Unlinked repeats: statistic, how many follow each other closely, against the same with every action put anywhere in its
own short window (jitter), windows cut where the rate steps. Null hypothesis: the rate is whatever it is, but constant
within a window; a square wave of demand is. The branching ratio is then fitted behind that rate (Hawkes, exponential).
"""

from __future__ import annotations

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, joined, thing
from taut.core.array_types import Floats, Ints, Mask
from taut.core.block_bootstrap import ratio
from taut.core.interval import LEVEL
from taut.core.jit import expect, kernel

KIND = "amplification"
MOSTLY = 2.0
"""Attempts per work from which repeats are most of the load: the retries, not the demand, decide it."""
LEAST_WORKS = 20
"""Works from which the interval of their mean says something."""
LEAST_EVENTS = 100
"""Unlinked repeats from which a branching ratio is estimated."""
MOST_EVENTS = 10_000
"""Of more than these the first are fitted: it bounds the time."""
MOST_STREAMS = 8
"""Streams that are fitted, the longest."""
CLOSE = (0.1, 0.3, 1.0)
"""How close, in median distances, is close; tried one after the other, corrected for it."""
WINDOW = 5
"""Windows of the jitter are so many times as long: a rate that changes more slowly is no repeat."""
JITTERS = 199
CELLS = 512
"""Places at which the rate may step."""
FINE = 32
"""Times so many places at which demand is looked up."""
PENALTY = 1.5
"""Log likelihood, in logarithms of the places, that a step of the rate must bring: over all places few are false."""
DRAWS = 200
STEPS = 60
"""Rounds of the fit."""
REPEATS = ("retry", "fallback")
"""Layers whose actions repeat work."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Linked attempts by target, then the streams of unlinked repeats."""
    linked = linked_attempts(log)
    rows = np.flatnonzero(linked)
    loose = np.flatnonzero(~linked & log.matching("layer", f"^({'|'.join(REPEATS)})$"))
    streams = log.groups(log.stream, loose, LEAST_EVENTS, MOST_STREAMS)
    return _layers(log, rows) + _multiplied(log, rows) + [found for some in streams for found in _hawkes(log, some, rng)]


def linked_attempts(log: Log) -> Mask:
    """Mask of the attempts whose work is known, those of jobs left out."""
    return (log.attempt >= 0) & ((log.work >= 0) | (log.parent >= 0)) & ~log.of_job


def per_work(log: Log, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Of the works behind some attempts: (attempts of the innermost layer, product over layers, layers that retried).

    A layer made as many attempts as the largest number it gave one.
    """
    rows = rows[log.root[rows] >= 0]
    if not len(rows):
        return (np.zeros(0, np.int64),) * 3
    names, work = np.unique(log.root[rows], return_inverse=True)
    callers = len(log.words["controller"])
    size = callers + len(log.words["target"]) + 1
    layers, inverse, count = np.unique(work * size + _layer(log, rows), return_inverse=True, return_counts=True)
    most = np.zeros(len(layers), dtype=np.int64)
    np.maximum.at(most, inverse, log.attempt[rows].astype(np.int64) + 1)
    # Whoever goes on counting at another target (a fallback) is no layer below.
    counts_anew = np.bincount(inverse, log.attempt[rows] == 0) > 0
    apart = (layers % size < callers) | counts_anew
    of = layers // size
    leaf, product, retried = np.zeros(len(names), np.int64), np.ones(len(names), np.int64), np.zeros(len(names), np.int64)
    np.maximum.at(leaf, of, np.maximum(count, most))
    np.multiply.at(product, of, np.where(apart, most, 1))
    np.add.at(retried, of, (most > 1) & apart)
    return leaf, product, retried


def _layer(log: Log, rows: Ints) -> Ints:
    """A controller is a layer; where it is not named, what it calls tells layers apart."""
    caller = log.controller[rows].astype(np.int64)
    return np.where(caller >= 0, caller, len(log.words["controller"]) + 1 + log.target[rows])


def _layers(log: Log, rows: Ints) -> list[Relation]:
    """Works on which more than one layer retried."""
    leaf, product, retried = per_work(log, rows)
    many = np.flatnonzero((retried > 1) & (leaf > 1))
    if not len(many):
        return []
    worst = many[np.argmax(leaf[many])]
    kept = rows[log.root[rows] >= 0]
    _, work = np.unique(log.root[kept], return_inverse=True)
    mine = kept[work == worst]
    layer = _layer(log, mine)
    first = [mine[layer == number] for number in dict.fromkeys(layer.tolist())]
    names = tuple(log.name("controller", some[0]) for some in first)
    each = [
        f"{int(log.attempt[some].max()) + 1} ({who or 'calls of ' + log.name('target', some[0])})"
        for who, some in zip(names, first, strict=True)
    ]
    target = log.name("target", mine[0])
    because = (
        f"{joined(names, 'several layers')} retry the same requests to {thing(target)}, so that their retries multiply: "
        f"{' × '.join(each)} = {int(product[worst])} attempts allowed, {int(leaf[worst])} made at the worst of {len(many)} "
        f"such requests"
    )
    cost = log.cost(kept[np.isin(work, many) & (log.attempt[kept] > 0)])
    return [Relation(KIND, names, target, "attempt", len(many), float(product[worst]), None, because, *cost)]


def _multiplied(log: Log, rows: Ints) -> list[Relation]:
    """Targets of which repeats are most of the load."""
    out = []
    for mine in log.groups(log.target if log.calls is None else np.zeros(len(log), np.int64), rows, LEAST_WORKS):
        leaf = per_work(log, mine)[0]
        if log.calls is not None:
            leaf = np.concatenate([leaf, np.ones(max(0, log.calls - len(mine)), np.int64)])
        if len(leaf) < LEAST_WORKS:
            continue
        each = ratio(leaf, np.ones(len(leaf)))
        low, high = (each.lo or 0.0, each.hi or 0.0) if each else (0.0, 0.0)
        if low <= MOSTLY:
            continue
        names, target = log.controllers(mine), log.name("target", mine[0]) if log.calls is None else ""
        because = (
            f"{joined(names)} made {int(leaf.sum())} attempts at {len(leaf)} requests to {thing(target)}: {leaf.mean():.2f} "
            f"each ({low:.2f} to {high:.2f}), so that most of the load is retries; the worst request took {int(leaf.max())}"
        )
        cost = log.cost(mine[log.attempt[mine] > 0])
        out.append(Relation(KIND, names, target, "attempt", int(leaf.sum()), float(leaf.mean()), None, because, *cost))
    return out


def _hawkes(log: Log, rows: Ints, rng: np.random.Generator) -> list[Relation]:
    rows = rows[:MOST_EVENTS]
    at = _operational(log, rows)
    gaps = np.diff(at)
    usual = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 0.0
    if usual <= 0:
        return []
    steps = rate_steps(at)
    tests = [clustered(at, steps, usual * close, rng) for close in CLOSE]
    p = min(1.0, len(CLOSE) * min(tests))
    share, low, high = branching(at, steps, usual * CLOSE[int(np.argmin(tests))], rng)
    who, target, knob = (log.name(column, rows[0]) for column in ("controller", "target", "knob"))
    because = (
        f"{joined([who])} repeated {knob or 'calls'} of {thing(target)} {len(rows)} times, and a share of {share:.2f} "
        f"({low:.2f} to {high:.2f}) of these repeats was set off by earlier ones; the rest follows a rate with "
        f"{len(steps) - 1} levels"
    )
    return [Relation(KIND, (who,), target, knob, len(rows), share, p, because, *log.cost(rows))]


def _operational(log: Log, rows: Ints) -> Floats:
    """Times in seconds; where demand is known, time runs as fast as demand explains the rate."""
    at: Floats = (log.time_ns[rows] - log.time_ns[rows[0]]) / 1e9
    known = log.outside_demand(int(log.target[rows[0]]))
    if known is None:
        return at
    edges = np.linspace(0, at[-1], CELLS + 1)
    counts = np.histogram(at, edges)[0].astype(np.float64)
    wanted = known.at(log.time_ns[rows[0]] + 1e9 * (edges[:-1] + edges[1:]) / 2)
    # Least squares of the counts on demand; the clock then runs as fast as the rate that this predicts.
    x = wanted - wanted.mean()
    slope = float(x @ counts) / float(x @ x) if float(x @ x) > 0 else 0.0
    fine = np.linspace(0, at[-1], FINE * CELLS + 1)
    x = known.at(log.time_ns[rows[0]] + 1e9 * (fine[:-1] + fine[1:]) / 2) - wanted.mean()
    rate = np.maximum(counts.mean() + slope * x, 0.05 * counts.mean())  # never quite still: time must not stop
    warped: Floats = np.interp(at, fine, np.concatenate([[0.0], np.cumsum(rate)])) * at[-1] / rate.sum()
    return warped


def rate_steps(at: Floats) -> Floats:
    """Edges of the spans in which the rate is constant: the best cut of equal cells, each step worth its penalty."""
    cells = int(min(CELLS, max(len(at) // 4, 8)))  # about four events in each
    edges = np.linspace(at[0], at[-1] + 1e-9 * (at[-1] - at[0]), cells + 1)
    counts = np.histogram(at, edges)[0].astype(np.float64)
    expect(cells * cells)
    cuts = best_cut(np.concatenate([[0.0], np.cumsum(counts)]), PENALTY * np.log(cells))
    return _sharpened(at, edges[cuts], edges[1] - edges[0])


def _sharpened(at: Floats, steps: Floats, cell: float) -> Floats:
    """Steps moved, by up to a cell, to where they fit the events best: a step in the midst of a window looks like a cluster."""
    out = steps.copy()
    for k in range(1, len(steps) - 1):
        low, high = out[k - 1], out[k + 1]
        first, last = np.searchsorted(at, (max(steps[k] - cell, low), min(steps[k] + cell, high)))
        places = np.concatenate([[steps[k]], at[first:last], np.nextafter(at[first:last], np.inf)])
        places = places[(places > low) & (places < high)]
        before = (np.searchsorted(at, places) - np.searchsorted(at, low)).astype(np.float64)
        after = np.searchsorted(at, high) - np.searchsorted(at, low) - before
        fit = sum(
            n * np.log(np.maximum(n, 1e-9) / np.maximum(length, 1e-6 * cell))
            for n, length in ((before, places - low), (after, high - places))  # Poisson log likelihood of both sides
        )
        out[k] = places[np.argmax(fit)]
    return out


@kernel()
def best_cut(total: Floats, penalty: float) -> Ints:
    """Cells at which spans begin, and the last: optimal partition of Poisson counts (cumulated)."""
    cells = len(total) - 1
    best = np.zeros(cells + 1)
    back = np.zeros(cells + 1, np.int64)
    for end in range(1, cells + 1):
        best[end] = 1e300
        for begin in range(end):
            n = total[end] - total[begin]
            fit = -n * np.log(n / (end - begin)) if n > 0 else 0.0
            # The best cut up to ``end`` is the best one up to where its last span begins, and that span.
            if best[begin] + fit + penalty < best[end]:
                best[end] = best[begin] + fit + penalty
                back[end] = begin
    # Follow the last spans back to the beginning.
    cuts = np.zeros(cells + 2, np.int64)
    count, place = 0, cells
    while place > 0:
        cuts[count] = place
        place = back[place]
        count += 1
    return cuts[: count + 1][::-1].copy()


def clustered(at: Floats, steps: Floats, close: float, rng: np.random.Generator) -> float:
    """Chance that so many follow each other closely, if within its window each could have come at any time."""
    from scipy.special import ndtr

    grid = np.arange(at[0], at[-1] + WINDOW * close, WINDOW * close) if (at[-1] - at[0]) / (WINDOW * close) < 1e6 else at[:1]
    edges = np.unique(np.concatenate([grid, steps, [at[-1] + close]]))
    window = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(edges) - 2)
    low, size = edges[window], np.diff(edges)[window]
    seen = _pairs(at, close)
    null = [_pairs(np.sort(low + size * rng.random(len(at))), close) for _ in range(JITTERS)]
    spread = max(float(np.std(null)), 1e-9)
    reached = (1 + sum(n >= seen for n in null)) / (1 + JITTERS)
    # Pair counts of many windows are nearly normal: beyond what the draws can tell, their spread does.
    return reached if reached > 2 / (1 + JITTERS) else min(reached, float(ndtr(-(seen - np.mean(null)) / spread)))


def _pairs(at: Floats, close: float) -> int:
    return int((np.searchsorted(at, at + close, side="right") - np.arange(1, len(at) + 1)).sum())


def branching(at: Floats, steps: Floats, scale: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """(share of events that follow from events before, interval): the best of a few decays around a scale.

    The interval is that of blocks of events drawn again, at the decay that fits best.
    """
    span = np.clip(np.searchsorted(steps, at, side="right") - 1, 0, len(steps) - 2)
    length = np.diff(steps)
    expect(len(at) * STEPS * 8)
    fits = [fitted(at, span, length, 1.0 / (scale * f), STEPS) for f in (0.25, 0.5, 1.0, 2.0, 4.0)]
    ratio, _, share = max(fits, key=lambda fit: fit[1])
    # Neighbours share their parents, so that blocks of events are drawn again and not single ones.
    blocks = np.array_split(share, max(2, min(50, len(share) // 20)))
    means = np.array([block.mean() for block in blocks])
    draws = means[rng.integers(0, len(means), (DRAWS, len(means)))].mean(axis=1)
    low, high = np.quantile(draws, LEVEL)
    return float(ratio), min(float(low), float(ratio)), max(float(high), float(ratio))


@kernel()
def fitted(at: Floats, span: Ints, length: Floats, decay: float, steps: int) -> tuple[float, float, Floats]:
    """(branching ratio, log likelihood, chance of each event to follow from one before): expectation–maximisation."""
    n = len(at)
    base = np.zeros(len(length))
    for i in range(n):
        base[span[i]] += 0.5 / length[span[i]]
    ratio, likelihood = 0.5, 0.0
    share = np.zeros(n)
    for _ in range(steps):
        near, likelihood, followed = 0.0, 0.0, 0.0
        fresh = np.zeros(len(length))
        for i in range(n):
            if i > 0:  # the sum of exp(-decay · age) over all earlier events, carried from event to event
                near = (near + 1.0) * np.exp(-decay * (at[i] - at[i - 1]))
            excited = ratio * decay * near
            rate = max(base[span[i]] + excited, 1e-300)
            share[i] = excited / rate
            followed += share[i]
            fresh[span[i]] += 1.0 - share[i]
            likelihood += np.log(rate)
        seen = 0.0
        for i in range(n):
            seen += 1.0 - np.exp(-decay * (at[n - 1] - at[i]))
        likelihood -= ratio * seen
        for k in range(len(length)):
            likelihood -= base[k] * length[k]
            base[k] = fresh[k] / length[k]
        # Maximisation: events that follow, over the share of each event's offspring that falls before the end of the log.
        ratio = followed / max(seen, 1e-9)
    return ratio, likelihood, share
