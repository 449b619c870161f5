"""What a comparison of runs says: order, trends, changes, re-runs, restarts; on disk, on the screen and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

import taut
from build import analyze, barriers
from taut.cli import main
from taut.compare.quantities import with_reruns
from taut.core.errors import UsageError
from taut.core.json_text import json_text
from taut.ledger import Prices
from taut.render.compare_screen import render_compare
from taut.render.terminal import Screen
from taut.result.types import ComparedRun, Trend

KEYS = {"runs", "trends", "changed", "non_determinism"}
DAY_NS = 86_400 * 10**9
PRICED = Prices(Decimal("2.50"), "EUR", 700.0, 400.0, 100.0)


def save(
    folder: Path, name: str, *, level: float = 1.0, noise: float = 0.02, first: int = 0, steps: int = 20, seed: int = 0,
    day: int | None = None, slow: dict[int, float] | None = None, job: str = "job", cls: str = "fwd", **options: Any,
) -> str:  # fmt: skip
    """Write the run of three ranks that compute about 10 ms and meet; ``slow`` scales the work of some ranks."""
    work = 1e7 * level * np.random.default_rng(seed).normal(1, noise, (steps, 3))
    for rank, factor in (slow or {}).items():
        work[:, rank] *= factor
    built = barriers(work, 1_000_000, name=cls)
    at = 0 if day is None else 1_700_000_000 * 10**9 + day * DAY_NS
    ops = built.ops.replace(
        step=built.ops.step + first, start_ns=built.ops.start_ns + at, end_ns=built.ops.end_ns + at
    )  # fmt: skip
    return str(analyze(replace(built, ops=ops, name=job), **options).save(folder / name))


def trend_of(result: dict[str, Any], quantity: str) -> dict[str, Any]:
    return next(row for row in result["trends"] if row["quantity"] == quantity)


def taut_(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, ["compare", *args], prog_name="taut")


def test_two_runs_have_no_trend_and_name_the_rank_that_changed(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a"), save(tmp_path, "b", seed=1, slow={1: 1.4})]
    result = taut.compare(runs)
    assert set(result) >= KEYS
    assert {(row["slope"], row["p"], row["q"]) for row in result["trends"]} == {(None, None, None)}
    (row,) = result["changed"]
    assert (row["class"], row["rank"]) == ("fwd", 1)
    assert row["after_ns"] / row["before_ns"] == pytest.approx(1.4, rel=0.03)
    assert row["q"] < 0.001
    assert row["effect_wall_ns"] == pytest.approx(20 * 0.4e7, rel=0.1)
    assert result["changed_by"]["rank"] == {"1": row["effect_wall_ns"]}
    assert result["changed_tested"] == 6


def test_what_begins_inside_a_run_is_a_change(tmp_path: Path) -> None:
    before, after = 1e7 * np.random.default_rng(1).normal(1, 0.02, (2, 30, 3))
    after[10:, 1] *= 1.4
    runs = [str(analyze(barriers(work, 1_000_000)).save(tmp_path / f"{i}")) for i, work in enumerate((before, after))]
    assert [row["rank"] for row in taut.compare(runs)["changed"]] == [1]


def test_work_that_nobody_waits_for_changes_without_an_effect(tmp_path: Path) -> None:
    """Rank 0 is slower, but rank 2 was and stays the last."""
    runs = [save(tmp_path, "a", slow={2: 2.0}), save(tmp_path, "b", seed=1, slow={0: 1.3, 2: 2.0})]
    (row,) = taut.compare(runs)["changed"]
    assert row["rank"] == 0
    assert row["effect_wall_ns"] == 0


def test_two_runs_that_differ_by_jitter_have_no_change(tmp_path: Path) -> None:
    """Near miss, over seeds: at most the stated share of comparisons lists anything."""
    listed = [
        bool(taut.compare([save(tmp_path, f"{side}{seed}", seed=2 * seed + i) for i, side in enumerate("ab")])["changed"])
        for seed in range(12)
    ]
    assert sum(listed) <= 2


def test_a_rise_from_run_to_run_is_a_trend(tmp_path: Path) -> None:
    runs = [save(tmp_path, f"r{i}", level=1 + 0.05 * i, seed=i) for i in range(10)]
    result = taut.compare(runs)
    step = trend_of(result, "step_ns")
    assert step["q"] < 0.05
    assert step["slope"]["lo"] <= 0.05e7 <= step["slope"]["hi"]
    assert "step time rises" in result["verdict"]["text"]


def test_runs_that_only_jitter_have_no_trend(tmp_path: Path) -> None:
    result = taut.compare([save(tmp_path, f"r{i}", seed=i) for i in range(10)])
    assert all(row["q"] is None or row["q"] > 0.05 for row in result["trends"])
    assert "no trend" in result["verdict"]["text"]


def test_what_was_not_measured_has_no_trend(tmp_path: Path) -> None:
    result = taut.compare([save(tmp_path, f"r{i}", seed=i) for i in range(3)])
    empty = Trend(quantity="energy_per_kept_step_j", runs=0, p=None, q=None, slope=None)
    assert trend_of(result, "energy_per_kept_step_j") == empty
    assert {row["cost_per_kept_step"] for row in result["runs"]} == {None}


def test_runs_are_ordered_by_time_where_all_have_one(tmp_path: Path) -> None:
    late, early = save(tmp_path, "late", day=2), save(tmp_path, "early", day=1, seed=1)
    timeless = save(tmp_path, "timeless", seed=2)
    dated = taut.compare([late, early])
    assert (dated["order"], [row["run"] for row in dated["runs"]]) == ("time", [early, late])
    mixed = taut.compare([late, timeless, early])
    assert (mixed["order"], [row["run"] for row in mixed["runs"]]) == ("given", [late, timeless, early])
    assert mixed["runs"][1]["time_ns"] is None


def test_steps_that_a_later_run_executes_again_are_not_kept(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", first=0, prices=PRICED), save(tmp_path, "b", first=15, seed=1, prices=PRICED)]
    first, last = taut.compare(runs)["runs"]
    assert (first["first_step"], first["last_step"]) == (0, 19)
    assert first["rerun_share"] == pytest.approx(5 / 20)
    assert last["rerun_share"] is None
    assert first["energy_per_kept_step_j"] == pytest.approx(first["energy_j"] / 15)
    assert Decimal(first["cost_per_kept_step"]) == pytest.approx(Decimal(first["cost"]) / 15)
    assert last["energy_per_kept_step_j"] == pytest.approx(last["energy_j"] / 20)


def test_steps_far_apart_take_no_more_memory() -> None:
    steps = ((0, 2**40 - 1), (2**39, 2**41), (5, 14), (10, 19), (-7, 1), (0, 2**40 - 1))
    blank = dict.fromkeys(ComparedRun.__struct_fields__) | {"steps": 2}
    given = [ComparedRun(**{**blank, "first_step": first, "last_step": last}) for first, last in steps]
    rows = with_reruns(given, [""] * len(given))
    assert rows[0]["rerun_share"] == (2**39 + 15 + 2) / 2**40
    assert [row["rerun_share"] for row in rows[2:]] == [1.0, 1.0, 2 / 9, None]


def test_runs_of_the_same_steps_are_repeats_and_both_kept(tmp_path: Path) -> None:
    result = taut.compare([save(tmp_path, "a"), save(tmp_path, "b", seed=1)])
    assert result["runs"][0]["rerun_share"] == 0
    assert result["restarts"]["at"] == []
    (seen,) = result["non_determinism"]["repeats"]
    assert len(seen["runs"]) == 2
    assert result["non_determinism"]["findings"] == []


def test_other_jobs_re_run_nothing_unless_declared_the_same(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", job="one"), save(tmp_path, "b", first=15, seed=1, job="two")]
    assert taut.compare(runs)["runs"][0]["rerun_share"] is None
    together = taut.compare(runs, same_job=True)
    assert together["runs"][0]["rerun_share"] == pytest.approx(0.25)
    assert [(at["step"], at["rerun_steps"]) for at in together["restarts"]["at"]] == [(15, 5)]


@pytest.mark.parametrize(
    ("noises", "effect"), [((0.12, 0.01), "reset"), ((0.01, 0.12), "amplify"), ((0.03, 0.03), "none shown")]
)
def test_a_restart_resets_or_amplifies_the_spread_of_steps(tmp_path: Path, noises: tuple[float, float], effect: str) -> None:
    before = save(tmp_path, "a", noise=noises[0], steps=30)
    after = save(tmp_path, "b", noise=noises[1], steps=30, first=25, seed=1)
    found = taut.compare([before, after])["restarts"]
    assert found["effect"] == effect
    assert found["spread"]["ratio"]["lo"] < found["spread"]["ratio"]["value"] < found["spread"]["ratio"]["hi"]


def test_a_restart_that_makes_steps_faster_says_so(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", level=1.3), save(tmp_path, "b", first=20, seed=1)]
    (at,) = taut.compare(runs)["restarts"]["at"]
    assert at["rerun_steps"] == 0
    assert at["step_time"]["ratio"]["hi"] < 1
    assert at["step_time"]["q"] < 0.01
    assert at["after_ns"] < at["before_ns"]


def test_a_run_far_behind_is_no_restart(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a"), save(tmp_path, "b", first=1000, seed=1)]
    result = taut.compare(runs)["restarts"]
    assert (result["at"], result["effect"], result["spread"]) == ([], None, None)


def test_repeats_that_differ_are_a_finding_in_the_words_of_the_contract(tmp_path: Path) -> None:
    runs = [save(tmp_path, f"r{i}", level=level, seed=i) for i, level in enumerate([1.0, 1.2, 0.9])]
    (found,) = taut.compare(runs)["non_determinism"]["findings"]
    assert found["mode"] == "non-determinism"
    assert set(found) >= {
        "id", "mode", "ranks", "links", "stages", "classes", "steps", "lost_rank_ns", "recoverable_wall_ns", "confidence",
        "because",
    }  # fmt: skip


def test_another_graph_is_listed_and_not_timed(tmp_path: Path) -> None:
    found = taut.compare([save(tmp_path, "a"), save(tmp_path, "b", cls="backward")])["non_determinism"]
    (row,) = found["structure"]
    assert row["same_graph"] is False
    assert row["count"] == 6
    assert {one["what"] for one in row["differences"]} == {"class"}
    assert found["repeats"] == []


def test_the_same_runs_give_the_same_bytes_as_folders_or_opened(tmp_path: Path) -> None:
    runs = [save(tmp_path, f"r{i}", seed=i, level=1 + i / 10) for i in range(3)]
    outputs = [taut_(*runs, "--json").stdout for _ in range(2)]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == json.loads(json_text(taut.compare([taut.open_run(run) for run in runs])))


def test_the_screen_says_what_happened_in_words(tmp_path: Path) -> None:
    runs = [save(tmp_path, "monday", prices=PRICED), save(tmp_path, "tuesday", first=15, seed=1, slow={1: 1.4}, prices=PRICED)]
    shown = taut_(*runs).stdout
    assert shown.startswith("Step time 11.1 ms → 15.0 ms (+35 %), from rank 1's fwd, 10.0 ms → 14.0 ms; 1 of 6 classes")
    assert all(word in shown for word in ("monday", "tuesday", "What changed", "Repeats", "Restarts", "EUR"))


def test_hundreds_of_runs_fit_on_a_screen(tmp_path: Path) -> None:
    result = taut.compare([save(tmp_path, f"r{i}", seed=i) for i in range(3)])
    many = structs.replace(result, runs=[structs.replace(result.runs[0], run=f"runs/{i}") for i in range(300)])
    shown = render_compare(many, Screen(width=100))
    assert "… 288 more" in shown
    assert len(shown.splitlines()) < 60


def test_names_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", cls="x\x1b[2J"), save(tmp_path, "b", seed=1, slow={1: 2.0}, cls="x\x1b[2J")]
    answers = taut_(*runs), taut_(*runs, "--json")
    assert not any("\x1b" in answer.output for answer in answers)
    assert "x\\x1b[2J" in answers[0].stdout


def test_one_run_or_the_same_twice_is_a_wrong_question(tmp_path: Path) -> None:
    run = save(tmp_path, "a")
    with pytest.raises(UsageError, match="two or more"):
        taut.compare([run])
    answer = taut_(run, run + "/")
    assert (answer.exit_code, len(answer.stderr.splitlines())) == (2, 1)
    assert "given twice" in answer.stderr


def test_what_is_no_run_folder_is_one_line(tmp_path: Path) -> None:
    answer = taut_(save(tmp_path, "a"), str(tmp_path / "none"))
    assert (answer.exit_code, answer.stdout, len(answer.stderr.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    ("level", "share", "code"), [(1.2, "0.05", 3), (1.2, "0.19", 0), (1.0, "0.05", 0), (0.8, "0.05", 0), (0.8, "0", 0)]
)
def test_steps_that_are_surely_longer_by_so_much_fail(tmp_path: Path, level: float, share: str, code: int) -> None:
    runs = [save(tmp_path, "a"), save(tmp_path, "b", seed=1, level=level)]
    found = taut_(*runs, "--fail-on", share)
    assert found.exit_code == code, found.output
    assert f"--fail-on is {share}: {'reached' if code else 'not reached'}" in found.stderr


def test_what_is_judged_is_in_the_order_given(tmp_path: Path) -> None:
    runs = [save(tmp_path, "baseline", day=2), save(tmp_path, "now", seed=1, day=1, level=1.3)]
    assert taut_(*runs, "--fail-on", "0.05").exit_code == 3
    assert taut_(*reversed(runs), "--fail-on", "0.05").exit_code == 0


def test_too_few_steps_are_no_pass(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", steps=4), save(tmp_path, "b", steps=4, seed=1)]
    found = taut_(*runs, "--fail-on", "0.05", "--markdown")
    assert found.exit_code == 2
    assert "cannot be told, too few steps; record 5 or more in each run" in found.stderr
    assert "? --fail-on 0.05 (longer by 5.0 % at least): not known" in found.stdout


def test_markdown_says_the_verdict_and_shows_names_as_text(tmp_path: Path) -> None:
    cls = "a|b `c` <img src=x onerror=alert(1)> [d](http://e)"
    runs = [save(tmp_path, "a", cls=cls), save(tmp_path, "b", cls=cls, seed=1, slow={1: 1.4})]
    found = taut_(*runs, "--markdown")
    assert found.exit_code == 0
    assert found.stdout.startswith("# taut compare\n")
    assert "**Steps are longer than before: +" in found.stdout
    assert "<img" not in found.stdout
    assert "a\\|b \\`c\\` &lt;img" in found.stdout
    assert found.stdout.count("[d](") == found.stdout.count("`[d](http://e)") > 0  # as code, not as a link


def test_one_form_at_a_time(tmp_path: Path) -> None:
    found = taut_("a", "b", "--json", "--markdown")
    assert (found.exit_code, "--json and --markdown: give one of them" in found.stderr) == (2, True)


def test_real_faults_are_what_changed(shared: Path, tmp_path: Path) -> None:
    """A link of 50 Mbit/s, and 40 ms more of compute on rank 2, against the same job without."""
    runs = [
        str(taut.analyze([shared / f"lab-{name}"]).save(tmp_path / name)) for name in ("baseline", "slow-link", "slow-rank")
    ]
    link, rank = taut.compare(runs[:2]), taut.compare([runs[0], runs[2]])
    top = max(link["changed_by"]["class"], key=link["changed_by"]["class"].__getitem__)
    assert top == "gloo all-reduce"
    assert (rank["findings"][0]["ranks"], rank["findings"][0]["reference"]) == ([2], "baseline")
    assert link["findings"][0]["links"] == ["2:1", "3:2"]
    assert rank["non_determinism"]["findings"] == link["non_determinism"]["findings"] == []
    (row,) = [row for row in rank["changed"] if (row["effect_wall_ns"] or 0) > 1e7]
    assert row["rank"] == 2
    assert row["after_ns"] - row["before_ns"] == pytest.approx(40e6, rel=0.1)
    assert all(one["same_graph"] for one in (*link["non_determinism"]["structure"], *rank["non_determinism"]["structure"]))
