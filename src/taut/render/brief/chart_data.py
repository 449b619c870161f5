"""A chart as a table: for those who cannot see it, and for formats without pictures."""

from __future__ import annotations

from typing import assert_never

from taut.render.brief.canvas import finite
from taut.render.brief.document import Areas, Bars, Chart, Column, Grid, Heat, Line, Lines, Network, Waterfall
from taut.render.text import UNKNOWN, three

MOST_ROWS = 60
"""A table that is longer shows some of its rows, and says so."""


def table_of(chart: Chart, title: str) -> Grid:
    """The data of a chart."""
    match chart:
        case Bars():
            return _cut(title, ["what", "value"], [[_in(bar.group, bar.label), bar.shown] for bar in chart.bars], chart.axis)
        case Waterfall():
            return _cut(title, ["what", "value"], [[step.label, step.shown] for step in chart.steps], chart.axis)
        case Areas():
            return _areas(chart, title)
        case Lines():
            return _lines(chart, title)
        case Heat():
            return _heat(chart, title)
        case Network():
            return _network(chart, title)
    assert_never(chart)


def _in(group: str, label: str) -> str:
    return f"{group}: {label}" if group else label


def _cut(title: str, heads: list[str], rows: list[list[str]], note: str = "") -> Grid:
    """A table of at most so many rows, spread over all of them; the last column is a number."""
    apart = -(-len(rows) // MOST_ROWS) or 1
    left = f"one row in {apart} is shown" if apart > 1 else ""
    columns = [Column(head, numeric=i == len(heads) - 1) for i, head in enumerate(heads)]
    return Grid(title, columns, rows[::apart], "; ".join(part for part in (note, left) if part))


def number(value: float, share: bool = False) -> str:
    """A value of a chart."""
    known = finite(value)
    if known is None:
        return UNKNOWN
    if share:
        return f"{100 * known:.1f} %"
    return f"{known:,.0f}" if abs(known) >= 1000 or known == int(known) else three(known)


def _areas(chart: Areas, title: str) -> Grid:
    series = [values for _, _, values in chart.series]
    rows = [[number(x), *(number(values[i], chart.shares) for values in series)] for i, x in enumerate(chart.x)]
    grid = _cut(title, [chart.x_axis, *(name for name, _, _ in chart.series)], rows, chart.y_axis)
    return Grid(grid.title, [Column(column.title, numeric=True) for column in grid.columns], grid.rows, grid.note)


def _lines(chart: Lines, title: str) -> Grid:
    rows = [[line.name, *row] for line in chart.lines for row in _line(line, chart.shares)]
    rows += [[name, number(x), number(y, chart.shares)] for x, y, name in chart.points]
    across = [[rule.label, UNKNOWN, number(rule.at, chart.shares)] for rule in chart.rules if rule.horizontal]
    upright = [[rule.label, number(rule.at), UNKNOWN] for rule in chart.rules if not rule.horizontal]
    return _cut(title, ["what", chart.x_axis, chart.y_axis], [*rows, *across, *upright])


def _line(line: Line, share: bool) -> list[list[str]]:
    """Points of a line, with what it may also be where it has a band."""
    found = [[number(x), number(y, share)] for x, y in zip(line.x, line.y, strict=True)]
    for row, lo, hi in zip(found, line.lo, line.hi, strict=False):
        row[1] += f" ({number(lo, share).removesuffix(' %')}–{number(hi, share).removesuffix(' %')})"
    return found


def _heat(chart: Heat, title: str) -> Grid:
    """The largest first: a map has more places than a table has rows."""
    largest = sorted(chart.values, key=lambda one: -(finite(one[2]) or 0.0))
    rows = [[chart.rows[row], chart.columns[column], text or number(value)] for row, column, value, text in largest[:MOST_ROWS]]
    left = f"the largest {MOST_ROWS} of {len(largest)}" if len(largest) > MOST_ROWS else ""
    grid = _cut(title, [chart.row_axis, chart.column_axis, chart.value_axis], rows, left)
    here = chart.marked and f"the job stands at {chart.rows[chart.marked[0]]}, {chart.columns[chart.marked[1]]}"
    return Grid(grid.title, grid.columns, grid.rows, "; ".join(part for part in (grid.note, here or "") if part))


def _network(chart: Network, title: str) -> Grid:
    """Each node with where it leads."""
    leads = [[edge for edge in chart.edges if edge.first == i] for i in range(len(chart.nodes))]
    rows = [
        [node.label, node.detail, ", ".join(_arrow(chart, edge.then, edge.label) for edge in leads[i])]
        for i, node in enumerate(chart.nodes)
    ]
    grid = _cut(title, ["what", "detail", "leads to"], rows)
    strong = ", ".join(node.label for node in chart.nodes if node.strong)
    return Grid(title, [Column(column.title) for column in grid.columns], grid.rows, f"drawn thick: {strong}" if strong else "")


def _arrow(chart: Network, then: int, label: str) -> str:
    name = chart.nodes[then].label
    return f"{name} ({label})" if label else name
