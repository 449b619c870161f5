"""Ranks and links as they were before they became slow: what mending a place changes in the graph.

The past of the same rank, or of the same rendezvous, is the first reference; peers say what is not known from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.change_points import LEAST_OUTSIDE
from taut.diagnose.slowdowns import Place, Slower
from taut.graph import Graph
from taut.replay.timeline import Change

SHARED = 0.5
"""A rank whose own work grew by this share of what its transfers grew by is slow itself: its network is not to blame."""


def takes(slower: Slower, rank: Place, links: Place) -> bool:
    """Whether slow transfers are the work of a slow rank among those whose links they are."""
    together = min(rank.last, links.last) >= max(rank.first, links.first)
    number = int(slower.graph.ranks[rank.rank])
    touched = any(number in pair for pair in links.links) and (not links.owners or number in links.owners)
    enough = together and touched and rank.extra_ns >= SHARED * links.extra_ns
    return enough and slower.holds_up(rank.rank, links.first, links.last)


def rank_before(slower: Slower, place: Place, peers_ns: Floats) -> tuple[Change, ...]:
    """A rank's own work and gaps as before, and the transfers that it holds up."""
    graph = slower.graph
    usual = slower.outside(graph.work_ns, place.first, place.last)
    mine = np.flatnonzero((graph.rank_index == place.rank) & slower.own & _within(graph, place))
    work = np.where(np.isnan(usual), peers_ns, usual)
    return _set(mine, "work", work, f"rank {int(graph.ranks[place.rank])} as before"), *pauses_before(slower, place, usual)


def pauses_before(slower: Slower, place: Place, usual: Floats | None = None) -> tuple[Change, ...]:
    """A rank's gaps as in its other steps (as in all, where these are few), and the transfers that it holds up.

    ``usual``: what ops take in the other steps, where that is known already.
    """
    graph, within = slower.graph, _within(slower.graph, place)
    few = slower.windows - (place.last - place.first + 1) < LEAST_OUTSIDE
    last = -1 if few else place.last
    gap = slower.outside(graph.gap_ns, place.first, last)
    work = slower.outside(graph.work_ns, place.first, last) if few or usual is None else usual
    held = slower.held_up(place)
    for links in slower.links:
        held = held | links.gates if takes(slower, place, links) else held & ~links.gates
    reason = f"rank {int(graph.ranks[place.rank])} as before"
    transfers = np.flatnonzero(within & (graph.gate >= 0) & np.append(held, False)[graph.gate])
    mine = np.flatnonzero((graph.rank_index == place.rank) & within)
    return _set(mine, "gap", gap, reason), _set(transfers, "work", work, reason)


def _within(graph: Graph, place: Place) -> Mask:
    return (graph.window >= place.first) & (graph.window <= place.last)


def links_before(slower: Slower, place: Place) -> Change:
    """Transfers of the groups that slow links hold up, as before."""
    graph = slower.graph
    inside = _within(graph, place) & (graph.gate >= 0)
    inside &= place.gates[np.maximum(graph.gate, 0)]
    usual = slower.outside(graph.work_ns, place.first, place.last, inside)
    text = ", ".join(f"{s}:{r}" for s, r in place.links)
    return _set(np.flatnonzero(inside), "work", usual, f"link {text} as before")


def as_before(graph: Graph, peers_ns: Floats, dimension: str, labels: Sequence[str]) -> list[Change]:
    """What the named ranks or links would be, had they not become slow; nothing where they did not."""
    slower = Slower(graph)
    if dimension == "rank":
        mine = [place for place in slower.ranks if str(int(graph.ranks[place.rank])) in labels]
        return [change for place in mine for change in rank_before(slower, place, peers_ns)]
    if dimension == "link":
        # Mending one of several links leaves the ring at the speed of the others: peers, not the past, tell what that gives.
        named = [place for place in slower.links if all(f"{s}:{r}" in labels for s, r in place.links)]
        return [links_before(slower, place) for place in named]
    return []


def _set(ops: Ints, what: Literal["work", "gap"], values: Floats, reason: str) -> Change:
    known = ops[~np.isnan(values[ops])]
    return Change(known, what, "set", np.rint(values[known]).astype(np.int64), reason)
