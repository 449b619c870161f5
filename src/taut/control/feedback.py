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

from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, spell
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
DRAWS = 500


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """The loops between the busiest streams."""
    streams = _streams(log)
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
    given = without_period(demand) if demand else []
    table: dict[tuple[int, int], Edge] = {}
    for a in range(len(series)):
        for b in range(len(series)):
            if a != b:
                table[a, b] = _edge(series[a], series[b], given)
    q = dict(zip(table, corrected([edge.chance for edge in table.values()]), strict=True))
    return _loops(log, streams, table, q, edges, rng)


def _streams(log: Log) -> list[Any]:
    """Rows of the busiest controllers and knobs; attempts are no decisions, repeats are."""
    turned = (log.direction != 0) | (log.attempt > 0) | ((log.attempt < 0) & log.holding("layer", "^(retry|fallback)$"))
    rows = np.flatnonzero((log.controller >= 0) & turned)
    key = log.controller.astype(np.int64) * (len(log.words["knob"]) + 1) + log.knob + 1
    found = [group for group in log.groups(key, rows) if len(group) >= LEAST]
    return sorted(found, key=len, reverse=True)[:STREAMS]


def _net(log: Log, rows: Any, edges: Any) -> Any:
    way = log.direction[rows].astype(np.float64)
    weight = way if (way != 0).mean() > 0.5 else np.ones(len(rows))
    return np.histogram(log.time_ns[rows], edges, weights=weight)[0]


def _demand(log: Log, streams: list[Any], edges: Any) -> list[Any] | None:
    """The distinct series of demand behind the streams, now and before; None where one stream has none."""
    middle = (edges[:-1] + edges[1:]) / 2
    known = [log.demand_of(int(log.target[rows[0]])) for rows in streams]
    out: list[Any] = []
    if any(one is None or one.own for one in known):
        return None
    for one in {id(d): d for d in known if d is not None}.values():
        now = one.at(middle).astype(np.float64)
        for lag in range(4):
            out.append(np.concatenate([np.full(lag, now[0]), now[: len(now) - lag]]))
    return [one for one in out if np.ptp(one) > 0]


def _edge(x: Any, y: Any, given: list[Any]) -> Edge:
    """The likelier of the two signs, corrected for both."""
    edge = min((leads(x, y, sign, given) for sign in (1, -1)), key=lambda e: e.chance)
    return Edge(min(1.0, 2 * edge.chance), edge.slope, edge.error)


def _loops(
    log: Log, streams: list[Any], table: dict[tuple[int, int], Edge], q: Any, edges: Any, rng: np.random.Generator
) -> list[Relation]:
    """One relation per strongly connected component; where there is none, the likeliest pair stands for all tests made."""
    n = len(streams)
    linked = np.zeros((n, n), dtype=bool)
    for (a, b), value in q.items():
        linked[a, b] = value <= EDGE
    out = []
    for part in components(linked):
        inside = [(a, b) for a in part for b in part if a != b and linked[a, b]]
        out.append(_relation(log, streams, part, inside, table, max(q[e] for e in inside), edges, rng))
    if out:
        return out
    p, a, b = min((max(q[a, b], q[b, a]), a, b) for a in range(n) for b in range(a))
    return [_relation(log, streams, [a, b], [(a, b), (b, a)], table, max(p, EDGE + 1e-9), edges, rng)]


def _relation(
    log: Log, streams: list[Any], part: list[int], inside: list[tuple[int, int]], table: Any, p: float, edges: Any,
    rng: np.random.Generator,
) -> Relation:  # fmt: skip
    place = {stream: i for i, stream in enumerate(part)}
    draws = np.zeros((DRAWS, len(part), len(part)))
    for a, b in inside:
        edge = table[a, b]
        draws[:, place[b], place[a]] = np.concatenate([[edge.slope], rng.normal(edge.slope, edge.error, DRAWS - 1)])
    radius = np.abs(np.linalg.eigvals(draws)).max(axis=1)
    low, high = np.quantile(radius, LEVEL)
    rows = np.concatenate([streams[k] for k in part])
    names = tuple(dict.fromkeys(log.word("controller", int(log.controller[streams[k][0]])) for k in part))
    knobs = dict.fromkeys(log.word("knob", int(log.knob[streams[k][0]])) for k in part)
    arrows = ", ".join(f"{_name(log, streams[a])} → {_name(log, streams[b])} ({table[a, b].slope:+.2f})" for a, b in inside)
    because = (
        f"each leads the other within {FIRST} spans of {spell(edges[1] - edges[0])}: {arrows}; gain of the loop "
        f"{radius[0]:.2f} ({low:.2f} to {high:.2f})"
    )
    target = log.word("target", int(log.target[streams[part[0]][0]]))
    return Relation(KIND, names, target, ", ".join(k for k in knobs if k), len(rows), float(radius[0]), min(1.0, float(p)),
                    because, *log.cost(rows))  # fmt: skip


def _name(log: Log, rows: Any) -> str:
    return f"{log.word('controller', int(log.controller[rows[0]]))} {log.word('knob', int(log.knob[rows[0]]))}".strip()


def components(linked: Any) -> list[list[int]]:
    """Strongly connected parts of more than one node: those that reach each other."""
    from scipy.sparse.csgraph import connected_components

    label = connected_components(linked, directed=True, connection="strong")[1]
    return sorted(part for k in set(label.tolist()) if len(part := np.flatnonzero(label == k).tolist()) > 1)
