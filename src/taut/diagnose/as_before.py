"""Ranks and links as they were before they became slow: what mending a place changes in the graph.

The past of the same rank, or of the same rendezvous, is the first reference; peers say what is not known from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.change_points import LEAST_OUTSIDE
from taut.diagnose.ordinary import in_other_steps, on_other_ranks
from taut.diagnose.slow_place import RECURS, Place
from taut.diagnose.slowdowns import Slowdowns
from taut.graph import Graph
from taut.replay.timeline import Change

SHARED = 1 / 3
"""A rank whose own work grew by this share of what its transfers grew by is slow itself: its network is not to blame.

One that is starved of CPU also moves bytes late, which takes longer than its own work."""


def caused_by_rank(slowdowns: Slowdowns, rank: Place, links: Place) -> bool:
    """Whether slow transfers come from a slow rank at one end of their links."""
    together = min(rank.last, links.last) >= max(rank.first, links.first)
    number = int(slowdowns.graph.ranks[rank.rank])
    touched = any(number in pair for pair in links.links) and (not links.owners or number in links.owners)
    enough = together and touched and rank.extra_ns >= SHARED * links.extra_ns
    if enough and rank.spikes and links.spikes and slowdowns.stops_elsewhere(rank, links):
        return True
    return enough and slowdowns.slows_all_transfers(rank.rank, links.first, links.last)


def rank_before(slowdowns: Slowdowns, place: Place, peers_ns: Floats) -> tuple[Change, ...]:
    """A rank's own work and gaps as before, and the transfers that it holds up; its peers' work where its past is not known."""
    graph = slowdowns.graph
    mine = np.flatnonzero((graph.rank_index == place.rank) & slowdowns.own & place.holds(graph.window))
    usual = in_other_steps(slowdowns, graph.work_ns, mine, slowdowns.slow_windows(place), slowdowns.accidents(place))
    work = np.where(np.isnan(usual), peers_ns[mine], usual)
    reason = f"rank {int(graph.ranks[place.rank])} as before"
    return _set(mine, "work", work, reason), *pauses_before(slowdowns, place)


def pauses_before(slowdowns: Slowdowns, place: Place, but: Collection[int] = ()) -> tuple[Change, ...]:
    """A rank's gaps as in its other steps, and the transfers that it holds up.

    Where its other steps are few, gaps are as on other ranks, some (indices) left out, or in the middle of all steps.
    """
    graph, within = slowdowns.graph, place.holds(slowdowns.graph.window)
    slow = slowdowns.slow_windows(place)
    # Where hardly any other steps are left, the median over all of them stands for before.
    slow &= np.count_nonzero(~slow) >= LEAST_OUTSIDE
    held = slowdowns.held_up(place)
    for links in slowdowns.links:
        held = held | links.gates if caused_by_rank(slowdowns, place, links) else held & ~links.gates
    reason = f"rank {int(graph.ranks[place.rank])} as before"
    stops = slowdowns.stops_inside(place)
    if len(place.gates):
        stops |= place.gates
    transfers = np.flatnonzero(within & (graph.gate >= 0) & np.append(held | stops, False)[graph.gate])
    mine = np.flatnonzero((graph.rank_index == place.rank) & within)
    if slow.any():
        gap = in_other_steps(slowdowns, graph.gap_ns, mine, slow, slowdowns.accidents(place))
    else:
        gap = on_other_ranks(graph, graph.gap_ns, mine, but)
        gap = np.where(np.isnan(gap), slowdowns.outside(graph.gap_ns, mine, slow), gap)
    work = slowdowns.outside(graph.work_ns, transfers, slow)
    if place.spikes:
        # A stop is as long in a transfer as in the rank's own work: what is longer is somebody else's accident.
        work = np.maximum(work, graph.work_ns[transfers] - slowdowns.longest_stop(place))
    else:
        work = _as_a_habit(graph, transfers, work, ~stops[graph.gate[transfers]])
    return _set(mine, "gap", gap, reason), _set(transfers, "work", work, reason)


def _as_a_habit(graph: Graph, ops: Ints, usual: Floats, held: Mask) -> Floats:
    """What ops usually take; where some (a mask) are held up in one or two steps more than in any other, with that beyond it.

    A rank that is slow all the time holds up transfers all the time: what is longer once is an accident of somebody else's.
    """
    more = np.where(held, np.nan_to_num(np.maximum(graph.work_ns[ops] - usual, 0.0)), 0.0)
    by_step = np.bincount(graph.window[ops], more, minlength=RECURS)
    most = float(np.partition(by_step, -RECURS)[-RECURS])
    beyond = np.maximum(1 - most / np.maximum(by_step, 1.0), 0.0)[graph.window[ops]]
    return np.asarray(usual + more * beyond)


def links_before(slowdowns: Slowdowns, place: Place) -> Change:
    """Transfers of the groups that slow links hold up, as before."""
    graph = slowdowns.graph
    inside = place.holds(graph.window) & (graph.gate >= 0) & np.append(place.gates, False)[graph.gate]
    ops = np.flatnonzero(inside)
    usual = slowdowns.outside_of(graph.work_ns, ops, inside)
    return _set(ops, "work", usual, f"link {', '.join(place.link_names)} as before")


def as_before(
    graph: Graph, peers_ns: Floats, dimension: str, labels: Sequence[str], slowdowns: Slowdowns | None = None
) -> list[Change]:
    """What the named ranks or links would be, had they not become slow; nothing where they did not.

    ``slowdowns`` are those of the graph, where they are known already.
    """
    slowdowns = Slowdowns(graph) if slowdowns is None else slowdowns
    if dimension == "rank":
        mine = [place for place in slowdowns.ranks if str(int(graph.ranks[place.rank])) in labels]
        return [change for place in mine for change in rank_before(slowdowns, place, peers_ns)]
    if dimension == "link":
        # Mending one of several links leaves the ring at the speed of the others: peers, not the past, tell what that gives.
        return [links_before(slowdowns, place) for place in slowdowns.links if set(place.link_names) <= set(labels)]
    return []


def _set(ops: Ints, what: Literal["work", "gap"], values: Floats, reason: str) -> Change:
    """A change that sets each of ``ops`` to its value, where that is known."""
    known = ~np.isnan(values)
    return Change(ops[known], what, "set", np.rint(values[known]).astype(np.int64), reason)
