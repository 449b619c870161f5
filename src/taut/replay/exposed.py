"""Exposed time: what a rank was doing at every nanosecond, when many of its lanes do something at once.

The first that applies: some lane computes; some lane transfers; some lane copies; some lane waits at a gate; some lane is
busy on the host; else the time before the next op is idle. What hides under another lane is not exposed, and costs nothing.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Indices, Ints, Mask
from taut.core.device_words import is_copy
from taut.core.ids import greatest
from taut.core.scratch import kept
from taut.core.tables import Kind
from taut.graph import Graph
from taut.replay.timeline import Timeline


class Exposed(Struct, frozen=True):
    """Per op, ns: its exposed work, its exposed wait, and the idle time before it."""

    working: Indices
    waiting: Indices
    idle: Indices
    """These three in 32 bits where they fit: do not add them up without a wider type."""
    tail: Ints
    """Per rank of each segment: time after its last op, ns."""
    begin: Ints
    """Per rank of each segment: its first place in the order of its ops; one more than there are."""
    stop: Ints
    """Per segment: when its last op ends, ns from its origin."""


def copies(graph: Graph) -> Mask:
    """Ops that copy or set memory of a device."""
    named = is_copy(graph.names)
    return named[graph.ops.name] & (graph.ops.kind == Kind.COMMUNICATE) if named.any() else np.zeros(len(graph), dtype=np.bool_)


def exposed(graph: Graph, observed: Timeline) -> Exposed:
    """Exposed time of every op of the observed timeline."""
    from taut.core.group_kernels import order_groups
    from taut.replay.wait_kernels import expose

    ops, ranks, segments = graph.ops, len(graph.ranks), int(graph.segment.max()) + 1
    group = graph.rank_index if segments == 1 else graph.segment[graph.window].astype(np.int64) * ranks + graph.rank_index
    done = greatest(graph.window, len(graph.steps), observed.end_ns)
    stop = np.maximum(greatest(graph.segment, segments, done), 0)
    order, begin = order_groups(group, segments * ranks, observed.arrival_ns, observed.end_ns)
    # The level decides which of several busy lanes a moment belongs to; level 3 is waiting.
    level = np.ones(len(ops), dtype=np.int8)
    level[ops.kind == Kind.COMPUTE] = 0
    level[ops.kind == Kind.COORDINATE] = 4
    level[copies(graph)] = 2
    working, waiting, idle, tail = expose(
        begin,
        np.repeat(stop, ranks),
        order,
        ops.lane,
        int(ops.lane.max()) + 1,
        observed.arrival_ns,
        observed.opening_ns,
        observed.end_ns,
        level,
    )
    return Exposed(_narrow(working), _narrow(waiting), _narrow(idle), tail, begin, stop)


def _narrow(times: Ints) -> Indices:
    """Times in 32 bits where all fit: at most 2 s."""
    return kept(times.astype(np.int32) if int(times.max(initial=0)) < 1 << 31 else times)
