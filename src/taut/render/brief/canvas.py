"""What all charts of a briefing share: colours, sizes, a sheet in pixels to draw on, and its SVG.

A chart's size is reckoned from its texts here, never measured in a font, so that it is the same on every machine. Ink, grid and
paper are colours of their own (``INK`` …): ``themed`` replaces them by variables of CSS, so that a dark page has light ink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias
from unicodedata import east_asian_width

from msgspec import Struct, field

from taut.core.errors import TautError
from taut.render.text import middle

if TYPE_CHECKING:
    from types import ModuleType

    from altair import Chart, LayerChart

    from taut.render.brief.document import Colour

MISSING = "a briefing needs {}, which is not installed: pip install 'taut[brief]'"
COLOURS: Mapping[Colour, str] = {
    "useful": "#009E73", "slow": "#D55E00", "communication": "#56B4E9", "waiting": "#E69F00", "gap": "#999999",
    "restart": "#CC79A7", "idle": "#F0E442", "other": "#C4C4C4", "whole": "#0072B2",
}  # fmt: skip
"""Those of Okabe and Ito, which people with any colour vision tell apart, and two greys."""
INK, MUTED, GRID, PAPER, GROUND = "#1a1d21", "#565b61", "#dfe2e5", "#fffffe", "#f3f4f5"
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)", PAPER: "var(--paper)", GROUND: "var(--ground)"}
ON_COLOUR = "#000000"
"""Ink on a coloured bar, in the dark too: at least 4.5 to 1 on all but the blue."""
ON_BLUE = "#ffffff"
FONT, SIZE = "Libertinus Serif", 12
FULL, HALF = 640, 360
"""Width of a chart, of one in a column of two."""
GLYPH = 0.54
"""Mean width of a letter, in heights of the letters."""
ROLES = re.compile(r'(<g class="[^"]*") role="[^"]*" aria-roledescription="[^"]*"')
"""What Vega calls parts of a drawing: the drawing as a whole has its words, parts would be read without any."""
Row: TypeAlias = dict[str, str | int | float | None]


class Sheet(Struct):
    """Marks at pixels, counted from the upper left corner. What is drawn later lies above."""

    width: float
    height: float
    layers: list[Chart] = field(default_factory=list)

    def boxes(self, rows: Sequence[Row], corner: float = 0) -> None:
        """Rectangles: x, x2, y, y2, fill, stroke, weight."""
        self._add(rows, {"type": "rect", "cornerRadius": corner}, ("x", "x2", "y", "y2"), ("fill", "stroke", "weight"))

    def rules(self, rows: Sequence[Row], dash: Sequence[int] = (1, 0)) -> None:
        """Straight lines: x, x2, y, y2, stroke, weight."""
        self._add(rows, {"type": "rule", "strokeDash": list(dash)}, ("x", "x2", "y", "y2"), ("stroke", "weight"))

    def paths(self, rows: Sequence[Row], closed: bool = False) -> None:
        """Lines through points: x, y, path, order, stroke, weight; closed ones have a fill too."""
        style = {"type": "line", "interpolate": "linear-closed" if closed else "linear", "strokeJoin": "round"}
        self._add(rows, style, ("x", "y", "path", "order"), ("stroke", "weight", *(("fill",) if closed else ())))

    def heads(self, rows: Sequence[Row]) -> None:
        """Arrow heads: x, y, angle in degrees clockwise from above, fill."""
        style = {"type": "point", "shape": "triangle-up", "size": 80, "filled": True, "opacity": 1}
        self._add(rows, style, ("x", "y", "angle"), ("fill",))

    def texts(
        self,
        rows: Sequence[Row],
        align: str = "left",
        weight: str = "normal",
        size: float = SIZE,
        halo: bool = False,
        angle: float = 0,
    ) -> None:
        """Words: x, y of their middle line, text, fill. With ``halo`` what lies behind them is wiped."""
        style = {"type": "text", "align": align, "baseline": "middle", "fontSize": size, "fontWeight": weight, "angle": angle}
        if halo:
            self._add(rows, {**style, "stroke": PAPER, "strokeWidth": 4, "strokeJoin": "round"}, ("x", "y", "text"), ())
        self._add(rows, style, ("x", "y", "text"), ("fill",))

    def svg(self) -> str:
        """The picture."""
        return drawn(altair().layer(*self.layers), self.width, self.height, (0, 0, 0, 0))

    def _add(self, rows: Sequence[Row], mark: Mapping[str, object], places: Sequence[str], looks: Sequence[str]) -> None:
        if rows:
            alt = altair()
            given = {**self._places(alt, places), **_looks(alt, looks)}
            self.layers.append(alt.Chart(alt.Data(values=list(rows)), mark=dict(mark)).encode(**given))

    def _places(self, alt: ModuleType, names: Sequence[str]) -> dict[str, object]:
        found = {
            "x": alt.X("x:Q", scale=alt.Scale(domain=[0, self.width], nice=False, zero=False), axis=None),
            "y": alt.Y("y:Q", scale=alt.Scale(domain=[self.height, 0], nice=False, zero=False), axis=None),
            "x2": alt.X2("x2"),
            "y2": alt.Y2("y2"),
            "text": alt.Text("text:N"),
            "angle": alt.Angle("angle:Q", scale=None),
            "path": alt.Detail("path:N"),
            "order": alt.Order("order:Q"),
        }
        return {"detail" if name == "path" else name: found[name] for name in names}


def _looks(alt: ModuleType, names: Sequence[str]) -> dict[str, object]:
    """Colours and widths, as they stand in the rows."""
    found = {
        "fill": ("fill", alt.Fill("fill:N", scale=None)),
        "stroke": ("stroke", alt.Stroke("stroke:N", scale=None)),
        "weight": ("strokeWidth", alt.StrokeWidth("weight:Q", scale=None)),
    }
    return dict(found[name] for name in names)


def drawn(chart: LayerChart, width: float, height: float, around: tuple[float, float, float, float]) -> str:
    """The SVG of a chart; ``around`` is what lies outside its axes: above, right, below, left."""
    axis = {
        "labelColor": INK, "titleColor": MUTED, "titleFontWeight": "normal", "titleFontSize": SIZE, "labelFontSize": SIZE,
        "domainColor": MUTED, "tickColor": MUTED, "gridColor": GRID, "labelFlush": True,
    }  # fmt: skip
    top, right, bottom, left = around
    shown = chart.properties(width=width - left - right, height=height - top - bottom, autosize="none").configure(
        aria=False,
        font=FONT,
        view={"stroke": None},
        background=PAPER,
        axis=axis,
        padding={"top": top, "right": right, "bottom": bottom, "left": left},
    )
    found: str = _converter().vegalite_to_svg(shown.to_dict(validate=False), allowed_base_urls=[])
    return ROLES.sub(r"\1", found)


def themed(svg: str) -> str:
    """The picture with ink, grid, paper and letters of the page that it stands on."""
    for colour, variable in VARIABLES.items():
        svg = svg.replace(f'"{colour}"', f'"{variable}"')
    return svg.replace(f' font-family="{FONT}"', "")


def wide(text: str, size: float = SIZE) -> float:
    """About how wide a text is, in pixels."""
    return size * GLYPH * sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, width: float, size: float = SIZE) -> str:
    """The text, its middle left out where it would be wider."""
    return text if wide(text, size) <= width else middle(text, max(4, int(width / size / GLYPH)))


def finite(value: float) -> float | None:
    """A number as charts take it: unknown where it is none."""
    return float(value) if isfinite(value) else None


def ink_on(colour: str) -> str:
    """What can be read on a colour."""
    return ON_BLUE if colour == COLOURS["whole"] else ON_COLOUR


def altair() -> ModuleType:
    """The package that draws."""
    try:
        import altair
    except ImportError:
        raise TautError(MISSING.format("altair")) from None
    found: ModuleType = altair
    return found


def _converter() -> ModuleType:
    try:
        import vl_convert
    except ImportError:
        raise TautError(MISSING.format("vl-convert-python")) from None
    found: ModuleType = vl_convert
    return found
