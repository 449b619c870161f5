"""What was seen live becomes a trace that holds the same times, and in which the analysis finds the same culprit."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.tables import Kind, Trace, Verb
from taut.lab.live_jobs import LiveJob
from taut.lab.modelled import modelled
from taut.run import analyze_trace
from taut.watch.seen import Events, Meeting, Seat, Seen, joined
from taut.watch.window_trace import trace_of


def test_ops_of_a_rank_fill_its_steps_and_gates_have_all_members() -> None:
    seen = LiveJob(4, 1).block(12).seen()
    told = trace_of(seen, {})
    assert told is not None
    assert told.exact
    ops, steps = told.trace.ops, seen.steps
    for rank in range(4):
        worked = (ops.end_ns - ops.start_ns)[ops.rank == rank].sum()
        assert worked == (steps.end - steps.begin)[steps.rank == rank].sum()
    met = ops.take(ops.verb == Verb.ALL_REDUCE)
    assert np.bincount(met.seq).tolist() == [4] * 12


def test_the_loader_has_its_name_with_ends_and_without() -> None:
    for sees in ("calls", "hooks"):
        seen = LiveJob(4, 1, sees=sees, gates=3).block(12).seen()
        told = trace_of(seen, {3: True})
        assert told is not None
        loads = told.trace.ops.take(told.trace.ops.kind == Kind.COORDINATE)
        assert {told.trace.names[name] for name in np.unique(loads.name)} == {"data_load"}
        assert len(loads) >= 4 * 10


@pytest.mark.parametrize("sees", ["calls", "hooks"])
def test_a_checkpoint_has_its_name_and_changes_no_other(sees: str) -> None:
    seen = LiveJob(4, 1, sees=sees, gates=3).block(16).seen()
    first = seen.stages.take((seen.stages.klass == 0) & (seen.stages.number % 4 == 3))
    begin = seen.steps.take(seen.steps.number % 4 == 3).begin
    code = len(seen.classes)
    saves = Events(first.rank, np.full(len(first), code), first.number, first.flags, begin, begin + (first.begin - begin) // 2)
    # The loader comes after the checkpoint.
    late = (seen.stages.klass == 0) & (seen.stages.number % 4 == 3)
    begins = np.where(late, (seen.stages.begin + seen.stages.end) // 2, seen.stages.begin)
    saves = Events(*(getattr(saves, name) for name in ("rank", "klass", "number", "flags", "begin")), begins[late] - 1)
    stages = Events(*(getattr(seen.stages, name) for name in ("rank", "klass", "number", "flags")), begins, seen.stages.end)
    told = trace_of(
        Seen(seen.gates, joined([stages, saves]), seen.steps, [*seen.classes, Meeting("save")], seen.seats), {3: True}
    )
    assert told is not None
    ops, names = told.trace.ops, np.array(told.trace.names)
    assert (ops.kind[names[ops.name] == "checkpoint"] == Kind.COORDINATE).all()
    assert len(np.unique(ops.step[names[ops.name] == "checkpoint"])) >= 3
    forward = np.bincount(ops.step[names[ops.name] == "forward"], minlength=16)
    assert set(forward[1:15].tolist()) == {forward[1]}


def test_ends_of_backward_passes_at_which_nobody_waits_are_no_gate() -> None:
    seen = LiveJob(4, 1).block(12).seen()
    alone = Events(*(getattr(seen.gates, name) for name in ("rank", "klass", "number", "flags", "begin", "begin")))
    assert trace_of(Seen(alone, seen.stages, seen.steps, seen.classes, seen.seats), {}) is None


def test_whoever_leaves_before_the_last_came_gave_its_gradients_away_before() -> None:
    job = LiveJob(4, 2, fault="slow", since=0, strength=0.4)
    seen = job.block(40).seen()
    ahead = int(0.05 * job.step_s * 1e9)
    early = Events(
        *(getattr(seen.gates, n) for n in ("rank", "klass", "number", "flags")),
        seen.gates.begin,
        np.maximum(seen.gates.end - ahead, seen.gates.begin),
    )
    told = trace_of(Seen(early, seen.stages, seen.steps, seen.classes, seen.seats), {})
    assert told is not None
    assert [finding.ranks for finding in analyze_trace(told.trace).findings] == [job.place]


def as_seen(trace: Trace) -> Seen:
    """What a pipeline's ranks notice below torch 2.14: receives, reductions, backward passes and steps, no sends."""
    ops = trace.ops
    named = np.array(trace.names)[ops.name]
    classes: list[Meeting] = [Meeting("backward"), Meeting("optimizer")]
    code: dict[Meeting, int] = {one: k for k, one in enumerate(classes)}
    rows: dict[str, list[tuple[int, int, int, int, int, int]]] = {"gates": [], "stages": [], "steps": []}
    count: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    order = np.lexsort((ops.start_ns, ops.rank))
    for i in order.tolist():
        rank, verb, step = int(ops.rank[i]), int(ops.verb[i]), int(ops.step[i])
        begin, end = int(ops.start_ns[i]), int(ops.end_ns[i])
        if named[i] == "backward":
            rows["stages"].append((rank, 0, step, 0, begin, end))
        if verb in (Verb.NONE, Verb.SEND):
            continue
        if verb == Verb.RECV:
            one = Meeting("hop", "pp", (), int(ops.peer[i]), rank)
        else:
            group = trace.groups[ops.group[i]]
            one = Meeting("all_reduce", group, tuple(int(r) for r in trace.group_ranks[group]))
        klass = code.setdefault(one, len(code))
        number = count.get((rank, klass), 0)
        count[rank, klass] = number + 1
        rows["gates"].append((rank, klass, number, 2 * (verb == Verb.RECV), begin, end))
    for rank in np.unique(ops.rank).tolist():
        for step in np.unique(ops.step[ops.step >= 0]).tolist():
            end = int(ops.end_ns[(ops.rank == rank) & (ops.step == step)].max())
            rows["steps"].append((rank, -1, step, 0, last.get(rank, int(ops.start_ns.min())), end))
            last[rank] = end
    parts = {key: Events(*np.array(value, np.int64).T) for key, value in rows.items()}
    seats = {int(rank): Seat(f"node{rank}", 0, f"boot{rank}", "calls", "nccl") for rank in np.unique(ops.rank)}
    return Seen(parts["gates"], parts["stages"], parts["steps"], list(code), seats)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_pipeline_whose_sends_are_not_seen_the_slow_rank_is_found(seed: int) -> None:
    trace, truth = modelled("pipeline", "slow", 16, seed, 40)
    seen = as_seen(trace)
    told = trace_of(seen, {k: one.verb == "all_reduce" for k, one in enumerate(seen.classes)})
    assert told is not None
    assert told.inferred_sends
    findings = analyze_trace(told.trace).findings
    assert findings[0].ranks == truth.injected[0].ranks
    assert not findings[0].links
