"""What-ifs: the gap-free decomposition across roles, and what would really be recovered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask
from taut.core.device_words import is_copy
from taut.core.errors import UsageError
from taut.core.ids import coded, in_groups
from taut.core.scratch import kept, zeros
from taut.core.tables import Kind, Verb
from taut.graph import Graph
from taut.replay import reference
from taut.replay.ring_links import rings, sends_down, without_slow_links
from taut.replay.timeline import Batch, Change, batch

WORST_SHARE = 0.03
"""M_W sets the worst 3 % of the workers (at least one) to ideal."""


MEASURED = {"rank": (-0.16, 0.6), "link": (-0.16, 0.6)}
"""How far a real saving lay from the predicted one, as a share of it, in nine of ten of 54 lab runs (docs/lab.md)."""


class Dimension(Struct, frozen=True):
    """One way to cut the ops: key per op (-1: none) and the label of every key."""

    name: str
    key: Indices
    labels: list[str]


class WhatIf(Struct, frozen=True):
    """The gap-free decomposition: everything at reference except one key, against everything at reference."""

    actual_wall_ns: int
    ideal_wall_ns: int
    by: Mapping[str, Mapping[str, float]]
    worst_ranks: float | None
    last_stage: float | None
    actual_ns: Ints
    ideal_ns: Ints
    """The two walls, window by window."""

    @property
    def slowdown(self) -> float:
        """Observed over ideal, both without gaps."""
        return self.actual_wall_ns / max(self.ideal_wall_ns, 1)


def dimensions(graph: Graph) -> list[Dimension]:
    """Rank, stage, data-parallel rank, class, link and gate class of a graph's ops; those that it has."""
    return [one for one in (dimension_of(graph, name) for name in DIMENSIONS) if one is not None]


DIMENSIONS = ("rank", "stage", "dp_rank", "class", "link", "gate")


def dimension_of(graph: Graph, name: str) -> Dimension | None:
    """One of the ``DIMENSIONS`` of a graph's ops; None where it has none of that name."""
    if name == "rank":
        return Dimension("rank", graph.rank_index, [str(r) for r in graph.ranks])
    if name in ("stage", "dp_rank"):
        return _by_member(graph, name)
    if name == "class":
        return _classes(graph)
    if name == "link":
        return links(graph)
    return _gate_classes(graph) if name == "gate" and (graph.gate >= 0).any() else None


def _by_member(graph: Graph, name: str) -> Dimension | None:
    """Ops by a number that their rank has; None where no rank has it."""
    values = getattr(graph.members, name)
    if not (values >= 0).any():
        return None
    labels = np.unique(values[values >= 0])
    key = np.where(values >= 0, np.searchsorted(labels, values), -1).astype(np.int32)
    return Dimension(name, kept(key[graph.rank_index]), [str(x) for x in labels])


def _classes(graph: Graph) -> Dimension:
    present = np.zeros(len(graph.names), dtype=bool)
    present[graph.ops.name] = True
    key = graph.ops.name if present.all() else kept((np.cumsum(present, dtype=np.int32) - 1)[graph.ops.name])
    return Dimension("class", key, [graph.names[i] for i in np.flatnonzero(present).tolist()])


def _gate_classes(graph: Graph) -> Dimension:
    """Gates by class and size."""
    from taut.core.group_kernels import first_rows

    ops, meets = graph.ops, graph.gate >= 0
    rows = np.flatnonzero(meets)
    ids, count = coded(ops.name[rows], ops.size[rows])
    first = rows[first_rows(ids, 0, count)]
    sizes = [int(ops.size[i]) for i in first]
    labels = [graph.names[ops.name[i]] + (f" {size} B" if size >= 0 else "") for i, size in zip(first, sizes, strict=True)]
    keep = [i for i, label in enumerate(labels) if label]
    new, key = np.full(count, -1, dtype=np.int32), np.full(len(ops), -1, dtype=np.int32)
    new[keep] = np.arange(len(keep))
    key[rows] = new[ids]
    return Dimension("gate", kept(key), [labels[i] for i in keep])


def links(graph: Graph) -> Dimension | None:
    """Directed links ``sender:receiver``: of a hop its two ends, of a ring collective the link into each member."""
    ops = graph.ops
    sender, receiver = link_ends(graph)
    has = sender >= 0
    if not has.any():
        return None
    key, count = coded(sender[has], receiver[has])
    out = np.full(len(ops), -1, dtype=np.int32)
    out[has] = key
    first = np.zeros(count, dtype=np.int64)
    first[key] = np.flatnonzero(has)
    return Dimension("link", kept(out), [f"{a}:{b}" for a, b in zip(sender[first], receiver[first], strict=True)])


def link_ends(graph: Graph) -> tuple[Codes, Codes]:
    """(sender, receiver) of the link whose speed an op's transfer shows, -1 where none.

    A receive and a send show their own pair. In a ring the receiver of a slow link ends last: gloo's rings send
    r → r−1 (its all-gather r → r+1), NCCL's r → r+1, in the order of the group's ranks.
    """

    ops, meets = graph.ops, np.flatnonzero(graph.gate >= 0)
    sender, receiver = np.full(len(ops), -1, dtype=np.int32), np.full(len(ops), -1, dtype=np.int32)
    verb, rank, peer = ops.verb[meets], ops.rank[meets], ops.peer[meets]
    p2p = ((verb == Verb.SEND) | (verb == Verb.RECV)) & (peer != rank) & (peer >= 0)
    sends, rank, peer = verb[p2p] == Verb.SEND, rank[p2p], peer[p2p]
    sender[meets[p2p]], receiver[meets[p2p]] = np.where(sends, rank, peer), np.where(sends, peer, rank)
    rows = meets[np.isin(verb, (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER))]
    if len(rows):
        rows = rows[in_groups(graph.gate[rows], graph.slots, ops.rank[rows], ops.rank[rows])[0]]
        gate, rank = graph.gate[rows], ops.rank[rows]
        begins = np.flatnonzero(np.concatenate([[True], gate[1:] != gate[:-1]]))
        ends = np.append(begins[1:], len(rows))
        # Rows are by gate, then rank: the neighbours in the ring are the rows beside, the ends of a gate meet.
        up, down = np.roll(rank, -1), np.roll(rank, 1)
        up[ends - 1] = rank[begins]
        down[begins] = rank[ends - 1]
        sender[rows] = np.where(sends_down(graph, rows), up, down)
        receiver[rows] = rank
    return sender, receiver


def decompose(graph: Graph, prepared: Batch | None = None, dims: list[Dimension] | None = None) -> WhatIf:
    """Everything at the reference across roles except one key of one dimension, for every key."""
    prepared = prepared or batch(graph)
    dims = dims or dimensions(graph)
    ideal_work = reference.across(graph)
    zero = zeros(len(graph))
    nowhere, everywhere = (np.broadcast_to(np.int32(key), len(graph)) for key in (-1, 0))
    cuts = [(d.key, len(d.labels)) for d in dims]
    # One batch: key -1 nowhere is the ideal, key 0 everywhere the actual wall, then one column per key of every cut.
    walls = prepared.many(ideal_work, graph.work_ns, [(nowhere, 1), (everywhere, 1), *cuts], zero)
    ideal, actual, *columns = [w.sum(axis=0) for w in walls]
    by = {
        d.name: {label: float(wall / max(ideal[0], 1)) for label, wall in zip(d.labels, column, strict=True)}
        for d, column in zip(dims, columns, strict=True)
    }
    worst, last = _explained(graph, prepared, ideal_work, zero, by, int(actual[0]), int(ideal[0]))
    return WhatIf(int(actual[0]), int(ideal[0]), by, worst, last, walls[1][:, 0], walls[0][:, 0])


def _key_of(chosen: Mask, index: Codes) -> Codes:
    """Key 0 of the ops of chosen members, -1 of all others."""
    return kept(np.where(chosen, np.int32(0), np.int32(-1))[index])


def _explained(
    graph: Graph, prepared: Batch, ideal_work: Ints, zero: Ints, by: Mapping[str, Mapping[str, float]], actual: int, ideal: int
) -> tuple[float | None, float | None]:
    """M_W and M_S: the share of (observed − ideal) recovered by idealising the worst workers, or the last stage."""
    if actual == ideal:
        return None, None
    members, index = graph.members, graph.rank_index
    worst_key = last_key = None
    if len(members) > 1:
        if "stage" in by and "dp_rank" in by and (members.stage >= 0).all() and (members.dp_rank >= 0).all():
            score = np.array(
                [min(by["dp_rank"][str(d)], by["stage"][str(s)]) for d, s in zip(members.dp_rank, members.stage, strict=True)]
            )
        else:
            score = np.array([by["rank"][str(r)] for r in members.rank])
        count = max(1, int(len(members) * WORST_SHARE))
        worst = np.argsort(-score, kind="stable")[:count]
        worst_key = _key_of(np.isin(np.arange(len(members)), worst), index)
    if "stage" in by and len(by["stage"]) > 1:
        last_key = _key_of(members.stage == members.stage.max(), index)

    none = np.broadcast_to(np.int32(-1), len(graph))
    cuts = [(none if key is None else key, 1) for key in (worst_key, last_key)]
    walls = prepared.many(graph.work_ns, ideal_work, cuts, zero)
    worst_ranks, last_stage = ((actual - int(w.sum())) / (actual - ideal) for w in walls)
    return worst_ranks if worst_key is not None else None, last_stage if last_key is not None else None


def fix(
    graph: Graph,
    reference_ns: Floats,
    dimension: str,
    labels: Sequence[str],
    *,
    baseline: bool = False,
    dims: Sequence[Dimension] | None = None,
) -> Change:
    """Set ranks, stages, data-parallel ranks, classes, gate classes or links to their reference, gaps kept.

    With a baseline behind the references, a link's transfers, those of all members of its gates, are what they were there.

    The reference is the leave-one-out one: for a rank (or a class) its role peers, for a stage or a data-parallel rank
    the same ops on the other stages or data-parallel ranks, for a link of a ring what the ring would be without it.
    ``dims`` are the graph's dimensions, where they are known already.
    """
    ops = _selected(dimensions(graph) if dims is None else dims, dimension, labels)
    reason = f"{dimension} {', '.join(labels)} at reference"
    if dimension == "link" and baseline:
        gates = np.unique(graph.gate[ops])
        rows = np.flatnonzero((graph.gate >= 0) & np.isin(graph.gate, gates) & ~np.isnan(reference_ns))
        return Change(rows, "work", "set", np.rint(reference_ns[rows]).astype(np.int64), reason)
    if dimension == "link":
        circles = rings(graph)
        meets = np.concatenate([np.zeros(0, dtype=np.int64), *(one.rows.ravel() for one in circles)])
        mended = np.zeros(len(graph), dtype=bool)
        mended[np.intersect1d(ops, meets)] = True
        if mended.any():
            return Change(meets, "work", "set", without_slow_links(graph, circles, mended)[meets], reason)
    value = median_of_others(graph, ops) if dimension in ("stage", "dp_rank") else reference_ns[ops]
    known = ~np.isnan(value)
    return Change(ops[known], "work", "set", np.rint(value[known]).astype(np.int64), reason)


def _selected(dims: Sequence[Dimension], dimension: str, labels: Sequence[str]) -> Ints:
    """Ops of the named keys of a dimension."""
    found = next((d for d in dims if d.name == dimension), None)
    if found is None:
        known = ", ".join(d.name for d in dims)
        raise UsageError(f"--fix {dimension}={labels[0]}: this run knows no {dimension}; it has {known}")
    for label in labels:
        if label not in found.labels:
            some = ", ".join(found.labels[:12]) + (" …" if len(found.labels) > 12 else "")
            raise UsageError(f"--fix {dimension}={label}: no such {dimension}; it has {some}")
    return np.flatnonzero(np.isin(found.key, [found.labels.index(label) for label in labels]))


def median_of_others(graph: Graph, ops: Ints) -> Floats:
    """Median work of the same class among all ops that are not selected; NaN where there is none."""
    rest = np.ones(len(graph), dtype=bool)
    rest[ops] = False
    cls, classes = reference.whatever_role(graph)
    return medians_among(graph, cls, classes, np.flatnonzero(rest))[cls[ops]]


def medians_among(graph: Graph, cls: Codes, classes: int, rows: Ints) -> Floats:
    """Median work of every class among some ops; NaN where there is none."""
    from taut.core.group_kernels import group_sort
    from taut.replay.cell_medians import medians

    return medians(graph.work_ns[rows], *group_sort(cls[rows], classes))


SCALES = {"work": "compute work", "bandwidth": "bandwidth of transfers", "gaps": "gaps"}
"""What can be scaled as a whole, in words."""


def scale(graph: Graph, what: str, factor: float) -> Change:
    """All compute work, or all gaps, so many times as long; or all transfers so many times as fast."""
    reason = f"{SCALES[what]} times {factor:g}"
    if what == "gaps":
        return Change(np.arange(len(graph)), "gap", "scale", factor, reason)
    kind = Kind.COMPUTE if what == "work" else Kind.COMMUNICATE
    mine = graph.ops.kind == kind
    if what == "bandwidth":  # copies between host and device do not go over the network
        mine = mine & ~is_copy(graph.names)[graph.ops.name]
    return Change(np.flatnonzero(mine), "work", "scale", factor if what == "work" else 1 / factor, reason)


def delay(graph: Graph, rank: int, step: int, ns: int, op: int | None = None) -> Change:
    """A one-off delay: an op of a rank in a step, the first unless it is given, begins that much later."""
    ops = np.flatnonzero((graph.ops.rank == rank) & (graph.steps[graph.window] == step))
    if len(ops) == 0:
        raise UsageError(f"--delay rank={rank},step={step}: no op of that rank in that step")
    if op is not None:
        _check_own(graph, ops, rank, step, op)
    which = "" if op is None else f" at op {op}"
    chosen = ops[:1] if op is None else np.array([op])
    return Change(chosen, "gap", "add", ns, f"rank {rank} delayed by {ns / 1e6:g} ms in step {step}{which}")


def _check_own(graph: Graph, ops: Ints, rank: int, step: int, op: int) -> None:
    """Refuse an op of another rank or step."""
    at = int(np.searchsorted(ops, op))
    if at < len(ops) and int(ops[at]) == op:
        return
    whose = (
        f"op {op} is of rank {int(graph.ops.rank[op])} in step {int(graph.steps[graph.window[op]])}"
        if 0 <= op < len(graph)
        else f"no such op; rows of ops.parquet go from 0 to {len(graph) - 1}"
    )
    raise UsageError(f"--delay rank={rank},step={step},op={op}: {whose}")
