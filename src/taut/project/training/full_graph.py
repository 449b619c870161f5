"""A scenario as a full operator graph, of the kind that is measured: every rank, every op, every gate.

A replica's program (``pipeline.py``) becomes *beats*: the ranks of a stage do one thing together, each its own op. An op of
the program is a receive (if its input comes from another stage), work and meetings of the tensor- and context-parallel
group in turn, and a send (if its result goes to another stage). Then replicas meet, the ranks of a replica meet (they
need the norm of all gradients before any of them may update), and the optimiser ends the step. Gates that let replicas run
apart are edges from what others had done some meetings ago. What waits for the fastest only is no max-plus system, and has no
graph: dropped replicas, clones, copies of late ops.

Receives lie in lanes of their own, posted as soon as the one before them is done; everything else of a rank is one lane.
A send waits for nobody. Rows come in an order that respects what they wait for, so the program of a replay is known
without a search; works are whole nanoseconds and there are no gaps, so a replay gives the times exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from taut.core.array_types import Floats, Ints, Texts
from taut.core.errors import UsageError
from taut.core.ids import greatest, numbered, occurrence
from taut.core.jit import Kernel
from taut.core.tables import NULL, Kind, Member, Op, Table, Trace, Verb
from taut.graph import Clock, Graph
from taut.project.noise import CELLS, EVENLY, POINTS, REACH, at_even_chances, table
from taut.project.training import model_shape, rank_memory
from taut.project.training import policy_effects as effects
from taut.project.training.grid import Grid, op_key, replica_key, step_key
from taut.project.training.pipeline import FORWARD
from taut.project.training.scenario import Scenario
from taut.project.training.step_plan import Plan, plan
from taut.replay.timeline import replay

MOST_ROWS = 20_000_000
"""Ops of a graph; what is larger is played on the grid."""
RECEIVE, WORK, MEET, SEND, SYNC, NORM, UPDATE = range(7)
LANES = ("main", "receive forward", "receive backward")
KINDS = np.array(
    [Kind.COMMUNICATE, Kind.COMPUTE, Kind.COMMUNICATE, Kind.COMMUNICATE, Kind.COMMUNICATE, Kind.SYNCHRONISE, Kind.COMPUTE]
)


@dataclass(frozen=True)
class Shape:
    """Who is there: replicas, stages, ranks of a stage in one replica; and what a replica does, beat by beat."""

    dp: int
    pp: int
    inner: int
    op: Ints
    """Op of the program that a beat belongs to."""
    role: Ints
    nth: Ints
    """Which part of the op's work it is, or ends."""
    parts: Ints
    """Per op: how many parts its work has."""


def graph(
    s: Scenario,
    grid: Grid,
    steps: int,
    seed: int = 0,
    *,
    by: Literal["chunk", "layer"] = "chunk",
    p: Plan | None = None,
    one: Floats | None = None,
) -> Graph:
    """The job of a scenario, with the work and the draws of a grid of it (``forecast.with_noise``).

    By chunk, an op is a whole chunk, with the very number the grid draws for its group of ranks. By layer, work stops at
    every rendezvous and each rank draws its own, from ``one`` (quantiles as in ``noise.py``; else the scenario's noise).
    """
    p, grid = p or plan(s), replace(grid, replicas=s.job.dp)
    shape = _shape(s, p, grid, steps, by)
    rows = _rows(s, shape, grid, steps, p.sync_ns > 0)
    if by == "chunk":
        took = _chunks(shape, grid, steps, seed)
    else:
        took = _layers(shape, grid, steps, seed, table(s.noise) if one is None else one)
    work_ns = np.rint(_works(s, shape, grid, p, rows, took)).astype(np.int64)
    return _assembled(s, p, shape, grid, rows, work_ns, steps)


def replica_ends(s: Scenario, made: Graph) -> Floats:
    """When each replica has ended each step of a replayed graph: steps × replicas."""
    played, last = replay(made), np.flatnonzero(made.ops.name == len(made.names) - 1)
    out = np.zeros((len(made.steps), s.job.dp))
    np.maximum.at(out, (made.ops.step[last], made.members.dp_rank[made.ops.rank[last]]), played.end_ns[last])
    return out


def step_lengths(s: Scenario, grid: Grid, steps: int, seed: int, p: Plan) -> Floats:
    """How long every step of a job takes, by replaying its graph."""
    ends = replica_ends(s, graph(s, grid, steps, seed, p=p))
    done = np.array([effects.gate(s).counts(each) for each in ends])
    return np.diff(done, prepend=0.0)


def recorded(made: Graph) -> Trace:
    """The trace that a profiler on every rank would have written of a graph."""
    return replace(made.trace, ops=made.ops)


def _shape(s: Scenario, p: Plan, grid: Grid, steps: int, by: str) -> Shape:
    """The beats of a replica: of every op a receive, work and meetings in turn, a send; refused where they are too many."""
    program, inner = grid.program, s.job.tp * s.job.cp
    parts = np.array([max(n, 1) if by == "layer" else 1 for n in p.gates])[program.direction]
    turns = np.array([2 if inner > 1 or moved > 0 else 1 for moved in p.transfer_ns.max(axis=1)])[program.direction]
    count = program.takes + parts * turns + program.gives
    rows = steps * inner * s.job.dp * (int(count.sum()) + 3 * s.job.pp)
    if rows > MOST_ROWS:
        raise UsageError(f"{rows:,} ops are more than a full graph may have; take fewer steps, or play the grid")
    op = np.repeat(np.arange(len(program)), count)
    place = np.arange(len(op)) - (np.cumsum(count) - count)[op] - program.takes[op]
    role = np.where(place % turns[op] == 0, WORK, MEET)
    role[place >= (parts * turns)[op]] = SEND
    role[place < 0] = RECEIVE
    return Shape(s.job.dp, s.job.pp, inner, op, role, np.maximum(place, 0) // turns[op], parts)


@dataclass(frozen=True)
class Rows:
    """The ops of all steps, one row each, in order."""

    step: Ints
    replica: Ints
    stage: Ints
    member: Ints
    op: Ints
    """Op of the program; -1 at the end of a step."""
    role: Ints
    nth: Ints


def _rows(s: Scenario, shape: Shape, grid: Grid, steps: int, syncs: bool) -> Rows:
    """Every replica's beats, then what ends a step, step by step; ranks of one replica may have gradients to sum too."""
    replica, beat, member = np.indices((shape.dp, len(shape.op), shape.inner)).reshape(3, -1)
    last, stage, of, place = np.indices((3, shape.pp, shape.dp, shape.inner)).reshape(4, -1)
    columns = {
        "replica": (replica, of), "stage": (grid.program.stage[shape.op[beat]], stage), "member": (member, place),
        "op": (shape.op[beat], np.full(len(last), NULL)), "role": (shape.role[beat], SYNC + last),
        "nth": (shape.nth[beat], np.zeros_like(last)),
    }  # fmt: skip
    one = {name: np.concatenate(both) for name, both in columns.items()}
    step = np.repeat(np.arange(steps), len(one["op"]))
    all_rows = {name: np.tile(values, steps) for name, values in one.items()}
    synced = (step + 1) % s.job.steps_between_syncs == 0
    keep = (all_rows["role"] != SYNC) | (synced & (syncs or shape.dp > 1))
    keep &= (all_rows["role"] != NORM) | (shape.pp * shape.inner > 1)
    return Rows(step[keep], **{name: values[keep] for name, values in all_rows.items()})


def _chunks(shape: Shape, grid: Grid, steps: int, seed: int) -> Floats:
    """Work of every op as the grid draws it, transfers in it: steps × replicas × ops × parts × members, the last two 1."""
    took = np.empty((steps, shape.dp, len(grid.program), 1, 1))
    keys, slow, program = _keys(shape.dp, steps, seed), grid.slowness(range(steps)), grid.program
    for i, (cell, direction, stage) in enumerate(zip(program.cell, program.direction, program.stage, strict=True)):
        drawn = _look_up(_hashed(op_key, keys, i), grid.tables[direction], grid.even[direction]) * slow[:, :, stage]
        took[:, :, i, 0, 0] = grid.fixed_ns.ravel()[cell] + grid.drawn_ns.ravel()[cell] * drawn
    for k in range(steps):
        if grid.pauses is None:
            break
        added, where = grid.pauses(k)
        hit = (where * program.ops_of_stage).astype(np.int64)[:, program.stage] == program.turn
        took[k, :, :, 0, 0] += np.where(hit, added[:, program.stage], 0.0)
    return took


def _keys(replicas: int, steps: int, seed: int) -> Ints:
    """Where the draws of each step and replica begin: steps × replicas."""
    begin = _hashed(step_key, seed, np.arange(steps))
    return _hashed(replica_key, begin[:, None], np.arange(replicas)[None, :])


def _hashed(hash_of: Kernel[int], *keys: Ints | int) -> Ints:
    """A hash of the grid over whole arrays."""
    return np.asarray(hash_of.plain(*keys))


def _look_up(bits: Ints, row: Floats, even: Floats) -> Floats:
    """The quantiles of a table (one row of it) that draws of 32 bits stand for."""
    x = (bits.astype(float) + 0.5) / 4294967296.0
    at = (np.log(x / (1 - x)) + REACH) * ((POINTS - 1) / (2 * REACH))
    k = at.astype(np.int64)
    tails = (1 - at + k) * row[k] + (at - k) * row[k + 1]
    return np.where((x * CELLS >= 1) & (x * CELLS < CELLS - 1), np.interp(x, EVENLY, even), tails)


def _layers(shape: Shape, grid: Grid, steps: int, seed: int, one: Floats) -> Floats:
    """The same with a number for every part and every rank; the transfers are in the parts."""
    keys = _keys(shape.dp, steps, seed)
    slow, even = grid.slowness(range(steps)), at_even_chances(one)
    took = np.zeros((steps, shape.dp, len(grid.program), int(shape.parts.max()), shape.inner))
    for i, parts in enumerate(shape.parts.tolist()):
        own = np.arange(1, parts * shape.inner + 1).reshape(parts, shape.inner)
        strays = _look_up(_hashed(op_key, _hashed(op_key, keys, i)[:, :, None, None], own), one, even)
        cell, stage = grid.program.cell[i], grid.program.stage[i]
        mean = grid.drawn_ns.ravel()[cell] * slow[:, :, stage, None, None]
        took[:, :, i, :parts] = (grid.fixed_ns.ravel()[cell] + mean * strays) / parts
    return took


def _works(s: Scenario, shape: Shape, grid: Grid, p: Plan, rows: Rows, took: Floats) -> Floats:
    """Work of every row, ns. What a grid's op takes holds its transfers, and its send where that keeps the sender busy."""
    busy_ns = p.hop_ns if grid.hop_ns == p.late_ns else 0.0
    moved = p.transfer_ns.ravel()[grid.program.cell] / shape.parts
    sent = np.where(grid.program.gives, busy_ns, 0.0) / shape.parts
    out = np.zeros(len(rows.op))
    for role, value in ((RECEIVE, busy_ns + grid.hop_ns), (SEND, busy_ns), (UPDATE, p.optimiser_ns)):
        out[rows.role == role] = value
    out[rows.role == SYNC] = p.sync_ns * s.job.steps_between_syncs
    here = rows.role == MEET
    out[here] = moved[rows.op[here]]
    here = rows.role == WORK
    step, replica, op, nth, member = (column[here] for column in (rows.step, rows.replica, rows.op, rows.nth, rows.member))
    whole = took[step, replica, op, nth, np.minimum(member, took.shape[4] - 1)]
    out[here] = np.maximum(whole - moved[op] - sent[op], 0.0)
    return out


def _assembled(s: Scenario, p: Plan, shape: Shape, grid: Grid, rows: Rows, work_ns: Ints, steps: int) -> Graph:
    rank = (rows.stage * shape.dp + rows.replica) * shape.inner + rows.member
    direction = np.append(grid.program.direction, FORWARD)[rows.op]
    lane = np.where(rows.role == RECEIVE, 1 + direction, 0)
    gate, gates = _gates(s, shape, grid, rows)
    wait = np.where(rows.role == SEND, NULL, gate)
    ptr, pred = _preds(s, rows, rank, lane, grid, shape)
    names, name = _names(s, grid, rows)
    groups, group = _groups(shape, rows)
    members = _members(s, shape)
    peer, size = _peers(shape, grid, rows, rank), _sizes(s, rows)
    zero = np.zeros(len(rank), dtype=np.int64)
    columns = {
        "rank": rank, "lane": lane, "step": rows.step, "kind": KINDS[rows.role], "name": name, "start_ns": zero, "end_ns": zero,
        "verb": np.where(gate >= 0, _verbs(s)[rows.role], Verb.NONE), "group": group, "peer": peer, "size": size,
        "seq": np.where(group >= 0, occurrence(group, rank), NULL),
        "part": np.where(rows.op >= 0, grid.program.micro[rows.op], NULL),
    }  # fmt: skip
    trace = Trace(
        ops=Table(Op, {}, 0),
        names=names,
        lanes=LANES,
        groups=list(groups),
        members=members,
        name=s.name,
        world_size=s.job.world,
        backend="modelled",
        group_ranks=groups,
        partial=_left_out(s, p),
        timer_ns=0,
    )
    made = Graph(
        trace=trace,
        ops=Table(Op, columns),
        work_ns=work_ns,
        gap_ns=zero,
        pred_ptr=ptr,
        pred=pred,
        lag_ns=np.zeros(len(pred), dtype=np.int64),
        join=gate.astype(np.int32),
        wait=wait.astype(np.int32),
        wait_lag_ns=zero,
        slots=gates,
        events=_events(gate, wait, gates),
        gate=gate.astype(np.int32),
        explained=np.diff(ptr) > 0,
        window=rows.step.astype(np.int32),
        steps=np.arange(steps),
        segment=np.zeros(steps, dtype=np.int32),
        origin_ns=np.zeros(1, dtype=np.int64),
        members=members,
        clock=Table(Clock, {"rank": members.rank}),
        clock_residual_ns=0,
        dropped_edges=0,
        partial=trace.partial,
        counts={"gates": gates, "unmatched": 0, "misaligned": 0, "circular gates": 0},
        roles=rows.stage.astype(np.int32),
    )
    played = replay(made)
    return replace(made, ops=made.ops.replace(start_ns=played.arrival_ns, end_ns=played.end_ns))


def _gates(s: Scenario, shape: Shape, grid: Grid, rows: Rows) -> tuple[Ints, int]:
    """Gate of every row, in the order in which their last members come; -1 for none."""
    role, policy = rows.role, s.policy
    hop, meet, sync = (role == SEND) | (role == RECEIVE), (role == MEET) & (shape.inner > 1), role == SYNC
    together = policy.group_replicas or shape.dp
    if shape.dp == 1 or policy.gate in ("ring", "none") or (policy.gate == "stale" and policy.slack):
        sync &= False
    inside = hop | meet | sync | (role == NORM)
    sender = np.where(role == SEND, rows.op, grid.program.needs[rows.op])
    keys = (
        rows.step, np.where(hop, SEND, role), np.where(sync, rows.stage * shape.dp + rows.replica // together, rows.replica),
        np.select([hop, meet, sync], [sender, rows.op, rows.member], 0), np.select([hop, meet], [rows.member, rows.nth], 0),
    )  # fmt: skip
    found, count = numbered(*(key[inside] for key in keys))
    last = greatest(found, count, np.flatnonzero(inside))
    turn = np.empty(count, dtype=np.int64)
    turn[np.argsort(last)] = np.arange(count)
    gate = np.full(len(role), NULL)
    gate[inside] = turn[found]
    return gate, count


def _events(join: Ints, wait: Ints, slots: int) -> Ints:
    """Every row arrives in its turn; those who wait end as soon as the last of their slot has arrived."""
    rows, waits = np.arange(len(join)), np.flatnonzero(wait >= 0)
    last = greatest(join[join >= 0], slots, rows[join >= 0])
    at = np.concatenate([rows, last[wait[waits]]])
    order = np.lexsort((np.concatenate([rows, waits]), np.arange(len(at)) >= len(rows), at))
    return np.concatenate([rows, ~waits])[order]


def _preds(s: Scenario, rows: Rows, rank: Ints, lane: Ints, grid: Grid, shape: Shape) -> tuple[Ints, Ints]:
    """What each row follows: the row before in its lane, and work its receive; the first receive of a step its begin."""
    n = len(rank)
    before = _before(rank * len(LANES) + lane)
    new = (rows.role == RECEIVE) & ((before < 0) | (rows.step[before] != rows.step))
    before[new] = _begins(rows, rank)[new]
    fed = np.flatnonzero((rows.role == WORK) & (rows.nth == 0))
    fed = fed[grid.program.takes[rows.op[fed]]]
    follows = np.flatnonzero(before >= 0)
    others, met = _earlier_meetings(s, rows, rank, before, shape)
    source, target = np.concatenate([before[follows], fed - shape.inner, others]), np.concatenate([follows, fed, met])
    order = np.argsort(target, kind="stable")
    return np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n))]).astype(np.int64), source[order]


def _earlier_meetings(s: Scenario, rows: Rows, rank: Ints, before: Ints, shape: Shape) -> tuple[Ints, Ints]:
    """(rows that a meeting waits for, its row): what a neighbour, or everybody, had done some meetings ago."""
    policy, none = s.policy, np.zeros(0, np.int64)
    ago = policy.slack - 1 if policy.gate == "ring" else policy.slack
    sync = np.flatnonzero(rows.role == SYNC)
    if policy.gate not in ("ring", "stale", "hierarchical") or not len(sync) or (policy.gate == "stale" and not ago):
        return none, none
    meeting = rows.step // s.job.steps_between_syncs
    came = np.full((int(meeting.max()) + 1, s.job.world), NULL)
    came[meeting[sync], rank[sync]] = before[sync]
    sync = sync[meeting[sync] >= ago]
    sources, targets = [], []
    for apart in [1] if policy.gate == "ring" else range(shape.dp):
        other = (rows.replica[sync] - apart) % shape.dp
        theirs = (rows.stage[sync] * shape.dp + other) * shape.inner + rows.member[sync]
        sources.append(came[meeting[sync] - ago, theirs])
        targets.append(sync)
    return np.concatenate(sources), np.concatenate(targets)


def _before(key: Ints) -> Ints:
    """The row before with the same key, -1 for none."""
    order = np.argsort(key, kind="stable")
    out = np.full(len(key), NULL)
    same = key[order[1:]] == key[order[:-1]]
    out[order[1:][same]] = order[:-1][same]
    return out


def _begins(rows: Rows, rank: Ints) -> Ints:
    """The update of the same rank that ended the step before, -1 in the first step."""
    ends = np.flatnonzero(rows.role == UPDATE)
    at = np.empty((int(rows.step.max()) + 2, int(rank.max()) + 1), dtype=np.int64)
    at[0] = NULL
    at[rows.step[ends] + 1, rank[ends]] = ends
    return at[rows.step, rank]


def _names(s: Scenario, grid: Grid, rows: Rows) -> tuple[list[str], Ints]:
    """Class names: direction and, where a stage has several chunks, which of them."""
    p = grid.program
    words = {RECEIVE: "recv", WORK: "compute", MEET: _verbs(s)[MEET].word, SEND: "send"}
    turns = [f" {turn}" for turn in range(p.chunks // p.stages)] if p.chunks > p.stages else [""]
    inside = [f"{way}-{words[role]}{turn}" for role in range(SYNC) for way in ("forward", "backward") for turn in turns]
    index = (rows.role * 2 + p.direction[rows.op]) * len(turns) + p.chunk[rows.op] // p.stages
    return [*inside, "grads-sync", "grads-norm", "optimiser"], np.where(rows.role < SYNC, index, len(inside) + rows.role - SYNC)


def _verbs(s: Scenario) -> Texts:
    inside = Verb.ALL_REDUCE if s.job.tp > 1 else Verb.ALL_GATHER
    return np.array([Verb.RECV, Verb.NONE, inside, Verb.SEND, Verb.ALL_REDUCE, Verb.ALL_REDUCE, Verb.NONE], dtype=object)


def _groups(shape: Shape, rows: Rows) -> tuple[dict[str, list[int]], Ints]:
    """Process groups with their ranks, and the group of every row that meets in one."""
    ranks = np.arange(shape.pp * shape.dp * shape.inner).reshape(shape.pp, shape.dp, shape.inner)
    stages, columns = ranks.reshape(-1, shape.inner), ranks.transpose(0, 2, 1).reshape(-1, shape.dp)
    wholes = ranks.transpose(1, 0, 2).reshape(shape.dp, -1)
    families = {"tensor": stages, "data": columns, "replica": wholes}
    groups = {f"{name} {i}": row.tolist() for name, family in families.items() for i, row in enumerate(family)}
    first = np.cumsum([0, len(stages), len(columns)])
    group = np.full(len(rows.op), NULL)
    for role, size, start, number in (
        (MEET, shape.inner, first[0], rows.stage * shape.dp + rows.replica),
        (SYNC, shape.dp, first[1], rows.stage * shape.inner + rows.member),
        (NORM, shape.pp * shape.inner, first[2], rows.replica),
    ):
        here = (rows.role == role) & (size > 1)
        group[here] = start + number[here]
    return groups, group


def _members(s: Scenario, shape: Shape) -> Table:
    rank = np.arange(s.job.world)
    return Table(
        Member,
        {
            "rank": rank,
            "stage": rank // (shape.dp * shape.inner),
            "dp_rank": rank // shape.inner % shape.dp,
            "host": [f"node {r // s.fabric.node}" for r in rank.tolist()],
            "device": [s.device.name] * len(rank),
        },
    )


def _peers(shape: Shape, grid: Grid, rows: Rows, rank: Ints) -> Ints:
    """Other end of sends and receives: the same member of the stage before or after."""
    p = grid.program
    to = np.full(len(p), NULL)
    takes = np.flatnonzero(grid.program.takes)
    to[p.needs[takes]] = p.stage[takes]
    other = np.where(rows.role == SEND, to[rows.op], p.stage[p.needs[rows.op]])
    hop = (rows.role == SEND) | (rows.role == RECEIVE)
    return np.where(hop, rank + (other - rows.stage) * shape.dp * shape.inner, NULL)


def _sizes(s: Scenario, rows: Rows) -> Ints:
    """Bytes of what is moved: activations, gradients; -1 for what moves nothing."""
    passed = model_shape.HALF * model_shape.tokens_of(s.model, s.job) * s.model.hidden
    bytes_of = np.full(UPDATE + 1, NULL)
    bytes_of[[RECEIVE, SEND]], bytes_of[MEET] = passed // s.job.tp, passed
    bytes_of[SYNC], bytes_of[NORM] = int(s.job.gradient_bytes * rank_memory.trained_parameters(s)), 4
    return bytes_of[rows.role]


def _left_out(s: Scenario, p: Plan) -> tuple[str, ...]:
    """What of the plan no op of the graph stands for."""
    out = []
    if p.hidden_ns > 0:
        out.append("data-parallel transfers that hide under the backward pass are not in the graph")
    if s.policy.gate == "fastest" or s.policy.clones > 1 or s.policy.copy_after > 0:
        out.append("replicas meet at a barrier in the graph, and nothing is done twice, whatever the policy")
    if s.job.ep > 1:
        out.append("expert-parallel ranks of several replicas do not meet in the graph: their transfers are times")
    if s.job.sharding in ("zero3", "hsdp"):
        out.append("the gathering of sharded parameters is time in the graph, no rendezvous")
    return tuple(out)
