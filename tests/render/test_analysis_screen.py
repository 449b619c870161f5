"""The screen of `taut analyze`: what stands where, for small results written by hand."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
from rich.cells import cell_len

from results import CAUSE, FINDING, RESULT, ROW, filled
from taut.ledger.charge import FATES
from taut.render.analysis_screen import render, render_change
from taut.render.terminal import FATE_STYLE, Screen
from taut.result.types import AnalysisResult, WhatIfResult

SHARES = tuple(
    f"{word}_share" for word in ("busy", "compute", "communication", "hidden", "exposed", "copy", "exposed_copy", "idle")
)


def screen_of(change: dict[str, dict[str, Any]] | None = None, screen: Screen | None = None) -> str:
    result = copy.deepcopy(RESULT)
    for key, values in (change or {}).items():
        if isinstance(values, dict):
            result.setdefault(key, {}).update(values)
        else:
            result[key] = values
    return render(filled(AnalysisResult, result), screen or Screen(80))


def test_the_verdict_comes_first_the_fidelity_last() -> None:
    lines = screen_of().splitlines()
    assert lines[0] == "Rank 2 holds the job up."
    assert lines[-1].endswith("no clock offset applied") or lines[-2].startswith("Fidelity:")
    line = "replay exact · 93 % of starts explained · without host gaps the job would take 1.2 % less time · 1 edge dropped"
    assert line in " ".join(lines)


def test_streams_that_wait_for_each_other_are_no_host_gaps() -> None:
    """A replay without gaps lets streams run beside each other: more than the device was idle is not the host's."""
    use = dict.fromkeys(SHARES, 0.0) | {"busy_share": 0.998, "idle_share": 0.002}
    device = {"windows": [], "ranks": {"0": {"host": None, "gpu": None, "step_ns": 1.0, **use}}}
    shown = " ".join(screen_of({"device": device}).split())
    assert "if no stream waited for another, and without gaps, the job would take 1.2 % less time" in shown


def test_the_job_line_says_what_was_seen_and_what_is_missing() -> None:
    shown = screen_of()
    assert "toy · 4 of 8 ranks · 4 steps · wall 90.0 ms · 22.5 ms a step · compute-bound" in shown
    assert "partial: rank 5 missing" in shown


def test_a_finding_says_where_what_it_costs_what_it_gives_and_why() -> None:
    shown = screen_of()
    assert "straggler cascade · rank 2 · stage 1 · steps 0–3 · confidence 97.0 %" in shown
    assert "recoverable 9.00 ms = 10.0 % of wall · lost 40.0 ms rank time" in shown
    assert "because it is slow" in shown


def test_a_finding_of_nobody_says_what_it_costs_and_which_policy_recovers_it() -> None:
    nobody = FINDING | {"mode": "structural instability", "ranks": [], "stages": [], "loss_share": {"value": 0.18}}
    shown = screen_of({"findings": [nobody]})
    assert "structural instability · steps 0–3 · confidence" in shown
    assert "costs 18.0 % of wall · lost 40.0 ms rank time" in shown
    policy = {"name": "local-steps=4", "saved_wall_ns": 9_000_000}
    assert "costs 18.0 % of wall, local-steps=4 recovers 10.0 %" in screen_of({"findings": [nobody | {"policy": policy}]})


def test_a_cause_has_blame_and_recoverable_side_by_side() -> None:
    (line,) = (line for line in screen_of().splitlines() if "matmul" in line)
    assert line.split() == ["rank", "2", "matmul", "40.0", "ms", "50.0", "%", "9.00", "ms", "10.0", "%"]


def test_a_link_is_named_as_a_link_and_no_gain_as_none() -> None:
    row = {**ROW, "cause": {**CAUSE, "link": "2:1"}, "recoverable_wall_ns": -5}
    (line,) = (line for line in screen_of({"blame": [row]}).splitlines() if "matmul" in line)
    assert line.split()[:3] == ["link", "2:1", "matmul"]
    assert line.endswith("none")


def test_fates_are_listed_with_share_and_small_ones_by_name_only() -> None:
    shown = screen_of()
    assert "██  productive  83.3 %  300 ms  xx  fault wait  16.6 %  59.9 ms" in shown
    assert "below 0.1 %: gap" in shown
    assert "unexplained" not in shown


def test_the_bar_fills_its_line_in_proportion() -> None:
    lines = screen_of().splitlines()
    bar = lines[next(i for i, line in enumerate(lines) if line.startswith("Where 360 ms")) + 1].strip()
    assert set(bar) == {"█", "x"}
    assert (len(bar), bar.count("█")) == (78, 65)


def test_a_price_shows_for_causes_findings_and_fates() -> None:
    """A finding costs all ranks for as long as mending it would save, never what waits sum up to."""
    entries = [
        {**entry, "money": amount} for entry, amount in zip(RESULT["ledger"]["entries"], ("30", "5.9", "0.1", "0"), strict=True)
    ]
    cost = {"window": "3.600000", "per_hour": "144.00", "per_day": "3456.00", "currency": "EUR"}
    shown = screen_of({"ledger": {"currency": "EUR", "entries": entries}, "findings": [{**FINDING, "money": cost}]})
    assert "36.00 EUR" in shown
    assert "3.60 EUR: 144.00 EUR an hour, 3,456.00 EUR a day" in " ".join(shown.split())
    assert " 4.00 EUR" not in shown
    assert "5.90 EUR" in shown


def test_energy_that_was_measured_says_by_what_how_much_of_it_and_between_which_ends() -> None:
    entries = [{**entry, "joules": 9e5} for entry in RESULT["ledger"]["entries"]]
    told = {"joules": {"value": 3.6e6, "lo": 3.6e6, "hi": 4.5e6}, "source": "counter", "coverage": 0.9}
    measured = screen_of({"ledger": {"entries": entries, "energy": told}}, Screen(120))
    assert "1 kWh (by counter, 90 % of the time, 1-1.25)" in measured
    given = screen_of({"ledger": {"entries": entries, "energy": {**told, "source": "states"}}}, Screen(120))
    assert "1 kWh" in given
    assert next(line for line in given.splitlines() if "kWh" in line).rstrip().endswith("1 kWh")


def test_with_a_single_step_the_gates_say_who_was_last() -> None:
    gates = [{"gate": 7, "class": "nccl all-reduce", "step": 0, "members": 8, "last_rank": 5, "late_ns": 466_000}]
    shown = screen_of({"job": {"steps": 1}, "gates": gates})
    assert "rank 5  466 µs" in shown
    assert "Who came last" not in screen_of({"gates": gates})


def test_collectives_seen_from_one_side_have_an_upper_bound_of_wait() -> None:
    row = {"class": "nccl all-reduce", "bytes": 25_000_000, "count": 1616, "rank_ns": 298_000_000, "floor_ns": 4_000}
    shown = screen_of({"collectives": [{**row, "wait_upper_bound_rank_ns": 291_000_000}]})
    (line,) = (line for line in shown.splitlines() if "nccl all-reduce" in line)
    assert line.split()[2:] == ["25.0", "MB", "1,616", "298", "ms", "291", "ms", "4.00", "µs"]


def test_coupling_says_in_a_line_how_far_a_delay_travels_and_who_absorbs_it() -> None:
    """Nothing where no delay could be followed; the class of the absorber is a name from a trace."""
    absorbed = [{"rank": 2, "class": "all\x1b[2J", "share": 0.8}]
    other = {"rank": 1, "left_by_step": [0.25]}
    response = {
        "rank": 3, "reached_ranks": 4, "within_steps": 1, "left_by_step": [1.0, 0.6], "absorbed_by": absorbed,
        "median_rank": other,
    }  # fmt: skip
    ranks = {"ranks": 4, "world_size": 4}
    shown = " ".join(screen_of({"job": ranks, "coupling": {"response": response}}).split())
    assert "A delay on rank 3 reaches all 4 ranks within 1 step; 40.0 % of it is absorbed, most of all by all" in shown
    assert "on rank 2; of one on rank 1, 75.0 % is absorbed." in shown
    assert "\x1b" not in shown
    taut = response | {"left_by_step": [1.0, 1.0], "median_rank": None, "reached_ranks": 3}
    shown = " ".join(screen_of({"job": ranks, "coupling": {"response": taut}}).split())
    assert "A delay on rank 3 reaches 3 of 4 ranks within 1 step undiminished." in shown
    assert "A delay" not in screen_of({"coupling": {"response": None}})


def test_clock_offsets_that_were_applied_are_reported() -> None:
    clock = {"offset_ns": {"0": {"value": 0}, "3": {"value": -2_000_000}}, "drift_ppm": {}, "residual_ns": 900}
    assert "most to rank 3: -2.00 ms" in " ".join(screen_of({"fidelity": {"clock": clock}}).split())


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    row = {**ROW, "cause": {**CAUSE, "class": "void at::native::elementwise_kernel<128, 2, at::native::gpu>" * 3}}
    shown = screen_of({"blame": [row]}, Screen(width))
    assert max(map(cell_len, shown.splitlines())) <= width


def test_figures_stay_whole_where_a_long_name_must_be_cut() -> None:
    row = {**ROW, "cause": {**CAUSE, "class": "y" * 200}}
    (line,) = (line for line in screen_of({"blame": [row]}).splitlines() if "yyy" in line)
    assert "…" in line
    assert line.split()[-6:] == ["50.0", "%", "9.00", "ms", "10.0", "%"]


def test_markup_and_escapes_in_names_are_shown_not_obeyed() -> None:
    row = {**ROW, "cause": {**CAUSE, "class": "[red]\x1b[31mevil[/red] :smile:"}}
    shown = screen_of({"blame": [row], "job": {"name": "a\nb"}}, Screen(120))
    assert "[red]\\x1b[31mevil[/red] :smile:" in shown
    assert "a\\nb · " in shown


def test_ascii_screens_get_ascii() -> None:
    assert screen_of({"job": {"name": "größe"}}, Screen(80, unicode=False)).isascii()


def test_colour_only_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31mRank 2" in screen_of(screen=Screen(80, styled=True, color=True))
    assert "\x1b[1mRank 2" in screen_of(screen=Screen(80, styled=True, color=False))
    assert "\x1b" not in screen_of(screen=Screen(80))


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_no_color_and_dumb_terminals_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Screen.of(Terminal()).color
    monkeypatch.setenv("NO_COLOR", "1")
    assert (Screen.of(Terminal()).styled, Screen.of(Terminal()).color) == (True, False)
    monkeypatch.setenv("TERM", "dumb")
    assert not Screen.of(Terminal()).styled
    assert not Screen.of(io.StringIO()).styled


def test_every_fate_of_the_ledger_has_a_mark_of_its_own() -> None:
    assert set(FATE_STYLE) == set(FATES), "give a new fate a colour and a mark"
    for part in zip(*FATE_STYLE.values(), strict=True):
        assert len(set(part)) == len(part)


@pytest.mark.parametrize(
    ("changed", "gain"), [(60, "saves 40 ns (40.0 %)"), (150, "costs 50 ns (50.0 %)"), (100, "no difference")]
)
def test_a_change_is_two_bars_on_one_scale(changed: int, gain: str) -> None:
    answer = {
        "actual_wall_ns": 100, "changed_wall_ns": changed, "saved_wall_ns": 100 - changed,
        "saved_share": (100 - changed) / 100, "changes": ["rank 2 at reference"],
    }  # fmt: skip
    before, after, why = render_change(filled(WhatIfResult, answer), Screen(80)).splitlines()
    assert gain in after
    assert why == "rank 2 at reference"
    assert round(30 * 100 / max(100, changed)) == before.count("█")


def test_components_stand_under_the_verdict_and_their_names_are_data() -> None:
    result = copy.deepcopy(RESULT)
    result["verdict"]["components"] = "1 of 2 components inside their limits; \x1b[2Jgpu is not"
    assert render(filled(AnalysisResult, result), Screen()).splitlines()[:2] == [
        "Rank 2 holds the job up.",
        r"1 of 2 components inside their limits; \x1b[2Jgpu is not.",
    ]


def test_the_regime_and_what_was_kept_have_a_line_each() -> None:
    back = {"value": 0.93, "lo": 0.9, "hi": 0.95}
    regime = {"class": "stable", "reserve": {"value": 16.0, "lo": 16.0, "hi": None}, "marginal_return": back, "pays": 0.5}
    log = {"kept_steps": 90, "executed_steps": 100, "kept_steps_per_rank_hour": {"value": 12.5, "lo": 11.0, "hi": 13.0}}
    shown = " ".join(render(filled(AnalysisResult, RESULT | {"regime": regime, "progress": log}), Screen(80)).split())
    assert "Regime: stable · one more accelerator adds 93.0 % of an accelerator's throughput" in shown
    assert "jitter may grow at least 16.0-fold before it adds less than 50.0 %" in shown
    assert "Progress: 90 of 100 executed steps kept · 12.5 a rank-hour" in shown
