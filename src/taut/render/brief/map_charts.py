"""Maps of rows × columns: the darker, the more; the value is written where there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from taut.render.brief.canvas import GROUND, INK, MUTED, ON_BLUE, ON_COLOUR, PAPER, Row, Sheet, finite, shortened, wide
from taut.render.brief.document import Heat

MOST = 64
"""More rows or columns are drawn in groups."""
LIGHT, DARK = (0xEE, 0xF5, 0xFA), (0x00, 0x4C, 0x7A)
HERE = "#D55E00"
"""Frames where the job stands: seen on light shades and on dark ones."""
SMALL = 11
NUMBER = re.compile(r"[<−-]?\d[\d.,]*(?: \S+)?$")
"""At the end of what is written in a cell."""


class _Map(Struct, frozen=True):
    """A map that is small enough to be drawn."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[tuple[int, int, float, str]]
    marked: tuple[int, int] | None
    note: str


def _grouped(chart: Heat) -> _Map:
    """The map; of a large one groups of rows and columns, each with the largest of its values."""
    tall, broad = -(-len(chart.rows) // MOST), -(-len(chart.columns) // MOST)
    marked = chart.marked and (chart.marked[0] // max(tall, 1), chart.marked[1] // max(broad, 1))
    known = [(row, column, value, text) for row, column, value, text in chart.values if finite(value) is not None]
    if tall <= 1 and broad <= 1:
        return _Map(chart.rows, chart.columns, known, marked, "")
    largest: dict[tuple[int, int], tuple[float, str]] = {}
    for row, column, value, text in known:
        place = (row // tall, column // broad)
        largest[place] = max(largest.get(place, (value, text)), (value, text))
    note = f"; groups of {tall} × {broad}, the largest of each"
    values = [(row, column, *found) for (row, column), found in sorted(largest.items())]
    return _Map(_names(chart.rows, tall), _names(chart.columns, broad), values, marked, note)


def _names(names: Sequence[str], size: int) -> list[str]:
    """Names of groups: the first and the last of each."""
    groups = [names[i : i + size] for i in range(0, len(names), size)]
    return [group[0] if len(group) == 1 else f"{group[0]}–{group[-1]}" for group in groups]


def _shade(value: float, low: float, high: float) -> tuple[str, str]:
    """Colour of a value, and of the ink on it."""
    share = (value - low) / (high - low) if high > low else 1.0
    mixed = [round(a + (b - a) * share) for a, b in zip(LIGHT, DARK, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed), ON_BLUE if share > 0.55 else ON_COLOUR


class _Field:
    """Where rows and columns are on the sheet."""

    def __init__(self, found: _Map, width: float) -> None:
        self.left = min(max([wide(each) for each in found.rows] or [0]), 0.3 * width) + 12
        inner = width - self.left - 8
        self.broad = min(inner / max(len(found.columns), 1), 96)
        texts = max([wide(text, SMALL) for _, _, _, text in found.values] or [0])
        self.tall = max(6.5, min(24.0, 288 / max(len(found.rows), 1)))
        self.written = texts + 4 <= self.broad and self.tall >= 13
        self.top = 26.0
        self.bottom = self.top + self.tall * len(found.rows)
        broadest = min(max([wide(each) for each in found.columns] or [0]), 100)
        self.turned = broadest + 6 > self.broad
        self.below = self.bottom + (broadest + 8 if self.turned else 20)
        """Where the words below the columns end."""


def draw_heat(chart: Heat, width: float) -> str:
    """A map with names, the scale of its shades, and where the job stands."""
    found = _grouped(chart)
    place = _Field(found, width)
    sheet = Sheet(width, place.below + 36 + (20 if found.marked else 0))
    sheet.boxes([_ground(place, len(found.columns))])
    values = [value for _, _, value, _ in found.values]
    low, high = min([0.0, *values]), max([0.0, *values])
    sheet.boxes([_cell(place, row, column, _shade(value, low, high)[0]) for row, column, value, _ in found.values])
    if place.written:
        sheet.texts([_written(place, one, low, high) for one in found.values], "center", size=SMALL)
    _name(sheet, place, found, chart)
    _scale(sheet, place, chart, found, (low, high))
    return sheet.svg()


def _ground(place: _Field, columns: int) -> Row:
    """What lies behind all cells: nothing was measured there."""
    x, x2 = place.left, place.left + columns * place.broad
    return {"x": x, "x2": x2, "y": place.top, "y2": place.bottom, "fill": GROUND, "stroke": GROUND, "weight": 0}


def _cell(place: _Field, row: int, column: int, fill: str) -> Row:
    x, y = place.left + column * place.broad, place.top + row * place.tall
    return {"x": x, "x2": x + place.broad, "y": y, "y2": y + place.tall, "fill": fill, "stroke": PAPER, "weight": 1}


def _written(place: _Field, one: tuple[int, int, float, str], low: float, high: float) -> Row:
    row, column, value, text = one
    x, y = place.left + (column + 0.5) * place.broad, place.top + (row + 0.5) * place.tall
    return {"x": x, "y": y, "text": text, "fill": _shade(value, low, high)[1]}


def _every(count: int, room: float, need: float) -> range:
    """As many places as have room for their names."""
    return range(0, count, max(1, round(need / room + 0.499)))


def _name(sheet: Sheet, place: _Field, found: _Map, chart: Heat) -> None:
    """Names of rows on the left, of columns below, of the axes at their ends."""
    shown = _every(len(found.rows), place.tall, 13)
    rows: list[Row] = [
        {
            "x": place.left - 6,
            "y": place.top + (i + 0.5) * place.tall,
            "text": shortened(found.rows[i], place.left - 10),
            "fill": INK,
        }
        for i in shown
    ]
    sheet.texts(rows, "right")
    sheet.texts([{"x": 0, "y": 10, "text": shortened(f"{chart.row_axis} (down)", sheet.width), "fill": MUTED}])
    y = place.bottom + (6 if place.turned else 11)
    columns: list[Row] = [
        {"x": place.left + (i + 0.5) * place.broad, "y": y, "text": shortened(found.columns[i], 100), "fill": INK}
        for i in _every(len(found.columns), place.broad, 13 if place.turned else 0)
    ]
    sheet.texts(columns, "right" if place.turned else "center", angle=-90 if place.turned else 0)
    across = shortened(f"{chart.column_axis} (across){found.note}", sheet.width - place.left)
    sheet.texts([{"x": place.left, "y": place.below + 8, "text": across, "fill": MUTED}])


def _ends(found: _Map, span: tuple[float, float]) -> list[str]:
    """The least and the most as numbers, in per cent where cells are: words of a cell are its own."""
    numbers = {value: tail[0] for _, _, value, text in found.values if (tail := NUMBER.search(text))}
    shares = any(text.endswith("%") for text in numbers.values())
    return [numbers.get(value) or (f"{100 * value:.3g} %" if shares else f"{value:.3g}") for value in span]


def _scale(sheet: Sheet, place: _Field, chart: Heat, found: _Map, span: tuple[float, float]) -> None:
    """The shades from the least to the most, in words too."""
    y, low, high = place.below + 27, *span
    ends = _ends(found, span)
    begin = place.left + wide(ends[0]) + 6
    shades: list[Row] = [
        {"x": begin + 6 * i, "x2": begin + 6 * i + 6, "y": y - 6, "y2": y + 6, "fill": fill, "stroke": fill, "weight": 0}
        for i in range(20)
        if (fill := _shade(low + (high - low) * i / 19, low, high)[0])
    ]
    sheet.boxes(shades)
    sheet.texts([{"x": place.left, "y": y, "text": ends[0], "fill": INK}])
    sheet.texts(
        [
            {
                "x": begin + 126,
                "y": y,
                "text": shortened(f"{ends[1]}  {chart.value_axis}", sheet.width - begin - 126),
                "fill": INK,
            }
        ]
    )
    if found.marked:
        x, below = place.left, y + 20
        box = {**_cell(place, *found.marked, "transparent"), "stroke": HERE, "weight": 3.5}
        sheet.boxes(
            [box, {"x": x, "x2": x + 16, "y": below - 6, "y2": below + 6, "fill": PAPER, "stroke": HERE, "weight": 3.5}]
        )
        sheet.texts([{"x": x + 24, "y": below, "text": "where the job stands", "fill": INK}])
