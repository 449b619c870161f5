"""The ideal of the pages: no single fix ends before it, and it never ends after the run."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, analyze, barriers, job, one_f_one_b, play
from taut.core.tables import Trace
from taut.stored import open_run
from taut.views.ideal import ideal
from taut.views.replays import Replays
from taut.views.run_questions import questions


def walls(trace: Trace, folder: Path) -> tuple[int, list[int], int]:
    """(ideal wall, walls after each single fix, actual wall)."""
    replays = Replays(open_run(analyze(trace).save(folder / "run")))
    asked, kept = questions(replays), replays.run.ideal_step_ns
    assert kept is not None
    assert kept.tolist() == ideal(replays).window_ns.tolist()
    saved = [one.saved_share for some in asked.choices.values() for one in some if one.saved_share is not None]
    actual = asked.actual_wall_ns
    return ideal(replays).wall_ns, [round(actual * (1 - one)) for one in saved], actual


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), slow=st.sampled_from([1.0, 1.5, 4.0]), since=st.sampled_from([0, 10]))
def test_no_fix_ends_before_the_ideal(seed: int, slow: float, since: int) -> None:
    work = np.random.default_rng(seed).lognormal(0, 0.1, (20, 4)) * 10 * MS
    work[since:, 2] *= slow
    with TemporaryDirectory() as folder:
        best, fixed, actual = walls(barriers(work, MS), Path(folder))
    assert best <= min(fixed)
    assert best <= actual


def test_no_stage_ends_before_the_ideal(tmp_path: Path) -> None:
    trace = play(one_f_one_b(3, 4, 2.0, 4.0, dp=2, steps=6, noise=0.05, scale=lambda stage, _: 1.4 if stage == 1 else 1.0))
    best, fixed, actual = walls(trace, tmp_path)
    assert best <= min(fixed) <= actual


def test_gaps_are_kept(tmp_path: Path) -> None:
    slow, usual = "fwd 9 | . 4 | AR 1", "fwd 5 | . 4 | AR 1"
    best, fixed, actual = walls(job({0: usual, 1: slow, 2: usual}, steps=12), tmp_path)
    assert (best, min(fixed), actual) == (12 * 10 * MS, 12 * 10 * MS, 12 * 14 * MS)


def test_what_a_finding_saves_does_not_end_before_the_ideal(tmp_path: Path) -> None:
    def script(step: int) -> dict[int, str]:
        return {0: "fwd 5 | AR 1", 1: f"fwd 9 | . {20 if step % 4 == 0 else 1} | AR 1", 2: "fwd 5 | AR 1"}

    replays = Replays(open_run(analyze(job(script, steps=24)).save(tmp_path / "run")))
    (finding,) = replays.run.result.findings
    assert finding.recoverable_wall_ns > 0
    assert ideal(replays).wall_ns <= replays.actual_wall_ns - finding.recoverable_wall_ns
