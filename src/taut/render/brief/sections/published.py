"""What was published for the very system that a scenario describes, beside what is computed of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taut.render.brief.document import Cell, Column, Grid
from taut.render.brief.written import plain, share
from taut.render.text import count
from taut.result.brief_types import BriefedScenario
from taut.result.types import Estimate, ProjectResult

PUBLISHED: dict[str, tuple[str, Callable[[Estimate | None], str]]] = {
    "mfu": ("Arithmetic, of what accelerators can do", share),
    "tflops_per_device": ("Arithmetic of an accelerator, TFLOP/s", plain),
    "availability": ("Time that failures and checkpoints leave", share),
}
"""Figures that publications give of systems such as those that ship."""


def published(scenario: BriefedScenario) -> Grid | None:
    """A table of figures; nothing where none was published."""
    keys = [key for key in PUBLISHED if key in scenario.declared and _figure(scenario.result, key) is not None]
    return _beside(scenario, keys) if keys else None


def _figure(found: ProjectResult, key: str) -> Estimate | None:
    """A figure of the forecast at the scenario's own scale."""
    value = found.forecasts[-1].get(key)
    return Estimate(value=value) if isinstance(value, float) else value if isinstance(value, Estimate) else None


def _beside(scenario: BriefedScenario, keys: Sequence[str]) -> Grid:
    """What was published for this very system, beside what is computed."""
    columns = [Column("Figure"), Column("Published", True), Column("Computed", True), Column("Source")]
    rows: list[list[Cell | str]] = []
    for key in keys:
        name, written = PUBLISHED[key]
        values = [written(scenario.declared[key]), written(_figure(scenario.result, key))]
        rows.append([name, *values, scenario.declared_by.get(key, "")])
    note = f"On {count(scenario.result.ranks, 'accelerator')}. Nothing was fitted to what is published."
    return Grid(f"{scenario.result.scenario}: published beside computed", columns, rows, note)
