"""Findings in the words of a first screen: a sentence for every mode, and for what is none."""

from __future__ import annotations

from typing import Any

import pytest

from results import FINDING, RESULT, filled
from taut.core.finding_place import fixes_of
from taut.result.types import AnalysisResult
from taut.result.view_types import Headline
from taut.views.headlines import about, headlines, short_class

JOB = RESULT["job"] | {"first_step": 0, "last_step": 9}
ROW = {"rank": 2, "label": "rank 2 (gpu-17, GPU 1)"}


def first(**keys: Any) -> Headline:
    """The headline of a finding with these keys."""
    found = filled(AnalysisResult, RESULT | {"ranks": [ROW], "job": JOB, "findings": [FINDING | keys]})
    return headlines(found, "runs/a")[0]


def none(kind: str, text: str, **fates: int) -> Headline:
    """The headline of a result without a finding."""
    entries = [{"fate": fate.replace("_", " "), "rank_ns": ns} for fate, ns in fates.items()]
    ledger = {"total_rank_ns": sum(fates.values()), "entries": entries}
    verdict = {"text": text, "class": kind}
    return headlines(filled(AnalysisResult, RESULT | {"findings": [], "verdict": verdict, "ledger": ledger}), "runs/a")[0]


TITLES = [
    ({"because": "rank 2 spends 42.0 ms more a step in Sleepy than its peers", "classes": ["m.py(3)::Sleepy"]},
     "Rank 2 (gpu-17, GPU 1) is slow: Sleepy +42.0 ms a step"),
    ({"because": "rank 2 takes 9.1 ms a step in fwd, 5.0 ms in the baseline (9.0 standard errors)", "classes": ["fwd"]},
     "Rank 2 (gpu-17, GPU 1) is slow: fwd 9.1 ms a step, 5.0 ms in the baseline"),
    ({"ranks": [*range(8, 16)], "where": "host gpu-17", "because": "they take 12 % longer in their own work than the others"},
     "Host gpu-17 (ranks 8–15) is slow: 12 % longer, most of it in matmul"),
    ({"ranks": [1, 5, 9, 12, 40], "classes": []}, "Ranks 1, 5, 9 and 2 more are slow"),
    ({"ranks": [2], "because": "rank 2 is late in 9 of 50 steps, by 1.2 s, and causes 80 %"},
     "Rank 2 (gpu-17, GPU 1) is slow: late in 9 of 50 steps, by 1.2 s"),
    ({"ranks": [], "links": ["2:1"], "because": "from step 9 on, transfers over link 2:1 take longer by 12.0 ms a step"},
     "Link 2:1 is slow: transfers +12.0 ms a step"),
    ({"ranks": [2], "links": ["2:1", "3:2"]}, "Links 2:1, 3:2 are slow, all at rank 2 (gpu-17, GPU 1)"),
    ({"mode": "silent degradation", "ranks": [], "stages": [], "because": "from step 3 on, fwd takes 3.0 ms longer a step",
      "classes": ["fwd"], "steps": [3, 9]}, "The whole job became slower: fwd +3.0 ms a step from step 3 on"),
    ({"mode": "silent degradation", "steps": [0, 3], "classes": []}, "Rank 2 (gpu-17, GPU 1) became slower"),
    ({"mode": "structural instability", "ranks": [], "stages": [], "loss_share": {"value": 0.25}},
     "Nobody in particular: waiting for whoever is late costs 25 % of the time"),
    ({"mode": "hang", "classes": ["all_reduce"]}, "Rank 2 (gpu-17, GPU 1) stopped: the job hangs in all_reduce"),
    ({"mode": "hang", "ranks": []}, "The job hangs: who stopped is not told"),
    ({"mode": "input stall", "classes": ["input: data_load"], "because": "spends 26.0 ms more a step in input: data_load"},
     "Rank 2 (gpu-17, GPU 1) waits for input: data_load +26.0 ms a step"),
    ({"mode": "checkpoint stall", "because": "rank 2 saves in 3 of 60 steps, 1.2 s each, while others wait"},
     "Rank 2 (gpu-17, GPU 1) holds the others up with checkpoints: 1.2 s each, in 3 of 60 steps"),
    ({"mode": "fabric contention", "ranks": [], "classes": ["all-reduce"], "because": "they take 2.3 times as long as alone"},
     "Transfers get in each other's way: all-reduce takes 2.3 times as long"),
    ({"mode": "energy feedback loop", "ranks": [2], "because": "on rank 2 power swings between 310 and 690 W, and"},
     "Rank 2 (gpu-17, GPU 1) throttles in a loop: power swings between 310 and 690 W"),
    ({"mode": "tail latency inflation", "classes": ["search"], "because": "search has a tail of 5.3 times its median, where"},
     "Search waits for its slowest call: a tail of 5.3 times the median"),
    ({"mode": "work imbalance", "ranks": [], "stages": [2], "because": "stage 2 computes 1.30 times as long a step as"},
     "Stage 2 has too much work: 1.30 times the mean of the stages"),
    ({"mode": "work imbalance", "ranks": [], "stages": []},
     "Micro-batches are unequal work: whoever has the longest is waited for"),
    ({"mode": "non-determinism", "because": "a step takes 10.0 ms to 12.1 ms in 3 runs of one graph"},
     "The same job takes unlike times when it is repeated: 10.0 ms to 12.1 ms a step in 3 runs"),
    ({"mode": "partial synchronisation loss", "ranks": [2, 3], "because": "the two groups are up to 3.0 ms apart (chance"},
     "Ranks 2, 3 no longer meet the others: up to 3.0 ms apart"),
    ({"mode": "something new"}, "Something new: rank 2 (gpu-17, GPU 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "title"), TITLES, ids=[title for _, title in TITLES])
def test_every_mode_has_a_sentence(keys: dict[str, Any], title: str) -> None:
    assert first(**keys).title == title


def test_a_saving_is_told_with_its_money_and_its_interval() -> None:
    money = {"window": "1", "per_hour": "184.96", "per_day": "4438.99", "currency": "EUR"}
    found = first(recoverable_wall_ns=26_010_000, money=money, recoverable_share={"value": 0.289, "lo": 0.28, "hi": 0.30})
    assert found.saving == "A fix saves 28.9 % ≈ 185 EUR/h (4,400 a day), likely 23–51 %"
    assert found.recoverable_share == pytest.approx(0.289)


def test_ends_of_an_interval_differ_in_its_words() -> None:
    saved = {"mode": "structural instability", "ranks": [], "recoverable_wall_ns": 128_000_000}
    shares = [{"value": 0.128, "lo": lo, "hi": hi} for lo, hi in ((0.1, 0.2), (0.127, 0.129), (0.128, 0.128))]
    ends = [first(**saved, recoverable_share=share).saving.partition(", ")[2] for share in shares]
    assert ends == ["likely 10–20 %", "likely 12.7–12.9 %", ""]


def test_a_rank_that_is_slow_in_everything_is_late_by_all_of_it() -> None:
    late = ROW | {"late_ns": 16_900_000.0}
    told = FINDING | {
        "because": "rank 2 spends 216 µs more a step in fwd 1 than its peers",
        "classes": ["fwd 1", "fwd 2", "bwd 1"],
    }
    for saved, title in ((160_000_000, "+16.9 ms a step, over many classes"), (2_160_000, "fwd 1 +216 µs a step")):
        finding = told | {"steps": [0, 9], "recoverable_wall_ns": saved}
        found = filled(AnalysisResult, RESULT | {"ranks": [late], "job": JOB, "findings": [finding]})
        assert headlines(found, "runs/a")[0].title == f"Rank 2 (gpu-17, GPU 1) is slow: {title}"


def test_a_policy_recovers_what_nobody_causes() -> None:
    policy = {"name": "local-steps=4", "saved_wall_ns": 9_000_000}
    found = first(mode="structural instability", ranks=[], stages=[], policy=policy, loss_share={"value": 0.2})
    assert (found.saving, found.policy, found.fix) == ("Policy local-steps=4 saves 10.0 %", "local-steps=4", [])
    assert (found.severity, found.whatif) == ("structure", "taut whatif runs/a --policy local-steps=4")


def test_what_mends_a_finding_is_what_whatif_takes() -> None:
    assert first().whatif == "taut whatif runs/a --fix rank=2"
    assert first(ranks=[], links=["2:1", "3:2"]).fix == ["link=2:1", "link=3:2"]
    assert first(mode="work imbalance", ranks=[], stages=[2]).whatif is None
    assert fixes_of(filled(AnalysisResult, RESULT).findings[0]) == ["rank=2"]


def test_a_repair_comes_before_a_policy_that_is_not_surely_worth_more() -> None:
    nobody = FINDING | {"id": "f-2", "mode": "structural instability", "ranks": [], "recoverable_wall_ns": 9_100_000,
                        "policy": {"name": "local-steps=4", "saved_wall_ns": 9_100_000}}  # fmt: skip
    repair = FINDING | {"recoverable_share": {"value": 0.1, "lo": 0.05, "hi": 0.15}}
    found = headlines(filled(AnalysisResult, RESULT | {"findings": [nobody, repair]}), "runs/a")
    assert [one.id for one in found] == ["f-1", "f-2"]


def test_healthy_and_unknown_are_said() -> None:
    healthy = none("healthy", "No finding: 84 % productive, 1 % gaps; in all 2 % waiting.", productive=84, gap=16)
    assert (healthy.severity, healthy.title) == ("healthy", "Nothing to fix: 84 % productive")
    text = "No finding: 80 % productive, 6 % gaps; in all 14 % waiting at gates. Two ranks have no trace."
    unknown = none("unknown", text, productive=80, gap=6, unexplained=14)
    assert (unknown.severity, unknown.title) == ("unknown", "No finding, but 14 % is unexplained: Two ranks have no trace")
    unmet = none("unknown", "Unknown: 2 ranks, but no collective is there. 20 % compute.", productive=74, unobserved=26)
    assert unmet.title == "No finding, but 26 % is unexplained: 2 ranks, but no collective is there"
    assert unmet.because == "20 % compute."
    undivided = none("unknown", "Unknown: no collective is there. 20 % compute.", productive=70, communication_undivided=30)
    assert undivided.title == "No finding, but 30 % is communication that cannot be told from waiting: no collective is there"
    gaps = none("unknown", "No finding: 5 % productive, 81 % gaps; in all 9 % waiting. A trace tells.", gap=81, unexplained=10)
    assert (gaps.title, gaps.because) == ("No finding: 5 % productive, 81 % gaps", "In all 9 % waiting. A trace tells.")
    alone = none("unknown", "One rank: 3 % compute, 97 % exposed copies.", exposed_copy=97)
    assert (alone.title, alone.because) == ("One rank: 3 % compute, 97 % exposed copies", "")  # not said twice
    structural = none("structural", "No culprit: 12 % of the bill is structural waiting. Stage 2 is the longest.", productive=9)
    assert (structural.severity, structural.title) == ("structure", "No culprit: 12 % of the bill is structural waiting")
    assert structural.because == "Stage 2 is the longest."


def test_controllers_that_fight_come_first() -> None:
    zone = {"ranks": [2, 3], "steps": [4, 9], "ops": 3, "first_ns": 0, "last_ns": 1, "rank_ns": 100}
    relation = {"kind": "oscillation", "controllers": ["balancer", "scaler"], "because": "they undo each other", "zone": zone}
    verdict = {"text": "Control: …", "class": "control"}
    result = filled(AnalysisResult, RESULT | {"control": {"relations": [relation], "regime": {}}, "verdict": verdict})
    found = headlines(result, "runs/a")
    assert found[0].title == "Controllers work against each other: oscillation of balancer and scaler on ranks 2, 3"
    assert [one.severity for one in found] == ["control", "fault"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("autograd::engine::evaluate_function: _PacedBackward", "_PacedBackward"),
        ("aten::mm", "mm"), ("aten::add_", "add_"), ("layer 1 op 0", "layer 1 op 0"), ("all-reduce", "all-reduce"),
        ("void at::native::vectorized_kernel<4, at::f<int>>", "vectorized_kernel"), ("nn.Linear", "Linear"),
        ("gemm_1.5", "gemm_1.5"), ("gap before fwd", "fwd"), ("x" * 60, "x" * 35 + "…"),
    ],
)  # fmt: skip
def test_classes_are_shortened_sensibly(name: str, short: str) -> None:
    assert short_class(name) == short


def test_amounts_have_few_digits() -> None:
    assert [about("184.96", 3), about("4438.99", 2), about("1.456", 3), about("0", 2), about("35.5", 2)] == [
        "185", "4,400", "1.46", "0", "36",
    ]  # fmt: skip
