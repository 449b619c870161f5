"""A forest of spans → threads and calls: what runs where, who waits for it, and what stands for somebody unseen.

A client span around one server span is the call itself: what it lasts longer than the server is the way there and back.
A client span without a server span stands for a far end that left none: a rank of its own, in its caller's clock. A
child of the same service that runs alone inside its parent goes on in the parent's lane; others are tasks of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.tables import NULL
from taut.read.columns import grouped_max
from taut.read.contents import Service
from taut.read.otlp.span_columns import CLIENT, CONSUMER, PRODUCER
from taut.read.otlp.span_tree import Tree

# Far ends of one rank that are kept apart.
MOST_FAR = 64
# Clients inside clients (a model's around an HTTP client's) that are taken as one call.
CHAIN = 8


@dataclass
class Calls:
    """What threads do beside their own work: one row per child or call, by thread and start."""

    thread: Ints
    """The span in whose time it lies."""
    span: Ints
    """The span that does it: the server's, the child's, or the client's where the far end left none."""
    asked: Ints
    """The span that asked for it: the client's, or the same."""
    start: Ints
    end: Ints
    """In the thread's clock."""
    to: Ints
    """Rank of whoever does it."""
    remote: Mask
    """On another rank than the thread."""
    joined: Mask
    """The thread goes on only after it."""
    far: Mask
    """Whoever did it left no span."""
    inline: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Goes on in the thread's own lane."""


@dataclass
class Participants:
    """Who takes part: service instances that left spans, then far ends that left none."""

    services: list[Service]
    seen_by: list[int]
    """Per rank: who called it, -1 if it left spans of its own."""
    far_rank: Ints
    """Per span: rank of the far end it stands for, -1 for none."""
    call: Mask
    """Spans that are nothing but a call."""
    served: Ints
    """Per call: the span that served it, -1 for a far end."""


def participants(tree: Tree) -> Participants:
    """The ranks of a forest."""
    call, served = _collapsed(tree)
    up = np.maximum(tree.parent, 0)
    outermost = call & ~((tree.parent >= 0) & call[up])
    services, seen_by = list(tree.services), [NULL] * len(tree.services)
    far_rank = np.full(len(tree), NULL, dtype=np.int64)
    ends: dict[tuple[int, str], int] = {}
    far_ends: Counter[int] = Counter()
    inside = _inside(tree, call)
    for row in np.flatnonzero(outermost & (served < 0)).tolist():
        caller = int(tree.rank[row])
        word = _far_name(tree, row, inside)
        if (caller, word) not in ends and far_ends[caller] >= MOST_FAR:
            word = "other far ends"
        if (caller, word) not in ends:
            far_ends[caller] += 1
            ends[caller, word] = len(services)
            services.append(Service(word, "", tree.services[caller].host))
            seen_by.append(caller)
        far_rank[row] = ends[caller, word]
    return Participants(services, seen_by, far_rank, call, served)


def _only_child(tree: Tree) -> tuple[Ints, Ints]:
    """(number of children, the child where there is one)."""
    has = np.flatnonzero(tree.parent >= 0)
    children = np.bincount(tree.parent[has], minlength=len(tree))
    only = np.full(len(tree), NULL, dtype=np.int64)
    only[tree.parent[has]] = has
    return children, np.where(children == 1, only, NULL)


def _collapsed(tree: Tree) -> tuple[Mask, Ints]:
    """(client spans that are nothing but a call, the span that served them or -1); a chain of clients is one call."""
    children, only = _only_child(tree)
    up = np.maximum(tree.parent, 0)
    client = np.isin(tree.kind, (CLIENT, PRODUCER)) & (children <= 1) & (tree.parent >= 0) & (tree.rank[up] == tree.rank)
    inner = np.where((only >= 0) & (tree.rank[only] == tree.rank), only, NULL)
    call = client & (inner < 0)
    served = np.where(call, only, NULL)
    # From the inside out: a client becomes a call once the client inside it is one.
    for _ in range(CHAIN):
        deeper = client & ~call & (inner >= 0) & call[inner]
        call = call | deeper
        served = np.where(deeper, served[inner], served)
    return call, served


def _inside(tree: Tree, call: Mask) -> dict[int, int]:
    """Calls inside calls: the outer one → the inner one."""
    inner = np.flatnonzero(call & (tree.parent >= 0) & call[np.maximum(tree.parent, 0)])
    return dict(zip(tree.parent[inner].tolist(), inner.tolist(), strict=True))


def _far_name(tree: Tree, row: int, inside: dict[int, int]) -> str:
    at: int | None = row
    while at is not None:
        if word := tree.known.of(at).far:
            return word
        at = inside.get(at)
    return tree.name[row] or "far end"


def calls(tree: Tree, people: Participants) -> Calls:
    """Children and calls of every thread."""
    rows = np.flatnonzero((tree.parent >= 0) & ~people.call[np.maximum(tree.parent, 0)])  # what a call serves is inside it
    thread = tree.parent[rows]
    call, far = people.call[rows], people.far_rank[rows] >= 0
    doer = np.where(call & ~far, people.served[rows], rows)
    to = np.where(far, people.far_rank[rows], tree.rank[doer])
    remote = to != tree.rank[thread]
    start, end = _times(tree, rows, thread, call, remote)
    answered = (tree.kind[doer] != CONSUMER) & (tree.kind[rows] != PRODUCER)
    answered &= tree.end[doer] - tree.start[doer] <= end - start
    # Who gave up does not wait for an answer that comes later.
    answered &= ~(tree.failed[rows] & call & (tree.end[doer] > tree.end[rows]))
    joined = answered & (end <= tree.end[thread])
    order = np.lexsort((rows, end, start, thread))
    out = Calls(
        thread=thread[order],
        span=doer[order],
        asked=rows[order],
        start=start[order],
        end=end[order],
        to=to[order],
        remote=remote[order],
        joined=joined[order],
        far=far[order],
    )
    out.inline = ~out.remote & out.joined & ~_overlapping(out)
    return out


def _times(tree: Tree, rows: Ints, thread: Ints, call: Mask, remote: Mask) -> tuple[Ints, Ints]:
    """When each begins and ends in its thread's clock; a server right under its caller lasts as long as its own span."""
    low, high = tree.start[thread], tree.end[thread]
    alone = np.bincount(thread, minlength=1)[thread] == 1 if len(thread) else np.zeros(0, dtype=np.bool_)
    around = np.isin(tree.kind[thread], (CLIENT, PRODUCER)) & remote & ~call & alone
    start = np.where(around, low, np.clip(tree.start[rows], low, high))
    lasts = start + tree.end[rows] - tree.start[rows]
    return start, np.where(around, high, np.where(remote & ~call, lasts, tree.end[rows]))


def _overlapping(found: Calls) -> Mask:
    """Calls that overlap another one of their thread."""
    until = np.where(found.joined, found.end, found.start)
    out = grouped_max(found.thread, until) > found.start
    out[:-1] |= (found.thread[1:] == found.thread[:-1]) & (found.start[1:] < until[:-1])
    return out


def tasks(found: Calls, spans: int) -> Ints:
    """Per span: the topmost span of the lane it runs in; itself, unless it goes on in its parent's."""
    at = np.arange(spans)
    at[found.span[found.inline]] = found.thread[found.inline]
    for _ in range(spans.bit_length() + 1):
        at = at[at]
    return at
