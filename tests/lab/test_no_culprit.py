"""Jobs that nobody is to blame for: what all ranks have alike, run with and without local steps, and how it is scored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from taut.core.errors import UsageError
from taut.lab import score_table as table
from taut.lab.case import PLAIN_JOB, Spec, draw, law
from taut.lab.matrix import Chosen, plan
from taut.lab.on_all import load
from taut.lab.run_case import Runner
from taut.lab.score import Row, beside_policy, score, summarise
from taut.lab.truth import ON_ALL, Injected, Truth
from taut.lab.truth import load as load_truth
from taut.result.types import AnalysisResult, Estimate, Finding, Grown, Job, LedgerResult, Verdict, VerdictClass
from taut.run import analyze

SHAKY = "structural instability"
BUILT = frozenset({SHAKY, "straggler cascade", "work imbalance", "silent degradation"})


def spec(fault: str = "hiccups", ranks: int = 16, seed: int = 70, **about: Any) -> Spec:
    return Spec(**{"job": PLAIN_JOB, "steps": 200, "folder": "x", "fault": fault, "ranks": ranks, "seed": seed, **about})


@pytest.mark.parametrize("fault", ON_ALL)
def test_seeds_of_ten_share_a_law_at_every_size(fault: str) -> None:
    assert law(spec(fault, 16, 71)).strength == law(spec(fault, 64, 79)).strength
    assert law(spec(fault, 16, 71)).strength != law(spec(fault, 16, 81)).strength
    assert draw(spec(fault, seed=71))[0] == law(spec(fault, seed=71))


def test_hiccups_come_at_one_rate_to_all_ranks_and_at_other_times_to_each() -> None:
    one = spec(ranks=64, steps=2_000)
    pauses = np.array([load(one, rank).pause_ms for rank in range(64)])
    rate, ms = law(one).strength["rate"], law(one).strength["ms"]
    assert (pauses > 0).mean() == pytest.approx(rate, rel=0.1)
    assert np.median(pauses[pauses > 0]) == pytest.approx(ms, rel=0.1)
    assert len({tuple(row) for row in pauses > 0}) == 64
    assert np.array_equal(pauses[3], load(one, 3).pause_ms), "the job with local steps has the same ones"


def test_a_long_hiccup_lasts_several_steps() -> None:
    one = spec("long-hiccups", ranks=2, steps=4_000)
    hit = load(one, 0).pause_ms > 0
    begins = np.flatnonzero(np.diff(hit.astype(int)) == 1)
    assert hit.sum() / len(begins) >= law(one).strength["steps"] - 0.5


def test_what_all_have_alike_is_spread_over_ranks_or_grows_with_steps() -> None:
    unequal = np.array([load(spec("unequal", 64), rank).factor for rank in range(64)])
    assert np.ptp(unequal, axis=1).max() == 0
    assert np.log(unequal[:, 0]).std() == pytest.approx(law(spec("unequal", 64)).strength["spread"], rel=0.3)
    drift = np.array([load(spec("drift-all"), rank).factor for rank in range(2)])
    assert np.array_equal(drift[0], drift[1])
    assert drift[0, -1] == pytest.approx(1 + law(spec("drift-all")).strength["share"])


@pytest.mark.parametrize(
    ("about", "word"),
    [
        ({"job": "fsdp"}, "goes with ddp and plain"),
        ({"fault": "slow"}, "not with plain"),
        ({"steps": 30}, "a multiple of 4"),
        ({"device": "cuda"}, "needs --device cpu"),
    ],
)
def test_what_cannot_run_twice_is_refused(about: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        spec(**about).check()


def test_the_arm_has_sizes_of_one_law_and_jobs_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    specs = plan(5, tmp_path, Chosen(only=("structural",)))
    for one in specs:
        one.check()
    assert {one.fault for one in specs} == {*ON_ALL, "none"}
    assert max(one.ranks for one in specs if one.job == "ddp") == 16
    families = [[s.ranks for s in specs if (s.fault, s.job, s.seed // 10) == key] for key in {
        (s.fault, s.job, s.seed // 10) for s in specs
    }]  # fmt: skip
    assert families.count([16, 32, 64]) == 3
    assert {one.job for one in plan(5, tmp_path, Chosen(jobs=("ddp",), only=("structural",)))} == {"ddp"}


@pytest.mark.skipif(sys.platform != "linux", reason="the lab needs Linux")
def test_plain_processes_meet_and_are_recorded_with_what_local_steps_save(tmp_path: Path) -> None:
    with Runner() as runner:
        runner.run(spec(ranks=8, steps=16, folder=str(tmp_path / "run")))
    truth = load_truth(tmp_path / "run")
    assert (truth.policy, len(truth.policy_ns), len(truth.faulted_ns)) == ("local-steps=4", 15, 15)
    assert truth.late_share is not None
    assert 0 < truth.late_share < 1
    assert not (tmp_path / "run.partial").exists()
    result = analyze([tmp_path / "run" / "faulted"]).result
    assert (result.job.ranks, result.job.steps) == (8, 16)
    assert result.ledger is not None
    assert result.ledger.closes


def blank(struct: type[Any], **about: Any) -> Any:
    return struct(**{**dict.fromkeys(struct.__struct_fields__), **about})


def finding(mode: str, *ranks: int) -> Finding:
    return blank(Finding, mode=mode, ranks=[*ranks], links=[], steps=(0, 99), recoverable_wall_ns=0, alternatives=[])


def scored(fault: str, kind: VerdictClass, *findings: Finding, **about: Any) -> Row:
    done = {"both": (Injected(fault="hiccups", first_step=0, last_step=99),)}.get(fault, ())
    done += (Injected(fault="slow" if done else fault, ranks=(3,) if done else (), first_step=0, last_step=99),)
    known = Truth(
        job=PLAIN_JOB, fault=fault, seed=70, injected=() if fault == "none" else done, policy="local-steps=4",
        **{"ranks": 16, "faulted_ns": (100, 100), "policy_ns": (80, 80), "late_share": 0.4, **about},
    )  # fmt: skip
    verdict = Verdict(text="", kind=kind, bound=None, components=None)
    ledger = blank(LedgerResult, closes=True)
    return score(
        blank(AnalysisResult, findings=[*findings], verdict=verdict, ledger=ledger, job=blank(Job, first_step=0)), known, BUILT
    )


@pytest.mark.parametrize(
    ("fault", "kind", "findings", "verdict", "class_right"),
    [
        ("hiccups", "structural", [finding(SHAKY)], "right", True),
        ("hiccups", "healthy", [], "missed", False),
        ("hiccups", "component", [finding("straggler cascade", 3)], "wrong mode", False),
        ("hiccups", "structural", [finding(SHAKY, 3)], "wrong place", True),
        ("both", "component", [finding("straggler cascade", 3), finding(SHAKY)], "right", None),
        ("both", "structural", [finding(SHAKY)], "missed", None),
        ("unequal", "structural", [finding("work imbalance", 2, 3)], "right", True),
        ("unequal", "component", [finding("straggler cascade", 2)], "false finding", False),
        ("drift-all", "healthy", [], "right", False),
        ("drift-all", "structural", [finding("silent degradation", *range(16))], "right", True),
        ("drift-all", "component", [finding("silent degradation", 4)], "false finding", False),
        ("none", "healthy", [], "quiet", True),
        ("none", "structural", [finding(SHAKY)], "false finding", False),
    ],
)
def test_right_is_the_mode_without_a_name_and_the_class_apart(
    fault: str, kind: str, findings: list[Finding], verdict: str, class_right: bool | None
) -> None:
    row = scored(fault, kind, *findings)
    assert row.verdict == verdict
    assert (None if row.wanted_class is None else row.wanted_class == row.found_class) == class_right


def test_a_policy_is_held_against_what_it_really_saved() -> None:
    row = beside_policy(scored("hiccups", "structural"), Estimate(value=0.22, lo=0.2, hi=0.24))
    assert row.policy_saved == pytest.approx(0.2)
    assert row.policy_ratio == pytest.approx(1.1)
    assert (
        beside_policy(scored("hiccups", "structural", policy_ns=(99, 99)), Estimate(value=0.5, lo=None, hi=None)).policy_ratio
        is None
    )
    s = summarise([row])
    assert s.policy_ratio is not None
    assert (s.policy_ratio.n, s.policy_ratio.median, s.policy_error.median) == pytest.approx((1, 1.1, 0.1))
    assert "Local steps, predicted ÷ measured saving: median 1.10" in "\n".join(table.lines(s))
    assert table.alike([row]).body[0][-1] == "1.10"


def test_growth_is_held_against_jobs_of_the_same_law() -> None:
    shares = {16: (0.4, 0.39, 0.41), 32: (0.5, 0.45, 0.55), 64: (0.6, 0.58, 0.62)}
    expects = tuple(Grown(ranks=n, loss_share=Estimate(value=v, lo=lo, hi=hi)) for n, (v, lo, hi) in shares.items())
    small = msgspec.structs.replace(scored("hiccups", "structural"), growth=expects)
    twice = scored("hiccups", "structural", ranks=32, late_share=0.5)
    four = scored("hiccups", "structural", ranks=64, late_share=0.7)
    s = summarise([small, twice, four])
    assert (s.growth_covered.count, s.growth_covered.of) == (1, 2)


def test_jobs_without_a_culprit_are_in_figures_of_their_own() -> None:
    s = summarise([scored("hiccups", "structural", finding(SHAKY)), scored("none", "healthy")])
    assert (s.right.of, s.without_culprit.count, s.classes.count, s.classes.of) == (0, 1, 2, 2)
    assert (s.false_findings.of, s.groups[-1].past) == (1, None)
