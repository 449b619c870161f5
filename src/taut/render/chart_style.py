"""What charts of notebooks share: altair itself, titles, sizes, and a look without boxes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from taut.core.errors import TautError
from taut.render.text import safe

if TYPE_CHECKING:
    from types import ModuleType

    from altair import LayerChart

MISSING = "plots need altair, and vl-convert-python to save them: pip install altair vl-convert-python"
WIDTH, BAR = 560, 30
SHADES = ["#EEF5FA", "#004C7A"]
"""From the least to the most, of maps."""
Row: TypeAlias = dict[str, str | int | float]
TITLE = {"anchor": "start", "frame": "bounds", "offset": 14, "fontSize": 15, "subtitleFontSize": 12, "subtitleColor": "#555555"}
_TAGS = re.compile(r"<(?=[/!]|script)", re.IGNORECASE)


def altair() -> ModuleType:
    """The package that draws."""
    try:
        import altair
    except ImportError:
        raise TautError(MISSING) from None
    found: ModuleType = altair
    return found


def shown(text: object) -> str:
    """A name as a chart holds it: altair puts data into a script of the page as they are, and a tag in a name would end it."""
    return _TAGS.sub("‹", safe(text))


def titled(text: str, *below: str) -> dict[str, object]:
    """What the title of a chart says, and the lines below it."""
    return {"text": shown(text), "subtitle": [shown(line) for line in below if line]}


def data(rows: Sequence[Row]) -> dict[str, object]:
    """Rows as a chart takes them."""
    return {"values": list(rows)}


def names() -> object:
    """The axis on the left of bars: their names, in the order of the rows."""
    alt = altair()
    return alt.Y("name:N", sort=None, axis=alt.Axis(title=None, domain=False, ticks=False, labelLimit=300, labelFontSize=12))


def bars(rows: Sequence[Row], title: Mapping[str, object], axis: str, form: str) -> LayerChart:
    """Bars from zero (name, value, colour) with words (text) behind them; ``form`` is how the axis writes its numbers."""
    alt = altair()
    values = [float(row["value"]) for row in rows]
    ends = [1.25 * min([0.0, *values]), 1.25 * max([0.0, *values])]
    base = alt.Chart(data(rows), width=WIDTH, height=BAR * len(rows), title=title)
    scale = alt.Scale(domain=ends if ends[0] < ends[1] else [0, 1], nice=False)
    x = alt.X("value:Q", scale=scale, axis=alt.Axis(title=axis, format=form, grid=False, tickCount=5))
    drawn = base.mark_bar(height=BAR - 10).encode(x, names(), alt.Color("colour:N", scale=None))
    right = base.transform_calculate(right="max(datum.value, 0)").mark_text(align="left", dx=6, fontSize=12)
    return clean(drawn + right.encode(alt.X("right:Q", scale=scale), names(), alt.Text("text:N")))


def clean(chart: LayerChart) -> LayerChart:
    """The chart as all are: on white, whatever the notebook is, without a box."""
    found: LayerChart = chart.configure(font="sans-serif", padding=14, title=TITLE, view={"stroke": None}, background="white")
    return found
