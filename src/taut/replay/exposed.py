"""Exposed time: what a rank was doing at every nanosecond, when many of its lanes do something at once.

The first that applies: some lane computes; some lane transfers; some lane copies; some lane waits at a gate; some lane is
busy on the host; else the time before the next op is idle. What hides under another lane is not exposed, and costs nothing.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Indices, Ints, Mask, Value
from taut.core.device_words import is_copy
from taut.core.ids import greatest, in_groups
from taut.core.row_shares import is_shared, over_groups
from taut.core.scratch import empty, kept
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
    ops, ranks, segments = graph.ops, len(graph.ranks), int(graph.segment.max()) + 1
    group = graph.rank_index if segments == 1 else graph.segment[graph.window].astype(np.int64) * ranks + graph.rank_index
    done = greatest(graph.window, len(graph.steps), observed.end_ns)
    stop = np.maximum(greatest(graph.segment, segments, done), 0)
    order, begin = in_groups(group, segments * ranks, observed.arrival_ns, observed.end_ns)
    # The level decides which of several busy lanes a moment belongs to; level 3 is waiting.
    level = np.ones(len(ops), dtype=np.int8)
    level[ops.kind == Kind.COMPUTE] = 0
    level[ops.kind == Kind.COORDINATE] = 4
    level[copies(graph)] = 2
    lanes, times = int(ops.lane.max()) + 1, (observed.arrival_ns, observed.opening_ns, observed.end_ns)
    working, waiting, idle, tail = _of_groups(begin, np.repeat(stop, ranks), order, ops.lane, lanes, *times, level)
    return Exposed(_narrow(working), _narrow(waiting), _narrow(idle), tail, begin, stop)


def _of_groups(begin: Ints, stop: Ints, order: Codes, *told: Value) -> tuple[Ints, Ints, Ints, Ints]:
    """Work, wait and idle time of every op, and the tail of every group (``wait_kernels.expose``)."""
    from taut.replay.wait_kernels import expose, expose_groups

    if not is_shared():
        return expose(begin, stop, order, *told)
    # One value repeated is not a piece of memory: else every share would copy all of it.
    told = tuple(np.ascontiguousarray(one) if isinstance(one, np.ndarray) else one for one in told)
    tail, times = np.zeros(len(stop), np.int64), [empty((len(order),), np.int64) for _ in range(3)]
    for one in times:
        one[:] = 0

    def expose_share(share: slice) -> int:
        return expose_groups(begin[share.start : share.stop + 1], stop[share], order, *told, *times, tail[share])

    over_groups(expose_share, begin)
    return times[0], times[1], times[2], tail


def _narrow(times: Ints) -> Indices:
    """Times in 32 bits where all fit: at most 2 s."""
    return kept(times.astype(np.int32) if int(times.max(initial=0)) < 1 << 31 else times)
