"""A run as pictures: where rank time went, steps, who is late when, who waits for whom, ranks. Needs altair.

Everything that is drawn was computed before (``views/``); colours are those of briefings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from taut.core.errors import TautError
from taut.render.brief.canvas import COLOURS
from taut.render.brief.sections.money import FATE_COLOURS
from taut.render.chart_style import BAR, SHADES, WIDTH, Row, altair, bars, clean, data, names, shown, titled
from taut.render.text import duration, money, percent

if TYPE_CHECKING:
    from altair import LayerChart

    from taut.render.brief.document import Colour
    from taut.result.brief_types import RankLateness
    from taut.result.types import RankRow
    from taut.result.view_types import FateShare, LatenessMap, StepTimes

POINTS, RANKS = 1_000, 40
"""Points of a line, ranks as bars, at most."""
MS = 1e6
SHARES: dict[str, Colour] = {
    "compute": "useful", "communication": "communication", "copy": "whole", "wait": "waiting", "gap": "gap",
}  # fmt: skip
"""Shares of a rank, in the order of their bars, and their colours."""
T = TypeVar("T")


class RunViews(Struct, frozen=True):
    """What can be drawn of a run; computed when it is asked for."""

    unit: str
    """What steps are: ``step``, or ``window``."""
    currency: str | None
    fates: Callable[[], list[FateShare]]
    steps: Callable[[], StepTimes | None]
    lateness: Callable[[], LatenessMap | None]
    waits: Callable[[], RankLateness | None]
    ranks: Callable[[], Sequence[RankRow]]


class RunPlots:
    """The pictures of a run: ``plot.fates()``, ``steps()``, ``lateness()``, ``waits()``, ``ranks()``."""

    def __init__(self, views: RunViews) -> None:
        self._views = views

    def fates(self) -> LayerChart:
        """Where rank time went, fate by fate."""
        return fates(_known(self._views.fates(), "no rank time: it was not traced"), self._views.currency)

    def steps(self) -> LayerChart:
        """Step times as observed, and with everything at its reference."""
        return steps(_known(self._views.steps(), "no steps: they were not traced"), self._views.unit)

    def lateness(self) -> LayerChart:
        """How late ranks come at gates, step by step."""
        return lateness(_known(self._views.lateness(), "nobody is late: the ranks meet at no gate"), self._views.unit)

    def waits(self) -> LayerChart:
        """Who caused whom to wait."""
        return waits(_known(self._views.waits(), "no waits: nobody caused anybody to wait"))

    def ranks(self) -> LayerChart:
        """What the time of each rank went to; those of findings first."""
        return ranks(_known(self._views.ranks(), "no ranks: they were not traced"))


def _known(found: T | None, why: str) -> T:
    """What there is to draw."""
    if found is None or found == []:
        raise TautError(why)
    return found


def fates(found: Sequence[FateShare], currency: str | None) -> LayerChart:
    """A bar for each fate, in the order of the ledger."""
    rows: list[Row] = [
        {
            "name": shown(one.fate),
            "value": one.share,
            "colour": COLOURS[FATE_COLOURS.get(one.fate, "other")],
            "text": percent(one.share) + (f", {shown(money(one.money, currency))}" if one.money else ""),
        }
        for one in found
    ]
    useful = sum(one.share for one in found if one.group == "useful")
    worst = max((one for one in found if one.group != "useful"), key=lambda one: one.share, default=None)
    loss = f"Largest loss: {worst.fate}, {percent(worst.share)}" if worst else ""
    return bars(rows, titled(f"{percent(useful)} of the rank time is productive", loss), "share of the rank time", "%")


def steps(found: StepTimes, unit: str) -> LayerChart:
    """Two lines over the steps, and the median of the baseline where there is one."""
    alt, every = altair(), -(-len(found.step) // POINTS)
    observed, ideal = sum(found.observed_ns), sum(found.ideal_ns)
    note = f"each point the slowest of {every} {unit}s" if every > 1 else ""
    title = titled(f"{duration(observed)} observed, {duration(ideal)} with everything at its reference", note)
    domain, range_ = ["observed", "ideal"], [COLOURS["whole"], COLOURS["useful"]]
    x = alt.X("step:Q", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(title=unit, grid=False, tickMinStep=1))
    y = alt.Y("ms:Q", axis=alt.Axis(title=f"{unit} time, ms", gridColor="#eeeeee"))
    colour = alt.Color("which:N", scale=alt.Scale(domain=domain, range=range_), legend=alt.Legend(title=None, orient="top"))
    dash = alt.StrokeDash("which:N", scale=alt.Scale(domain=domain, range=[[1, 0], [5, 3]]), legend=None)
    base = alt.Chart(data(_times(found, every)), width=WIDTH, height=240, title=title)
    lines = base.mark_line(strokeWidth=1.8).encode(x, y, colour, dash)
    return clean(alt.layer(lines, *([] if found.baseline_ns is None else _baseline(found.baseline_ns))))


def _times(found: StepTimes, every: int) -> list[Row]:
    """Both lines, point by point; of several steps the slowest."""
    return [
        {"step": found.step[at], "ms": max(values[at : at + every]) / MS, "which": which}
        for which, values in (("observed", found.observed_ns), ("ideal", found.ideal_ns))
        for at in range(0, len(found.step), every)
    ]


def _baseline(ns: float) -> list[LayerChart]:
    """A rule at the median step of the baseline."""
    alt = altair()
    base = alt.Chart(data([{"ms": ns / MS, "text": f"baseline, {duration(ns)}"}]))
    words = base.mark_text(align="left", dy=-6, fontSize=12).encode(x=alt.value(4), y=alt.Y("ms:Q"), text="text:N")
    return [base.mark_rule(strokeDash=[2, 2], color="#555555").encode(alt.Y("ms:Q")), words]


def lateness(found: LatenessMap, unit: str) -> LayerChart:
    """A map of ranks and steps: the darker, the later."""
    rows: list[Row] = [
        {"row": shown(label), "column": step, "value": max(late, 0.0) / MS}
        for label, values in zip(found.labels, found.late_ns, strict=True)
        for step, late in zip(found.steps, values, strict=True)
        if late is not None
    ]
    nobody: Row = {"row": "nobody", "column": 0, "value": 0.0}
    worst = max(rows, key=lambda one: float(one["value"]), default=nobody)
    late = duration(float(worst["value"]) * MS)
    title = titled(f"{_capital(str(worst['row']))} comes latest: {late} behind the median arrival in {unit} {worst['column']}")
    names = ("", unit, "behind the median arrival, ms")
    return _map(rows, title, list(map(shown, found.labels)), found.steps, names)


def waits(found: RankLateness) -> LayerChart:
    """A map of causes and victims."""
    labels = list(map(shown, found.labels))
    rows: list[Row] = [
        {"row": labels[cause], "column": labels[victim], "value": share}
        for cause, victim, share in zip(found.cause, found.victim, found.share, strict=True)
    ]
    caused = {one: sum(float(row["value"]) for row in rows if row["row"] == one) for one in labels}
    worst = max(caused, key=caused.__getitem__)
    note = "" if found.first_steps is None else f"measured on the first {found.first_steps} steps"
    title = titled(f"{_capital(worst)} causes {percent(caused[worst])} of the waiting that has a cause", note)
    return _map(rows, title, labels, labels, ("cause", "who waits", "share of waiting"))


def _map(
    rows: Sequence[Row],
    title: dict[str, object],
    down: Sequence[str],
    across: Sequence[str] | Sequence[int],
    names: tuple[str, str, str],
) -> LayerChart:
    """Rows × columns; the names are those of the axes and of the shades."""
    alt = altair()
    height = max(min(22 * len(down), 480), 60)
    base = alt.Chart(data(rows), width=WIDTH, height=height, title=title)
    y = alt.Y(
        "row:N", scale=alt.Scale(domain=list(down)), axis=alt.Axis(title=names[0] or None, labelLimit=200, labelOverlap=True)
    )
    turned = -45 if isinstance(across[0], str) else 0
    axis = alt.Axis(title=names[1], labelOverlap=True, labelLimit=160, labelAngle=turned)
    x = alt.X("column:O", scale=alt.Scale(domain=list(across)), axis=axis)
    form = "%" if names[2].startswith("share") else ",.3~f"
    shade = alt.Color(
        "value:Q", scale=alt.Scale(range=SHADES, domainMin=0), legend=alt.Legend(title=names[2], format=form, orient="bottom")
    )
    told = [alt.Tooltip("row:N"), alt.Tooltip("column:O"), alt.Tooltip("value:Q", title=names[2], format=form)]
    return clean(alt.layer(base.mark_rect(stroke="white", strokeWidth=0.5, aria=False).encode(x, y, shade, tooltip=told)))


def ranks(found: Sequence[RankRow]) -> LayerChart:
    """A bar for each rank, divided; how late it comes stands behind it."""
    alt, some, tall = altair(), found[:RANKS], BAR - 6
    rows: list[Row] = [
        {"name": shown(one.label), "kind": kind, "share": getattr(one, f"{kind}_share"), "order": order}
        for one in some
        for order, kind in enumerate(SHARES)
    ]
    late: list[Row] = [{"name": shown(one.label), "text": _late(one)} for one in some]
    axis = alt.Axis(title="share of its time", format="%", grid=False)
    x = alt.X("share:Q", stack="zero", scale=alt.Scale(domain=[0, 1]), axis=axis)
    scale = alt.Scale(domain=list(SHARES), range=[COLOURS[one] for one in SHARES.values()])
    colour = alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
    divided = alt.Chart(data(rows), width=WIDTH, height=tall * len(some), title=_ranks_title(found)).mark_bar(height=tall - 8)
    words = alt.Chart(data(late)).mark_text(align="left", dx=8, fontSize=12, clip=False)
    behind = words.encode(x=alt.value(WIDTH), y=names(), text="text:N")
    return clean(divided.encode(x, names(), colour, order=alt.Order("order:Q")) + behind)


def _ranks_title(found: Sequence[RankRow]) -> dict[str, object]:
    latest = max(found, key=lambda one: one.late_ns or 0.0)
    text = f"{latest.label} comes {duration(latest.late_ns)} late in the median step" if latest.late_ns else "Ranks"
    more = f"{RANKS} of {len(found):,} ranks: those of findings, then those that others waited for"
    return titled(_capital(text), more if len(found) > RANKS else "")


def _late(one: RankRow) -> str:
    return "" if one.late_ns is None or one.late_ns <= 0 else f"{duration(one.late_ns)} late"


def _capital(text: str) -> str:
    """The beginning of a title; names keep their letters."""
    return text[:1].upper() + text[1:]
