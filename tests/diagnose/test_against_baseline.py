"""A healthy run of the same job as the past: what is slower than it was there, and what only looks so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import taut
from build import MS, Do, analyze, barriers, job, play, ring_all_reduce
from taut.cli import main
from taut.core.errors import UsageError
from taut.core.tables import Verb
from taut.diagnose.against_baseline import core
from taut.graph import link
from taut.graph.joined import difference, joined
from taut.render.analysis_screen import render
from taut.render.terminal import Screen
from taut.replay.reference import baseline_medians
from taut.replay.timeline import replay
from taut.run import Analysis

BASE, TRANSFER = 100 * MS, 5 * MS


def work(seed: int, ranks: int = 4, steps: int = 12, slow: dict[int, float] | None = None, run: float = 1.0) -> Any:
    """Steps × ranks: unequal ranks, the same in every run, noise of 2 %, 1 % from run to run; some ranks slower."""
    rng = np.random.default_rng(seed)
    unequal = 1 + 0.02 * np.arange(ranks) / ranks
    out = BASE * run * unequal * (1 + 0.01 * rng.standard_normal(ranks)) * (1 + 0.02 * rng.standard_normal((steps, ranks)))
    for rank, factor in (slow or {}).items():
        out[:, rank] *= factor
    return out


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(analyze(barriers(work(1), TRANSFER)).save(tmp_path_factory.mktemp("past") / "healthy"))


def against(healthy: str, now: Any, transfer: Any = TRANSFER) -> Analysis:
    return analyze(barriers(now, transfer), past=taut.open_run(healthy))


def test_a_rank_that_was_slow_from_the_first_step_on_is_found_by_its_baseline(healthy: str) -> None:
    done = against(healthy, work(2, slow={1: 1.2}))
    (found,) = done.result.findings
    assert (found.mode, found.ranks, found.reference) == ("straggler cascade", [1], "baseline")
    assert "in the baseline" in found.because
    # The step is as long as the slowest rank: 120 of them, and about 104 without the fault.
    assert found.recoverable_wall_ns / done.observed.wall_ns == pytest.approx(0.13, abs=0.03)
    assert done.result.baseline is not None
    assert done.result.baseline.step_ns.after / done.result.baseline.step_ns.before == pytest.approx(1.15, abs=0.04)


def test_half_of_the_ranks_are_named_together(healthy: str) -> None:
    (found,) = against(healthy, work(2, slow={0: 1.3, 1: 1.3})).result.findings
    assert (found.ranks, found.reference) == ([0, 1], "baseline")
    assert found.recoverable_wall_ns > 0


def test_a_job_that_is_slower_as_a_whole_has_no_culprit(healthy: str) -> None:
    (found,) = against(healthy, work(2, run=1.2)).result.findings
    assert (found.mode, found.ranks, found.classes, found.reference) == ("silent degradation", [], ["fwd"], "baseline")
    assert "the whole job is slower" in found.because


def test_all_transfers_slower_is_no_link(healthy: str) -> None:
    (found,) = against(healthy, work(2), 8 * TRANSFER).result.findings
    assert (found.mode, found.ranks, found.links) == ("silent degradation", [], [])
    assert "no link is named" in found.because


def test_a_slow_link_is_told_by_who_ends_later_than_in_the_baseline(tmp_path: Path) -> None:
    past = analyze(ring_all_reduce(work(1), 2 * MS, {})).save(tmp_path / "past")
    now = analyze(ring_all_reduce(work(2), 2 * MS, {(1, 2): 3 * MS}, seed=1), past=taut.open_run(past))
    (found,) = now.findings
    assert (found.links, found.reference) == (("1:2",), "baseline")
    # Six rounds of 2 ms became six of 3.
    assert found.recoverable_wall_ns / len(now.graph.steps) == pytest.approx(6 * MS, rel=0.15)


@pytest.mark.parametrize("seed", range(2, 12))
def test_two_healthy_runs_have_no_finding(healthy: str, seed: int) -> None:
    assert against(healthy, work(seed)).findings == []


def test_ranks_that_are_unequal_for_good_are_no_finding(tmp_path: Path) -> None:
    past = str(analyze(barriers(work(1, slow={3: 1.3}), TRANSFER)).save(tmp_path / "past"))
    assert against(past, work(2, slow={3: 1.3})).findings == []
    assert analyze(barriers(work(2, slow={3: 1.3}), TRANSFER)).findings, "without a baseline, peers accuse it"


def test_its_own_past_comes_before_the_baseline(healthy: str) -> None:
    now = work(2)
    now[5:, 1] *= 1.4
    found = against(healthy, now).findings[0]
    assert (found.ranks, found.reference, found.steps[0]) == ((1,), "past", 5)


def test_a_small_episode_does_not_hide_what_was_always_there(healthy: str) -> None:
    now = work(2, slow={1: 1.4})
    now[8:, 1] += 0.15 * BASE
    found = against(healthy, now).findings
    assert ((1,), "baseline") in [(one.ranks, one.reference) for one in found]


def test_one_step_has_no_spread(healthy: str) -> None:
    with pytest.raises(UsageError, match="one step"):
        against(healthy, work(2, steps=1))


def test_the_screen_asks_for_a_baseline_where_only_peers_tell() -> None:
    done = analyze(barriers(work(2, slow={1: 1.4}), TRANSFER))
    assert done.findings[0].reference == "peers"
    assert "--baseline RUN" in render(done.result, Screen(width=120))
    assert "--baseline" not in render(analyze(barriers(work(2), TRANSFER)).result, Screen(width=120))


def test_blame_the_ledger_and_whatif_use_the_baseline(healthy: str, tmp_path: Path) -> None:
    """Three of four ranks are slow: peers would call the fourth quick, and blame nobody else."""
    done = against(healthy, work(2, slow={0: 1.4, 1: 1.4, 2: 1.4}))
    first = done.result.findings[0]
    assert first.ranks == [0, 1, 2]
    spent = {entry.fate: entry.rank_ns for entry in done.result.ledger.entries} if done.result.ledger else {}
    assert spent["slow compute"] / (3 * 12 * 0.4 * BASE) == pytest.approx(1, abs=0.15)
    fixes = [word for rank in first.ranks for word in ("--fix", f"rank={rank}")]
    said = CliRunner().invoke(main, ["whatif", str(done.save(tmp_path / "now")), *fixes, "--json"])
    assert json.loads(said.stdout)["saved_wall_ns"] == pytest.approx(first.recoverable_wall_ns, rel=0.02)


def test_ranks_that_meet_no_more_from_some_step_on_are_the_same_job() -> None:
    """Partial synchronisation loss: the run begins as the baseline did."""
    took = np.rint(work(3)).astype(int)
    ops = [
        [Do(rank, "fwd", int(took[step, rank]), step=step), Do(rank, "all-reduce", TRANSFER, step=step, verb=Verb.ALL_REDUCE)]
        for step in range(12)
        for rank in range(4)
    ]
    before = link(play([op for pair in ops for op in pair]))
    after = link(play([op for pair in ops for op in pair[: 2 if pair[0].step < 5 else 1]]))
    never = link(play([op for pair in ops for op in pair[: 2 if pair[0].step < 1 else 1]]))
    assert difference(before, after) is None
    assert "1 times a step, in this run 0" in str(difference(before, never))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (barriers(work(1, ranks=3), TRANSFER), "it has 4 ranks, this run 3"),
        (barriers(work(1), TRANSFER, name="backward"), "rank 0 computes"),
        (barriers(work(1), TRANSFER, every=4), "1 times a step, in this run 0"),
    ],
)
def test_another_job_is_refused_in_one_line(healthy: str, other: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        analyze(other, past=taut.open_run(healthy))
    assert "not the same job" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("share", "now", "same"), [(1.0, 64, True), (1.0, 128, False), (0.6, -1, True)])
def test_a_shape_that_only_some_steps_record_is_no_other_job(share: float, now: int, same: bool) -> None:
    def shaped(size: int, part: float) -> Any:
        built = barriers(work(1, steps=10), TRANSFER)
        mine = (built.ops.group < 0) & (built.ops.step < 10 * part)
        return link(replace(built, ops=built.ops.replace(size=np.where(mine, size, built.ops.size))))

    why = difference(shaped(64, share), shaped(now, 1.0))
    assert (why is None) == same, why


def test_the_command_line_takes_a_baseline_and_shows_it(healthy: str, tmp_path: Path) -> None:
    rows = ["rank,step,class,start_ns,duration_ns"]
    for step in range(8):
        rows += [f"{rank},{step},fwd,{step * 20_000_000},{10_000_000 + 100 * (rank + step)}" for rank in range(2)]
    traces = tmp_path / "ops.csv"
    traces.write_text("\n".join(rows))
    run = CliRunner()
    assert run.invoke(main, ["analyze", str(traces), "-q", "-o", str(tmp_path / "a")]).exit_code == 0
    shown = run.invoke(main, ["analyze", str(traces), "-q", "--no-save", "--baseline", str(tmp_path / "a")])
    assert (shown.exit_code, "baseline" in shown.stdout) == (0, True)
    refused = run.invoke(main, ["analyze", str(traces), "-q", "--no-save", "--baseline", healthy])
    assert (refused.exit_code, "not the same job" in refused.output) == (2, True)
    missing = run.invoke(main, ["analyze", str(traces), "-q", "--no-save", "--baseline", str(tmp_path / "none")])
    assert (missing.exit_code, "not a run folder" in missing.output) == (1, True)


def test_a_joined_graph_replays_as_both_runs_did() -> None:
    """The law of replay holds for two runs one after the other, whatever the order of their names."""
    before = link(job({0: "load 3 | fwd 5 | AR 2", 1: "load 1 | fwd 9 | AR 2"}, steps=3))
    after = link(job({0: "fwd 6 | load 3 | AR 2", 1: "fwd 9 | load 1 | AR 2"}, steps=2))
    both = joined(before, after)
    timeline = replay(both.graph)
    assert (timeline.end_ns == both.graph.ops.end_ns).all()
    assert timeline.wall_ns == replay(before).wall_ns + replay(after).wall_ns
    value = baseline_medians(both, both.graph.work_ns)[0]
    took = {(after.names[n], int(r)): float(v) for n, r, v in zip(after.ops.name, after.ops.rank, value, strict=True)}
    assert {key: took[key] for key in (("fwd", 0), ("fwd", 1), ("load", 0))} == {
        ("fwd", 0): 5 * MS, ("fwd", 1): 9 * MS, ("load", 0): 3 * MS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "centre"), [([0, 0, 0, 9], 0), ([0, 1, 40, 41], 0.5), ([5, 5, 5, 5], 5), ([3], 3), ([0, 9], 0)]
)
def test_of_two_halves_the_lower_is_the_core(values: Sequence[float], centre: float) -> None:
    assert core(np.array(values, dtype=np.float64))[0] == centre


def test_the_lab_s_faults_against_its_healthy_run(shared: Path, tmp_path: Path) -> None:
    past = taut.analyze([shared / "lab-baseline"]).save(tmp_path / "healthy")
    rank = taut.analyze([shared / "lab-slow-rank"], baseline=past).result
    assert (rank.findings[0].ranks, rank.findings[0].classes[0], rank.findings[0].reference) == ([2], "Sleepy", "baseline")
    slow = taut.analyze([shared / "lab-slow-link"], baseline=past).result
    assert (slow.findings[0].links, slow.findings[0].reference) == (["2:1", "3:2"], "baseline")
    # The same job without the fault took 869 of 2708 ms.
    assert slow.findings[0].recoverable_wall_ns / 1e6 == pytest.approx(2708 - 869, rel=0.03)
