"""Where the boxes of a network stand and how its arrows run: no box over another, whatever places were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import atan2, degrees

from msgspec import Struct

from taut.render.brief.canvas import shortened, wide
from taut.render.brief.document import Edge, Network, Node

GAP_X, GAP_Y, NARROWEST = 34, 46, 88
TIGHT, NAMED = 18, 58
"""Room between rows where there are more than ``FEW_ROWS`` of them, and where arrows between them have names."""
FEW_ROWS = 4
SAME_ROW = 0.06
"""Nodes whose heights differ by no more stand in one row."""
LANE, LANES = 9, 5
"""Arrows that go up run on the right, those that leap over rows on the left, in lanes so far apart; later ones share them."""
SIDE = 14
"""From a box to the first lane."""
BENDS = 24
"""Pieces of which a curve is made."""
HEAD = 5.0
"""Length of an arrow's head that lies before its end."""
LINE = 13.5
"""From line to line in a box."""
INSET = 28
"""Of the width of a box, what words leave free."""
Point = tuple[float, float]


class Box(Struct, frozen=True):
    """A node on the sheet."""

    x: float
    y: float
    """Its middle."""
    width: float
    height: float
    row: int
    place: int
    """Within the row, from the left."""

    @property
    def left(self) -> float:
        """Its left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height / 2


def placed(chart: Network, width: float) -> list[Box]:
    """A box for every node, in the order of the nodes."""
    up, gap = _going_up(chart), _gap(chart, width)
    left = 4 + _side(_leaping(chart))
    room = width - 4 - left - _side(up)
    found: dict[int, Box] = {}
    y, rows = 26.0 if up else 6.0, _rows(chart.nodes, room, gap)
    apart = NAMED if any(edge.label for edge in chart.edges) else GAP_Y if len(rows) <= FEW_ROWS else TIGHT
    for row, members in enumerate(rows):
        most = (room - gap * (len(members) - 1)) / len(members)
        widths = [_width(chart.nodes[i], most) for i in members]
        lines = max(len(details(chart.nodes[i], width)) for i, width in zip(members, widths, strict=True))
        height = 34.0 + LINE * lines
        middles = _spread([chart.nodes[i].x for i in members], widths, room, gap)
        for place, (i, x) in enumerate(zip(members, middles, strict=True)):
            found[i] = Box(x + left, y + height / 2, widths[place], height, row, place)
        y += height + apart
    return [found[i] for i in range(len(chart.nodes))]


def _rows(nodes: Sequence[Node], room: float, gap: float) -> list[list[int]]:
    """Nodes of about one height, from left to right; too many for one row make two."""
    rows: list[list[int]] = []
    for i in sorted(range(len(nodes)), key=lambda i: (nodes[i].y, nodes[i].x)):
        if not rows or nodes[i].y - nodes[rows[-1][0]].y > SAME_ROW:
            rows.append([])
        rows[-1].append(i)
    most = max(1, int((room + gap) // (NARROWEST + gap)))
    ordered = [sorted(row, key=lambda i: nodes[i].x) for row in rows]
    return [part for row in ordered for part in _parts(row, most)]


def _parts(row: list[int], most: int) -> list[list[int]]:
    """The row in as few parts of about one size as there is room for."""
    count = -(-len(row) // most)
    size = -(-len(row) // count)
    return [row[i : i + size] for i in range(0, len(row), size)]


def _width(node: Node, most: float) -> float:
    if node.shape == "layer":
        return most
    return min(max(wide(node.label), wide(node.detail, 11), NARROWEST - 36) + 36, most)


def details(node: Node, width: float) -> list[str]:
    """What a box says below its name, in at most two lines, broken at commas."""
    lines: list[str] = []
    for part in node.detail.split(", ") if node.detail else []:
        joined = f"{lines[-1]}, {part}" if lines else part
        if lines and (wide(joined, 11) <= width - INSET or len(lines) == 2):
            lines[-1] = joined
        else:
            lines.append(part)
    return [shortened(line, width - INSET, 11) for line in lines]


def _spread(wanted: Sequence[float], widths: Sequence[float], room: float, gap: float) -> list[float]:
    """Middles near those wanted (0–1 of the room), from left to right, a gap between each two."""
    found: list[float] = []
    for share, width in zip(wanted, widths, strict=True):
        least = found[-1] + widths[len(found) - 1] / 2 + gap + width / 2 if found else width / 2
        found.append(max(width / 2 + min(max(share, 0.0), 1.0) * (room - width), least))
    most = room
    for i in reversed(range(len(found))):
        found[i] = min(found[i], most - widths[i] / 2)
        most = found[i] - widths[i] / 2 - gap
    return found


def _gap(chart: Network, width: float) -> float:
    """Room between boxes of a row: enough for the names of the arrows there, up to a quarter of the sheet."""
    nodes = chart.nodes
    beside = [edge for edge in chart.edges if abs(nodes[edge.first].y - nodes[edge.then].y) <= SAME_ROW]
    return min(max([GAP_X, *(wide(edge.label, 11) + 14 for edge in beside if edge.label)]), width / 4)


def _going_up(chart: Network) -> list[Edge]:
    """Arrows that do not go down: they need room above and on the right."""
    return [edge for edge in chart.edges if chart.nodes[edge.then].y <= chart.nodes[edge.first].y + SAME_ROW]


def _leaping(chart: Network) -> list[Edge]:
    """Arrows that go down past other nodes: they need room on the left."""
    heights = [node.y for node in chart.nodes]
    return [
        edge for edge in chart.edges if any(heights[edge.first] + SAME_ROW < y < heights[edge.then] - SAME_ROW for y in heights)
    ]


def _side(edges: Sequence[Edge]) -> float:
    """Room for lanes, and for half of the longest name on them."""
    words = max((min(wide(edge.label, 11), 120) / 2 for edge in edges), default=0.0)
    return SIDE + max(LANE * min(len(edges), LANES), words) if edges else 0.0


def routes(chart: Network, boxes: Sequence[Box], width: float) -> list[list[Point]]:
    """Points of every arrow, in the order of the arrows; none leaves the sheet."""
    return [[(min(max(x, 0.0), width), max(y, 0.0)) for x, y in way] for way in _ways(chart, boxes)]


def _ways(chart: Network, boxes: Sequence[Box]) -> list[list[Point]]:
    up = leap = 0
    found: list[list[Point]] = []
    beside: Counter[tuple[int, int]] = Counter()
    for edge in chart.edges:
        first, then = boxes[edge.first], boxes[edge.then]
        if first.row > then.row:
            found.append(_detour(first, then, boxes, up % LANES, 1))
            up += 1
        elif then.row > first.row + 1 and _hidden(first, then, boxes):
            found.append(_detour(first, then, boxes, leap % LANES, -1))
            leap += 1
        else:
            found.append(_near(first, then, beside[edge.first, edge.then]))
            beside[edge.first, edge.then] += 1
    return found


def _near(first: Box, then: Box, nth: int) -> list[Point]:
    """To the box itself, to the next one, along the row, or down; the second between two boxes beside the first."""
    if first == then:
        return _loop(first)
    if first.row < then.row:
        return _down(first, then, 18 * nth)
    if then.place == first.place + 1:
        y = first.y + min(14 * nth, first.height / 2 - 4)
        return [(first.right, y), (then.left - HEAD, y)]
    return _over(first, then)


def _hidden(first: Box, then: Box, boxes: Sequence[Box]) -> bool:
    """Whether boxes between would hide the arrow."""
    low, high = sorted((first.x, then.x))
    return any(first.row < box.row < then.row and box.left < high + 8 and box.right > low - 8 for box in boxes)


def _detour(first: Box, then: Box, boxes: Sequence[Box], lane: int, side: int) -> list[Point]:
    """Along the right (1) or the left (−1) side of all between, with round corners."""
    rows = sorted((first.row, then.row))
    edges = [box.right if side > 0 else -box.left for box in boxes if rows[0] <= box.row <= rows[1]]
    far = max(side * (max(edges) + SIDE + LANE * lane), 2.0)
    way = 1 if then.row > first.row else -1
    begin, end = _exit(first, boxes, lane, side, way), _exit(then, boxes, lane, side, -way)
    straight = [(far, begin[-1][1] + (end[-1][1] - begin[-1][1]) * part / 8) for part in range(9)]
    return _rounded([*begin, *straight, *_shorter(end, side)[::-1]])


def _exit(box: Box, boxes: Sequence[Box], lane: int, side: int, way: int) -> list[Point]:
    """From a box towards a lane: out of its side, or where others stand there, above (−1) or below (1) them."""
    if any(other.row == box.row and (other.x - box.x) * side > 0 for other in boxes):
        x, edge = box.x + side * box.width * 0.3, box.bottom if way > 0 else box.top
        return [(x, edge), (x, edge + way * (11 + 3 * lane))]
    return [((box.right if side > 0 else box.left), box.y + 6 * (lane % 3 - 1))]


def _shorter(points: list[Point], side: int) -> list[Point]:
    """The same, its first point drawn back by the head of an arrow: up or down, or sideways where it stands alone."""
    (x, y), *rest = points
    if rest:
        return [(x, y + (HEAD if rest[0][1] > y else -HEAD)), *rest]
    return [(x + side * HEAD, y)]


def _rounded(points: list[Point]) -> list[Point]:
    """Corners cut by short curves."""
    found = points[:1]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        found += _corner(before, corner, after)
    return [*found, points[-1]]


def _corner(before: Point, corner: Point, after: Point) -> list[Point]:
    ends = []
    for x, y in (before, after):
        long = abs(x - corner[0]) + abs(y - corner[1])
        part = min(6.0, long / 2) / long if long else 0.0
        ends.append((corner[0] + (x - corner[0]) * part, corner[1] + (y - corner[1]) * part))
    return [ends[0], ((ends[0][0] + ends[1][0] + 2 * corner[0]) / 4, (ends[0][1] + ends[1][1] + 2 * corner[1]) / 4), ends[1]]


def named(chart: Network, boxes: Sequence[Box], ways: Sequence[Sequence[Point]]) -> list[Point]:
    """Where the name of each arrow stands: near its middle, over no box and no other name where there is room."""
    taken = [(box.left, box.top, box.right, box.bottom) for box in boxes]
    taken += [(way[0][0], way[0][1] - 2, way[1][0], way[1][1] + 2) for way in ways if len(way) == 2]
    found = []
    for edge, points in zip(chart.edges, ways, strict=True):
        places = _places(points)
        rooms = [_room(edge.label, place) for place in places]
        best = min(range(len(places)), key=lambda k: sum(_meet(rooms[k], other) for other in taken))
        found.append(places[best])
        taken += [rooms[best]] if edge.label else []
    return found


def _places(points: Sequence[Point]) -> list[Point]:
    """Where a name may stand, the best first: on a curve, above or below a straight line."""
    if len(points) == 2:
        (x, y), (x2, _) = points
        return [((x + x2) / 2, y - 9), ((x + x2) / 2, y + 10), ((x + x2) / 2, y - 22), ((x + x2) / 2, y + 23)]
    middle = len(points) / 2
    return sorted(points[2:-2], key=lambda point: abs(points.index(point) - middle))


def _room(text: str, place: Point) -> tuple[float, float, float, float]:
    half = min(wide(text, 11), 150) / 2 + 3
    return place[0] - half, place[1] - 7, place[0] + half, place[1] + 7


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _down(first: Box, then: Box, aside: float) -> list[Point]:
    """Leaves below, towards where it goes, and arrives above."""
    lean = max(-1.0, min(1.0, (then.x - first.x) / 200))
    begin, end = first.x + lean * first.width * 0.22, then.x - lean * then.width * 0.22
    begin, end = min(begin + aside, first.right - 8), min(end + aside, then.right - 8)
    middle = (first.bottom + then.top) / 2
    return _curve((begin, first.bottom), (begin, middle), (end, middle), (end, then.top - HEAD))


def _over(first: Box, then: Box) -> list[Point]:
    """Above the row, over the boxes between."""
    lift = first.top - 26
    lean = 0.25 if then.x > first.x else -0.25
    begin, end = first.x + lean * first.width, then.x - lean * then.width
    return _curve((begin, first.top), (begin, lift), (end, lift), (end, then.top - HEAD))


def _loop(box: Box) -> list[Point]:
    x, top = box.right - 14, box.top
    return _curve((x - 16, top), (x - 20, top - 24), (x + 12, top - 24), (x, top - HEAD))


def _curve(a: Point, b: Point, c: Point, d: Point) -> list[Point]:
    """A curve of Bézier, in pieces."""
    found = []
    for piece in range(BENDS + 1):
        t = piece / BENDS
        parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
        x, y = (sum(part * point[axis] for part, point in zip(parts, (a, b, c, d), strict=True)) for axis in (0, 1))
        found.append((round(x, 2), round(y, 2)))
    return found


def heading(points: Sequence[Point]) -> float:
    """Where an arrow points at its end, in degrees clockwise from above."""
    (x, y), (x2, y2) = points[-2:]
    return round(degrees(atan2(x2 - x, y - y2)), 2)
