"""Several ranks without a single rendezvous: what is missing to tell who waits for whom."""

from __future__ import annotations

import numpy as np

from taut.core.device_words import is_copy
from taut.core.tables import Kind
from taut.graph import Graph

CALLED = "collectives called without a device event"


def why_no_gate(g: Graph) -> str:
    """Why no two ranks of a job meet anywhere in its graph; empty where some do, and where there is nobody to meet."""
    if len(g.ranks) < 2 or g.trace.waits_recorded or (len(g.gates) and int(g.gates.members.max()) > 1):
        return ""
    ops = g.ops
    has_verb = ops.verb > 0
    if not has_verb.any():
        if g.counts.get(CALLED):
            return "collectives were called, but no event says when they ran"
        moves = (ops.kind == Kind.COMMUNICATE) & ~np.append(is_copy(g.names), False)[ops.name]
        if moves.any():
            return "the traces do not say what their communication does, nor who takes part"
        return "no collective is in the traces"
    if (ops.group[has_verb] < 0).all() and (ops.peer[has_verb] < 0).all():
        return "the collectives do not name their group"
    present = set(g.ranks.tolist())
    used = {g.trace.groups[group] for group in np.unique(ops.group[has_verb]).tolist() if group >= 0}
    known = [g.trace.group_ranks[group] for group in used if group in g.trace.group_ranks]
    if known and len(known) == len(used) and all(len(present.intersection(ranks)) < 2 for ranks in known):
        return "every group of the collectives has one traced rank only"
    return "the collectives of a rank have no counterpart on the others"
