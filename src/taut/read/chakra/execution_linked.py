"""Execution traces that Chakra's linker has merged with Kineto's: operators of the host and kernels, with times.

Some versions of the linker give a kernel the time of its launch. Where kernels of a stream would overlap, each is put
behind the one before, with a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.tables import NULL, Verb
from taut.read.chakra.execution_calls import Node, attributes, call_of
from taut.read.chakra.nodes import COLLECTIVE, COMPUTE, METADATA, NUMBERS, RECV, SEND, Needs, Nodes, codes_of, nanoseconds
from taut.read.columns import ROUNDING_NS, Codes
from taut.read.communication_families import assumed_verb, is_communication
from taut.read.contents import Call
from taut.read.json_values import integer
from taut.read.op_rows import NAME_LENGTH

QUEUED = "kernels that their trace puts on top of each other were put one behind the other: their starts are not measured"


def is_linked(nodes: Sequence[Node]) -> bool:
    """Whether any node has a time."""
    return any(node.ts is not None for node in nodes)


def linked_nodes(nodes: Sequence[Node], notes: list[str]) -> Nodes:
    """The nodes with their times; a device node depends on the host node that launched it."""
    counts: Counter[str] = Counter({"nodes": len(nodes)})
    device = np.array([node.cat is not None for node in nodes], dtype=np.bool_)
    number = {key: np.full(len(nodes), NULL, dtype=np.int64) for key in NUMBERS}
    number["is_cpu_op"] = (~device).astype(np.int64)
    number["tid"] = np.array([integer(attributes(node).get("tid")) for node in nodes], dtype=np.int64)
    number["stream"] = np.where(device, [integer(node.stream) for node in nodes], NULL)
    start, duration = _times(nodes, counts)
    ids = np.array([integer(node.id) for node in nodes], dtype=np.int64)
    owner, needed = _needs(nodes)
    names, groups = Codes(), Codes()
    calls = [call_of(node) if is_communication(node.name) else None for node in nodes]
    named = ["" if node.pg_name is None else str(node.pg_name)[:NAME_LENGTH] for node in nodes]
    number["comm_type"] = np.array([_verb(node, call) for node, call in zip(nodes, calls, strict=True)], dtype=np.int64)
    number["comm_size"] = np.array([call.size if call else NULL for call in calls], dtype=np.int64)
    kinds = [_type(node, verb) for node, verb in zip(nodes, number["comm_type"].tolist(), strict=True)]
    if _queue(start, duration, number["stream"], device & (start >= 0)):
        notes.append(QUEUED)
    return Nodes(
        id=ids,
        type=np.array(kinds, dtype=np.int64),
        name=names.of(node.name[:NAME_LENGTH] for node in nodes),
        start_ns=start,
        duration_ns=duration,
        names=list(map(str, names)),
        number=number,
        group=codes_of([name or (call.group if call else "") for name, call in zip(named, calls, strict=True)], groups),
        groups=list(map(str, groups)),
        some_dims=np.full(len(nodes), NULL, dtype=np.int64),
        needs=Needs.linked(ids, owner, needed, np.ones(len(owner), dtype=np.bool_), counts),
        counts=counts,
    )


def _times(nodes: Sequence[Node], counts: Counter[str]) -> tuple[Ints, Ints]:
    """Start and duration in ns; a host node lasts as long as what it calls."""
    columns = []
    lasts = [node.exclusive_dur if node.inclusive_dur is None else node.inclusive_dur for node in nodes]
    for what, values in (("start", [node.ts for node in nodes]), ("duration", lasts)):
        us = [value if isinstance(value, int | float) and abs(value) < 2**62 else NULL for value in values]
        columns.append(nanoseconds(np.array(us, dtype=np.float64), counts, what))
    return columns[0], columns[1]


def _needs(nodes: Sequence[Node]) -> tuple[Ints, Ints]:
    """(row, id of the node that it depends on)."""
    pairs = [(row, node.caller) for row, node in enumerate(nodes)]
    pairs += [(row, integer(n.inter_thread_dep)) for row, n in enumerate(nodes) if n.inter_thread_dep is not None]
    flat = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return flat[:, 0], flat[:, 1]


def _verb(node: Node, call: Call | None) -> int:
    """The verb of a kernel that communicates, -1 for other nodes."""
    if node.cat is None or not is_communication(node.name):
        return NULL
    return call.verb if call else int(assumed_verb(node.name))


def _type(node: Node, verb: int) -> int:
    if "process_group:init" in node.name or node.name.startswith("[pytorch|"):
        return METADATA
    return {NULL: COMPUTE, int(Verb.SEND): SEND, int(Verb.RECV): RECV}.get(verb, COLLECTIVE)


def _queue(start: Ints, duration: Ints, stream: Ints, device: Mask) -> bool:
    """Put kernels of a stream behind one another where they overlap; whether any did."""
    overlapped = False
    for code in np.unique(stream[device]).tolist():
        rows = np.flatnonzero(device & (stream == code))
        rows = rows[np.argsort(start[rows], kind="stable")]
        lasts = np.maximum(duration[rows], 0)
        # start[i] = max(start[i], start[i - 1] + lasts[i - 1]): less the sum of all before, a running maximum.
        before = np.cumsum(lasts) - lasts
        queued = np.maximum.accumulate(start[rows] - before) + before
        if (queued - start[rows] > ROUNDING_NS).any():
            start[rows], overlapped = queued, True
    return overlapped
