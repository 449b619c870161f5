"""The failure envelope as a picture: letters, shares, the job itself and its interval."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rich.cells import cell_len

from results import RESULT, filled
from taut.diagnose.failure_envelope import LOSSES
from taut.render.analysis_screen import render
from taut.render.envelope_screen import MODES
from taut.render.terminal import Screen
from taut.result.types import AnalysisResult


def cell(ranks: int, spread: float, gates: float) -> dict[str, Any]:
    """Instability that grows with ranks; both where ranks differ by 4 %, nothing where they are few and alike."""
    took = {"structural instability": ranks / 200, "work imbalance": spread}
    modes = ["structural instability"] if ranks > 8 or spread > 0.01 else []
    modes += ["work imbalance"] if spread == 0.04 else []
    losses = {mode: {"value": share} for mode, share in took.items()}
    return {
        "ranks": ranks, "heterogeneity": spread, "intensity": gates, "dominates": "jitter wait",
        "loss_share": sum(took.values()), "modes": modes, "losses": losses,
    }  # fmt: skip


ENVELOPE: dict[str, Any] = {
    "point": {
        "ranks": {"value": 8, "lo": 8, "hi": 8},
        "heterogeneity": {"value": 0.02, "lo": 0.015, "hi": 0.035},
        "intensity": {"value": 3.0, "lo": 3.0, "hi": 3.0},
    },
    "map": [cell(n, spread, gates) for n in (8, 32, 128) for spread in (0.01, 0.02, 0.04, 0.08) for gates in (3.0, 6.0, 12.0)],
}


def drawn(width: int = 80, **able: bool) -> str:
    return render(filled(AnalysisResult, copy.deepcopy(RESULT) | {"envelope": ENVELOPE}), Screen(width, **able))


def test_rows_are_heterogeneity_columns_ranks_and_grids_intensities() -> None:
    lines = drawn().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Failure envelope"))
    assert lines[at + 1].split("  ")[-1].strip() == "12 gates a step"
    assert lines[at + 2].split() == ["ranks", *["8", "32", "128"] * 3]
    assert [line.split()[0] for line in lines[at + 3 : at + 7]] == ["±1", "±2", "±4", "±8"]


def test_the_job_stands_in_brackets_and_what_its_interval_reaches_in_parentheses() -> None:
    lines = [line for line in drawn().splitlines() if line.startswith(" ±")]
    assert "[S   4]" in lines[1]
    assert "(SW  8)" in lines[2]
    assert "(" not in lines[0] + lines[3]
    assert "[ ] this job: 8 ranks, ±2 (1.5–3.5) %, 3 gates a step" in drawn()


def test_two_letters_are_an_overlap_and_a_dot_is_nothing() -> None:
    shown = drawn()
    assert "SW 20" in shown
    assert "two letters: both" in " ".join(shown.split())
    row = next(line for line in shown.splitlines() if line.startswith(" ±1 %"))
    assert row.split()[2] == "·"
    assert "S  structural instability" in shown
    assert "W  work imbalance" in shown


def test_where_one_mode_dominates_everywhere_the_next_is_named() -> None:
    lone = [one | {"modes": ["structural instability"]} for one in ENVELOPE["map"]]
    result = filled(AnalysisResult, copy.deepcopy(RESULT) | {"envelope": ENVELOPE | {"map": lone}})
    shown = " ".join(render(result, Screen(80)).split())
    assert "behind it: work imbalance 2 % here; work imbalance 8 % at 128 ranks, ±8 %, 12 gates a step" in shown
    assert "behind it" not in drawn()


def test_filled_cells_have_the_colour_of_their_mode() -> None:
    assert "\x1b[30;48;5;" in drawn(styled=True, color=True) or "\x1b[30;4" in drawn(styled=True, color=True)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_it_fits_and_narrow_screens_stack_the_grids(width: int) -> None:
    for shown in (drawn(width), drawn(width, unicode=False)):
        lines = shown.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("Failure envelope"))
        assert max(map(cell_len, lines[at:])) <= width
        assert sum("gates a step" in line and "job" not in line for line in lines[at:]) >= (3 if width == 40 else 1)


def test_modes_have_letters_of_their_own() -> None:
    letters = [letter for letter, _ in MODES.values()]
    assert len(set(letters)) == len(letters)
    assert len(LOSSES) == 6
