"""Groups and peers inferred from the times of an op table: a job of another shape than those it was written for."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from build import Do, analyze, one_f_one_b, times
from taut.core.tables import Trace, Verb
from taut.graph import Graph, link
from taut.read.op_table import load
from taut.replay.timeline import replay
from taut.run import Analysis

DP, PP, PARTS, STEPS = 3, 6, 8, 4
HOPS = {Verb.SEND: "-send", Verb.RECV: "-recv"}


def op_table(ops: Sequence[Do], roles: bool = True) -> Trace:
    """The ops as production jobs record them: float32 seconds from 0 in every step, no groups, no peers, no verbs."""
    when = times(ops, relative=True)
    hop = [op.verb in HOPS for op in ops]
    columns: dict[str, Any] = {
        "rank": pa.array([op.rank for op in ops], pa.int16()),
        "step": pa.array([16 + 5 * op.step for op in ops], pa.int64()),
        "optype": pa.array([op.name + HOPS.get(op.verb, "") for op in ops]).dictionary_encode(),
        "start_ts": pa.array(np.array(when.start) * 1e-9, pa.float32()),
        "duration": pa.array((np.array(when.end) - when.start) * 1e-9, pa.float32()),
        "seq_id": pa.array([max(op.part, 0) for op in ops], pa.int32()),
        "mc": pa.array(np.where(hop, -1, 0), pa.int8()),
        "mb_id": pa.array([-1 if h else op.part for op, h in zip(ops, hop, strict=True)], pa.int8()),
    }
    if roles:
        columns["dp_rank"] = pa.array([op.rank // PP for op in ops], pa.int8())
        columns["stage"] = pa.array([op.rank % PP for op in ops], pa.int8())
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return load(out.getvalue(), "trace-other.parquet")


def pipeline(scale: Callable[[int, int], float] = lambda stage, dp_rank: 1.0) -> list[Do]:
    return one_f_one_b(PP, PARTS, 40, 80, 1, dp=DP, steps=STEPS, scale=scale, noise=0.005, seed=3)


def members(graph: Graph, name: str) -> set[tuple[int, ...]]:
    """The sets of ranks that meet in gates of a class."""
    gates = {int(g) for g in graph.gate[(graph.ops.name == list(graph.names).index(name)) & (graph.gate >= 0)]}
    return {tuple(sorted(graph.ops.rank[graph.gate == g].tolist())) for g in gates}


@pytest.fixture(scope="module")
def healthy() -> Analysis:
    return analyze(op_table(pipeline()))


@pytest.fixture(scope="module")
def slowed() -> Analysis:
    """Stage 2 of data-parallel rank 1 computes at two thirds of the speed."""
    return analyze(op_table(pipeline(lambda stage, dp_rank: 1.5 if (stage, dp_rank) == (2, 1) else 1.0)))


@pytest.mark.parametrize("name", ["params-all-gather", "grads-reduce-scatter"])
def test_ranks_of_a_stage_form_the_data_parallel_groups(healthy: Analysis, name: str) -> None:
    """Rank = dp · 6 + stage: the peers of stage s are s, s+6, s+12."""
    assert members(healthy.graph, name) == {(s, s + PP, s + 2 * PP) for s in range(PP)}


def test_a_rendezvous_without_a_telling_name_is_found(slowed: Analysis) -> None:
    """Clipping is entered by all ranks together; nothing in its name says so, the times do."""
    assert members(slowed.graph, "optimizer-clip-main-grad") == {tuple(range(DP * PP))}


def test_an_ordinary_compute_is_no_rendezvous(slowed: Analysis) -> None:
    """The optimiser and the computes meet nobody."""
    for name in ("optimizer", "forward-compute", "backward-compute"):
        assert members(slowed.graph, name) == set()


@pytest.mark.parametrize(("verb", "name", "way"), [(Verb.SEND, "forward", 1), (Verb.SEND, "backward", -1)])
def test_peers_of_hops_are_the_neighbouring_stages(healthy: Analysis, verb: Verb, name: str, way: int) -> None:
    """Activations go to the next stage, gradients to the one before, inside one data-parallel rank."""
    graph = healthy.graph
    klass = next(i for i, n in enumerate(graph.names) if n.startswith(name) and "comm" in n)
    sends = (graph.ops.verb == verb) & (graph.ops.name == klass)
    assert sends.sum() == STEPS * DP * (PP - 1) * PARTS
    assert (graph.ops.peer[sends] == graph.ops.rank[sends] + way).all()
    assert (graph.gate[sends] >= 0).all()


def test_the_replay_of_an_op_table_is_exact(slowed: Analysis) -> None:
    """Replay law on float32 times that restart in every step."""
    again = replay(slowed.graph)
    assert (again.end_ns == slowed.graph.ops.end_ns).all()
    assert (again.arrival_ns == slowed.graph.ops.start_ns).all()
    assert slowed.ledger.closes


def test_a_healthy_pipeline_has_slowdown_one(healthy: Analysis) -> None:
    """Only 0.5 % noise separates it from the ideal; nobody is blamed."""
    assert 1.0 <= healthy.whatif.slowdown < 1.02
    assert all(value < 1.01 for value in healthy.whatif.by["stage"].values())
    assert healthy.findings == []


def test_a_slowed_worker_gives_the_injected_slowdown(healthy: Analysis, slowed: Analysis) -> None:
    """S is the wall against the ideal, whose reference is the mean over all workers, the slow one included."""
    mean = 1 + 0.5 / (DP * PP)
    injected = slowed.observed.wall_ns / healthy.observed.wall_ns
    assert injected > 1.15
    assert slowed.whatif.slowdown == pytest.approx(injected / mean, rel=0.01)
    by = slowed.whatif.by
    assert max(by["stage"], key=lambda k: by["stage"][k]) == "2"
    assert max(by["dp_rank"], key=lambda k: by["dp_rank"][k]) == "1"
    assert by["rank"][str(PP + 2)] == pytest.approx(slowed.whatif.slowdown, rel=0.02)
    assert 0.95 < slowed.whatif.worst_ranks < 1.15, "the others are faster than the mean that holds the slow one"
    assert slowed.whatif.last_stage == pytest.approx(0, abs=0.05)


def test_the_slowed_worker_is_the_finding(healthy: Analysis, slowed: Analysis) -> None:
    """Rank 8 = stage 2 of data-parallel rank 1, and what fixing it recovers is what slowing it cost."""
    assert [(f.ranks, f.stages) for f in slowed.findings] == [((PP + 2,), (2,))]
    cost = slowed.observed.wall_ns - healthy.observed.wall_ns
    assert slowed.findings[0].recoverable_wall_ns == pytest.approx(cost, rel=0.03)
    by_rank = np.bincount(slowed.graph.rank_index, weights=slowed.blame.fault_ns, minlength=DP * PP)
    assert by_rank[PP + 2] > 0.98 * by_rank.sum(), "its pipeline neighbours are innocent"


def test_without_stage_and_dp_columns_nothing_breaks() -> None:
    """No roles: hops stay unmatched, the replay is exact, the ledger closes, and all ranks still meet in clipping."""
    done = analyze(op_table(pipeline(), roles=False))
    assert (replay(done.graph).end_ns == done.graph.ops.end_ns).all()
    assert done.ledger.closes
    assert done.findings == []


def test_one_rank_of_an_op_table_alone_is_read() -> None:
    """One rank: no groups can be inferred, nobody is blamed."""
    graph = link(op_table([op for op in one_f_one_b(1, 4, 40, 80, dp=2, steps=2) if op.rank == 0], roles=False))
    assert len(graph.gates) == 0


def test_stages_are_read_off_who_sends_first() -> None:
    """Two pipelines of three ranks, interleaved in rank order; activations go first, gradients come back."""
    import numpy as np

    from taut.core.tables import Member, Op, Table, Verb
    from taut.graph import roles

    forward = [(0, 2), (2, 4), (1, 3), (3, 5)]
    hops = [(a, b, t) for t, (a, b) in enumerate(forward)] + [(b, a, 10 - t) for t, (a, b) in enumerate(forward)]
    rank, peer, start = (np.array(column) for column in zip(*hops, strict=True))
    ops = Table(Op, {"rank": rank, "peer": peer, "start_ns": start, "verb": np.full(len(hops), Verb.SEND), "step": start * 0})
    members = roles.infer(ops, Table(Member, {"rank": np.arange(6)}))
    assert members.stage.tolist() == [0, 0, 1, 1, 2, 2]
    assert members.dp_rank.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_ring_is_no_pipeline() -> None:
    import numpy as np

    from taut.core.tables import Member, Op, Table, Verb
    from taut.graph import roles

    rank = np.arange(4)
    ops = Table(Op, {"rank": rank, "peer": (rank + 1) % 4, "start_ns": rank, "verb": np.full(4, Verb.SEND), "step": rank * 0})
    assert (roles.infer(ops, Table(Member, {"rank": rank})).stage == -1).all()
