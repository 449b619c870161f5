"""Relations between controllers on the graph: the zone of each, what it took of the ranks, and what that costs.

A zone is a part of the graph that one can look at: the ops of the ranks that the actions of a relation hit, from the first of
these actions to the end of the op that follows the last pause. What it took is in the ledger, as control overhead or discarded.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from taut.control.on_graph import LONGEST_NS, axis_ns
from taut.control.relation_price import joules
from taut.core.array_types import Ints
from taut.core.ids import total
from taut.diagnose.discarded_calls import thrown_away
from taut.graph import Graph
from taut.ledger.charge import Ledger
from taut.ledger.overhead import Overhead
from taut.result.types import ControlResult, FateBy, RelationResult, Zone

OF_A_KNOB = ("conflict", "oscillation")
"""Relations of actions on one knob; others hold several together, and name what they have in common."""
RANKS = 8
"""Ranks that a sentence names."""


def control_on_graph(graph: Graph, ledger: Ledger) -> ControlResult:
    """What ``taut control --json`` prints, with zones, prices, and the control overhead by controller."""
    from taut.control.relations import control

    assert ledger.overhead is not None
    found, taken = control(graph.trace), ledger.overhead
    return replace(
        found,
        relations=[_placed(graph, ledger, taken, one) for one in found.relations],
        overhead=_by_controller(graph, ledger, "control overhead", taken.ns, taken.action),
        discarded=_by_controller(graph, ledger, "discarded", taken.discarded_ns, taken.attempt),
        partial=[*found.partial, *taken.on.untargeted, *taken.on.unplaced],
    )


def _placed(graph: Graph, ledger: Ledger, taken: Overhead, one: RelationResult) -> RelationResult:
    """A relation with its zone and its price: of its rank time, as the logs tell it or else as the ledger does, and tokens."""
    rows = _actions(graph, one)
    zone, cost, prices = _zone(graph, taken, rows), one.cost, ledger.prices
    rank_ns = zone.rank_ns if cost.rank_ns is None and zone is not None else cost.rank_ns
    money = None if rank_ns is None else ledger.price(rank_ns)
    token_money = None if cost.tokens is None else _token_money(graph, ledger, rows, cost.tokens)
    priced = replace(
        cost,
        rank_ns=rank_ns,
        money=money,
        currency=None if money is None else prices.currency,
        token_money=token_money,
        token_currency=None if token_money is None else prices.token_currency,
        joules=joules(one.kind, rank_ns, prices),
    )
    return replace(one, zone=zone, cost=priced)


def _actions(graph: Graph, one: RelationResult) -> Ints:
    """The actions of a relation: those of its controllers on its target, and of its knob where that is what they fight over."""
    actions = graph.trace.actions
    mine = np.ones(len(actions), dtype=bool)
    if one.controllers:
        mine &= np.isin(actions.controller, one.controllers)
    if one.target:
        mine &= (actions.target == one.target) | (actions.work == one.target)
    if one.kind in OF_A_KNOB:
        mine &= actions.knob == (one.knob or "")
    return np.flatnonzero(mine)


def _zone(graph: Graph, taken: Overhead, rows: Ints) -> Zone | None:
    """Where a relation lies on the graph; None where none of its actions does."""
    on, zero = taken.on, axis_ns(graph)
    rows = rows[on.place[rows] >= 0]
    if not len(rows) or zero is None:
        return None
    at = zero[on.segment[rows]] + on.begin_ns[rows]
    # Where the trace tells its calls itself, an attempt is one of them, and ends with it.
    busy = on.end_ns[rows] - on.begin_ns[rows]
    if graph.trace.waits_recorded:
        busy = np.clip(graph.trace.actions.busy_ns[rows], 0, LONGEST_NS)
    after = on.next_ops(rows)[0]
    ends = (zero[graph.segment[graph.window]] + graph.ops.end_ns)[after]
    acted = graph.rank_index[np.isin(taken.action, rows) & (taken.own_ns > 0)]
    ranks = np.unique(np.concatenate([acted, *(on.ranks[place] for place in np.unique(on.place[rows]).tolist())]))
    # Steps with times of their own overlap: there their numbers bound the zone, too.
    segments, bounded = on.segment[rows], graph.trace.relative
    zone = Zone(
        ranks=graph.ranks[ranks].tolist(),
        steps=(int(graph.steps[segments.min()]), int(graph.steps[segments.max()])) if bounded else None,
        ops=0,
        first_ns=int(at.min()),
        last_ns=int(max((at + busy).max(), ends.max(initial=0))),
        rank_ns=taken.rank_ns(rows),
    )
    ops = ops_of(graph, zone)
    steps = graph.steps[graph.window[ops]]
    return replace(zone, ops=len(ops), steps=(int(steps.min()), int(steps.max())) if len(ops) else None)


def ops_of(graph: Graph, zone: Zone) -> Ints:
    """The ops of a zone."""
    zero = axis_ns(graph)
    if zero is None:
        return np.zeros(0, dtype=np.int64)
    begin = zero[graph.segment[graph.window]] + graph.ops.start_ns
    inside = (begin <= zone.last_ns) & (begin + (graph.ops.end_ns - graph.ops.start_ns) >= zone.first_ns)
    inside &= np.isin(graph.ops.rank, zone.ranks)
    if graph.trace.relative and zone.steps:
        step = graph.steps[graph.window]
        inside &= (step >= zone.steps[0]) & (step <= zone.steps[1])
    return np.flatnonzero(inside)


def _token_money(graph: Graph, ledger: Ledger, rows: Ints, count: int) -> str | None:
    """Money for the tokens of a relation: of its actions, or of those thrown away, whichever have that many."""
    actions = graph.trace.actions
    for some in (rows, rows[thrown_away(actions)[rows]]):
        read, written = (int(np.maximum(column[some], 0).sum()) for column in (actions.tokens_in, actions.tokens_out))
        if read + written == count:
            return ledger.prices.tokens(read, written)
    return None


def _by_controller(graph: Graph, ledger: Ledger, fate: str, ns: Ints, action: Ints) -> FateBy:
    """One fate of the ledger, and by controller."""
    entry = next(e for e in ledger.entries() if e.fate == fate)
    ops = np.flatnonzero(ns)
    names = graph.trace.actions.controller[action[ops]]
    by = {str(name): total(ns[ops[names == name]]) for name in dict.fromkeys(names.tolist())}
    most = sorted(by.items(), key=lambda item: (-item[1], item[0]))
    return FateBy(rank_ns=entry.rank_ns, joules=entry.joules, money=entry.money, kg_co2e=entry.kg_co2e, by=dict(most))


def control_verdict(found: ControlResult, ledger: Ledger) -> str | None:
    """What controllers that are related did to the job; None where none of their relations took anything of it."""
    placed = [(one.zone, one) for one in found.relations if one.zone and one.zone.rank_ns]
    fates = ledger.by_fate
    share = (fates["control overhead"] + fates["discarded"]) / max(ledger.total_rank_ns, 1)
    if not placed:
        return None
    zone, worst = max(placed, key=lambda pair: pair[0].rank_ns)
    ranks = ", ".join(map(str, zone.ranks[:RANKS])) + (" …" if len(zone.ranks) > RANKS else "")
    steps = f", steps {zone.steps[0]}–{zone.steps[1]}" if zone.steps else ""
    return (
        f"Control: {worst.kind} of {' and '.join(worst.controllers) or 'controllers'} on rank {ranks}{steps}. "
        f"{100 * share:.1f} % of the bill is control overhead (pauses after actions, and what others waited for them)"
        f"{' or was discarded' if fates['discarded'] else ''}."
    )
