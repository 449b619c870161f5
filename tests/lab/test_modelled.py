"""Modelled jobs: the same seed gives the same bytes, and trace and truth agree with what the analysis reads from them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from taut.core.tables import Trace, Verb
from taut.graph import Graph, link
from taut.lab.modelled import FAULTS, JOBS, LEAST_SAVING, modelled
from taut.lab.truth import MODES
from taut.replay.timeline import replay


def linked(trace: Trace) -> Graph:
    """The graph, after checking the replay law: every op is back at its place to the nanosecond."""
    graph = link(trace)
    timeline = replay(graph)
    assert (timeline.arrival_ns == graph.ops.start_ns).all()
    assert (timeline.end_ns == graph.ops.end_ns).all()
    return graph


def test_same_arguments_give_the_same_bytes() -> None:
    """Every column of the trace and the whole truth; another seed gives another job."""
    one, again, other = (modelled("pipeline", "two", 16, seed) for seed in (3, 3, 4))
    for table in ("ops", "marks", "members"):
        for key, column in getattr(one[0], table).columns.items():
            assert column.tolist() == getattr(again[0], table).columns[key].tolist()
    assert msgspec.json.encode(one[1]) == msgspec.json.encode(again[1])
    assert one[1].faulted_ns != other[1].faulted_ns


@pytest.mark.parametrize("job", JOBS)
def test_all_that_should_meet_is_matched(job: str) -> None:
    """Every rendezvous has all its members, nothing is left over, and no edge contradicts the times."""
    trace, _ = modelled(job, "none", 32, 5)
    graph = linked(trace)
    assert (graph.gates.members == graph.gates.expected).all()
    kept = trace.ops.take(trace.ops.step > 0)
    meets = int((kept.verb != Verb.NONE).sum())
    assert graph.gates.members.sum() == meets
    assert {k: graph.counts[k] for k in ("unmatched", "misaligned", "circular gates")} == {
        "unmatched": 0, "misaligned": 0, "circular gates": 0,
    }  # fmt: skip
    assert graph.dropped_edges == 0


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_truth_covers_the_steps_the_analysis_keeps(job: str, fault: str) -> None:
    """Walls of the truth are the walls of the replay; what a fault costs is what it was made to cost."""
    trace, truth = modelled(job, fault, 16, 1, steps=16)
    graph = linked(trace)
    observed = replay(graph).window_ns
    assert len(observed) == len(truth.faulted_ns) == len(truth.healthy_ns[0]) == 15
    assert observed.sum() == pytest.approx(sum(truth.faulted_ns), rel=0.01)
    saving = truth.saving_ns[0] / sum(truth.faulted_ns)
    if MODES[fault] is None:
        assert truth.injected == ()
        assert saving == 0
    else:
        assert LEAST_SAVING <= saving < 0.45
        onset = min(i.first_step for i in truth.injected)
        before = max(onset - 1, 0)
        assert truth.faulted_ns[:before] == truth.healthy_ns[0][:before]
        assert truth.healthy_ns == modelled(job, "none", 16, 1, steps=16)[1].healthy_ns


@pytest.mark.parametrize("job", JOBS)
def test_a_slow_link_is_crossed_and_its_receiver_ends_last(job: str) -> None:
    """A link at fault is one of a ring, or a hop; in a ring its receiver ends last, from the onset on."""
    trace, truth = modelled(job, "link-one-way", 32, 2)
    fault, ops = truth.injected[0], trace.ops
    sender, receiver = (int(r) for r in fault.links[0].split(":"))
    rings = [(g, list(trace.group_ranks[name])) for g, name in enumerate(trace.groups) if not name.startswith("world")]
    crossed = [g for g, ring in rings if receiver in ring and ring[ring.index(receiver) - 1] == sender]
    assert crossed or ((ops.rank == receiver) & (ops.peer == sender)).any()
    for group in crossed:
        met = ops.take((ops.group == group) & (ops.step >= fault.first_step))
        met = met.take(np.lexsort((met.end_ns, met.seq)))
        last = met.rank[np.flatnonzero(np.diff(met.seq, append=-1))]
        assert (last == receiver).mean() > 0.8


def test_skewed_clocks_shift_all_times_of_a_rank() -> None:
    """Ops and marks of a skewed rank move together by its offset; nothing else differs from the healthy run."""
    (healthy, _), (skewed, truth) = (modelled("fsdp", fault, 32, 7) for fault in ("none", "skew"))
    offset = np.array([truth.skew_ns.get(r, 0.0) for r in range(32)], dtype=np.int64)
    assert 1 <= np.count_nonzero(offset) <= 4
    for table in ("ops", "marks"):
        a, b = getattr(healthy, table), getattr(skewed, table)
        assert (b.start_ns - a.start_ns == offset[a.rank]).all()
        assert (b.end_ns - a.end_ns == offset[a.rank]).all()
