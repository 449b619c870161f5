"""Charts of a briefing as SVG: drawn by altair and vl-convert, the same bytes each time."""

from __future__ import annotations

from typing import assert_never

from taut.render.brief.bar_charts import draw_bars, draw_waterfall
from taut.render.brief.canvas import FULL, altair
from taut.render.brief.document import Areas, Bars, Chart, Heat, Lines, Network, Waterfall
from taut.render.brief.line_charts import draw_areas, draw_lines
from taut.render.brief.map_charts import draw_heat
from taut.render.brief.network_charts import draw_network


def svg(chart: Chart, width: float = FULL) -> str:
    """The picture of a chart, in literal colours on a ground that is not painted."""
    altair()
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # or every part would be held against altair's schema, which takes longer than drawing
        return _drawn(chart, width)


def _drawn(chart: Chart, width: float) -> str:
    match chart:
        case Bars():
            return draw_bars(chart, width)
        case Waterfall():
            return draw_waterfall(chart, width)
        case Areas():
            return draw_areas(chart, width)
        case Lines():
            return draw_lines(chart, width)
        case Heat():
            return draw_heat(chart, width)
        case Network():
            return draw_network(chart, width)
    assert_never(chart)
