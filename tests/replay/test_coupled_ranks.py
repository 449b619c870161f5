"""Coupling: a delay followed through the graph, idle waves, slack, reach, and the turnover of the critical path."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, analyze, barriers, job, system
from jobs import jobs, nonsense
from kernel_calls import in_machine_code
from taut.core.tables import Trace
from taut.graph import Graph, link
from taut.replay import ripples
from taut.replay.response import Response, delayed, respond
from taut.replay.timeline import Change, replay
from taut.replay.turnover import turnover
from taut.result.types import Absorber, Estimate

UNIT = 1_000_000_000


def last_ends(graph: Graph, end: Any) -> Any:
    """Windows × ranks: when the last op ended."""
    out = np.full((len(graph.steps), len(graph.ranks)), -1, dtype=np.int64)
    np.maximum.at(out, (graph.window, graph.rank_index), end)
    return out


@settings(max_examples=60)
@given(built=jobs(), data=st.data())
def test_a_followed_delay_is_the_difference_of_two_replays(built: Trace, data: st.DataObject) -> None:
    graph = link(built)
    ops = np.array(sorted(data.draw(st.sets(st.integers(0, len(graph) - 1), min_size=1, max_size=3))))
    delay_ns = data.draw(st.integers(1, 100_000_000))
    observed = replay(graph)
    followed = delayed(graph, observed, ops, delay_ns, len(graph.steps) - 1)
    before = last_ends(graph, observed.end_ns)
    lanes = 0
    for op, shift in zip(ops, followed.shift_ns, strict=True):
        late = replay(graph, [Change(np.array([op]), "gap", "add", delay_ns)])
        expected = (last_ends(graph, late.end_ns) - before)[graph.window[op] :]
        assert (shift[: len(expected)] == expected).all()
        assert not shift[len(expected) :].any()
        assert followed.gate_shift_ns.max() <= delay_ns
        lanes += final_shift(graph, late.end_ns - observed.end_ns, graph.window[op])
    assert len(ops) * delay_ns + followed.caught_ns == followed.absorbed_ns.sum() + lanes


def final_shift(graph: Graph, late: Any, window: int) -> int:
    """Shift of the op that each lane of each rank ended with, summed."""
    lane = graph.rank_index * (int(graph.ops.lane.max()) + 1) + graph.ops.lane
    ended = {}
    for event in graph.events.tolist():
        v = event if event >= 0 else ~event
        if event < 0 or graph.wait[v] < 0:
            ended[int(lane[v])] = int(late[v])
    return sum(ended.values())


def chain(ranks: int, steps: int, reach: int, noise: float, seed: int = 0) -> Graph:
    """Open chain in which a rank's step k follows step k−1 of everybody within ``reach``."""
    near = [range(max(0, i - reach), min(ranks, i + reach + 1)) for i in range(ranks)]
    preds = [[(k - 1) * ranks + j for j in near[i]] * (k > 0) for k in range(steps) for i in range(ranks)]
    work = UNIT * (1 + noise * np.random.default_rng(seed).exponential(size=ranks * steps))
    step, rank = np.divmod(np.arange(ranks * steps), ranks)
    return system(preds, work, step=step, rank=rank)


def response_of(graph: Graph, rank: int) -> Response:
    return respond(graph, replay(graph), [rank])[0]


@settings(max_examples=20)
@given(reach=st.integers(1, 4), ranks=st.integers(9, 40), data=st.data())
def test_an_idle_wave_travels_as_many_ranks_a_step_as_neighbours_are_coupled(
    reach: int, ranks: int, data: st.DataObject
) -> None:
    """Whoever is delayed: d ranks per step and side, undiminished after every step."""
    found = response_of(chain(ranks, 12, reach, noise=0), data.draw(st.integers(0, ranks - 1)))
    assert found.speed == Estimate(value=reach, lo=reach, hi=reach)
    assert found.decay == Estimate(value=0.0, lo=0.0, hi=0.0)
    assert found.absorbed_ns.sum() == 0


@pytest.mark.parametrize("seed", range(3))
def test_noise_makes_an_idle_wave_decay_and_more_noise_faster(seed: int) -> None:
    rates = [response_of(chain(41, 30, 1, noise, seed), 20).decay for noise in (0.0, 0.1, 1.0)]
    values = [rate.value for rate in rates if rate is not None]
    assert values[0] == 0
    assert values[0] < values[1] < values[2]


def test_slack_absorbs_a_delay_where_the_wait_shrinks() -> None:
    """Rank 1 has 4 ms to spare at every all-reduce and is delayed by 1.1 ms; rank 0 has nothing."""
    graph = link(job({0: "fwd 9 | AR 2", 1: "fwd 5 | AR 2"}, steps=6))
    slack, taut = response_of(graph, 1), response_of(graph, 0)
    assert slack.absorbers(5) == [Absorber(rank=1, op_class="all-reduce", share=1.0)]
    assert (slack.reached_ranks, slack.within_steps) == (0, None)
    assert slack.entry(5).left_by_gate == [1.0]
    assert (taut.reached_ranks, taut.within_steps, taut.absorbers(5)) == (2, 1, [])
    assert taut.entry(5).left_by_step == [1.0] * 4


def test_steps_with_their_own_origin_have_no_decay_per_step() -> None:
    graph = link(job({0: "fwd 9 | AR 2", 1: "fwd 5 | AR 2"}, steps=6, relative=True))
    found = response_of(graph, 0)
    assert found.decay is None
    assert found.entry(5).left_by_step == [1.0]


def relay(step: int) -> dict[int, str]:
    """Rank 0 meets rank 1, which then meets rank 2; rank 0 is slow in a third of the steps."""
    slow = 25 if step % 3 == 2 else 10
    return {0: f"fwd {slow} | AR/a 1", 1: "fwd 10 | AR/a 1 | mid 5 | AR/b 1", 2: "fwd 10 | mid 6 | AR/b 1"}


def test_reach_counts_ranks_and_gates_between_cause_and_victim() -> None:
    coupling = analyze(job(relay, steps=24, noise=0.01)).result["coupling"]
    assert {row["cause"] for row in coupling["matrix"][:2]} == {0}
    assert {row["victim"] for row in coupling["matrix"][:2]} == {1, 2}
    assert (coupling["reach_ranks"], coupling["reach_gates"], coupling["reach_hops"]) == (2, 2, None)


def test_a_job_without_blame_has_no_reach_and_one_rank_no_coupling() -> None:
    calm = analyze(job({0: "fwd 5 | AR 1", 1: "fwd 5 | AR 1"}, steps=4)).result["coupling"]
    assert (calm["reach_ranks"], calm["reach_gates"], calm["matrix"]) == (None, None, [])
    alone = analyze(job({0: "fwd 5 | bwd 7"}, steps=4)).result["coupling"]
    assert alone["response"] is None
    assert (alone["turnover"]["value"], alone["turnover"]["p"]) == (None, None)


def turnover_of(work: Any) -> Any:
    graph = link(barriers(np.rint(np.asarray(work) * MS)))
    return turnover(graph, replay(graph, gaps=False))


NULLS = {
    "gaussian": lambda rng, shape: rng.normal(10, 0.5, shape),
    "heavy tails": lambda rng, shape: 10 + rng.pareto(1.5, shape),
    "shared demand": lambda rng, shape: rng.normal(1, 0.05, shape) * rng.lognormal(2, 0.5, (shape[0], 1)),
}


@pytest.mark.parametrize("null", NULLS)
def test_independent_jitter_turns_the_path_over_as_its_null_does(null: str) -> None:
    """Of 120 healthy jobs at most 12 have p ≤ 0.05: six are due, and 12 is exceeded by chance once in 100."""
    rngs = [np.random.default_rng(seed) for seed in range(120)]
    small = sum(turnover_of(NULLS[null](rng, (10, 6))).p <= 0.05 for rng in rngs)
    assert small <= 12


@pytest.mark.parametrize(("slow", "sign"), [(lambda k: 0, -1), (lambda k: k % 2, 1)], ids=["held", "alternating"])
def test_a_path_that_is_held_or_alternates_is_told_from_jitter(slow: Any, sign: int) -> None:
    """One slow rank holds the path; two that take turns turn it over more than chance does."""
    work = np.random.default_rng(1).normal(10, 0.2, (40, 3))
    for k in range(40):
        work[k, slow(k)] += 2
    found = turnover_of(work)
    assert found.p == 0.05
    assert np.sign(found.value - found.entry().expected) == sign


def test_turnover_is_the_jaccard_distance_of_critical_rank_and_class_pairs() -> None:
    """Rank 0 holds the path with three classes, then one of them and two of rank 1 do, then those again."""
    steps = [{0: "a 9 | AR/x 1 | b 5 | AR/y 1", 1: "a 5 | AR/x 1 | b 2 | AR/y 1"}]
    steps += [{0: "a 9 | AR/x 1 | b 2 | AR/y 1", 1: "a 5 | AR/x 1 | b 5 | AR/y 1"}] * 2
    graph = link(job(lambda k: steps[k], steps=3))
    found = turnover(graph, replay(graph, gaps=False))
    assert found.distance[1:].tolist() == [1 - 1 / 5, 0.0]
    assert found.value == pytest.approx(2 / 5)


@settings(max_examples=60)
@given(built=st.one_of(nonsense(), jobs()))
def test_whatever_the_job_did_the_figures_are_shares_or_null(built: Trace) -> None:
    coupling = analyze(built).result["coupling"]
    json.dumps(msgspec.to_builtins(coupling), allow_nan=False)
    both = [coupling.response, coupling.response.median_rank] if coupling.response else []
    for response in filter(None, both):
        assert all(0 <= share <= 1 for share in [*response["left_by_step"], *response["left_by_gate"]])
        assert 0 <= response["reached_ranks"] <= len(built.members)
        assert sum(row["share"] for row in response["absorbed_by"]) <= 1 + 1e-9
    found = coupling["turnover"]
    assert all(found[key] is None or 0 <= found[key] <= 1 for key in ("value", "p", "expected"))


@settings(max_examples=20)
@given(built=jobs())
def test_kernels_of_coupling_agree_plain_and_compiled(built: Trace) -> None:
    g = link(built)
    t = replay(g)
    draws = np.stack([g.work_ns, g.work_ns[::-1]])
    places = g.window, len(g.steps), *g.on_rank(g.ops.name, len(g.names))
    program = g.events, g.pred_ptr, g.pred, g.lag_ns, g.join, g.wait, g.wait_lag_ns, g.slots
    order, begin = np.arange(len(g)), np.array([0, len(g) // 2, len(g)])
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (ripples.turnovers_of_many, (*program, g.gap_ns, draws, *places)),
        (ripples.shuffled, (g.work_ns, order, begin, np.random.default_rng(0).random(len(g)))),
        (ripples.closers, (t.end_ns, t.opener, g.window, len(g.steps))),
    ]
    for kernel, args in cases:
        np.testing.assert_array_equal(kernel.plain(*args), in_machine_code(kernel, *args))
