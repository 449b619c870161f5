"""Networks: boxes and arrows. A gate is a box with pointed sides; what is strong is thick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taut.render.brief.canvas import COLOURS, GRID, INK, MUTED, PAPER, Row, Sheet, shortened
from taut.render.brief.document import Network, Node
from taut.render.brief.network_layout import INSET, LINE, Box, Point, details, heading, named, placed, routes

CORNERS = {"work": 3, "layer": 0, "controller": 14}
POINTED = 13.0
"""How far the sides of a gate come out."""
SMALL = 11
LEGEND = (
    "pointed box: a gate, where ranks wait for each other · thick: the critical path in most steps · "
    "strip: rank time, the longest is full"
)


def draw_network(chart: Network, width: float) -> str:
    """Arrows below, boxes above them, words on top."""
    boxes = placed(chart, width)
    gates = any(node.shape == "gate" for node in chart.nodes)
    bottom = max([box.bottom for box in boxes] or [0.0]) + 8
    legend = _wrapped(LEGEND, width) if gates else []
    sheet = Sheet(width, bottom + 16 * len(legend) + (6 if legend else 0))
    ways = routes(chart, boxes, width)
    _arrows(sheet, chart, ways)
    _bodies(sheet, chart.nodes, boxes)
    _words(sheet, chart, boxes)
    sheet.texts([row for row in _names(chart, boxes, ways) if row["text"]], "center", size=SMALL, halo=True)
    sheet.texts([{"x": 4, "y": bottom + 10 + 16 * i, "text": text, "fill": MUTED} for i, text in enumerate(legend)])
    return sheet.svg()


def _wrapped(text: str, width: float) -> list[str]:
    """Parts of the legend in as many lines as they take."""
    lines: list[str] = []
    for part in text.split(" · "):
        joined = f"{lines[-1]} · {part}" if lines else part
        fits = shortened(joined, width - 8) == joined
        lines = [*lines[:-1], joined] if fits and lines else [*lines, part]
    return lines


def _arrows(sheet: Sheet, chart: Network, ways: Sequence[Sequence[Point]]) -> None:
    order = sorted(range(len(chart.edges)), key=lambda i: chart.edges[i].strong)
    lines: list[Row] = []
    heads: list[Row] = []
    for i in order:
        edge, points = chart.edges[i], ways[i]
        colour, weight = (INK, 3 + 2 * edge.weight) if edge.strong else (MUTED, 0.8 + 1.6 * edge.weight)
        lines += [_point(i, k, point, colour, weight) for k, point in enumerate(points)]
        heads.append({"x": points[-1][0], "y": points[-1][1], "angle": heading(points), "fill": colour})
    sheet.paths(lines)
    sheet.heads(heads)


def _point(path: int, order: int, point: Point, stroke: str, weight: float) -> Row:
    return {"path": path, "order": order, "x": point[0], "y": point[1], "stroke": stroke, "weight": weight}


def _bodies(sheet: Sheet, nodes: Sequence[Node], boxes: Sequence[Box]) -> None:
    """Boxes, and in each a strip as long as its size."""
    both = list(zip(nodes, boxes, strict=True))
    for shape, corner in CORNERS.items():
        sheet.boxes([_body(node, box) for node, box in both if node.shape == shape], corner)
    gates = [(i, node, box) for i, (node, box) in enumerate(both) if node.shape == "gate"]
    sheet.paths([point for i, node, box in gates for point in _pointed(i, node, box)], closed=True)
    sheet.boxes([strip for node, box in both if node.size > 0 for strip in _strip(node, box)], corner=2)


def _look(node: Node) -> Row:
    return {"fill": PAPER, "stroke": INK if node.strong else COLOURS[node.colour], "weight": 3.2 if node.strong else 2}


def _body(node: Node, box: Box) -> Row:
    return {"x": box.left, "x2": box.right, "y": box.top, "y2": box.bottom, **_look(node)}


def _pointed(path: int, node: Node, box: Box) -> Iterator[Row]:
    corners = (
        (box.left, box.y), (box.left + POINTED, box.top), (box.right - POINTED, box.top),
        (box.right, box.y), (box.right - POINTED, box.bottom), (box.left + POINTED, box.bottom),
    )  # fmt: skip
    for order, (x, y) in enumerate(corners):
        yield {"path": path, "order": order, "x": x, "y": y, **_look(node)}


def _strip(node: Node, box: Box) -> tuple[Row, Row]:
    """The whole in grey, the share in colour."""
    x, x2, y = box.left + POINTED + 4, box.right - POINTED - 4, box.bottom - 9
    share = x + (x2 - x) * min(max(node.size, 0.0), 1.0)
    look: Row = {"x": x, "y": y, "y2": y + 5, "weight": 0.5, "stroke": MUTED}
    return {**look, "x2": x2, "fill": GRID}, {**look, "x2": max(share, x + 1), "fill": COLOURS[node.colour]}


def _words(sheet: Sheet, chart: Network, boxes: Sequence[Box]) -> None:
    both = list(zip(chart.nodes, boxes, strict=True))
    sheet.texts([_label(node, box) for node, box in both if not node.strong], "center")
    sheet.texts([_label(node, box) for node, box in both if node.strong], "center", "bold")
    below = [row for node, box in both for row in _details(node, box)]
    sheet.texts(below, "center", size=SMALL)


def _high(node: Node, box: Box) -> float:
    """Where the first line of a box is: all of them stand in the middle, above the strip."""
    return -LINE / 2 * len(details(node, box.width)) - (4 if node.size > 0 else 0)


def _label(node: Node, box: Box) -> Row:
    return _word(box, _high(node, box), shortened(node.label, box.width - INSET), INK)


def _details(node: Node, box: Box) -> list[Row]:
    lines = details(node, box.width)
    return [_word(box, _high(node, box) + LINE * (i + 1), line, MUTED) for i, line in enumerate(lines)]


def _word(box: Box, below: float, text: str, fill: str) -> Row:
    return {"x": box.x, "y": box.y + below, "text": text, "fill": fill}


def _names(chart: Network, boxes: Sequence[Box], ways: Sequence[Sequence[Point]]) -> Iterator[Row]:
    """The names of arrows."""
    for edge, (x, y), points in zip(chart.edges, named(chart, boxes, ways), ways, strict=True):
        room = 150 if len(points) > 2 else points[1][0] - points[0][0]
        yield {"x": x, "y": y, "text": shortened(edge.label, room, SMALL), "fill": INK}
