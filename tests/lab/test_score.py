"""Hand-made results held against hand-made truths, and the figures and tables over them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from rich.console import Console

from taut.lab import score_table as table
from taut.lab.score import Row, Summary, attempt, beside_baseline, score, spread, summarise, wilson
from taut.lab.truth import Injected, Truth
from taut.result.types import AnalysisResult, Clock, Estimate, Fidelity, Finding, Job, LedgerResult, Verdict

CASCADE = "straggler cascade"
BUILT = frozenset({CASCADE, "input stall"})


def blank(struct: type[Any], **about: Any) -> Any:
    """A part of a result of which only these keys matter."""
    return struct(**{**dict.fromkeys(struct.__struct_fields__), **about})


def finding(ranks: tuple[int, ...] = (), links: tuple[str, ...] = (), **about: Any) -> Finding:
    given = {"mode": CASCADE, "steps": (10, 30), "recoverable_wall_ns": 500, "alternatives": [], **about}
    return blank(Finding, ranks=[*ranks], links=[*links], **given)


def result(
    *findings: Finding, offsets: dict[str, tuple[int, int, int]] | None = None, first_step: int = 1, **about: Any
) -> AnalysisResult:
    clock = {rank: Estimate(**dict(zip(("value", "lo", "hi"), v, strict=True))) for rank, v in (offsets or {}).items()}
    return blank(
        AnalysisResult, job=blank(Job, first_step=first_step), findings=[*findings], ledger=blank(LedgerResult, closes=True),
        verdict=blank(Verdict, kind="component" if findings else "healthy"),
        fidelity=blank(Fidelity, clock=blank(Clock, offset_ns=clock)), **about,
    )  # fmt: skip


def injected(fault: str, ranks: tuple[int, ...] = (), links: tuple[str, ...] = (), first: int = 10) -> Injected:
    return Injected(fault=fault, ranks=ranks, links=links, first_step=first, last_step=30)


def truth(fault: str, *faults: Injected, **about: Any) -> Truth:
    """Healthy steps take 100 ns, the twenty since step 10 take 150 with the fault: removing it saves 1,000 ns."""
    about = {"faulted_ns": (100,) * 9 + (150,) * 20, "healthy_ns": ((100, *(99, 101) * 14), (100, *(101, 99) * 14)), **about}
    return Truth(job="ddp", fault=fault, seed=1, ranks=4, injected=faults, **about)


SLOW = truth("slow", injected("slow", ranks=(2,)))
ONE_WAY = truth("link-one-way", injected("link-one-way", links=("2:1",)))
NIC = truth("link", injected("link", ranks=(2,), links=("2:1", "3:2")))
LOADER = truth("loader", injected("loader", ranks=(0,)))
TWO = truth("two", injected("slow", ranks=(0,)), injected("link", ranks=(2,), links=("2:1", "3:2")))
MOVING = truth("moving", injected("slow", ranks=(0,)), injected("slow", ranks=(3,), first=20))
HANG = truth("hang", injected("hang", ranks=(1,)))
SET = truth("slow", injected("slow", ranks=(2, 5), first=0), places="2", from_start=True)
NICS = truth("link", *(injected("link", ranks=(r,), links=(f"{r}:{r - 1}", f"{r + 1}:{r}")) for r in (2, 5)), places="2")
WAYS = truth("link-one-way", *(injected("link-one-way", links=(link,)) for link in ("2:1", "5:4")), places="2")
UNSURE = finding((0,), mode="fabric contention", alternatives=["input stall"])


@pytest.mark.parametrize(
    ("known", "findings", "verdict"),
    [
        (SLOW, [finding((2,))], "right"),
        (SLOW, [finding((2,)), finding((1,))], "right"),
        (SLOW, [finding((1,)), finding((2,))], "wrong place"),
        (SLOW, [finding((2, 3))], "wrong place"),
        (SLOW, [finding((2,), ("2:1",))], "wrong place"),
        (SLOW, [finding((2,), mode="hang")], "wrong mode"),
        (SLOW, [], "missed"),
        (ONE_WAY, [finding((), ("2:1",))], "right"),
        (ONE_WAY, [finding((2,), ("2:1", "3:2"))], "right"),
        (ONE_WAY, [finding((), ("1:2",))], "wrong place"),
        (ONE_WAY, [finding((), ("2:1", "3:2", "1:0"))], "wrong place"),
        (ONE_WAY, [finding((1,))], "wrong place"),
        (NIC, [finding((), ("3:2",))], "right"),
        (NIC, [finding((2,), ("1:0",))], "right"),
        (NIC, [finding((), ("3:2", "1:0"))], "wrong place"),
        (NIC, [finding((2,))], "wrong place"),
        (LOADER, [finding((0,), mode="input stall")], "right"),
        (LOADER, [UNSURE], "right"),
        (LOADER, [structs.replace(UNSURE, ranks=[1])], "wrong place"),
        (LOADER, [finding((0,))], "wrong mode"),
        (TWO, [finding((), ("2:1",)), finding((0,))], "right"),
        (TWO, [finding((0,))], "missed"),
        (MOVING, [finding((3,)), finding((0,))], "right"),
        (MOVING, [finding((3,)), finding((1,))], "missed"),
        (SET, [finding((2, 5))], "right"),
        (SET, [finding((5,)), finding((2,))], "right"),
        (SET, [finding((5,)), finding((1,)), finding((2,))], "missed"),
        (SET, [finding((2, 3, 5))], "wrong place"),
        (NICS, [finding((2,), ("2:1",)), finding((), ("5:4", "6:5"))], "right"),
        (NICS, [finding((2, 5), ("2:1", "6:5"))], "right"),
        (NICS, [finding((2,), ("2:1", "3:2"))], "missed"),
        (WAYS, [finding((), ("2:1", "5:4"))], "right"),
        (WAYS, [finding((), ("3:2", "5:4"))], "missed"),
        (HANG, [], "not yet"),
        (HANG, [finding((1,))], "not yet"),
        (truth("none"), [], "quiet"),
        (truth("skew"), [finding((1,))], "false finding"),
    ],
)
def test_right_means_mode_and_place_at_first_place(known: Truth, findings: list[dict[str, Any]], verdict: str) -> None:
    row = score(result(*findings), known, BUILT)
    assert row.verdict == verdict
    assert row.detected == bool(findings)


def test_findings_that_fit_nothing_are_counted() -> None:
    assert score(result(finding((2,)), finding((1,)), finding((0,))), SLOW, BUILT).extra == 2
    assert score(result(finding((2,))), SLOW, BUILT).extra == 0


@pytest.mark.parametrize(("begins", "first_step", "error"), [(12, 1, 2), (7, 1, -3), (14, 13, 1)])
def test_onset_counts_from_the_fault_or_from_where_the_trace_begins(begins: int, first_step: int, error: int) -> None:
    seen = result(finding((2,), steps=(begins, 30)), first_step=first_step)
    assert score(seen, SLOW, BUILT).onset_error_steps == error


def test_onset_is_that_of_the_fault_found_and_unknown_in_another_place() -> None:
    assert score(result(finding((3,), steps=(21, 30))), MOVING, BUILT).onset_error_steps == 1
    assert score(result(finding((1,))), SLOW, BUILT).onset_error_steps is None


def test_prediction_is_the_joint_saving_or_the_sum_of_all() -> None:
    both = finding((0,)), finding((), ("2:1",), recoverable_wall_ns=300)
    assert score(result(*both), TWO, BUILT).counterfactual_error == pytest.approx(0.2)
    assert score(result(*both, recoverable_wall_ns=900), TWO, BUILT).counterfactual_error == pytest.approx(0.1)
    assert score(result(), SLOW, BUILT).counterfactual_error == 1, "a missed fault was predicted to be worth nothing"


def test_prediction_is_judged_only_where_the_saving_is_known_well_enough() -> None:
    noisy = truth("slow", *SLOW.injected, healthy_ns=((20, 180) * 10, (180, 20) * 10))
    alone = truth("slow", *SLOW.injected, healthy_ns=())
    for known in (noisy, alone, HANG):
        assert score(result(finding((2,))), known, BUILT).counterfactual_error is None
    assert score(result(finding((2,))), alone, BUILT).saving_ns is None
    assert score(result(finding((1,))), truth("none"), BUILT).counterfactual_error is None


def test_faults_that_cost_nothing_measurable_are_counted_apart() -> None:
    noisy = truth("slow", *SLOW.injected, healthy_ns=((20, 180) * 10, (180, 20) * 10))
    found = summarise([score(result(finding((2,))), SLOW, BUILT), score(result(), noisy, BUILT)])
    assert (found.right.count, found.right.of) == (1, 2)
    assert (found.right_measured.count, found.right_measured.of) == (1, 1)


@pytest.mark.parametrize("part", ["faulted_ns", "healthy_ns"])
def test_a_pause_of_the_machine_is_no_part_of_what_a_fault_costs(part: str) -> None:
    known = truth("slow", *SLOW.injected, faulted_ns=(150,) * 30, healthy_ns=((100,) * 30,) * 2)
    paused = (150,) * 20 + (9000,) + (150,) * 9 if part == "faulted_ns" else (((100,) * 29 + (9000,)), (100,) * 30)
    assert msgspec.structs.replace(known, **{part: paused}).saving_ns == known.saving_ns


def test_clocks_are_compared_with_that_of_the_first_rank() -> None:
    offsets = {"0": (0, 0, 0), "1": (950, 900, 980), "2": (-2_000, -2_500, -1_500)}
    row = score(result(offsets=offsets), truth("skew", skew_ns={0: 1_000, 1: 2_000, 2: -1_100}), BUILT)
    assert (row.clock_error_ns, row.clock_covered) == (100, 0.5)


def test_clocks_of_one_host_are_no_achievement_unless_they_were_wrong() -> None:
    same = {"0": (0, 0, 0), "1": (0, 0, 0)}
    assert score(result(offsets=same), truth("none"), BUILT).clock_error_ns is None
    assert score(result(offsets=same), truth("skew", skew_ns={1: 7.0}), BUILT).clock_error_ns == 7


def test_an_analysis_that_fails_is_a_row() -> None:
    def broken() -> dict[str, Any]:
        raise ValueError("no\nsuch thing")

    row = attempt(SLOW, broken, BUILT)
    assert (row.verdict, row.found, row.detected) == ("failed", "ValueError: no such thing", False)
    assert attempt(HANG, broken, BUILT).verdict == "not yet"
    assert attempt(SLOW, lambda: result(finding((2,))), BUILT).verdict == "right"


def test_wilson_interval_of_a_known_case() -> None:
    share = wilson(8, 10)
    assert (share.value, share.lo, share.hi) == pytest.approx((0.8, 0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 20).hi == pytest.approx(0.161125, abs=1e-6)
    assert wilson(0, 0).value is None


def test_spread_leaves_out_what_is_not_known() -> None:
    assert msgspec.structs.astuple(spread([1.0, None, 3.0])) == pytest.approx((2, 2.0, 2.8, 3.0))
    assert spread([None]).median is None


def some_rows() -> list[Row]:
    seen = {"0": (0, 0, 0), "1": (40, -50, 50)}
    return [
        score(result(finding((2,)), offsets=seen), SLOW, BUILT),
        score(result(finding((1,), recoverable_wall_ns=1_250)), SLOW, BUILT),
        score(result(), ONE_WAY, BUILT),
        score(result(finding((2,), ("2:1",), recoverable_wall_ns=1_100), offsets={**seen, "1": (90, 80, 99)}), NIC, BUILT),
        score(result(), truth("none"), BUILT),
        score(result(finding((1,))), truth("skew"), BUILT),
        score(result(), HANG, BUILT),
        attempt(truth("none"), lambda: {}["findings"], BUILT),
    ]


def test_summary_counts_every_run_once() -> None:
    s = summarise(some_rows())
    assert (s.right.count, s.right.of) == (2, 4)
    assert (s.precision.count, s.precision.of) == (3, 4)
    assert (s.recall.count, s.recall.of) == (3, 4)
    assert (s.false_findings.count, s.false_findings.of) == (1, 2), "a failed analysis is not a quiet one"
    assert s.false_per_20 == pytest.approx((10.0, 20 * wilson(1, 2).lo, 20 * wilson(1, 2).hi))
    assert (s.counterfactual.n, s.counterfactual.median) == (4, pytest.approx(0.375))
    assert s.counterfactual_no_change == 1
    assert (s.onset_steps.n, s.onset_steps.median) == (2, 0)
    assert (s.clock_ns.n, s.clock_ns.max) == (1, 40)
    assert s.clock_covered == 0
    assert (s.closes.count, s.closes.of) == (6, 6)
    assert (s.not_yet, s.failed, s.extra) == ({"hang": 1}, 1, 1)


def test_summary_of_nothing_has_no_figures() -> None:
    s = summarise([])
    assert (s.right.value, s.false_per_20, s.counterfactual.median, s.clock_covered) == (None, (), None, None)
    assert table.lines(s)


def test_the_table_has_every_cell_and_names_every_failure() -> None:
    rows = some_rows()
    grid = table.matrix(rows)
    assert grid.header == ["fault", "ddp", "all"]
    assert {fault: cell for fault, cell, _ in grid.body} == {
        "none": "1/2", "skew": "0/1", "slow": "1/2", "link": "1/1", "link-one-way": "0/1", "hang": "not yet",
    }  # fmt: skip
    console = Console(width=100, file=io.StringIO())
    table.show(rows, console)
    text = console.file.getvalue()
    assert "slow × ddp, 4 ranks, seed 1: wrong place; found straggler cascade, rank 1, steps 10–30; wanted" in text
    assert text.count("× ddp") == 4
    assert "Not yet (their mode is not built): hang 1." in text


def test_files_hold_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    rows = some_rows()
    assert table.write(rows, tmp_path) == [table.NO_PLOTS]
    whole = json.loads((tmp_path / "matrix.json").read_text())
    assert msgspec.convert(whole["rows"], list[Row]) == rows
    assert msgspec.convert(whole["summary"], Summary) == summarise(rows)
    with (tmp_path / "matrix.csv").open(newline="") as file:
        assert [line["verdict"] for line in csv.DictReader(file)] == [row.verdict for row in rows]
    page = (tmp_path / "matrix.md").read_text()
    assert "| slow | 1/2 | 1/2 |" in page
    assert all(f"- {line}" in page for line in table.failures(rows))


def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    assert table.write(some_rows(), tmp_path) == []
    for name, word in (("matrix", "link-one-way"), ("counterfactual", "measured saving, s")):
        assert word in (tmp_path / f"{name}.svg").read_text()
    assert list(table.plots([score(result(), truth("none"), BUILT)])) == ["matrix"]


def test_runs_with_a_past_and_without_with_a_baseline_and_without_stand_apart() -> None:
    quiet = score(result(), truth("contention"), BUILT)
    missed = score(result(), SET, BUILT)
    rows = [
        score(result(finding((2,))), SLOW, BUILT),
        beside_baseline(missed, score(result(finding((2, 5))), SET, BUILT)),
        beside_baseline(quiet, score(result(finding((1,))), truth("contention"), BUILT)),
    ]
    s = summarise(rows)
    kinds = {(g.past, g.place): (g.alone.count, g.alone.of, g.with_baseline.count, g.with_baseline.of) for g in s.groups}
    assert kinds == {
        (True, "ranks"): (1, 1, 0, 0), (True, "all"): (1, 1, 0, 0),
        (False, "sets of ranks"): (0, 1, 1, 1), (False, "all"): (0, 1, 1, 1), (None, "all"): (0, 1, 1, 1),
    }  # fmt: skip
    assert "sets of ranks, from the start" in table.groups(s).markdown()
    assert [line.split(";")[0] for line in table.failures(rows)] == [
        "contention × ddp, 4 ranks, seed 1: with a baseline false finding",
        "slow, 2 places, from the start × ddp, 4 ranks, seed 1: missed",
    ]
