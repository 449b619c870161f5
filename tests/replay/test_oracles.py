"""Exact results about max-plus systems, reproduced by Monte-Carlo through the real engine (4 standard errors)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from build import MS, Do, barriers, one_f_one_b, play, system
from taut.core.tables import Trace, Verb
from taut.graph import Graph, link
from taut.replay.timeline import Change, replay
from taut.replay.whatif import delay

UNIT = 1_000_000_000
"""One unit of work in ns: rounding to integers is far below the Monte-Carlo error."""
EULER = 0.577215664901532


def assert_mean(sample: Any, expected: float) -> None:
    """The mean of independent samples lies within 4 standard errors of the expected value."""
    error = np.std(sample, ddof=1) / math.sqrt(len(sample))
    assert abs(np.mean(sample) - expected) < 4 * error, f"{np.mean(sample):.4f} ± {error:.4f}, expected {expected:.4f}"


def step_times(ranks: int, steps: int, work: Any) -> Any:
    """Times per step, in units, of a linked barrier job whose work is then changed to ``work`` (steps × ranks)."""
    graph = link(barriers(np.full((steps, ranks), UNIT)))
    fwd = np.flatnonzero(graph.ops.name == 0)
    new = np.rint(np.asarray(work) * UNIT).astype(np.int64)
    timeline = replay(graph, [Change(fwd, "work", "set", new[graph.ops.step[fwd], graph.ops.rank[fwd]])])
    return timeline.window_ns / UNIT


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_a_barrier_over_exponential_work_costs_the_harmonic_number(ranks: int) -> None:
    """Full barrier, Exp(1): γ = H_N."""
    steps = 40_000 // ranks
    times = step_times(ranks, steps, np.random.default_rng(1).exponential(size=(steps, ranks)))
    assert_mean(times, sum(1 / k for k in range(1, ranks + 1)))


@pytest.mark.parametrize("ranks", [4, 32])
def test_a_barrier_over_gumbel_work_is_gumbel(ranks: int) -> None:
    """Full barrier, Gumbel(μ, β): the maximum is Gumbel(μ + β ln N, β), the whole distribution."""
    mu, beta, steps = 20.0, 1.0, 4000
    times = step_times(ranks, steps, np.random.default_rng(2).gumbel(mu, beta, size=(steps, ranks)))
    assert_mean(times, mu + beta * (math.log(ranks) + EULER))
    level = np.sort(np.exp(-np.exp(-(times - mu - beta * math.log(ranks)) / beta)))
    distance = np.abs(level - (np.arange(steps) + 0.5) / steps).max()
    assert distance < 1.95 / math.sqrt(steps), "Kolmogorov–Smirnov at 0.1 %"


def test_a_barrier_over_pareto_work() -> None:
    """Full barrier, Pareto(a, 1): γ = Γ(N+1) Γ(1−1/a) / Γ(N+1−1/a)."""
    ranks, a, steps = 16, 6.0, 5000
    times = step_times(ranks, steps, 1 + np.random.default_rng(3).pareto(a, size=(steps, ranks)))
    assert_mean(times, math.gamma(ranks + 1) * math.gamma(1 - 1 / a) / math.gamma(ranks + 1 - 1 / a))


@pytest.mark.parametrize(("ranks", "a_n", "steps"), [(8, 1.4236, 6000), (64, 2.3437, 2000), (1024, 3.2482, 150)])
def test_a_barrier_over_gaussian_work(ranks: int, a_n: float, steps: int) -> None:
    """Full barrier, Gaussian: γ = μ + σ a_N."""
    times = step_times(ranks, steps, 20 + np.random.default_rng(4).standard_normal((steps, ranks)))
    assert_mean(times, 20 + a_n)


@pytest.mark.parametrize("every", [2, 5])
def test_a_barrier_every_few_steps_costs_the_root_less(every: int) -> None:
    """Barrier every τ steps, Gaussian: γ = μ + σ a_N / √τ."""
    ranks, rounds = 8, 2000
    work = 20 + np.random.default_rng(5).standard_normal((rounds * every, ranks))
    timeline = replay(link(barriers(work * UNIT, every=every)), gaps=False)
    times = timeline.window_ns.reshape(rounds, every).sum(axis=1) / UNIT / every
    assert_mean(times, 20 + 1.4236 / math.sqrt(every))


@pytest.mark.parametrize(("ranks", "slack"), [(4, 1), (16, 1), (8, 2), (8, 4)])
def test_a_ring_with_slack_is_bounded(ranks: int, slack: int) -> None:
    """x_i(k+1) = max(x_i(k), x_{i−1}(k+1−s)) + Exp(1): γ = 1 + (N−1)/(sN), however large N is."""
    steps, blocks = 8000, 40
    preds = [
        [(k - 1) * ranks + i] * (k > 0) + [(k - slack) * ranks + (i - 1) % ranks] * (k >= slack)
        for k in range(steps)
        for i in range(ranks)
    ]
    work = np.random.default_rng(6).exponential(size=steps * ranks) * UNIT
    end = replay(system(preds, work)).end_ns.reshape(steps, ranks)[:, 0] / UNIT
    settled = end[steps // 10 :: steps * 9 // 10 // blocks]
    assert_mean(np.diff(settled) / (steps * 9 // 10 // blocks), 1 + (ranks - 1) / (slack * ranks))


@pytest.mark.parametrize(("stages", "parts", "tf", "tb"), [(1, 4, 1, 2), (2, 2, 3, 3), (4, 8, 1, 2), (6, 13, 2, 5)])
def test_a_balanced_pipeline_is_exact(stages: int, parts: int, tf: int, tb: int) -> None:
    """1F1B: (m+p−1)(t_f+t_b), from the trace, and again when a change doubles the backward pass."""
    graph = link(play(one_f_one_b(stages, parts, tf, tb)))
    assert replay(graph, gaps=False).wall_ns == (parts + stages - 1) * (tf + tb) * MS
    double = Change(np.flatnonzero(_named(graph, "backward-compute")), "work", "scale", 2)
    assert replay(graph, [double], gaps=False).wall_ns == (parts + stages - 1) * (tf + 2 * tb) * MS


def _named(graph: Graph, name: str) -> Any:
    return graph.ops.name == list(graph.names).index(name)


def interleaved(p: int, m: int, v: int, tf: float, tb: float) -> Trace:
    """Every stage holds v chunks; groups of p micro-batches pass chunk after chunk; all forward, then all backward."""
    ops: list[Do] = []
    turns = [(g, c, i) for g in range(m // p) for c in range(v) for i in range(p)]
    for s in range(p):
        for name, length, way in (("fwd", tf, 1), ("bwd", tb, -1)):
            first, last = (0, p - 1) if way > 0 else (p - 1, 0)
            for g, c, i in turns:
                part = (g * p + i) * v + c
                about: dict[str, Any] = {"eager": True}
                if not (s == first and c == 0):
                    before = part - (s == first)
                    ops.append(Do(s, name, 0, verb=Verb.RECV, peer=(s - way) % p, part=before))
                ops.append(Do(s, f"{name} compute", round(length / v * MS), part=part))
                if not (s == last and c == v - 1):
                    ops.append(Do(s, name, 0, verb=Verb.SEND, peer=(s + way) % p, part=part, **about))
    return play(ops)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 1), (4, 8, 2), (4, 4, 3), (3, 6, 2)])
def test_interleaving_divides_the_bubble(p: int, m: int, v: int) -> None:
    """Interleaved ×v: bubble ÷ ideal = (p−1)/(v·m), its share of the step (p−1)/(v·m+p−1)."""
    tf, tb = 6, 12
    wall = replay(link(interleaved(p, m, v, tf, tb)), gaps=False).wall_ns
    ideal = m * (tf + tb) * MS
    assert (wall - ideal) / ideal == pytest.approx((p - 1) / (v * m), rel=1e-12)
    assert (wall - ideal) / wall == pytest.approx((p - 1) / (v * m + p - 1), rel=1e-12)


def grid(m: int, p: int) -> list[list[int]]:
    """Micro-batch i on stage j after (i−1, j) and (i, j−1)."""
    return [[(i - 1) * p + j] * (i > 0) + [i * p + j - 1] * (j > 0) for i in range(m) for j in range(p)]


def passage(m: int, p: int, replicas: int) -> Any:
    work = np.random.default_rng(7).exponential(size=(replicas, m * p)) * UNIT
    return replay(system(grid(m, p), work)).window_ns / UNIT


def test_the_smallest_percolation_is_exact() -> None:
    """Exp stages, forward only, (2, 2): E[T] = 3.5."""
    assert_mean(passage(2, 2, 100_000), 3.5)


@pytest.mark.parametrize(("m", "p", "replicas"), [(32, 8, 4000), (128, 8, 1000)])
def test_last_passage_percolation(m: int, p: int, replicas: int) -> None:
    """Exp stages: E[T] ≈ (√m+√p)² − 1.7711(√m+√p)^{4/3}(mp)^{−1/6}, within 1 %."""
    root = math.sqrt(m) + math.sqrt(p)
    expected = root**2 - 1.7711 * root ** (4 / 3) * (m * p) ** (-1 / 6)
    assert np.mean(passage(m, p, replicas)) == pytest.approx(expected, rel=0.01)


def chain(ranks: int, steps: int, reach: int, noise: float) -> Graph:
    """Open chain in which a rank's step k follows step k−1 of everybody within ``reach``."""
    near = [range(max(0, i - reach), min(ranks, i + reach + 1)) for i in range(ranks)]
    preds = [[(k - 1) * ranks + j for j in near[i]] * (k > 0) for k in range(steps) for i in range(ranks)]
    work = UNIT * (1 + noise * np.random.default_rng(8).random(ranks * steps))
    step, rank = np.divmod(np.arange(ranks * steps), ranks)
    return system(preds, work, step=step, rank=rank)


@pytest.mark.parametrize("reach", [1, 2, 3])
def test_an_idle_wave_travels_reach_ranks_per_step_undiminished(reach: int) -> None:
    """A one-off delay in a chain coupled to d neighbours: d ranks per step and side, at full amplitude."""
    ranks, steps, source, late = 41, 12, 20, 5 * UNIT
    graph = chain(ranks, steps, reach, noise=0)
    shift = replay(graph, [delay(graph, source, 0, late)]).end_ns - replay(graph).end_ns
    distance = np.abs(np.arange(ranks) - source)
    expected = [np.where(distance <= reach * k, late, 0) for k in range(steps)]
    assert (shift.reshape(steps, ranks) == expected).all()


def test_noise_makes_an_idle_wave_decay() -> None:
    """With noise the same wave loses amplitude with distance, and never gains any."""
    ranks, steps, source, late = 61, 30, 30, UNIT // 2
    graph = chain(ranks, steps, 1, noise=1.0)
    shift = replay(graph, [delay(graph, source, 0, late)]).end_ns - replay(graph).end_ns
    front = shift.reshape(steps, ranks).max(axis=1)
    assert front[0] == late
    assert (np.diff(front) <= 0).all()
    assert front[-1] < late / 2


def network(seed: int, nodes: int, replicas: int) -> tuple[list[tuple[int, int]], Graph]:
    """A random network of activities: ops are arcs a → b between events, each after all arcs into a."""
    rng = np.random.default_rng(seed)
    arcs = {(i, i + 1) for i in range(nodes - 1)}
    arcs |= {tuple(sorted(rng.choice(nodes, 2, replace=False).tolist())) for _ in range(2 * nodes)}  # type: ignore[misc]
    ordered = sorted(arcs)
    preds = [[j for j, (_, head) in enumerate(ordered) if head == tail] for tail, _ in ordered]
    return ordered, system(preds, rng.exponential(size=(replicas, len(ordered))) * UNIT)


@pytest.mark.parametrize("seed", range(6))
def test_criticality_over_any_cut_is_one(seed: int) -> None:
    """Σ of criticality over any s–t cut, forward minus backward, is 1 in every replica."""
    nodes, replicas = 9, 200
    arcs, graph = network(seed, nodes, replicas)
    on_path = replay(graph).critical.reshape(replicas, len(arcs)).astype(int)
    tail, head = np.array(arcs).T
    for cut in range(200):
        inside = np.random.default_rng(cut).random(nodes) < 0.5
        inside[0], inside[-1] = True, False
        sign = inside[tail].astype(int) - inside[head].astype(int)
        assert (on_path @ sign == 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_sensitivity_is_the_chance_to_be_critical(seed: int) -> None:
    """∂E[T]/∂w_e = P(e critical): T is convex in w_e, so the quotient lies between both ends' criticality."""
    replicas, extra = 300, UNIT // 3
    arcs, graph = network(seed, 7, replicas)
    base = replay(graph).window_ns
    before = replay(graph).critical.reshape(replicas, len(arcs))
    for e in range(len(arcs)):
        change = [Change(np.arange(replicas) * len(arcs) + e, "work", "add", extra)]
        gained = (replay(graph, change).window_ns - base) / extra
        after = replay(graph, change).critical.reshape(replicas, len(arcs))[:, e]
        assert (before[:, e] <= gained).all()
        assert (gained <= after).all()
        assert before[:, e].mean() <= gained.mean() <= after.mean()


@pytest.mark.parametrize("seed", range(4))
def test_slack_is_how_much_later_an_op_may_end(seed: int) -> None:
    """An op that ends later by its slack moves nothing; by one more nanosecond, the end moves by one."""
    arcs, graph = network(seed, 7, 1)
    slack, wall = replay(graph).slack_ns, replay(graph).wall_ns
    for e in range(len(arcs)):
        assert replay(graph, [Change([e], "work", "add", slack[e])]).wall_ns == wall
        assert replay(graph, [Change([e], "work", "add", slack[e] + 1)]).wall_ns == wall + 1


def test_criticality_and_slack_pass_through_gates() -> None:
    """Barrier job: in every step exactly the slowest rank is critical, and the others' slack is their wait."""
    work = np.rint(np.random.default_rng(9).exponential(size=(200, 6)) * UNIT)
    graph = link(barriers(work, MS))
    on_path, slack = replay(graph).critical, replay(graph).slack_ns
    fwd = np.flatnonzero(graph.ops.name == 0)
    step, rank = graph.ops.step[fwd], graph.ops.rank[fwd]
    table = np.zeros((200, 6), dtype=bool)
    table[step, rank] = on_path[fwd]
    assert (table.sum(axis=1) == 1).all()
    assert (table.argmax(axis=1) == work.argmax(axis=1)).all()
    assert (slack[fwd] == (work.max(axis=1)[step] - work[step, rank])).all()
