"""Relations between controllers on the graph: the zone of each, what it took of the ranks, and what that costs.

A zone is a part of the graph that one can look at: the ops of the ranks that the actions of a relation hit, from the first of
these actions to the end of the op that follows the last pause. What it took is in the ledger, as control overhead or discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from taut.control.on_graph import LONGEST_NS, axis_ns
from taut.core.ids import total
from taut.diagnose.discarded_calls import thrown_away
from taut.graph import Graph
from taut.ledger.charge import Ledger
from taut.ledger.overhead import Overhead

OF_A_KNOB = ("conflict", "oscillation")
"""Relations of actions on one knob; others hold several together, and name what they have in common."""


def controlled(graph: Graph, ledger: Ledger) -> dict[str, Any]:
    """What ``taut control --json`` prints, with zones, prices, and the control overhead by controller."""
    from taut.control.relations import control

    assert ledger.overhead is not None
    found, taken = msgspec.to_builtins(control(graph.trace)), ledger.overhead
    rows = [_rows(graph, one) for one in found["relations"]]
    relations = [
        _priced({**one, "zone": _zone(graph, taken, mine)}, graph, ledger, mine)
        for one, mine in zip(found["relations"], rows, strict=True)
    ]
    return {
        **found, "relations": relations, "overhead": _by(graph, ledger, "control overhead", taken.ns, taken.action),
        "discarded": _by(graph, ledger, "discarded", taken.discarded_ns, taken.attempt),
        "partial": [*found["partial"], *taken.on.untargeted, *taken.on.unplaced],
    }  # fmt: skip


def _rows(graph: Graph, one: Mapping[str, Any]) -> Any:
    """The actions of a relation: those of its controllers on its target, and of its knob where that is what they fight over."""
    actions = graph.trace.actions
    mine = np.ones(len(actions), dtype=bool)
    if one["controllers"]:
        mine &= np.isin(actions.controller, one["controllers"])
    if one["target"]:
        mine &= (actions.target == one["target"]) | (actions.work == one["target"])
    if one["kind"] in OF_A_KNOB:
        mine &= actions.knob == (one["knob"] or "")
    return np.flatnonzero(mine)


def _zone(graph: Graph, taken: Overhead, rows: Any) -> dict[str, Any] | None:
    """Where a relation lies on the graph; None where none of its actions does."""
    on, zero = taken.on, axis_ns(graph)
    rows = rows[on.place[rows] >= 0]
    if not len(rows) or zero is None:
        return None
    at = zero[on.segment[rows]] + on.begin_ns[rows]
    # Where the trace tells its calls itself, an attempt is one of them, and ends with it.
    busy = on.end_ns[rows] - on.begin_ns[rows]
    if graph.trace.told:
        busy = np.clip(graph.trace.actions.busy_ns[rows], 0, LONGEST_NS)
    after = on.next_ops(rows)[0]
    ends = (zero[graph.segment[graph.window]] + graph.ops.end_ns)[after]
    first, last = int(at.min()), int(max((at + busy).max(), ends.max(initial=0)))
    acted = graph.rank_index[np.isin(taken.action, rows) & (taken.own_ns > 0)]
    ranks = np.unique(np.concatenate([acted, *(on.ranks[place] for place in np.unique(on.place[rows]).tolist())]))
    zone = {"ranks": graph.ranks[ranks].tolist(), "first_ns": first, "last_ns": last}
    ops = ops_of(graph, {**zone, "steps": _steps(graph, on.segment[rows])})
    steps = graph.steps[graph.window[ops]]
    return {
        "ranks": zone["ranks"], "steps": [int(steps.min()), int(steps.max())] if len(ops) else None, "ops": len(ops),
        "first_ns": first, "last_ns": last, "rank_ns": taken.rank_ns(rows),
    }  # fmt: skip


def _steps(graph: Graph, segments: Any) -> list[int] | None:
    """First and last step in which actions lie, where steps have times of their own and time alone does not tell."""
    return [int(graph.steps[segments.min()]), int(graph.steps[segments.max()])] if graph.trace.relative else None


def ops_of(graph: Graph, zone: Mapping[str, Any]) -> Any:
    """The ops of a zone."""
    zero = axis_ns(graph)
    if zero is None:
        return np.zeros(0, dtype=np.int64)
    begin = zero[graph.segment[graph.window]] + graph.ops.start_ns
    inside = (begin <= zone["last_ns"]) & (begin + (graph.ops.end_ns - graph.ops.start_ns) >= zone["first_ns"])
    inside &= np.isin(graph.ops.rank, zone["ranks"])
    if graph.trace.relative and zone["steps"]:
        step = graph.steps[graph.window]
        inside &= (step >= zone["steps"][0]) & (step <= zone["steps"][1])
    return np.flatnonzero(inside)


def _priced(one: dict[str, Any], graph: Graph, ledger: Ledger, rows: Any) -> dict[str, Any]:
    """The relation with money: its rank time, as the logs tell it or else as the ledger does, and its tokens."""
    cost, zone = dict(one["cost"]), one["zone"]
    if cost["rank_ns"] is None and zone is not None:
        cost["rank_ns"] = zone["rank_ns"]
    money = None if cost["rank_ns"] is None else ledger.price(cost["rank_ns"])
    tokens = None if cost["tokens"] is None else _tokens(graph, ledger, rows, cost["tokens"])
    return {
        **one,
        "cost": {
            **cost, "money": money, "currency": ledger.prices.currency if money is not None else None, "token_money": tokens,
            "token_currency": ledger.prices.token_currency if tokens is not None else None,
        },
    }  # fmt: skip


def _tokens(graph: Graph, ledger: Ledger, rows: Any, count: int) -> str | None:
    """Money for the tokens of a relation: of its actions, or of those thrown away, whichever have that many."""
    actions = graph.trace.actions
    for some in (rows, rows[thrown_away(actions)[rows]]):
        read, written = (int(np.maximum(column[some], 0).sum()) for column in (actions.tokens_in, actions.tokens_out))
        if read + written == count:
            return ledger.prices.tokens(read, written)
    return None


def _by(graph: Graph, ledger: Ledger, fate: str, ns: Any, action: Any) -> dict[str, Any]:
    """One fate of the ledger, and by controller."""
    entry = next(e for e in ledger.entries() if e["fate"] == fate)
    ops = np.flatnonzero(ns)
    names = graph.trace.actions.controller[action[ops]]
    by = {str(name): total(ns[ops[names == name]]) for name in dict.fromkeys(names.tolist())}
    most = sorted(by.items(), key=lambda item: (-item[1], item[0]))
    return {**{key: entry[key] for key in ("rank_ns", "joules", "money", "kg_co2e")}, "by": dict(most)}


LISTED = 0.05
"""Share of the bill from which control overhead may be the verdict."""
LOSSES = ("slow compute", "fault wait", "jitter wait", "structural wait", "gap", "unexplained")
"""Other fates that somebody might do something about."""
RANKS = 8
"""Ranks that a sentence names."""


def said(found: Mapping[str, Any], ledger: Ledger) -> str | None:
    """What controllers that are related did to the job; None unless they took more of the bill than anything else did."""
    placed = [one for one in found["relations"] if one["zone"] and one["zone"]["rank_ns"]]
    fates = ledger.by_fate
    taken = fates["control overhead"] + fates["discarded"]
    share = taken / max(ledger.total_rank_ns, 1)
    if not placed or share < LISTED or taken < max(fates[fate] for fate in LOSSES):
        return None
    worst = max(placed, key=lambda one: int(one["zone"]["rank_ns"]))
    zone, who = worst["zone"], " and ".join(worst["controllers"]) or "controllers"
    ranks = ", ".join(map(str, zone["ranks"][:RANKS])) + (" …" if len(zone["ranks"]) > RANKS else "")
    return (
        f"Control: {worst['kind']} of {who} on rank {ranks}, steps {zone['steps'][0]}–{zone['steps'][1]}. "
        f"{100 * share:.1f} % of the bill is control overhead (pauses after actions, and what others waited for them)"
        f"{' or was discarded' if fates['discarded'] else ''}."
    )
