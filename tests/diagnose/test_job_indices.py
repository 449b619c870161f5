"""Indices on jobs whose answer is known, and on real ones."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, Do, analyze, barriers, job, play
from jobs import jobs
from taut.core.interval import drawn, share
from taut.core.tables import Verb
from taut.diagnose.job_indices import replay_probability, runtime_variance_index
from taut.graph import link
from taut.ledger import Prices
from taut.read.trace import read
from taut.replay.blame import blame
from taut.replay.excess import Excess, reached
from taut.replay.timeline import Change, replay
from taut.run import analyze_trace


def indices(built: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = analyze(built, **options).result["indices"]
    return found


def noisy(ranks: int, steps: int, seed: int, noise: float = 0.01) -> Any:
    return 10 * MS * (1 + noise * np.random.default_rng(seed).standard_normal((steps, ranks)))


@given(ranks=st.integers(4, 24), seed=st.integers(0, 99), late=st.floats(0.3, 2.0))
@settings(max_examples=20)
def test_a_rank_that_all_wait_for_is_amplified_by_their_number(ranks: int, seed: int, late: float) -> None:
    work = noisy(ranks, 20, seed)
    work[:, seed % ranks] += late * 10 * MS
    found = indices(barriers(work, 2 * MS))
    assert found["sync_delay_amplification"]["value"] == pytest.approx(ranks, rel=0.1)
    assert found["sync_delay_amplification"]["lo"] <= ranks * 1.05
    assert found["straggler_cascade_rate"]["value"] == 1


@given(seed=st.integers(0, 99), ranks=st.integers(4, 16))
@settings(max_examples=20)
def test_jitter_is_no_delay_to_amplify(seed: int, ranks: int) -> None:
    found = indices(barriers(noisy(ranks, 20, seed, 0.05)))
    assert found["sync_delay_amplification"] is None
    assert found["straggler_cascade_rate"]["value"] == 0


def test_the_rate_is_the_share_of_late_steps() -> None:
    work = noisy(8, 40, 3)
    work[::4, 5] += 5 * MS
    rate = indices(barriers(work))["straggler_cascade_rate"]
    assert rate["value"] == 0.25
    assert rate["lo"] < 0.25 < rate["hi"]


def test_lateness_that_slack_absorbs_moves_nobody() -> None:
    """Rank 0 has more to do in every step; that rank 3 takes longer at times is hidden behind it."""

    def step(k: int) -> dict[int, str]:
        took = [10 + 0.01 * ((7 * r + 3 * k) % 5) + (4 if r == 3 and k % 2 else 0) for r in range(8)]
        return {r: f"fwd {took[r]}{' | eval 30' if r == 0 else ''} | AR 1" for r in range(8)}

    found = indices(job(step, 20))
    assert found["straggler_cascade_rate"]["value"] == 0
    assert found["sync_delay_amplification"]["value"] < 0.5


def test_a_small_group_is_not_half_of_the_others() -> None:
    """Ranks 0–2 meet each other, 3–8 each other: whoever is late in the small group moves two of eight."""
    rng, ops = np.random.default_rng(1), []
    for step in range(16):
        for r in range(9):
            ops.append(Do(r, "fwd", round(10 * MS * (1 + 0.01 * rng.standard_normal()) + (r == 1) * 8 * MS), step=step))
            group = "few" if r < 3 else "many"
            ops.append(Do(r, "all-reduce", MS, step=step, verb=Verb.ALL_REDUCE, group=group))
    assert indices(play(ops))["straggler_cascade_rate"]["value"] == 0


@given(built=jobs(), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_reach_is_that_of_replaying_each_step_alone(built: Any, seed: int) -> None:
    graph = link(built)
    observed, gap_free = replay(graph), replay(graph, gaps=False)
    found = blame(graph, observed, gap_free)
    rng, shape = np.random.default_rng(seed), (len(graph.ranks), len(graph.steps))
    top = rng.integers(0, shape[0], size=shape[1])
    one = np.zeros(shape)
    one[top, np.arange(shape[1])] = rng.integers(0, 2, size=shape[1])
    shift = reached(found, gap_free, Excess(one, one))
    for w in range(shape[1]):
        mine = (graph.window == w) & (graph.rank_index == top[w]) & ~np.isnan(found.peers.value_ns) & (one[top[w], w] > 0)
        reference = np.floor(found.peers.value_ns[mine] + 0.5)
        alone = replay(graph, [Change(np.flatnonzero(mine), "work", "set", reference)], gaps=False)
        for r in range(shape[0]):
            there = (graph.window == w) & (graph.rank_index == r) & (graph.wait >= 0)
            moved = (gap_free.opening_ns - alone.opening_ns)[there]
            assert shift[w, r] == max(moved.max(initial=0), 0)


def test_variance_index_of_a_normal_spread_is_its_coefficient_of_variation() -> None:
    took = 10 * MS * (1 + 0.05 * np.random.default_rng(0).standard_normal((2000, 1)))
    found = indices(barriers(took))["runtime_variance_index"]
    assert found["value"] == pytest.approx(0.05, rel=0.1)
    assert found["lo"] < 0.05 < found["hi"]


def test_step_times_that_differ_by_less_than_the_timer_tells_have_no_variance() -> None:
    built = barriers(10 * MS + np.arange(20)[:, None] * np.ones(4))
    assert runtime_variance_index(replay(link(built))) is None
    assert runtime_variance_index(replay(link(replace(built, timer_ns=1)))) is not None


def test_energy_counts_what_waits_cost_and_steps_that_were_lost() -> None:
    work = noisy(4, 12, 0)
    work[:, 2] += 10 * MS
    prices = Prices(Decimal(1), "EUR", load_w=500)
    built = barriers(work)
    value = indices(built, prices=prices)["energy_per_useful_step"]["value"]
    assert value == pytest.approx(2.0, rel=0.05), "twice as long at the same power"
    assert indices(built)["energy_per_useful_step"] is None


def test_a_share_is_never_certain() -> None:
    assert share(np.zeros(20, dtype=bool))["hi"] > 0.1  # type: ignore[index, operator]
    assert share(np.ones(20, dtype=bool))["lo"] < 0.9  # type: ignore[index, operator]
    runs = np.repeat(np.arange(20) % 4 == 0, 10)
    wide, narrow = share(runs, 20), share(np.random.default_rng(0).permutation(runs), 1)
    assert wide["hi"] - wide["lo"] > 1.5 * (narrow["hi"] - narrow["lo"])  # type: ignore[index, operator]


def test_blocks_draw_every_step_equally_often() -> None:
    counts = np.bincount(drawn(30, 5, draws=4000).ravel(), minlength=30)
    assert counts.min() > 0.9 * counts.mean()
    assert counts.max() < 1.1 * counts.mean()


def test_probability_of_replay_has_the_width_of_its_roll_backs() -> None:
    found = replay_probability(np.repeat([False, True, False], [400, 100, 500]))
    assert found is not None
    assert found["value"] == 0.1
    assert found["lo"] == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(
    ("folder", "amplification", "rate"),
    [("bytedance-stragglers/trace-AR.parquet", (13, 16), 1), ("lab-slow-rank", (3.6, 4.2), 1), ("lab-baseline", None, 0)],
)
def test_real_jobs(shared: Path, folder: str, amplification: tuple[float, float] | None, rate: float) -> None:
    found = analyze_trace(read([shared / folder])).result["indices"]
    delay = found["sync_delay_amplification"]
    assert delay is None if amplification is None else amplification[0] < delay["value"] < amplification[1]
    assert found["straggler_cascade_rate"]["value"] == rate
