"""A forecast as pictures: step time or throughput against ranks, and what policies give. Needs altair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from taut.core.errors import TautError, UsageError
from taut.render.brief.canvas import COLOURS
from taut.render.chart_style import WIDTH, Row, altair, bars, clean, data, shown, titled
from taut.render.forecast_screen import threshold
from taut.render.text import count, percent
from taut.render.workload_words import words_of

if TYPE_CHECKING:
    from altair import LayerChart

    from taut.result.types import Forecast, PolicyGain, ProjectResult, Threshold

LINES = ("#0072B2", "#D55E00")
"""Of the first and of the second scenario."""
GUESS = "white"
REFUSED = 3
"""Policies that are refused, named below the title at most."""
Of = Literal["step", "throughput"]


class ForecastPlots:
    """The pictures of a forecast: ``plot.growth()``, ``plot.policies()``."""

    def __init__(self, *results: ProjectResult) -> None:
        self._results = results

    def growth(self, of: Of = "step") -> LayerChart:
        """Step time, or throughput, against ranks, with its interval, and where the next accelerator stops paying."""
        if of not in ("step", "throughput"):
            raise UsageError(f"no picture of {of!r}: there are 'step' and 'throughput'")
        return growth(self._results, of)

    def policies(self) -> LayerChart:
        """What each policy gives, alone and together, at the largest scale."""
        return policies(self._results[0])


def growth(results: Sequence[ProjectResult], of: Of) -> LayerChart:
    """Lines over ranks with their bands; a threshold is a rule with a band of its own."""
    alt, words, names = altair(), words_of(results[0].workload), _names(results)
    rows = [row for place, one in enumerate(results) for row in _rows(names[place], one, of, LINES[place])]
    if not rows:
        raise TautError(f"no throughput is known of {', '.join(names)}: ask for plot.growth('step')")
    notes = ["band: 10–90 %" if of == "step" else "band: 80 % interval"] if any(row["lo"] != row["hi"] for row in rows) else []
    notes += ["hollow points are guesses"] if any(row["fill"] == GUESS for row in rows) else []
    what = f"{words.piece} time, s" if of == "step" else words.rate
    scales = sorted({int(row["ranks"]) for row in rows})
    axis = alt.Axis(title=f"{words.ranks}s", grid=False, values=scales, labelOverlap=True, format=",d")
    x = alt.X("ranks:Q", scale=alt.Scale(type="log", nice=False, padding=20), axis=axis)
    y = alt.Y("value:Q", axis=alt.Axis(title=what, gridColor="#eeeeee", format="~s" if of == "throughput" else "~g"))
    colour = alt.Color("name:N", scale=alt.Scale(domain=names, range=list(LINES)), legend=_legend(len(names)))
    base = alt.Chart(data(rows), width=WIDTH, height=260, title=_growth_title(results, what, notes))
    band = base.mark_area(opacity=0.18).encode(x, alt.Y("lo:Q"), alt.Y2("hi:Q"), colour)
    told = [alt.Tooltip(f"{one}:Q", format="~s") for one in ("ranks", "lo", "value", "hi")]
    points = base.mark_point(size=60, strokeWidth=1.6, opacity=1)
    points = points.encode(x, y, colour, fill=alt.Fill("fill:N", scale=None), tooltip=["name:N", *told])
    marked = [layer for one in results for layer in _limit(one.threshold, scales)]
    return clean(alt.layer(band, base.mark_line(strokeWidth=2).encode(x, y, colour), points, *marked))


def _growth_title(results: Sequence[ProjectResult], what: str, notes: Sequence[str]) -> dict[str, object]:
    """What is drawn, and where it stops paying."""
    called = words_of(results[0].workload).ranks
    limits = [threshold(one.threshold, called).partition(":")[0] for one in results if one.threshold]
    if len(results) > 1:
        limits = [f"{name}: {limit}" for name, limit in zip(_names(results), limits, strict=False)]
    return titled(f"{what.partition(',')[0].capitalize()} against {called}s", *limits, "; ".join(notes))


def _legend(series: int) -> object:
    return altair().Legend(title=None, orient="top") if series > 1 else None


def _names(results: Sequence[ProjectResult]) -> list[str]:
    """What each scenario is called; two of one name by their place."""
    names = [shown(one.scenario) for one in results]
    return names if len(set(names)) == len(names) else [f"{name} ({place + 1})" for place, name in enumerate(names)]


def _rows(name: str, result: ProjectResult, of: Of, colour: str) -> list[Row]:
    """The points of a scenario; a hollow one is a guess."""
    found: list[Row] = []
    for one in sorted(result.forecasts, key=lambda row: row.ranks):
        value = _step(one) if of == "step" else _rate(one)
        if value is not None:
            low, middle, high = value
            fill = colour if one.in_range else GUESS
            found.append({"name": name, "ranks": one.ranks, "value": middle, "lo": low, "hi": high, "fill": fill})
    return found


def _step(one: Forecast) -> tuple[float, float, float] | None:
    """A step, request or task in seconds: 10 %, median, 90 %."""
    low, middle, high = (one.step_ns.p10, one.step_ns.p50, one.step_ns.p90)
    if middle is None:
        return None
    return (middle if low is None else low) / 1e9, middle / 1e9, (middle if high is None else high) / 1e9


def _rate(one: Forecast) -> tuple[float, float, float] | None:
    """What is delivered a second, with its interval where it has one."""
    found = one.tokens_per_s_interval
    if found is not UNSET and found.lo is not None and found.hi is not None:
        return float(found.lo), float(found.value), float(found.hi)
    rates = (one.goodput_per_s, one.requests_per_s, one.tasks_per_s, one.tokens_per_s)
    known = next((float(rate) for rate in rates if isinstance(rate, float)), None)
    return None if known is None else (known, known, known)


def _limit(found: Threshold | None, scales: Sequence[int]) -> list[LayerChart]:
    """Where the next accelerator stops paying, as far as the picture goes."""
    alt, least, most = altair(), scales[0], scales[-1]
    if found is None or found.ranks is None or not least <= found.ranks <= most:
        return []
    low, high = max(found.lo or least, least), min(found.hi or most, most)
    base = alt.Chart(data([{"ranks": found.ranks, "lo": low, "hi": high, "text": f"stops paying at {found.ranks:,}"}]))
    band = base.mark_rect(opacity=0.12, color=COLOURS["waiting"]).encode(alt.X("lo:Q"), alt.X2("hi:Q"))
    rule = base.mark_rule(strokeDash=[4, 3], color="#333333").encode(alt.X("ranks:Q"))
    late = found.ranks > (least * most) ** 0.5
    words = base.mark_text(fontSize=12, align="right" if late else "left", dx=-6 if late else 6)
    return [band, rule, words.encode(alt.X("ranks:Q"), y=alt.value(8), text="text:N")]


def policies(result: ProjectResult) -> LayerChart:
    """A bar for each policy: what it changes of the rate."""
    gains = [one for one in result.gains or () if one.rate_change is not None]
    if not gains:
        raise TautError("no policies: the scenario compares none; give policies=[…] to taut.project")
    words = words_of(result.workload)
    rows: list[Row] = [
        {
            "name": shown(one.name.replace(",", " + ")),
            "value": change,
            "text": f"{100 * change:+.1f} %",
            "colour": COLOURS["whole" if one.together else "useful" if change >= 0 else "slow"],
        }
        for one in gains
        for change in [one.rate_change or 0.0]
    ]
    best = max(gains, key=lambda one: one.rate_change or 0.0)
    refused = [f"{one.name}: {one.refused}" for one in result.gains or () if one.refused]
    title = titled(f"{_policy_gain(best, words.rate)} on {count(best.ranks, words.ranks)}", *refused[:REFUSED])
    return bars(rows, title, f"change of {words.rate}", "+%")


def _policy_gain(best: PolicyGain, rate: str) -> str:
    """What a policy, or several together, give or cost."""
    several, change = best.name.count(",") + 1, best.rate_change or 0.0
    who = best.name if several == 1 else f"{several} policies together"
    verb = ("gives" if change >= 0 else "costs") if several == 1 else ("give" if change >= 0 else "cost")
    return f"{who} {verb} {percent(abs(change))} {'more' if change >= 0 else 'of the'} {rate}"
