"""Forecasts at several scales as a table, and the figures of one that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from taut.render.brief.document import Cell, Column, Grid, Mark
from taut.render.brief.written import share
from taut.render.text import UNKNOWN, three
from taut.render.workload_words import Words, words_of
from taut.result.types import Estimate, Forecast, ProjectResult

Of: TypeAlias = Callable[[Forecast], Estimate | None]
_Written: TypeAlias = Callable[[float], str]
LARGE = ((1e9, " billion"), (1e6, " million"))
LEVELS = {"measured": 90, "training": 80}
"""Workload → of 100 measured values, those that an interval of a forecast holds; the others' intervals hold 95."""


def level(grown: ProjectResult) -> int:
    """Of 100 measured values, those that an interval of a forecast holds."""
    return LEVELS.get(grown.workload, 95)


def limit_level(grown: ProjectResult) -> int:
    """The same of the interval of the limit."""
    return level(grown) if grown.workload == "measured" else 80


def kept(words: Words, row: Forecast) -> Estimate | None:
    """The effective share; of loops what accelerators are paid for."""
    found = row.effective_throughput_ratio if words.kept == "kept" else words.kept_of(row)
    return Estimate(value=found) if isinstance(found, float) else found


def step_ms(row: Forecast) -> Estimate | None:
    """The mean step, ms."""
    found = row.mean_step_ns
    if found is None:
        return None
    lo, hi = (None if end is None else end / 1e6 for end in (found.lo, found.hi))
    return Estimate(value=found.value / 1e6, lo=lo, hi=hi)


def delivered(row: Forecast) -> Estimate | None:
    """What is delivered a second: as promised where there is a promise."""
    if isinstance(row.goodput_per_s, float):
        return Estimate(value=row.goodput_per_s)
    if isinstance(row.tokens_per_s_interval, Estimate):
        return row.tokens_per_s_interval
    return None if row.tokens_per_s is None else Estimate(value=row.tokens_per_s)


def cost_of(row: Forecast) -> Estimate | None:
    """What a unit of work costs."""
    if isinstance(row.cost_per_unit_interval, Estimate):
        return row.cost_per_unit_interval
    return None if row.cost_per_unit is None else Estimate(value=row.cost_per_unit)


def _short_with_ends(found: Estimate) -> str:
    """A number with its interval, all in the same unit."""
    least, word = next(((least, word) for least, word in LARGE if abs(found.value) >= least), (1.0, ""))
    ends = "" if found.lo is None or found.hi is None else f" ({three(found.lo / least)}–{three(found.hi / least)})"
    return f"{three(found.value / least)}{word}{ends}"


def short(value: float) -> str:
    """A number in thousands, millions or billions."""
    for least, word in LARGE:
        if abs(value) >= least:
            return f"{three(value / least)}{word}"
    return three(value)


def forecast_table(grown: ProjectResult, rows: Sequence[Forecast], own: int, priced: bool) -> Grid:
    """A row for each scale; ``priced`` where prices are known elsewhere in the briefing."""
    words = words_of(grown.workload)
    costs = any(row.cost_per_unit is not None for row in rows)
    told = any(delivered(row) is not None for row in rows)
    today = rows[0] if grown.workload == "measured" else None
    columns = [
        Column("Accelerators", True), Column(words.rate if told else "Mean step, ms", True), Column(_useful(today), True),
        *([Column(words.cost(rows), True)] if costs else []), *([Column("Cost of the same work", True)] if today else []),
        Column("Bound by"), Column("Regime"), Column("Rests on"),
    ]  # fmt: skip
    cells = []
    for row in rows:
        cost = [*([_with_ends(cost_of(row), three)] if costs else []), *([_dearer(row, today)] if today else [])]
        cells.append(
            _row(row, _mine(grown) if row.ranks == own else "", words, delivered if told else step_ms, cost, bool(today))
        )
    return Grid(f"{grown.scenario} at other scales", columns, cells, " ".join(_notes(grown, rows, told, priced or costs)))


def _notes(grown: ProjectResult, rows: Sequence[Forecast], told: bool, priced: bool) -> Iterator[str]:
    yield f"In parentheses: intervals that hold {level(grown)} of 100."
    if grown.workload == "measured":
        if _mine(grown) != "this job":
            yield "Mended: after the repairs that the projection assumes, so a step is shorter than in the run."
        yield f"Cost of the same work: beside that on {rows[0].ranks:,}, each rank as dear and with as much work."
    elif told and not priced:
        yield "No price is given, so that costs are not known: --gpu-hour."
    guessed = next((row for row in rows if not row.in_range and isinstance(row.beyond, list) and row.beyond), None)
    if guessed is not None and isinstance(guessed.beyond, list):
        yield f"Extrapolated from {guessed.ranks:,} on: {guessed.beyond[0]}."


def _useful(today: Forecast | None) -> str:
    """What a share of a forecast is called: of a measured job it compares steps."""
    return "Effective share" if today is None else "Step speed against ideal"


def _dearer(row: Forecast, today: Forecast) -> str:
    """What the same work costs at another scale, a rank's price as it is."""
    now, then = today.mean_step_ns, row.mean_step_ns
    return UNKNOWN if now is None or then is None or not now.value else f"{three(then.value / now.value)} ×"


def _mine(grown: ProjectResult) -> str:
    """What the row at the job's own scale is: the job as it ran, or with what was found mended."""
    assumed = grown.assumed if isinstance(grown.assumed, list) else []
    return "this job, mended" if any(line.startswith("mended first") for line in assumed) else "this job"


def _row(row: Forecast, own: str, words: Words, first: Of, cost: Sequence[str], measured: bool) -> list[Cell | str]:
    regime = (row.regime.kind if row.regime else None) or UNKNOWN
    mark: Mark = "good" if regime == "stable" else "bad" if regime == "unstable" else "plain"
    known = ("the run" if own else "the run, widened") if measured else "a known fabric"
    return [
        Cell(f"{row.ranks:,}{f' ({own})' if own else ''}", "strong" if own else "plain"),
        _with_ends(first(row), short),
        share(kept(words, row)),
        *cost,
        row.bound if isinstance(row.bound, str) else row.dominant or UNKNOWN,
        Cell(regime, mark),
        known if row.in_range else "extrapolation",
    ]


def _with_ends(found: Estimate | None, written: _Written) -> str:
    if found is None:
        return UNKNOWN
    if written is short:
        return _short_with_ends(found)
    ends = f" ({written(found.lo)}–{written(found.hi)})" if found.lo is not None and found.hi is not None else ""
    return f"{written(found.value)}{ends}"
