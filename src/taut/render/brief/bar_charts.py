"""Bars, stacked bars and waterfalls: every bar has its name on the left and its value beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from taut.render.brief.canvas import COLOURS, INK, MUTED, PAPER, Row, Sheet, finite, ink_on, shortened, wide
from taut.render.brief.document import Bar, Bars, Colour, Waterfall

STEP, THICK, BELOW = 26, 16, 26
"""Height of a row, of a bar in it, and of what is below the rows."""
LEAST = 1.5
"""So many pixels wide is the thinnest bar that stands for something."""


class _Frame:
    """Where rows and values are on the sheet."""

    def __init__(
        self, labels: Sequence[str], shown: Sequence[str], ends: Sequence[float], width: float, top: float = 4
    ) -> None:
        self.left = min(max([wide(each) for each in labels] or [0]), 0.38 * width) + 10
        right = min(max([wide(each) for each in shown] or [0]), 0.4 * width) + 12
        self.labels = [shortened(each, self.left - 10) for each in labels]
        low, high = min([0.0, *ends]), max([0.0, *ends])
        self.scale = (width - self.left - right) / ((high - low) or 1.0)
        self.zero = self.left - low * self.scale
        self.top, self.bottom = top, top + STEP * len(labels)
        self.sheet = Sheet(width, self.bottom + BELOW)

    def x(self, value: float) -> float:
        """Where a value is."""
        return self.zero + value * self.scale

    def y(self, row: int) -> float:
        """The middle of a row."""
        return self.top + STEP * (row + 0.5)

    def finish(self, axis: str) -> str:
        """Names, base line and the words below it; then the picture."""
        names: list[Row] = [
            {"x": self.left - 8, "y": self.y(i), "text": each, "fill": INK} for i, each in enumerate(self.labels)
        ]
        self.sheet.texts(names, align="right")
        self.sheet.rules([_rule(self.zero, self.zero, self.top, self.bottom, MUTED)])
        self.sheet.texts([{"x": self.left, "y": self.bottom + 13, "text": axis, "fill": MUTED}])
        return self.sheet.svg()


def _rule(x: float, x2: float, y: float, y2: float, stroke: str) -> Row:
    return {"x": x, "x2": x2, "y": y, "y2": y2, "stroke": stroke, "weight": 1}


def _box(x: float, x2: float, y: float, colour: str, stroke: str = "") -> Row:
    """A bar around the middle of a row; a thin one is drawn thicker, to be seen."""
    low, high = sorted((x, x2))
    high = max(high, low + LEAST) if high > low else high
    return {
        "x": low,
        "x2": high,
        "y": y - THICK / 2,
        "y2": y + THICK / 2,
        "fill": colour,
        "stroke": stroke or colour,
        "weight": 0.5,
    }


def draw_bars(chart: Bars, width: float) -> str:
    """Horizontal bars; those of one group in one row."""
    if any(bar.group for bar in chart.bars):
        return _draw_groups(chart, width)
    values = [finite(bar.value) or 0.0 for bar in chart.bars]
    frame = _Frame([bar.label for bar in chart.bars], [bar.shown for bar in chart.bars], values, width)
    drawn = [_box(frame.zero, frame.x(v), frame.y(i), COLOURS[chart.bars[i].colour]) for i, v in enumerate(values)]
    frame.sheet.boxes(drawn)
    right = [max(frame.zero, frame.x(v)) for v in values]
    words = [_word(x + 6, frame.y(i), chart.bars[i].shown, width) for i, x in enumerate(right)]
    frame.sheet.texts(words)
    return frame.finish(chart.axis)


def _word(x: float, y: float, text: str, width: float) -> Row:
    return {"x": x, "y": y, "text": shortened(text, width - x), "fill": INK}


def _draw_groups(chart: Bars, width: float) -> str:
    groups = list(dict.fromkeys(bar.group for bar in chart.bars))
    rows = [[bar for bar in chart.bars if bar.group == group] for group in groups]
    ends = [sum(finite(bar.value) or 0.0 for bar in row) for row in rows]
    keys = list(dict.fromkeys((bar.label, bar.colour) for bar in chart.bars))
    legend, height = _legend([f"{i + 1}  {label}" for i, (label, _) in enumerate(keys)], width)
    frame = _Frame(groups, [], ends, width, top=height + 8)
    frame.sheet.boxes([_square(x, y, COLOURS[colour]) for (x, y, _), (_, colour) in zip(legend, keys, strict=True)])
    frame.sheet.texts([{"x": x + 18, "y": y, "text": text, "fill": INK} for x, y, text in legend])
    numbers = {key: str(i + 1) for i, key in enumerate(keys)}
    parts = [part for i, row in enumerate(rows) for part in _stack(frame, i, row, numbers)]
    frame.sheet.boxes([box for box, _ in parts])
    frame.sheet.texts([word for _, word in parts if word["text"]], "center", size=11)
    return frame.finish(chart.axis)


def _square(x: float, y: float, colour: str) -> Row:
    return {"x": x, "x2": x + 12, "y": y - 6, "y2": y + 6, "fill": colour, "stroke": MUTED, "weight": 0.5}


def _legend(texts: Sequence[str], width: float) -> tuple[list[tuple[float, float, str]], float]:
    """Where each entry is, in as many lines as they take, and the height of all."""
    x, y, found = 0.0, 10.0, []
    for text in texts:
        text = shortened(text, width - 30)
        need = wide(text) + 34
        if x and x + need > width:
            x, y = 0.0, y + 20
        found.append((x, y, text))
        x += need
    return found, y + 10


def _stack(frame: _Frame, i: int, row: Sequence[Bar], numbers: Mapping[tuple[str, Colour], str]) -> Iterator[tuple[Row, Row]]:
    """The parts of one row, each with its value in it, or with its number in the legend."""
    at, y = 0.0, frame.y(i)
    for bar in row:
        end = at + (finite(bar.value) or 0.0)
        x, x2, colour, number = frame.x(at), frame.x(end), COLOURS[bar.colour], numbers[bar.label, bar.colour]
        text = next((each for each in (f"{number}: {bar.shown}", bar.shown, number) if wide(each, 11) + 4 <= x2 - x), "")
        yield _box(x, x2, y, colour, PAPER), {"x": (x + x2) / 2, "y": y, "text": text, "fill": ink_on(colour)}
        at = end


def draw_waterfall(chart: Waterfall, width: float) -> str:
    """From the whole down to what is left; each bar begins where the one before ends."""
    spans = [(finite(step.begin) or 0.0, finite(step.end) or 0.0) for step in chart.steps]
    ends = [each for span in spans for each in span]
    frame = _Frame([step.label for step in chart.steps], [step.shown for step in chart.steps], ends, width)
    joints = [_rule(frame.x(end), frame.x(end), frame.y(i), frame.y(i + 1), MUTED) for i, (_, end) in enumerate(spans[:-1])]
    frame.sheet.rules(joints, dash=(2, 2))
    places = [(frame.x(begin), frame.x(end)) for begin, end in spans]
    frame.sheet.boxes([_box(x, x2, frame.y(i), COLOURS[chart.steps[i].colour]) for i, (x, x2) in enumerate(places)])
    words = [_word(max(place) + 6, frame.y(i), chart.steps[i].shown, width) for i, place in enumerate(places)]
    frame.sheet.texts(words, halo=True)
    return frame.finish(chart.axis)
