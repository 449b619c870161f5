"""Stacked areas, and lines with their bands: each named at its right end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from taut.render.brief.canvas import COLOURS, INK, PAPER, SIZE, Row, altair, drawn, finite, shortened, wide
from taut.render.brief.document import Areas, Line, Lines, Rule

if TYPE_CHECKING:
    from altair import Chart

HEIGHT, TOP, BELOW, LEFT = 236, 24, 44, 62
APART = 15
"""Pixels between the names of two lines."""
STYLES = (
    ("#0072B2", [1, 0], "circle"), ("#D55E00", [7, 3], "square"), ("#009E73", [2, 2], "triangle-up"),
    ("#CC79A7", [9, 3, 2, 3], "diamond"), (INK, [4, 4], "cross"), ("#E69F00", [12, 4], "triangle-down"),
    ("#56B4E9", [1, 3], "triangle-right"),
)  # fmt: skip
"""Colour, dashes and points of each line: none of them alone tells lines apart."""
FEW_POINTS = 24
"""A line with no more points shows them."""


def _apart(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """Places near those wanted, none nearer than ``APART`` to the next, within bounds where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    found, at = [0.0] * len(wanted), low - APART
    for i in order:
        at = found[i] = max(wanted[i], at + APART)
    at = max(high, low + APART * (len(wanted) - 1)) + APART
    for i in reversed(order):
        at = found[i] = min(found[i], at - APART)
    return found


def _form(largest: float, shares: bool) -> str:
    """How an axis writes its numbers."""
    return ".0%" if shares and largest > 0.05 else ".1%" if shares else ",.0f" if largest >= 10 else "~g"


class _Plane:
    """Axes: where values are, in pixels, and what stands right of them."""

    def __init__(self, width: float, names: Sequence[str], top: float, x: tuple[float, float], log_x: bool) -> None:
        self.alt, self.width, self.high, self.log_x = altair(), width, top or 1.0, log_x
        self.right = min(max([wide(name) for name in names] or [0]), 0.34 * width) + 24
        self.names = [shortened(name, self.right - 22) for name in names]
        self.low_x, self.high_x = x if x[0] < x[1] else (x[0], x[0] + 1)

    def x(self, title: str, values: Sequence[float] | None) -> object:
        """The axis below."""
        scale = self.alt.Scale(domain=[self.low_x, self.high_x], type="log" if self.log_x else "linear", nice=False, zero=False)
        form = ",.0f" if self.high_x >= 10 else "~g"
        given = {"values": list(values)} if values else {"tickCount": 6}
        axis = self.alt.Axis(
            title=shortened(title, self.inner), grid=False, format=form, labelOverlap=True, labelFlush=False, **given
        )
        return self.alt.X("x:Q", scale=scale, axis=axis)

    def y(self, title: str, shares: bool, **more: object) -> object:
        """The axis on the left; its words stand above it, where they need not be turned."""
        scale = self.alt.Scale(domain=[0, self.high], nice=False)
        axis = self.alt.Axis(
            title=shortened(title, self.width),
            titleAngle=0,
            titleAlign="left",
            titleAnchor="end",
            titleX=-LEFT + 4,
            titleY=-12,
            format=_form(self.high, shares),
            tickCount=5,
            domain=False,
            ticks=False,
            labelFlush=False,
            labelPadding=8,
        )
        return self.alt.Y("y:Q", scale=scale, axis=axis, **more)

    @property
    def inner(self) -> float:
        """Width between the axes."""
        return self.width - LEFT - self.right

    def words(self, places: Sequence[float], colours: Sequence[str]) -> list[Chart]:
        """Names at the right edge, each with a square of its colour, apart enough to be read."""
        alt, tall = self.alt, HEIGHT - TOP - BELOW
        free = _apart([tall * (1 - place / self.high) for place in places], 4, tall - 4)
        rows = [
            {"y": self.high * (1 - at / tall), "text": name, "fill": fill}
            for at, name, fill in zip(free, self.names, colours, strict=True)
        ]
        base = alt.Chart(alt.Data(values=rows)).encode(y="y:Q")
        square = base.mark_square(size=90, opacity=1, clip=False).encode(
            x=alt.value(self.inner + 11), fill=alt.Fill("fill:N", scale=None)
        )
        text = base.mark_text(align="left", baseline="middle", fontSize=SIZE, fill=INK, clip=False)
        return [square, text.encode(x=alt.value(self.inner + 21), text="text:N")]

    def share(self, x: float) -> float:
        """How far right a value is, 0–1."""
        if self.log_x and min(x, self.low_x) > 0:
            return log(x / self.low_x) / log(self.high_x / self.low_x)
        return (x - self.low_x) / (self.high_x - self.low_x)

    def svg(self, layers: Sequence[Chart]) -> str:
        """The picture."""
        return drawn(self.alt.layer(*layers), self.width, HEIGHT, (TOP, self.right, BELOW, LEFT))


def draw_areas(chart: Areas, width: float) -> str:
    """Stacked areas; the first lies lowest."""
    x = [finite(each) or 0.0 for each in chart.x]
    tops = _tops(chart)
    high = 1.0 if chart.shares else max([0.0, *(tops[-1] if tops else [])])
    plane = _Plane(width, [name for name, _, _ in chart.series], high, (min(x, default=0), max(x, default=1)), False)
    alt, bottoms = plane.alt, [[0.0] * len(x), *tops]
    rows = [row for place in range(len(tops)) for row in _area(place, chart, x, bottoms)]
    edge = 0.8 if len(x) <= FEW_POINTS else 0
    shape = {"interpolate": "step-after"} if chart.steps and len(x) > 1 else {}
    areas = alt.Chart(alt.Data(values=rows)).mark_area(stroke=PAPER, strokeWidth=edge, opacity=1, **shape)
    areas = areas.encode(
        plane.x(chart.x_axis, None),
        plane.y(chart.y_axis, chart.shares),
        alt.Y2("top"),
        alt.Fill("fill:N", scale=None),
        alt.Detail("place:O"),
    )
    middles = [(below[-1] + above[-1]) / 2 if x else 0.0 for below, above in pairwise(bottoms)]
    axes = (plane.x(chart.x_axis, None), plane.y(chart.y_axis, chart.shares))
    rules = _rules(plane, [Rule(at, name) for at, name in chart.marks], axes, halo=True)
    return plane.svg([areas, *rules, *plane.words(middles, [COLOURS[colour] for _, colour, _ in chart.series])])


def _tops(chart: Areas) -> list[list[float]]:
    """The upper edge of each area."""
    found, at = [], [0.0] * len(chart.x)
    for _, _, values in chart.series:
        at = [low + (finite(value) or 0.0) for low, value in zip(at, values, strict=True)]
        found.append(at)
    return found


def _area(place: int, chart: Areas, x: Sequence[float], bottoms: Sequence[Sequence[float]]) -> list[Row]:
    """The points of an area; what was measured once only is drawn one wide, to be seen."""
    fill, edges = COLOURS[chart.series[place][1]], list(zip(x, bottoms[place], bottoms[place + 1], strict=True))
    if len(edges) == 1:
        edges.append((x[0] + 1, *edges[0][1:]))
    return [{"x": at, "y": low, "top": high, "place": place, "fill": fill} for at, low, high in edges]


def draw_lines(chart: Lines, width: float) -> str:
    """Lines, bands, named rules and named points."""
    span, high = _extent(chart)
    plane = _Plane(width, [line.name for line in chart.lines], high, span, chart.log_x)
    ticks = sorted({x for line in chart.lines for x in line.x}) if chart.log_x else []
    axes = (plane.x(chart.x_axis, ticks if len(ticks) <= FEW_POINTS else None), plane.y(chart.y_axis, chart.shares))
    layers = [layer for i, line in enumerate(chart.lines) for layer in _line(plane, i, line, axes)]
    ends = [next((finite(y) or 0.0 for y in reversed(line.y)), 0.0) for line in chart.lines]
    words = plane.words([min(end, high) for end in ends], [STYLES[i % len(STYLES)][0] for i in range(len(ends))])
    return plane.svg([*layers, *_rules(plane, chart.rules, axes), *_points(plane, chart, axes), *words])


def _extent(chart: Lines) -> tuple[tuple[float, float], float]:
    """From where to where the values across reach, and how high the upright axis does."""
    xs = _known([*(x for line in chart.lines for x in line.x), *(x for x, _, _ in chart.points), *_at(chart, False)])
    ys = _known(
        [*(y for line in chart.lines for y in (*line.y, *line.hi)), *(y for _, y, _ in chart.points), *_at(chart, True)]
    )
    high = max([0.0, *ys]) * 1.06
    if chart.shares and 0.8 <= high <= 1.06:
        high = 1.0
    return (min(xs, default=0.0), max(xs, default=1.0)), high


def _known(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values if finite(value) is not None]


def _at(chart: Lines, horizontal: bool) -> list[float]:
    return [rule.at for rule in chart.rules if rule.horizontal == horizontal]


def _line(plane: _Plane, i: int, line: Line, axes: tuple[object, object]) -> Iterator[Chart]:
    """Its band, then itself."""
    alt, (colour, dash, shape) = plane.alt, STYLES[i % len(STYLES)]
    if line.lo and line.hi:
        edges = zip(line.x, line.lo, line.hi, strict=True)
        rows = [{"x": finite(x), "y": finite(lo), "hi": finite(hi)} for x, lo, hi in edges]
        yield alt.Chart(alt.Data(values=rows)).mark_area(fill=colour, opacity=0.18).encode(*axes, alt.Y2("hi"))
    rows = [{"x": finite(x), "y": finite(y)} for x, y in zip(line.x, line.y, strict=True)]
    base = alt.Chart(alt.Data(values=rows))
    yield base.mark_line(stroke=colour, strokeWidth=2.2, strokeDash=[6, 4] if line.dashed else dash).encode(*axes)
    if len(rows) <= FEW_POINTS:
        yield base.mark_point(shape=shape, size=42, filled=True, opacity=1, fill=colour).encode(*axes)


def _rules(plane: _Plane, rules: Sequence[Rule], axes: tuple[object, object], halo: bool = False) -> Iterator[Chart]:
    """Lines across, each with its name where it meets the edge; names of upright ones at different heights."""
    alt, style = plane.alt, {"stroke": INK, "strokeWidth": 1.2, "strokeDash": [3, 3]}
    words = {"align": "left", "fontSize": SIZE, "fill": INK}
    for place, rule in enumerate(each for each in rules if finite(each.at) is not None):
        base = alt.Chart(alt.Data(values=[{"x": rule.at, "y": rule.at, "text": rule.label}]))
        if rule.horizontal:
            yield base.mark_rule(**style).encode(y=axes[1])
            yield base.mark_text(dy=-7, dx=4, **words).encode(x=alt.value(0), y=axes[1], text="text:N")
            continue
        late = plane.share(rule.at) > 0.6
        yield base.mark_rule(**style).encode(x=axes[0])
        at = {"x": axes[0], "y": alt.value(8 + APART * place), "text": "text:N"}
        named = {**words, "align": "right" if late else "left", "dx": -5 if late else 5}
        if halo:  # on a coloured ground
            yield base.mark_text(**{**named, "fill": PAPER, "stroke": PAPER, "strokeWidth": 4}).encode(**at)
        yield base.mark_text(**named).encode(**at)


def _points(plane: _Plane, chart: Lines, axes: tuple[object, object]) -> Iterator[Chart]:
    """Diamonds with their names beside them, on the side where there is room."""
    for x, y, name in chart.points:
        alt, late = plane.alt, plane.share(x) > 0.6
        base = alt.Chart(alt.Data(values=[{"x": finite(x), "y": finite(y), "text": name}])).encode(*axes)
        yield base.mark_point(shape="diamond", size=130, filled=True, opacity=1, fill=INK, stroke=PAPER)
        style = {
            "align": "right" if late else "left",
            "dx": -10 if late else 10,
            "dy": -9,
            "fontSize": SIZE,
            "fontWeight": "bold",
        }
        yield base.mark_text(fill=PAPER, stroke=PAPER, strokeWidth=4, **style).encode(text="text:N")
        yield base.mark_text(fill=INK, **style).encode(text="text:N")
