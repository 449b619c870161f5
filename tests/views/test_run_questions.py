"""What can be asked of a run: single savings that are those of the answers, and answers that are priced."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

import taut
from build import MS, barriers, job, one_f_one_b, play
from taut.core.errors import UsageError
from taut.replay.policy_names import KNOWN
from taut.result.types import Estimate, Regime, StructuralPolicy
from taut.run import analyze_trace
from taut.stored import open_run
from taut.views import run_questions as asked_of_runs
from taut.views.replays import Question, Replays
from taut.views.run_questions import POLICIES, ahead, answer, canonical, command, question, questions

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1", 2: "fwd 5 | AR 1"}


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Replays:
    """Three ranks, one of them slow, at 2 EUR an hour each."""
    done = analyze_trace(job(SLOW, steps=12), prices=taut.Prices(Decimal(2), "EUR"))
    return Replays(open_run(done.save(tmp_path_factory.mktemp("questions") / "run")))


def test_a_choice_saves_what_its_answer_says(replays: Replays) -> None:
    told = questions(replays).choices
    assert list(told) == ["finding", "rank", "class", "link", "gate"]
    for some in told.values():
        for one in some:
            assert one.saved_share == pytest.approx(answer(replays, question(one.fixes)).result.saved_share)
    assert next((one.fix, one.label, one.saved_share) for one in told["rank"]) == (
        "rank=1",
        "rank 1 (node)",
        pytest.approx(0.4),
    )
    assert told["finding"][0].label == "Rank 1 (node) is slow: fwd +4.0 ms a step"


def test_stages_save_what_their_answers_say(tmp_path: Path) -> None:
    trace = play(one_f_one_b(3, 4, 2.0, 4.0, dp=2, steps=6, noise=0.05, scale=lambda stage, _: 1.4 if stage == 1 else 1.0))
    members = trace.members.replace(stage=np.arange(6) % 3, dp_rank=np.arange(6) // 3)
    replays = Replays(open_run(analyze_trace(replace(trace, members=members)).save(tmp_path / "run")))
    told = questions(replays).choices["stage"]
    assert told[0].fix == "stage=1"
    for one in told:
        assert one.saved_share == pytest.approx(answer(replays, question(one.fixes)).result.saved_share)


def test_an_answer_is_priced_and_has_its_command(replays: Replays) -> None:
    found = answer(replays, question(["rank=1"]))
    assert found.result.saved_share == pytest.approx(0.4)
    assert (found.saved_per_hour, found.saved_per_day, found.currency) == ("2.40", "57.60", "EUR")  # 0.4 × 3 ranks × 2 EUR
    assert found.command == f"taut whatif {replays.run.folder} --fix rank=1"
    assert found.effective_throughput_ratio is None  # faster than its ideal, whose mean has the slow rank in it
    assert found.regime.without == found.regime.with_


def test_nothing_asked_is_the_run_as_it_was(replays: Replays) -> None:
    found = answer(replays, question())
    assert (found.result.saved_wall_ns, found.saved_per_hour, found.result.changes) == (0, "0.00", [])
    indices = replays.run.result.indices
    assert indices is not None
    assert indices.effective_throughput_ratio is not None
    assert found.effective_throughput_ratio == pytest.approx(indices.effective_throughput_ratio.value)


@pytest.mark.parametrize(
    ("scales", "wall"),
    [({"work": "0.5"}, 12 * 5.5), ({"work": "2"}, 12 * 19), ({"bandwidth": "2"}, 12 * 9.5), ({"gaps": "0"}, 12 * 10)],
)
def test_scales_change_all_of_their_kind(replays: Replays, scales: dict[str, str], wall: float) -> None:
    assert answer(replays, question(scales=scales)).result.changed_wall_ns == wall * MS


def test_scales_come_after_fixes(replays: Replays) -> None:
    assert answer(replays, question(["rank=1"], scales={"work": "0.5"})).result.changed_wall_ns == 12 * 3.5 * MS


def test_gaps_scale(tmp_path: Path) -> None:
    run = open_run(analyze_trace(job({0: "fwd 5 | . 4 | AR 1", 1: "fwd 5 | . 4 | AR 1"}, steps=5)).save(tmp_path / "run"))
    walls = [answer(Replays(run), question(scales={"gaps": one})).result.changed_wall_ns for one in ("0", "0.5", "2")]
    assert walls == [5 * ms * MS for ms in (6, 8, 14)]


def test_only_policies_that_can_be_answered_are_offered(replays: Replays, tmp_path: Path) -> None:
    """Of twelve steps in a row and three replicas; of a single step."""
    offered = {one.name: one.values for one in questions(replays).policies}
    assert (offered["local-steps"], offered["backup-workers"]) == (["2", "4", "8"], ["1", "2"])
    for name, values in offered.items():
        for value in values:
            assert answer(replays, question(policies=[f"{name}={value}"])).result.policies
    one_step = Replays(open_run(analyze_trace(job(SLOW)).save(tmp_path / "run")))
    assert {one.name for one in questions(one_step).policies} == {"backup-workers", "overlap"}


def test_a_policy_has_its_own_regime_and_money(tmp_path: Path) -> None:
    work = np.random.default_rng(1).lognormal(0, 0.3, (40, 6)) * 10 * MS
    done = analyze_trace(barriers(work, MS), prices=taut.Prices(Decimal(1), "EUR"))
    replays = Replays(open_run(done.save(tmp_path / "run")))
    found = answer(replays, question(policies=["local-steps=4"]))
    assert found.result.policies
    saved = found.result.policies[0].saved_share.value
    assert saved > 0.05
    assert float(found.saved_per_hour or 0) == pytest.approx(6 * saved, abs=0.006)
    assert found.regime == found.result.policies[0].regime


def test_policies_of_very_large_runs_are_left_to_the_command(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_of_runs, "POLICY_OPS", 10)
    with pytest.raises(
        UsageError, match=r"72 ops are more than the 10 .*; ask in a shell: taut whatif .* --policy overlap=0.5"
    ):
        answer(replays, question(policies=["overlap=0.5"]))
    assert answer(replays, question(["rank=1"])).result.saved_share > 0


def test_what_is_made_ahead_changes_no_answer(replays: Replays) -> None:
    asked = [
        question(["rank=1"], ["local-steps=2"]),
        question(scales={"work": "0.9"}),
        question(policies=["semi-synchronous=1"]),
    ]
    prepared = Replays(replays.run)
    for part in ahead(prepared):
        part()
    assert [answer(prepared, one) for one in asked] == [answer(Replays(replays.run), one) for one in asked]


def test_a_change_has_a_regime_of_its_own(tmp_path: Path) -> None:
    work = np.random.default_rng(2).normal(1, 0.02, (40, 6)) * 10 * MS
    run = open_run(analyze_trace(barriers(work, MS)).save(tmp_path / "run"))
    replays = Replays(run)
    replays.prepare()
    assert run.result.regime is not None
    assert replays.regime(Question()) == run.result.regime.kind == "stable"
    assert answer(replays, question(scales={"work": "0.9"})).regime.with_ == "stable"
    assert answer(replays, question(["rank=2"])).regime.with_ == "stable"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"fixes": ["colour=red"]}, "one of rank, stage"), ({"fixes": ["rank=9"]}, "no such rank"),
        ({"scales": {"work": "0"}}, "give a factor"), ({"scales": {"warp": "2"}}, "one of work, bandwidth, gaps"),
        ({"policies": ["warp=2"]}, "no such policy"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_a_line(replays: Replays, words: dict[str, list[str]], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        answer(replays, question(**words))  # type: ignore[arg-type]


def test_a_question_has_one_text_and_one_command() -> None:
    asked = Question(fixes=[("rank", "3"), ("class", "a b")], scales={"bandwidth": 2.0, "work": 0.9}, policies=["overlap=0.5"])
    assert canonical(asked) == "fix=class=a b&fix=rank=3&policy=overlap=0.5&work=0.9&bandwidth=2"
    assert command("my run", asked) == (
        "taut whatif 'my run' --fix rank=3 --fix 'class=a b' --scale bandwidth=2 --scale work=0.9 --policy overlap=0.5"
    )


def test_every_policy_of_a_run_has_a_meaning() -> None:
    assert list(POLICIES) == list(KNOWN)


def test_a_finding_that_says_another_figure_is_explained(replays: Replays) -> None:
    assert answer(replays, question(["rank=1"])).note is None  # both 40 %
    (finding,) = replays.run.result.findings
    half = structs.replace(finding, recoverable_wall_ns=finding.recoverable_wall_ns // 2)
    other = Replays(replace(replays.run, result=structs.replace(replays.run.result, findings=[half])))
    note = answer(other, question(["rank=1"])).note
    assert note is not None
    assert note.startswith("The finding says 20.0 %")
    assert note.endswith("40.0 %.")
    assert answer(other, question(["rank=1"], scales={"gaps": "0"})).note is None


def test_a_policy_that_a_finding_names_says_where_it_differs_from_it(replays: Replays) -> None:
    """The regime without it is that of the result, where nobody causes the loss; its figure is after the other findings."""
    (late,) = replays.run.result.findings
    policy = StructuralPolicy(name="local-steps=4", saved_wall_ns=MS)
    nobody = structs.replace(late, ranks=[], loss_share=Estimate(value=0.2), policy=policy, recoverable_wall_ns=MS)
    regime = Regime(kind="unstable", reserve=None, marginal_return=None, pays=0.5)
    result = structs.replace(replays.run.result, findings=[late, nobody], regime=regime)
    found = answer(Replays(replace(replays.run, result=result)), question(policies=["local-steps=4"]))
    assert (found.regime.without, found.regime.with_) == ("unstable", None)
    assert found.note is not None
    assert found.note.startswith("The finding says 0.8 %: what the policy saves once the other findings are mended.")


def test_policies_pay_as_the_run_was_analyzed(tmp_path: Path) -> None:
    work = np.random.default_rng(2).normal(1, 0.02, (40, 6)) * 10 * MS
    run = open_run(analyze_trace(barriers(work, MS), pays=0.999).save(tmp_path / "run"))
    assert run.result.regime is not None
    found = answer(Replays(run), question(policies=["local-steps=4"]))
    assert found.regime.without == run.result.regime.kind == "unstable"


@pytest.mark.parametrize(("given", "words"), [("2", "2"), ("0.9", "0.9"), ("0.1234567891", "0.1234567891")])
def test_a_command_keeps_all_digits_of_a_factor(given: str, words: str) -> None:
    asked = question(scales={"work": given})
    assert (command("run", asked), canonical(asked)) == (f"taut whatif run --scale work={words}", f"work={words}")
