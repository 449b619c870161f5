"""A comparison as pictures: step times of the runs, and how a quantity goes from run to run. Needs altair."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from taut.core.errors import UsageError
from taut.render.brief.canvas import COLOURS
from taut.render.chart_style import WIDTH, Row, altair, bars, clean, data, shown, titled
from taut.render.compare_screen import LABELS, _names, _say
from taut.render.text import duration
from taut.result.types import Estimate

if TYPE_CHECKING:
    from altair import LayerChart

    from taut.result.types import ComparedRun, CompareResult, Trend

SCALES = {"step_ns": (1e-6, "ms"), "energy_per_kept_step_j": (1.0, "J"), "cost_per_kept_step": (1.0, "")}
"""Quantity → what it is multiplied by, and the unit that it then has; all others are shares."""


class ComparePlots:
    """The pictures of a comparison: ``plot.steps()``, ``plot.trend()``."""

    def __init__(self, result: CompareResult) -> None:
        self._result = result

    def steps(self) -> LayerChart:
        """The median step of each run, in their order."""
        return steps(self._result)

    def trend(self, quantity: str = "step_ns") -> LayerChart:
        """A quantity of each run with its interval, and its trend where there is one: ``step_ns``, ``waiting_share`` …"""
        return trend(self._result, quantity)


def steps(result: CompareResult) -> LayerChart:
    """A bar for each run."""
    names = _names([run.run for run in result.runs])
    rows: list[Row] = [
        {"name": shown(names[run.run]), "value": run.step_ns / 1e6, "text": duration(run.step_ns), "colour": COLOURS["whole"]}
        for run in result.runs
    ]
    return bars(rows, titled("Median step of each run", result.verdict.text), "median step, ms", ",.3~f")


def trend(result: CompareResult, quantity: str) -> LayerChart:
    """Points with their intervals, and the line of the trend."""
    rows = _points(result, quantity)
    found = next((one for one in result.trends if one.quantity == quantity and one.slope is not None), None)
    alt, (scale, unit) = altair(), SCALES.get(quantity, (100.0, "%"))
    label = f"{LABELS[quantity]}, {unit or next((run.currency for run in result.runs if run.currency), '')}"
    title = titled(f"{LABELS[quantity].capitalize()} from run to run", _trend_words(found, result))
    base = alt.Chart(data(rows), width=WIDTH, height=240, title=title)
    x = alt.X(
        "name:N",
        sort=[row["name"] for row in rows],
        axis=alt.Axis(title="run", grid=False, labelAngle=0, labelOverlap=True, labelLimit=120),
    )
    y = alt.Y("value:Q", axis=alt.Axis(title=shown(label), gridColor="#eeeeee"))
    points = base.mark_point(filled=True, size=60, opacity=1, color=COLOURS["whole"]).encode(x, y)
    ends = base.mark_rule(color=COLOURS["whole"]).encode(x, alt.Y("lo:Q"), alt.Y2("hi:Q"))
    line = [] if found is None or found.slope is None else [_line(rows, float(found.slope.value) * scale, x)]
    return clean(alt.layer(ends, points, *line))


def _points(result: CompareResult, quantity: str) -> list[Row]:
    """The runs that tell a quantity, with its interval."""
    if quantity not in LABELS:
        raise UsageError(f"no quantity {quantity!r}: there are {', '.join(LABELS)}")
    names, scale = _names([run.run for run in result.runs]), SCALES.get(quantity, (100.0, "%"))[0]
    rows: list[Row] = []
    for place, run in enumerate(result.runs):
        if getattr(run, quantity) is not None:
            value, low, high = (scale * one for one in _value(run, quantity))
            rows.append({"place": place, "name": shown(names[run.run]), "value": value, "lo": low, "hi": high})
    if not rows:
        raise UsageError(f"{quantity}: no run tells it")
    return rows


def _value(run: ComparedRun, quantity: str) -> tuple[float, float, float]:
    """A quantity and the ends of its interval; both the quantity itself where it has none."""
    found: Estimate | float | str = getattr(run, quantity)
    if isinstance(found, Estimate):
        low, high = (found.value if end is None else end for end in (found.lo, found.hi))
        return float(found.value), float(low), float(high)
    return (float(found),) * 3


def _line(rows: Sequence[Row], slope: float, x: object) -> LayerChart:
    """The trend, through the middle of the points."""
    alt = altair()
    middle, level = (median(float(row[key]) for row in rows) for key in ("place", "value"))
    ends: list[Row] = [
        {"name": row["name"], "value": level + slope * (float(row["place"]) - middle)} for row in (rows[0], rows[-1])
    ]
    drawn: LayerChart = alt.Chart(data(ends)).mark_line(strokeDash=[5, 3], color=COLOURS["slow"]).encode(x, alt.Y("value:Q"))
    return drawn


def _trend_words(found: Trend | None, result: CompareResult) -> str:
    """The trend in words."""
    if found is None or found.slope is None:
        return "" if len(result.runs) > 2 else "a trend needs three runs"
    currency = next((run.currency for run in result.runs if run.currency), None)
    ends = (found.slope.value, found.slope.lo, found.slope.hi)
    value, low, high = (_say(found.quantity, end, currency, signed=True) for end in ends)
    chance = "" if found.q is None else f", q {found.q:.2g}"
    return f"{value} a run ({low} to {high}){chance}"
