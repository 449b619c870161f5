"""Feedback loop: what one controller does makes another act, and that makes the first act again.

Statistic: edges of a lagged regression between the net actions of streams in equal bins (ups less downs, or counts where
no direction is known), given their own past and demand now and before; the strongly connected components of the edges;
the spectral radius of their slopes, with an interval: at one or above, the loop feeds itself.

Null hypothesis, per loop: at least one of its edges is not there (``core/lagged.py`` has the null of an edge), so a
loop is as likely as its least likely edge, corrected for all pairs of streams.

Where demand is not recorded nothing is tested: controllers that follow one demand, each with its own delay, lead each
other, in either sign once demand swings back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, joined, spell
from taut.core.array_types import Floats, Ints, Mask
from taut.core.interval import LEVEL
from taut.core.lagged import FIRST, Edge, leads, without_period
from taut.core.trend import corrected

KIND = "feedback loop"
STREAMS = 12
"""Streams that are tested against each other, those with the most actions."""
LEAST = 40
"""Actions of a stream from which it can lead another."""
BINS = (64, 512)
"""Fewest and most bins of the time axis; otherwise two actions of the rarer stream fall into one on the mean."""
EDGE = 0.05
"""False edges among those found."""
LAGS = 4
"""Bins of demand that may make a controller act: now and up to three before."""
DRAWS = 500


@dataclass(frozen=True)
class Streams:
    """The actions of controllers on their knobs while all of them act, and how each leads each other."""

    rows: list[Ints]
    bins_ns: Floats
    """Edges of the bins of the time axis."""
    lead: dict[tuple[int, int], Edge]
    """(cause, effect) → edge, and …"""
    q: dict[tuple[int, int], float]
    """… its chance, corrected for all pairs."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """The loops between the busiest streams."""
    streams = _busiest(log)
    if len(streams) < 2:
        return []
    first = max(log.time_ns[rows[0]] for rows in streams)
    last = min(log.time_ns[rows[-1]] for rows in streams)
    streams = [rows[(log.time_ns[rows] >= first) & (log.time_ns[rows] <= last)] for rows in streams]
    rarest = min(map(len, streams))
    if rarest < LEAST:
        return []
    edges = np.linspace(first, last, int(np.clip(rarest // 2, *BINS)) + 1)
    demand = _demand(log, streams, edges)
    if demand is None:
        log.notes.append("demand is not recorded, which would make controllers lead each other: no loop is looked for")
        return []
    series = without_period([_net(log, rows, edges) for rows in streams])
    known = without_period(demand) if demand else []
    pairs = [(a, b) for a in range(len(series)) for b in range(len(series)) if a != b]
    lead = {(a, b): _edge(series[a], series[b], known) for a, b in pairs}
    q = [1.0 if value is None else value for value in corrected([edge.chance for edge in lead.values()])]
    return _loops(log, Streams(streams, edges, lead, dict(zip(lead, q, strict=True))), rng)


def _busiest(log: Log) -> list[Ints]:
    """Rows of the busiest controllers and knobs; attempts are no decisions, repeats are."""
    turned = (log.direction != 0) | (log.attempt > 0) | ((log.attempt < 0) & log.matching("layer", "^(retry|fallback)$"))
    rows = np.flatnonzero((log.controller >= 0) & turned)
    key = log.controller.astype(np.int64) * (len(log.words["knob"]) + 1) + log.knob + 1
    return sorted(log.groups(key, rows, LEAST), key=len, reverse=True)[:STREAMS]


def _net(log: Log, rows: Ints, edges: Floats) -> Floats:
    way = log.direction[rows].astype(np.float64)
    # Net ups and downs where directions are known; else the mere number of actions.
    weight = way if (way != 0).mean() > 0.5 else np.ones(len(rows))
    return np.histogram(log.time_ns[rows], edges, weights=weight)[0]


def _demand(log: Log, streams: list[Ints], edges: Floats) -> list[Floats] | None:
    """The distinct series of demand behind the streams, now and before; None where one stream has none."""
    known = [log.outside_demand(int(log.target[rows[0]])) for rows in streams]
    if None in known:
        return None
    out: list[Floats] = []
    for one in {id(demand): demand for demand in known if demand}.values():
        now = one.at((edges[:-1] + edges[1:]) / 2).astype(np.float64)
        out += [np.concatenate([np.full(lag, now[0]), now[: len(now) - lag]]) for lag in range(LAGS)]
    return [one for one in out if np.ptp(one) > 0]


def _edge(x: Floats, y: Floats, known: list[Floats]) -> Edge:
    """The likelier of the two signs, corrected for both."""
    edge = min((leads(x, y, sign, known) for sign in (1, -1)), key=lambda e: e.chance)
    return Edge(min(1.0, 2 * edge.chance), edge.slope, edge.error)


def _loops(log: Log, streams: Streams, rng: np.random.Generator) -> list[Relation]:
    """One relation per strongly connected component; where there is none, the likeliest pair stands for all tests made."""
    n, q = len(streams.rows), streams.q
    linked = np.zeros((n, n), dtype=bool)
    for (a, b), value in q.items():
        linked[a, b] = value <= EDGE
    out = []
    for part in components(linked):
        inside = [(a, b) for a in part for b in part if a != b and linked[a, b]]
        out.append(_relation(log, streams, part, inside, max(q[edge] for edge in inside), rng))
    if out:
        return out
    # A loop is as likely as its least likely edge.
    p, a, b = min((max(q[a, b], q[b, a]), a, b) for a in range(n) for b in range(a))
    return [_relation(log, streams, [a, b], [(a, b), (b, a)], max(p, EDGE + 1e-9), rng)]


def _relation(
    log: Log, streams: Streams, part: list[int], inside: list[tuple[int, int]], p: float, rng: np.random.Generator
) -> Relation:
    place = {stream: i for i, stream in enumerate(part)}
    draws = np.zeros((DRAWS, len(part), len(part)))
    for a, b in inside:
        edge = streams.lead[a, b]
        draws[:, place[b], place[a]] = np.concatenate([[edge.slope], rng.normal(edge.slope, edge.error, DRAWS - 1)])
    # Slopes are known with an error: the gain is that of each draw of all of them together, the first as estimated.
    radius = np.abs(np.linalg.eigvals(draws)).max(axis=1)
    low, high = np.quantile(radius, LEVEL)
    first = {k: streams.rows[k][0] for k in part}
    names = tuple(dict.fromkeys(log.name("controller", row) for row in first.values()))
    knobs = dict.fromkeys(log.name("knob", row) for row in first.values())
    label = {k: f"{log.name('controller', row)} {log.name('knob', row)}".strip() for k, row in first.items()}
    arrows = ", ".join(f"{label[a]} → {label[b]} ({streams.lead[a, b].slope:+.2f})" for a, b in inside)
    because = (
        f"{joined(names)} drive each other within {FIRST} spans of {spell(streams.bins_ns[1] - streams.bins_ns[0])}: {arrows}; "
        f"the loop has a gain of {radius[0]:.2f} ({low:.2f} to {high:.2f}), and from 1 on what it does grows"
    )
    target, knob = log.name("target", first[part[0]]), ", ".join(filter(None, knobs))
    rows = np.concatenate([streams.rows[k] for k in part])
    return Relation(KIND, names, target, knob, len(rows), float(radius[0]), min(1.0, float(p)), because, *log.cost(rows))


def components(linked: Mask) -> list[list[int]]:
    """Strongly connected parts of more than one node: those that reach each other."""
    from scipy.sparse.csgraph import connected_components

    label = connected_components(linked, directed=True, connection="strong")[1]
    return sorted(part for k in set(label.tolist()) if len(part := np.flatnonzero(label == k).tolist()) > 1)
