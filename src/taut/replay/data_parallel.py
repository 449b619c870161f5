"""Which gates of a measured job are data-parallel reductions, and which ranks are one replica: what a policy may relax.

Replicas meet to agree on gradients, and only there: by reductions over data-parallel groups, and by what goes with them (a
barrier, a broadcast of buffers, a norm over all ranks). Whatever else meets stays as it is and holds a replica together:
sends and receives, all-to-alls, groups named after tensor, pipeline, expert, context or shard parallelism, gathers of weights
(FSDP), and edges from one rank to another. docs/policies.md says how it is decided.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import numbered, weighed
from taut.core.tables import Kind, Verb
from taut.graph import Graph

REDUCES = (Verb.ALL_REDUCE, Verb.REDUCE_SCATTER, Verb.REDUCE)
"""Verbs that add gradients up."""
GOES_WITH = (Verb.ALL_GATHER, Verb.BROADCAST, Verb.BARRIER, Verb.GATHER, Verb.SCATTER)
"""Verbs by which replicas may meet besides."""
HOPS = (Verb.SEND, Verb.RECV)
WITHIN = re.compile(r"(?<![a-z])(tp|tensor|mp|model|pp|pipeline|ep|expert|cp|context|sp|sequence|fsdp|shard)(?![a-z])", re.I)
"""Groups that hold a replica together, by a word in their name."""
ACROSS = re.compile(r"(?<![a-z])(dp|ddp|data|replicas?|replicate)(?![a-z])", re.I)
"""Groups of replicas, by a word in their name."""
EARLY = 0.15
"""No gradient is there before this share of a step's compute is done: a forward pass is longer."""
MANY, OFTEN = 8, 0.05
"""So many reductions in a step, this share of their bytes early: activations are added up, not gradients."""


class DataParallel(Struct, frozen=True):
    """The data-parallel reductions of a graph and its replicas."""

    ops: Mask
    """Ops that take part in a meeting of replicas."""
    unit: Ints
    """Per rank (as an index): its replica."""
    units: int
    refused: str = ""
    """Why no policy can relax this job; empty if one can."""
    says: str = ""
    """What was taken for a data-parallel reduction."""


class _Groups(Struct, frozen=True):
    """Who meets: the groups of collectives, and the pairs of hops."""

    of: Ints
    """Per gate: its group; one more than the last for hops."""
    members: list[Ints]
    """Per group: the ranks that were ever seen at its gates, as indices."""
    hops: list[Ints]
    """Pairs of ranks, as indices."""


def data_parallel(graph: Graph) -> DataParallel:
    """The data-parallel reductions of a graph, or why it has none."""
    ranks = len(graph.ranks)
    alone = np.zeros(len(graph), dtype=bool), np.arange(ranks), ranks
    if ranks < 2 or not (graph.gate >= 0).any():
        return DataParallel(*alone, refused="its ranks meet nowhere" if ranks > 1 else "it has one rank")
    if len(np.unique(graph.members.role)) > 1:
        return DataParallel(*alone, refused="its ranks have different roles")
    if any(graph.phases):
        return DataParallel(*alone, refused="it serves requests: its ranks meet to compute one answer, not to add gradients up")
    groups = _groups(graph)
    relaxes = _relaxes(graph, groups)
    kept = [groups.members[g] for g in np.unique(groups.of[~relaxes]).tolist()]
    unit = joined(ranks, [*kept, *groups.hops, *_crossing(graph)])
    units = int(unit.max()) + 1
    if not relaxes.any() or units < 2:
        return DataParallel(*alone, refused=_why(graph, relaxes))
    ops = (graph.gate >= 0) & relaxes[np.maximum(graph.gate, 0)]
    return DataParallel(ops, unit, units, says=_says(graph, groups, relaxes, units))


def _groups(graph: Graph) -> _Groups:
    rows = np.flatnonzero(graph.gate >= 0)
    count, index = len(graph.trace.groups), graph.rank_index
    hop = np.isin(graph.ops.verb[rows], HOPS)
    which = np.where(hop, count, graph.ops.group[rows])
    of = np.zeros(len(graph.gates), dtype=np.int64)
    of[graph.gate[rows]] = which
    ranks = len(graph.ranks)
    seen = np.unique(which[~hop].astype(np.int64) * ranks + index[rows][~hop])
    members = [seen[a:b] % ranks for a, b in pairwise(np.searchsorted(seen, np.arange(count + 1) * ranks).tolist())]
    # The two ops of a hop lie at one gate.
    order = np.argsort(graph.gate[rows[hop]], kind="stable")
    gate, rank = graph.gate[rows[hop]][order], index[rows[hop]][order]
    two = gate[1:] == gate[:-1]
    return _Groups(of, [*members, np.zeros(0, dtype=np.int64)], _pairs(rank[:-1][two], rank[1:][two], ranks))


def _pairs(one: Indices, other: Indices, ranks: int) -> list[Ints]:
    """Pairs of ranks, each once."""
    found = np.unique(one.astype(np.int64) * ranks + other)
    return list(np.stack([found // ranks, found % ranks], axis=1))


def joined(ranks: int, sets: list[Ints]) -> Ints:
    """Ranks joined by any of the sets: a number for each rank."""
    root = np.arange(ranks)
    for members in filter(len, sets):
        hit = np.isin(root, root[members])
        root[hit] = root[members].min()
    return np.unique(root, return_inverse=True)[1].ravel()


def _index(graph: Graph) -> Indices | None:
    """The data-parallel index of the ranks, where all have one and there are several."""
    index = graph.members.dp_rank
    return index if (index >= 0).all() and len(np.unique(index)) > 1 else None


def _crossing(graph: Graph) -> list[Ints]:
    """Pairs of ranks between which an edge runs that is no gate; replicas that are known as such stay apart."""
    index = graph.rank_index
    to = np.repeat(np.arange(len(graph)), np.diff(graph.pred_ptr))
    cross = index[graph.pred] != index[to]
    pairs = _pairs(index[graph.pred[cross]], index[to[cross]], len(graph.ranks))
    replica = _index(graph)
    return [pair for pair in pairs if replica is None or replica[pair[0]] == replica[pair[1]]]


def _relaxes(graph: Graph, groups: _Groups) -> Mask:
    """Per gate: whether replicas meet there to agree on gradients."""
    verb = graph.gates.verb
    meets = np.isin(verb, (*REDUCES, *GOES_WITH))
    across = _across(graph, groups)[groups.of] & meets & ~_named(graph, WITHIN)
    across &= ~_sharded(graph, groups, across) & ~_activations(graph, groups)
    # What only goes with reductions is none by itself, unless barriers are all there is: a table of step times has no more.
    least = np.isin(verb, REDUCES) if (across & np.isin(verb, REDUCES)).any() else verb == Verb.BARRIER
    return across if (across & least).any() else np.zeros(len(verb), dtype=bool)


def _named(graph: Graph, pattern: re.Pattern[str]) -> Mask:
    """Per gate: whether its group's name has such a word."""
    hit = np.array([bool(pattern.search(name)) for name in graph.trace.groups] + [False])
    return np.asarray(hit[graph.gates.group])


def _across(graph: Graph, groups: _Groups) -> Mask:
    """Per group: whether its ranks are of different replicas.

    By the ranks' data-parallel index where it is known, else by name where groups are named after data parallelism, else by
    who passes activations to whom. Of the groups that are left, those whose ranks lie farthest apart are taken for
    data-parallel, and so are all ranks together.
    """
    index, sets = _index(graph), groups.members
    replica = joined(len(graph.ranks), groups.hops) if index is None else index
    apart = np.array([len(np.unique(replica[s])) > 1 for s in sets])
    whole = np.array([len(s) == len(graph.ranks) for s in sets])
    named, within = np.zeros((2, len(sets)), dtype=bool)
    named[groups.of[_named(graph, ACROSS)]] = True
    if named.any() and index is None:
        return np.asarray(named | whole)
    within[groups.of[_named(graph, WITHIN) | ~np.isin(graph.gates.verb, (*REDUCES, *GOES_WITH))]] = True
    strides = np.array([stride(graph.ranks[s]) for s in sets])
    partly = apart & ~whole & ~within
    return np.asarray(whole | (partly & (strides == max(strides[partly], default=0))))


def stride(members: Indices) -> int:
    """How far apart the numbers of a set's ranks are; 0 if not evenly."""
    steps = np.unique(np.diff(members))
    return int(steps[0]) if len(steps) == 1 else 0


def _sharded(graph: Graph, groups: _Groups, across: Mask) -> Mask:
    """Per gate: whether it gathers or scatters shards: more than one gather in a step, with scatters, on one set of ranks.

    One scatter of gradients and one gather of parameters are the halves of a reduction (a sharded optimiser).
    """
    verb, sets = graph.gates.verb, len(groups.members)
    cell, cells = numbered(groups.of, graph.gates.step)
    gathers, scatters = (
        np.bincount(cell, weights=across & (verb == v), minlength=cells) for v in (Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
    )
    of = np.zeros(cells, dtype=np.int64)
    of[cell] = groups.of
    often = 2 * np.bincount(of, weights=(gathers > 1) & (scatters > 0), minlength=sets) > np.bincount(of, minlength=sets)
    return np.asarray(often[groups.of] & np.isin(verb, (Verb.ALL_GATHER, Verb.REDUCE_SCATTER)))


def _activations(graph: Graph, groups: _Groups) -> Mask:
    """Per gate: whether its group adds activations up (tensor parallelism), by reductions all over the step.

    Gradients come after the forward pass. Groups that are known as data-parallel are not asked.
    """
    gates, sets = graph.gates, len(groups.members)
    reduces = np.isin(gates.verb, REDUCES) & ~_named(graph, ACROSS)
    if _index(graph) is not None or not reduces.any():
        return np.zeros(len(gates), dtype=bool)
    bytes_of = np.where((gates.size > 0) & reduces, gates.size, 0).astype(np.float64)
    known = np.bincount(groups.of, weights=bytes_of, minlength=sets) > 0
    weight = np.where(known[groups.of], bytes_of, reduces)
    early, whole = (np.bincount(groups.of, weights=w, minlength=sets) for w in (weight * (_progress(graph) < EARLY), weight))
    count = np.bincount(groups.of, weights=reduces, minlength=sets)
    found = (count >= MANY * len(graph.steps)) & (early > OFTEN * whole)
    return np.asarray(found[groups.of])


def _progress(graph: Graph) -> Floats:
    """Per gate: the share of their step's compute that its members had behind them, on average."""
    cell, cells = numbered(graph.rank_index, graph.window)
    order = np.argsort(cell, kind="stable")
    work = np.where(graph.ops.kind == Kind.COMPUTE, graph.work_ns, 0)[order]
    done = np.cumsum(work) - work
    total = np.bincount(cell, weights=graph.work_ns * (graph.ops.kind == Kind.COMPUTE), minlength=cells)
    first = np.concatenate([[0.0], np.cumsum(total)[:-1]])
    share = np.ones(len(graph))
    share[order] = (done - first[cell[order]]) / np.maximum(total[cell[order]], 1.0)
    share[total[cell] <= 0] = 1.0
    rows = np.flatnonzero(graph.gate >= 0)
    gates = len(graph.gates)
    return weighed(graph.gate[rows], share[rows], gates) / np.maximum(np.bincount(graph.gate[rows], minlength=gates), 1)


def _why(graph: Graph, relaxes: Mask) -> str:
    """What holds the ranks together, where no data-parallel reduction is left."""
    verb = set(graph.gates.verb[~relaxes].tolist())
    if {int(Verb.ALL_GATHER), int(Verb.REDUCE_SCATTER)} <= verb:
        what = "weights are gathered and gradients scattered layer by layer (FSDP)"
    elif Verb.ALL_TO_ALL in verb:
        what = "all ranks exchange tokens or embeddings (all-to-all)"
    elif verb & {int(Verb.SEND), int(Verb.RECV)}:
        what = "all ranks are one pipeline"
    elif _named(graph, WITHIN).any() or np.isin(graph.gates.verb, REDUCES).any():
        what = "its groups are those of tensor or pipeline parallelism, by name or because they meet in the forward pass too"
    else:
        what = "its gates add no gradients up"
    return f"no data-parallel reduction is left to relax: {what}"


def _says(graph: Graph, groups: _Groups, relaxes: Mask, units: int) -> str:
    """The meetings that were taken for data-parallel, in words."""
    verbs = ", ".join(dict.fromkeys(Verb(v).word for v in graph.gates.verb[relaxes].tolist()))
    sizes = sorted({len(groups.members[s]) for s in np.unique(groups.of[relaxes]).tolist()})
    among = " or ".join(map(str, sizes))
    untraced = (graph.trace.world_size or 0) - len(graph.ranks)
    short = f"; {untraced} ranks were not traced, and may be later" if untraced > 0 else ""
    return f"{units} replicas, which meet by {verbs} of {among} ranks{short}"
