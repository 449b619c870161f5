"""Control loops by name: a configuration of loops, or the loops of a scenario, reviewed before anything runs."""

from __future__ import annotations

from pathlib import Path

from taut.control.review import review
from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.project.workload import KEYS, workload_of
from taut.read.actions.loops_config import Loop, loops
from taut.read.scenario_file import load
from taut.result.types import ReviewResult


def review_of(named: str | Path) -> ReviewResult | None:
    """What would fight in a scenario, all of it deployed at once; None where it has no loops that could."""
    found = loops_named(named)
    return review((), found) if found else None


def loops_named(named: str | Path) -> tuple[Loop, ...]:
    """The loops of a scenario; none where it has none that could fight."""
    return _of_scenario(*load(named), str(named))


def loops_of(named: str | Path) -> tuple[Loop, ...]:
    """The loops of a TOML file of ``[[loop]]`` tables, of a scenario file, or of a scenario that ships with taut."""
    table, text = load(named)
    if not any(key in table for key in KEYS):
        return loops(text, str(named))
    found = _of_scenario(table, text, str(named))
    if not found:
        why = f"a scenario of {workload_of(table, str(named)).name} has no control loops that could fight"
        raise InputRefused(named, why, "give one with [loops] or [agents], or a TOML file of [[loop]] tables")
    return found


def _of_scenario(table: dict[str, Json], text: str, label: str) -> tuple[Loop, ...]:
    kind = workload_of(table, label)
    scenario, _ = kind.parse(table, label, text)
    return kind.loops(scenario)
