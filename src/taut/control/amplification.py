"""Amplification: retries that make more load than the work that was asked for.

Linked attempts (logical work, parents) are counted exactly. Layers of retries multiply: three retries over a client that
tries three times are twelve attempts. Listed: works on which several layers retried, and a target of which repeats are
most of the load (more than two attempts a work, with its interval).

Unlinked repeats: statistic, how many follow each other closely, against the same with every action put anywhere in its
own short window (jitter), windows cut where the rate steps. Null hypothesis: the rate is whatever it is, but constant
within a window; a square wave of demand is. The branching ratio is then fitted behind that rate (Hawkes, exponential).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation
from taut.core.block_bootstrap import ratio
from taut.core.interval import LEVEL
from taut.core.jit import expect, kernel

KIND = "amplification"
MOSTLY = 2.0
"""Attempts per work from which repeats are most of the load: the retries, not the demand, decide it."""
LEAST_WORKS = 20
"""Works from which the interval of their mean says something."""
LEAST_EVENTS = 100
"""Unlinked repeats from which a branching ratio can be told."""
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
    linked = (log.attempt >= 0) & ((log.work >= 0) | (log.parent >= 0)) & ~log.of_job
    out = _layers(log, np.flatnonzero(linked)) + _multiplied(log, np.flatnonzero(linked))
    layers = {i for i, word in enumerate(log.words["layer"]) if word in REPEATS}
    loose = np.flatnonzero(~linked & np.isin(log.layer, list(layers)))
    return out + [
        found for rows in log.groups(log.stream, loose, LEAST_EVENTS, MOST_STREAMS) for found in _hawkes(log, rows, rng)
    ]


def roots(log: Log) -> Any:
    """One number per action, shared by all that belongs to the same logical work; -1 for what belongs to none.

    Parents are followed to the first action, whose work gives the name; what has parents but no work is named by its row.
    """
    top = np.where(log.parent >= 0, log.parent, np.arange(len(log)))
    for _ in range(64):
        further = top[top]
        if (further == top).all():
            break
        top = further
    work = log.work.astype(np.int64)
    named = np.where(work[top] >= 0, work[top], work)
    linked = (log.parent >= 0) | (np.bincount(top, minlength=len(log)) > 1)[np.arange(len(log))]
    return np.where(named >= 0, named, np.where(linked, len(log.words["work"]) + top, -1))


def per_work(log: Log, rows: Any, root: Any = None) -> tuple[Any, Any, Any]:
    """Of the works behind some attempts: (attempts of the innermost layer, product over layers, layers that retried).

    A layer made as many attempts as the largest number it gave one. ``root``: the roots of all actions, where they are known.
    """
    work = (roots(log) if root is None else root)[rows]
    rows, work = rows[work >= 0], work[work >= 0]
    if not len(rows):
        return (np.zeros(0, np.int64),) * 3
    _, work = np.unique(work, return_inverse=True)
    callers = len(log.words["controller"])
    size = callers + len(log.words["target"]) + 1
    layer = work.astype(np.int64) * size + _layer(log, rows)
    layers, inverse, count = np.unique(layer, return_inverse=True, return_counts=True)
    most = np.zeros(len(layers), dtype=np.int64)
    np.maximum.at(most, inverse, log.attempt[rows].astype(np.int64) + 1)
    # Whoever goes on counting at another target (a fallback) is no layer below.
    counts_anew = np.bincount(inverse, log.attempt[rows] == 0) > 0
    apart = (layers % size < callers) | counts_anew
    of = layers // size
    works = int(work.max()) + 1
    leaf, product, retried = np.zeros(works, np.int64), np.ones(works, np.int64), np.zeros(works, np.int64)
    np.maximum.at(leaf, of, np.maximum(count, most))
    np.multiply.at(product, of, np.where(apart, most, 1))
    np.add.at(retried, of, (most > 1) & apart)
    return leaf, product, retried


def _layer(log: Log, rows: Any) -> Any:
    """A controller is a layer; where it is not named, what it calls tells layers apart."""
    return np.where(log.controller[rows] >= 0, log.controller[rows], len(log.words["controller"]) + 1 + log.target[rows])


def _layers(log: Log, rows: Any) -> list[Relation]:
    """Works on which more than one layer retried."""
    leaf, product, retried = per_work(log, rows)
    many = np.flatnonzero((retried > 1) & (leaf > 1))
    if not len(many):
        return []
    worst = many[np.argmax(leaf[many])]
    work = roots(log)[rows]
    kept = rows[work >= 0]
    _, inverse = np.unique(work[work >= 0], return_inverse=True)
    mine = kept[inverse == worst]
    names, each = [], []
    layer = _layer(log, mine)
    for number in dict.fromkeys(layer.tolist()):
        first = mine[layer == number]
        who, what = (log.word(column, int(log.ids[column][first[0]])) for column in ("controller", "target"))
        names.append(who)
        each.append(f"{int(log.attempt[first].max()) + 1} ({who or f'calls of {what}'})")
    rank_ns, tokens = log.cost(kept[np.isin(inverse, many) & (log.attempt[kept] > 0)])
    because = (
        f"{len(many)} works were retried by several layers at once, which multiplies: "
        f"{' × '.join(each)} = {int(product[worst])} attempts allowed, "
        f"{int(leaf[worst])} made"
    )
    target = log.word("target", int(log.target[mine[0]]))
    return [Relation(KIND, tuple(names), target, "attempt", len(many), float(product[worst]), None, because, rank_ns, tokens)]


def _multiplied(log: Log, rows: Any) -> list[Relation]:
    """Targets of which repeats are most of the load."""
    out, root = [], roots(log)
    for mine in log.groups(log.target if log.calls is None else np.zeros(len(log), np.int64), rows, LEAST_WORKS):
        leaf, _, _ = per_work(log, mine, root)
        if log.calls is not None:
            leaf = np.concatenate([leaf, np.ones(max(0, log.calls - len(mine)), np.int64)])
        if len(leaf) < LEAST_WORKS:
            continue
        each = ratio(leaf, np.ones(len(leaf))) or {}
        low, high = each.get("lo") or 0.0, each.get("hi") or 0.0
        if low <= MOSTLY:
            continue
        names = [log.word("controller", c) for c in dict.fromkeys(log.controller[mine].tolist())]
        because = (
            f"{int(leaf.sum())} attempts at {len(leaf)} works: {leaf.mean():.2f} each ({low:.2f} to {high:.2f}), so most of "
            f"the load is repeats; the worst work took {int(leaf.max())}"
        )
        rank_ns, tokens = log.cost(mine[log.attempt[mine] > 0])
        target = log.word("target", int(log.target[mine[0]])) if log.calls is None else ""
        out.append(Relation(KIND, tuple(names), target, "attempt", int(leaf.sum()), float(leaf.mean()), None, because,
                            rank_ns, tokens))  # fmt: skip
    return out


def _hawkes(log: Log, rows: Any, rng: np.random.Generator) -> list[Relation]:
    rows = rows[:MOST_EVENTS]
    at = _operational(log, rows)
    gaps = np.diff(at)
    usual = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 0.0
    if usual <= 0:
        return []
    steps = rate_steps(at)
    tests = [clustered(at, steps, usual * close, rng) for close in CLOSE]
    p = min(1.0, len(CLOSE) * min(tests))
    ratio, low, high = branching(at, steps, usual * CLOSE[int(np.argmin(tests))], rng)
    who, target, knob = (log.word(c, int(log.ids[c][rows[0]])) for c in ("controller", "target", "knob"))
    because = (
        f"of {len(rows)} repeats by {who or 'somebody'} a share of {ratio:.2f} ({low:.2f} to {high:.2f}) follows from repeats "
        f"before them, behind a rate with {len(steps) - 1} levels"
    )
    return [Relation(KIND, (who,), target, knob, len(rows), ratio, p, because, *log.cost(rows))]


def _operational(log: Log, rows: Any) -> Any:
    """Times in seconds; where demand is known, time runs as fast as demand explains the rate."""
    at = (log.time_ns[rows] - log.time_ns[rows[0]]) / 1e9
    known = log.demand_of(int(log.target[rows[0]]))
    if known is None or known.own:
        return at
    edges = np.linspace(0, at[-1], CELLS + 1)
    counts = np.histogram(at, edges)[0].astype(np.float64)
    wanted = known.at(log.time_ns[rows[0]] + 1e9 * (edges[:-1] + edges[1:]) / 2)
    x = wanted - wanted.mean()
    slope = float(x @ counts) / float(x @ x) if float(x @ x) > 0 else 0.0
    fine = np.linspace(0, at[-1], FINE * CELLS + 1)
    x = known.at(log.time_ns[rows[0]] + 1e9 * (fine[:-1] + fine[1:]) / 2) - wanted.mean()
    rate = np.maximum(counts.mean() + slope * x, 0.05 * counts.mean())
    return np.interp(at, fine, np.concatenate([[0.0], np.cumsum(rate)])) * at[-1] / rate.sum()


def rate_steps(at: Any) -> Any:
    """Edges of the spans in which the rate is constant: the best cut of equal cells, each step worth its penalty."""
    cells = int(min(CELLS, max(len(at) // 4, 8)))
    edges = np.linspace(at[0], at[-1] + 1e-9 * (at[-1] - at[0]), cells + 1)
    counts = np.histogram(at, edges)[0].astype(np.float64)
    expect(cells * cells)
    return _sharpened(
        at, edges[best_cut(np.concatenate([[0.0], np.cumsum(counts)]), PENALTY * np.log(cells))], edges[1] - edges[0]
    )


def _sharpened(at: Any, steps: Any, cell: float) -> Any:
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
            for n, length in ((before, places - low), (after, high - places))
        )
        out[k] = places[np.argmax(fit)]
    return out


@kernel()
def best_cut(total: Any, penalty: float) -> Any:
    """Cells at which spans begin, and the last: optimal partition of Poisson counts (cumulated)."""
    cells = len(total) - 1
    best = np.zeros(cells + 1)
    back = np.zeros(cells + 1, np.int64)
    for end in range(1, cells + 1):
        best[end] = 1e300
        for begin in range(end):
            n = total[end] - total[begin]
            fit = -n * np.log(n / (end - begin)) if n > 0 else 0.0
            if best[begin] + fit + penalty < best[end]:
                best[end] = best[begin] + fit + penalty
                back[end] = begin
    cuts = np.zeros(cells + 2, np.int64)
    count, place = 0, cells
    while place > 0:
        cuts[count] = place
        place = back[place]
        count += 1
    return cuts[: count + 1][::-1].copy()


def clustered(at: Any, steps: Any, close: float, rng: np.random.Generator) -> float:
    """Chance that so many follow each other closely, if within its window each could have come at any time."""
    grid = np.arange(at[0], at[-1] + WINDOW * close, WINDOW * close) if (at[-1] - at[0]) / (WINDOW * close) < 1e6 else at[:1]
    edges = np.unique(np.concatenate([grid, steps, [at[-1] + close]]))
    window = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(edges) - 2)
    low, size = edges[window], np.diff(edges)[window]
    seen = _pairs(at, close)
    null = [_pairs(np.sort(low + size * rng.random(len(at))), close) for _ in range(JITTERS)]
    spread = max(float(np.std(null)), 1e-9)
    from scipy.special import ndtr

    reached = (1 + sum(n >= seen for n in null)) / (1 + JITTERS)
    # Pair counts of many windows are nearly normal: beyond what the draws can tell, their spread does.
    return reached if reached > 2 / (1 + JITTERS) else min(reached, float(ndtr(-(seen - np.mean(null)) / spread)))


def _pairs(at: Any, close: float) -> int:
    return int((np.searchsorted(at, at + close, side="right") - np.arange(1, len(at) + 1)).sum())


def branching(at: Any, steps: Any, scale: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """(share of events that follow from events before, interval): the best of a few decays around a scale.

    The interval is that of blocks of events drawn again, at the decay that fits best.
    """
    span = np.clip(np.searchsorted(steps, at, side="right") - 1, 0, len(steps) - 2)
    length = np.diff(steps)
    expect(len(at) * STEPS * 8)
    fits = [fitted(at, span, length, 1.0 / (scale * f), STEPS) for f in (0.25, 0.5, 1.0, 2.0, 4.0)]
    ratio, _, share = max(fits, key=lambda fit: fit[1])
    blocks = np.array_split(share, max(2, min(50, len(share) // 20)))
    means = np.array([block.mean() for block in blocks])
    draws = means[rng.integers(0, len(means), (DRAWS, len(means)))].mean(axis=1)
    low, high = np.quantile(draws, LEVEL)
    return float(ratio), min(float(low), float(ratio)), max(float(high), float(ratio))


@kernel()
def fitted(at: Any, span: Any, length: Any, decay: float, steps: int) -> Any:
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
            if i > 0:
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
        ratio = followed / max(seen, 1e-9)
    return ratio, likelihood, share
