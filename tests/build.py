"""Tiny jobs for the tests: text or arrays in, a trace out whose times obey the max-plus rules, or a bare graph.

Three ways in, from readable to large:

* ``job({0: "fwd 5 | AR 2", 1: "fwd 9 | AR 2"}, steps=3)``: one line per rank (a list of lines for several lanes),
  milliseconds, played step after step;
* ``play([Do(...), ...])``: the same, op by op, for programs that a loop writes;
* ``barriers(work)``: compute and all-reduce for an array of work (steps × ranks), without a Python loop;
* ``system(preds, work)``: a graph without a trace, many independent replicas of one network side by side.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.graph import Clock, Graph
from taut.run import Analysis, analyze_trace

MS = 1_000_000
"""One millisecond in ns: the unit of the scripts."""

VERBS = {
    "AR": Verb.ALL_REDUCE, "AG": Verb.ALL_GATHER, "RS": Verb.REDUCE_SCATTER, "A2A": Verb.ALL_TO_ALL,
    "BAR": Verb.BARRIER, "BC": Verb.BROADCAST, "SC": Verb.SCATTER, "RD": Verb.REDUCE, "GA": Verb.GATHER,
    "SEND": Verb.SEND, "RECV": Verb.RECV,
}  # fmt: skip
FROM_ROOT, TO_ROOT = (Verb.BROADCAST, Verb.SCATTER), (Verb.REDUCE, Verb.GATHER)


@dataclass(frozen=True)
class Do:
    """One op that a rank is going to do: its work, and the idle time before it, in ns."""

    rank: int
    name: str
    work: int
    lane: int = 0
    step: int = 0
    idle: int = 0
    verb: Verb = Verb.NONE
    group: str = "all"
    peer: int = -1
    size: int = -1
    part: int = -1
    seq: int = -1
    launch: int = -1
    """Place in the list of the op that issues this one: it cannot begin before that one begins."""
    grouped: bool = False
    """Part of one call with the op before it in the lane: both begin together and end together."""
    eager: bool = False
    """A send that does not wait for its receiver."""
    kind: Kind | None = None

    @property
    def gate(self) -> bool:
        return self.verb != Verb.NONE


@dataclass
class Played:
    """When each op began and ended, ns."""

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)


def play(ops: Sequence[Do], *, relative: bool = False, **about: Any) -> Trace:
    """The trace of these ops: each after the one before it in its lane, gates open with the last arrival."""
    return as_trace(ops, times(ops, relative), relative=relative, **about)


def times(ops: Sequence[Do], relative: bool) -> Played:
    """Play the ops in rounds: every call whose start and gates are known ends; no progress means deadlock."""
    calls = _calls(ops, relative)
    expected, key_of = _meetings(ops)
    start: list[int | None] = [None] * len(ops)
    end: list[int | None] = [None] * len(ops)
    free: dict[Any, int] = defaultdict(int)
    heads = dict.fromkeys(calls, 0)
    moved = True
    while moved:
        moved = False
        for lane, queue in calls.items():
            while heads[lane] < len(queue):
                call = queue[heads[lane]]
                if start[call[0]] is None:
                    launches = [ops[i].launch for i in call if ops[i].launch >= 0]
                    if any(start[j] is None for j in launches):
                        break
                    ready = max([free[lane], *(start[j] or 0 for j in launches)])
                    for i in call:
                        start[i] = ready + ops[call[0]].idle
                    moved = True
                openings = [_opening(i, ops, expected[key_of[i]] if ops[i].gate else (), start) for i in call]
                if any(o is None for o in openings):
                    break
                done = max(int(o or 0) + ops[i].work for o, i in zip(openings, call, strict=True))
                for i in call:
                    end[i] = done
                free[lane] = done
                heads[lane] += 1
                moved = True
    stuck = [ops[q[heads[lane]][0]] for lane, q in calls.items() if heads[lane] < len(q)]
    if stuck:
        raise ValueError(f"these ops wait for ever: {stuck[:4]}")
    return Played([int(s or 0) for s in start], [int(e or 0) for e in end])


def _calls(ops: Sequence[Do], relative: bool) -> dict[Any, list[list[int]]]:
    """Lane → its calls in order, each a list of ops (several if grouped)."""
    calls: dict[Any, list[list[int]]] = defaultdict(list)
    for i, op in enumerate(ops):
        queue = calls[op.rank, op.lane, op.step if relative else 0]
        if op.grouped and queue:
            queue[-1].append(i)
        else:
            queue.append([i])
    return calls


def _meetings(ops: Sequence[Do]) -> tuple[dict[Any, list[int]], list[Any]]:
    """Who meets whom: collectives by their turn in group and step, hops by their turn in the channel."""
    meets: dict[Any, list[int]] = defaultdict(list)
    turn: dict[Any, int] = defaultdict(int)
    keys: list[Any] = []
    for i, op in enumerate(ops):
        if op.verb in (Verb.SEND, Verb.RECV):
            ends = (op.rank, op.peer) if op.verb == Verb.SEND else (op.peer, op.rank)
            place: Any = (*ends, op.name, op.step, op.part)
        else:
            place = (op.group, op.step)
        key = (place, turn[place, op.rank, op.verb == Verb.SEND])
        turn[place, op.rank, op.verb == Verb.SEND] += op.gate
        keys.append(key)
        if op.gate:
            meets[key].append(i)
    return meets, keys


def _opening(i: int, ops: Sequence[Do], members: Sequence[int], start: Sequence[int | None]) -> int | None:
    """When op i may begin its transfer, None while somebody it waits for is absent."""
    op = ops[i]
    waits = [i]
    for j in members:
        root = ops[j].rank == op.peer
        if op.verb in FROM_ROOT:
            needed = root
        elif op.verb in TO_ROOT:
            needed = op.rank == op.peer
        else:
            needed = not op.eager
        if needed:
            waits.append(j)
    arrivals = [start[j] for j in waits]
    return None if any(a is None for a in arrivals) else max(a for a in arrivals if a is not None)


def as_trace(ops: Sequence[Do], when: Played, **about: Any) -> Trace:
    """Columns out of ops and their times."""
    names = list(dict.fromkeys(op.name for op in ops))
    groups = list(dict.fromkeys(op.group for op in ops if _collective(op.verb)))

    def kind(op: Do) -> Kind:
        if op.kind is not None:
            return op.kind
        return Kind.COMPUTE if not op.gate else Kind.SYNCHRONISE if op.verb == Verb.BARRIER else Kind.COMMUNICATE

    columns = {
        key: [getattr(op, key) for op in ops]
        for key in ("rank", "lane", "step", "verb", "peer", "size", "part", "seq", "launch")
    }
    columns |= {
        "name": [names.index(op.name) for op in ops],
        "kind": [kind(op) for op in ops],
        "group": [groups.index(op.group) if _collective(op.verb) else -1 for op in ops],
        "start_ns": when.start,
        "end_ns": when.end,
    }
    return trace(columns, names, groups, **about)


def _collective(verb: Verb) -> bool:
    return verb not in (Verb.NONE, Verb.SEND, Verb.RECV)


def trace(
    columns: Mapping[str, Any], names: Sequence[str], groups: Sequence[str] = (), *,
    hosts: Mapping[int, str] | None = None, stage: Mapping[int, int] | None = None,
    dp_rank: Mapping[int, int] | None = None, **about: Any,
) -> Trace:  # fmt: skip
    """A trace out of op columns; ``hosts``, ``stage`` and ``dp_rank`` map ranks; all on one host unless given."""
    ops = Table(Op, columns)
    ranks = np.unique(ops.rank)
    members: dict[str, Any] = {
        "rank": ranks,
        "host": [(hosts or {}).get(int(r), "node" if hosts is None else "") for r in ranks],
    }
    if stage is not None:
        members["stage"] = [stage[int(r)] for r in ranks]
    if dp_rank is not None:
        members["dp_rank"] = [dp_rank[int(r)] for r in ranks]
    lanes = [f"lane {i}" for i in range(int(ops.lane.max()) + 1)]
    return Trace(ops=ops, names=names, lanes=lanes, groups=list(groups), members=Table(Member, members), **about)


WORD = re.compile(r"(?P<verb>[A-Z0-9]+)(?::(?P<size>\d+))?(?:/(?P<group>\w+))?(?:#(?P<seq>\d+))?(?:[@<>](?P<peer>\d+))?$")


def script(text: str, rank: int, lane: int = 0, step: int = 0) -> list[Do]:
    """The ops of one lane: ``fwd 5 | . 2 | AR:1024/dp#7 3 | SEND>1 1 | BC@0 1`` (name, ms; a dot is idle time)."""
    out: list[Do] = []
    idle = 0
    for word, length in (part.split() for part in text.split("|")):
        ns = round(float(length) * MS)
        if word == ".":
            idle += ns
            continue
        match = WORD.match(word)
        if match is None or match["verb"] not in VERBS:
            out.append(Do(rank, word, ns, lane, step, idle))
        else:
            given = {key: int(match[key]) for key in ("size", "seq", "peer") if match[key]}
            verb = VERBS[match["verb"]]
            name = "hop" if verb in (Verb.SEND, Verb.RECV) else verb.word
            out.append(Do(rank, name, ns, lane, step, idle, verb, match["group"] or "all", **given))
        idle = 0
    return out


Scripts = Mapping[int, str | Sequence[str]]


def job(
    scripts: Scripts | Callable[[int], Scripts], steps: int = 1, *, noise: float = 0.0, seed: int = 0, **about: Any
) -> Trace:  # fmt: skip
    """A job from one script per rank (a list: one per lane), the same in every step or made by a function of the step.

    ``noise`` is the relative standard deviation of the work of every op that meets nobody.
    """
    rng = np.random.default_rng(seed)
    ops: list[Do] = []
    for step in range(steps):
        for rank, lines in (scripts(step) if callable(scripts) else scripts).items():
            for lane, line in enumerate([lines] if isinstance(lines, str) else lines):
                ops += script(line, rank, lane, step)
    if noise:
        ops = [o if o.gate else replace(o, work=max(0, round(o.work * (1 + noise * rng.standard_normal())))) for o in ops]
    return play(ops, **about)


def barriers(work: Any, transfer: Any = 0, *, every: int = 1, name: str = "fwd", **about: Any) -> Trace:
    """Ranks that compute ``work[step, rank]`` ns and then meet in an all-reduce (in every n-th step only).

    ``transfer`` is what each rank spends in the all-reduce after it opened: a number or steps × ranks.
    """
    work = np.rint(np.asarray(work)).astype(np.int64)
    steps, ranks = work.shape
    moved = np.broadcast_to(np.asarray(transfer, dtype=np.int64), work.shape)
    meets = (np.arange(steps) + 1) % every == 0
    start, end, finish = np.empty_like(work), np.empty_like(work), np.empty_like(work)
    now = np.zeros(ranks, dtype=np.int64)
    for k in range(steps):
        start[k], end[k] = now, now + work[k]
        finish[k] = end[k].max() + moved[k] if meets[k] else end[k]
        now = finish[k]
    step, rank = np.broadcast_to(np.arange(steps)[:, None], work.shape), np.broadcast_to(np.arange(ranks), work.shape)
    compute = {"rank": rank, "step": step, "start_ns": start, "end_ns": end}
    columns = {
        "kind": (Kind.COMPUTE, Kind.COMMUNICATE), "name": (0, 1), "verb": (Verb.NONE, Verb.ALL_REDUCE),
        "group": (-1, 0), "lane": (0, 0), "size": (-1, 4096),
    }  # fmt: skip
    both: dict[str, Any] = {k: np.repeat(v, [work.size, ranks * meets.sum()]) for k, v in columns.items()}
    reduce = {"rank": rank[meets], "step": step[meets], "start_ns": end[meets], "end_ns": finish[meets]}
    both |= {k: np.concatenate([compute[k].ravel(), reduce[k].ravel()]) for k in compute}
    return trace(both, [name, "all-reduce"], ["all"], **about)


def ring_all_reduce(
    work: Any, chunk_ns: int, slow: Mapping[tuple[int, int], int], *, since: int = 0, noise: float = 0.02, seed: int = 0,
    **about: Any,
) -> Trace:  # fmt: skip
    """Compute, then a ring all-reduce of 2(N−1) rounds; ``slow`` maps links (from, to) to ns a chunk since some step.

    Rank r sends to r+1, a chunk in two pieces, and is at most a chunk ahead of what r+1 has: so behind a slow link ranks end
    one after the other.
    """
    rng = np.random.default_rng(seed)
    steps, ranks = np.shape(work)
    into = np.full((steps, ranks), chunk_ns, dtype=np.float64)
    for (_, receiver), ns in slow.items():
        into[since:, receiver] = ns
    pieces = 4 * (ranks - 1)
    took = into / 2 * (1 + noise * rng.standard_normal((pieces, steps, ranks)))
    got, given = np.zeros((2, pieces + 2, steps, ranks))
    for i in range(2, pieces + 2):
        posted = np.maximum(got[i - 2], given[i - 2])
        ready = np.maximum(np.roll(posted, 1, axis=-1), posted)
        got[i] = np.maximum(ready, got[i - 1]) + took[i - 2]
        given[i] = np.roll(ready, -1, axis=-1)
    return barriers(work, np.rint(np.maximum(got[-1], given[-1])).astype(np.int64), backend="nccl", **about)


def one_f_one_b(
    p: int, m: int, tf: float, tb: float, hop: float = 0.0, *, dp: int = 1, steps: int = 1,
    scale: Callable[[int, int], float] = lambda stage, dp_rank: 1.0, noise: float = 0.0, seed: int = 0,
) -> list[Do]:  # fmt: skip
    """A 1F1B pipeline of p stages and m micro-batches, times in ms, hops in grouped send/receive calls.

    ``scale`` slows one worker's computes. Rank = dp_rank · p + stage. With several data-parallel ranks a step begins
    with an all-gather and ends with a reduce-scatter among the ranks of a stage, then all ranks clip and update.
    """
    rng = np.random.default_rng(seed)
    out: list[Do] = []
    for step in range(steps):
        for d in range(dp):
            for s in range(p):
                ops = _stage(s, d, p, m, (tf, tb, hop), scale(s, d), step, rng, noise)
                out += ops if dp == 1 else _wrapped(ops, d * p + s, s, step, rng)
    return out


def _wrapped(ops: list[Do], rank: int, stage: int, step: int, rng: Any) -> list[Do]:
    """What data-parallel training adds to a pipeline step: 3 ms for each transfer, some time on the host."""
    peers = f"stage {stage}"
    gather = Do(rank, "params-all-gather", 3 * MS, step=step, verb=Verb.ALL_GATHER, group=peers)
    reduce = Do(rank, "grads-reduce-scatter", 3 * MS, step=step, verb=Verb.REDUCE_SCATTER, group=peers)
    host, update = round(rng.uniform(0, 2) * MS), round(rng.uniform(4, 4.2) * MS)
    clip = Do(rank, "optimizer-clip-main-grad", 2 * MS, step=step, idle=host, verb=Verb.BARRIER, group="clip")
    return [gather, *ops, reduce, clip, Do(rank, "optimizer", update, step=step)]


def _stage(
    s: int, d: int, p: int, m: int, ms: tuple[float, float, float], slow: float, step: int, rng: Any, noise: float
) -> list[Do]:
    rank = d * p + s
    tf, tb, hop = ms
    out: list[Do] = []

    def compute(name: str, length: float, part: int) -> None:
        out.append(Do(rank, name, round(length * slow * MS * (1 + noise * rng.standard_normal())), step=step, part=part))

    def hops(*calls: tuple[str, Verb, int, int]) -> None:
        inside = [c for c in calls if 0 <= c[2] < p]
        for i, (name, verb, stage, part) in enumerate(inside):
            out.append(Do(rank, name, round(hop * MS), step=step, verb=verb, peer=d * p + stage, part=part, grouped=i > 0))

    warm = min(p - 1 - s, m)
    for i in range(warm):
        hops(("forward", Verb.RECV, s - 1, i))
        compute("forward-compute", tf, i)
        hops(("forward", Verb.SEND, s + 1, i))
    hops(("forward", Verb.RECV, s - 1, warm)) if m > warm else None
    for k in range(m - warm):
        compute("forward-compute", tf, warm + k)
        hops(("forward", Verb.SEND, s + 1, warm + k), ("backward", Verb.RECV, s + 1, k))
        compute("backward-compute", tb, k)
        send = ("backward", Verb.SEND, s - 1, k)
        hops(send, ("forward", Verb.RECV, s - 1, warm + k + 1)) if k + 1 < m - warm else hops(send)
    for k in range(m - warm, m):
        hops(("backward", Verb.RECV, s + 1, k))
        compute("backward-compute", tb, k)
        hops(("backward", Verb.SEND, s - 1, k))
    return out


def system(
    preds: Sequence[Sequence[int]], work: Any, *, step: Sequence[int] | None = None, rank: Sequence[int] | None = None
) -> Graph:
    """A network of ops given by hand, op v after all of ``preds[v]`` (earlier ops only), without a trace.

    ``work`` is replicas × ops, ns; replicas are independent and have a time axis of their own. With ``step`` and
    ``rank`` per op (one replica), windows and ranks are named.
    """
    work = np.atleast_2d(np.rint(work).astype(np.int64))
    replicas, n = work.shape
    count = np.array([len(p) for p in preds])
    flat = np.array([u for p in preds for u in p], dtype=np.int64)
    pred = (flat[None, :] + n * np.arange(replicas)[:, None]).ravel()
    ptr = np.concatenate([[0], np.cumsum(np.tile(count, replicas))]).astype(np.int64)
    total = replicas * n
    none, zero = np.full(total, -1, dtype=np.int32), np.zeros(total, dtype=np.int64)
    segment = np.repeat(np.arange(replicas), n)
    window = segment if step is None else np.unique(np.asarray(step), return_inverse=True)[1]
    windows = int(window.max()) + 1
    rank = np.zeros(total, dtype=np.int32) if rank is None else np.asarray(rank, dtype=np.int32)
    assert (pred < np.repeat(np.arange(total), np.diff(ptr))).all(), "an op comes after its predecessors"
    members = Table(Member, {"rank": np.unique(rank)})
    ops = Table(Op, {"rank": rank, "lane": rank, "step": window, "name": zero, "start_ns": zero, "end_ns": zero})
    return Graph(
        trace=Trace(ops=Table(Op, {}, 0), names=["op"], lanes=["lane"], groups=[], members=members), ops=ops,
        work_ns=work.ravel(), gap_ns=zero, pred_ptr=ptr, pred=pred, lag_ns=np.zeros(len(pred), dtype=np.int64),
        join=none, wait=none, explained=np.tile(count, replicas) > 0, wait_lag_ns=zero,
        slots=0, events=np.arange(total), gate=none,
        window=window.astype(np.int32), steps=np.arange(windows),
        segment=np.arange(replicas) if step is None else np.zeros(windows, dtype=np.int64),
        origin_ns=np.zeros(replicas, dtype=np.int64), members=members, clock=Table(Clock, {"rank": members.rank}),
        clock_residual_ns=0, dropped_edges=0, partial=(), counts={}, roles=np.zeros(total, dtype=np.int32),
    )  # fmt: skip


def analyze(built: Trace, **options: Any) -> Analysis:
    """The main job on a built trace."""
    return analyze_trace(built, **options)
