"""A document before it is HTML, PDF or Markdown: sections of blocks. Texts are plain; renderers escape, nobody else.

Charts are data here (``Chart``): ``charts.py`` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

Tone: TypeAlias = Literal["plain", "lead", "note", "warning"]
Mark: TypeAlias = Literal["plain", "old", "new", "good", "bad", "strong"]
"""``old`` is struck through, ``new`` highlighted."""
Colour: TypeAlias = Literal["useful", "slow", "communication", "waiting", "gap", "restart", "idle", "other", "whole"]
"""What something is; ``charts.py`` gives each a colour that people with any colour vision tell apart."""


class Text(Struct, frozen=True, tag=True):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class Fact(Struct, frozen=True):
    """One figure, large."""

    label: str
    value: str
    says: str


class Facts(Struct, frozen=True, tag=True):
    """A row of figures."""

    facts: Sequence[Fact]


class Column(Struct, frozen=True):
    """Head of a column."""

    title: str
    numeric: bool = False


class Cell(Struct, frozen=True):
    """A cell that is more than its text."""

    text: str
    mark: Mark = "plain"


class Grid(Struct, frozen=True, tag=True):
    """A table."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    note: str = ""


class Bullets(Struct, frozen=True, tag=True):
    """A list."""

    items: Sequence[str]
    numbered: bool = False


class Terms(Struct, frozen=True, tag=True):
    """Words of art and what they mean."""

    terms: Sequence[tuple[str, str]]


class Empty(Struct, frozen=True, tag=True):
    """What was not measured, and what to record to fill it."""

    says: str
    needs: str
    command: str | None = None


class Bar(Struct, frozen=True):
    """One bar, or one part of a stacked one."""

    label: str
    value: float
    colour: Colour
    shown: str
    """The value as it is written beside the bar."""
    group: str = ""
    """Bars of one group are stacked in one row."""


class Bars(Struct, frozen=True, tag=True):
    """Horizontal bars; stacked where they have groups."""

    bars: Sequence[Bar]
    axis: str


class WaterfallStep(Struct, frozen=True):
    """A bar from where to where."""

    label: str
    begin: float
    end: float
    colour: Colour
    shown: str


class Waterfall(Struct, frozen=True, tag=True):
    """From the whole down to what is useful."""

    steps: Sequence[WaterfallStep]
    axis: str


class Areas(Struct, frozen=True, tag=True):
    """Stacked areas over an axis."""

    x: Sequence[float]
    series: Sequence[tuple[str, Colour, Sequence[float]]]
    x_axis: str
    y_axis: str
    shares: bool = False
    """Whether values are shares that sum to 1."""
    steps: bool = False
    """Whether a value holds from its place to the next, as of steps of a job."""
    marks: Sequence[tuple[float, str]] = ()
    """Places with a name: a line across."""


class Line(Struct, frozen=True):
    """A line with its band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    lo: Sequence[float] = ()
    hi: Sequence[float] = ()
    dashed: bool = False


class Rule(Struct, frozen=True):
    """A vertical or horizontal line with its name."""

    at: float
    label: str
    horizontal: bool = False


class Lines(Struct, frozen=True, tag=True):
    """Lines over an axis."""

    lines: Sequence[Line]
    x_axis: str
    y_axis: str
    log_x: bool = False
    shares: bool = False
    rules: Sequence[Rule] = ()
    points: Sequence[tuple[float, float, str]] = ()


class Heat(Struct, frozen=True, tag=True):
    """A map: rows × columns."""

    rows: Sequence[str]
    columns: Sequence[str]
    row_axis: str
    column_axis: str
    values: Sequence[tuple[int, int, float, str]]
    """(row, column, value, what is written in it)."""
    value_axis: str
    marked: tuple[int, int] | None = None
    """Where the job stands."""


class Node(Struct, frozen=True):
    """A node of a network, placed."""

    label: str
    shape: Literal["work", "gate", "layer", "controller"]
    colour: Colour
    x: float
    y: float
    """0–1, from above."""
    size: float
    """0–1."""
    strong: bool = False
    detail: str = ""


class Edge(Struct, frozen=True):
    """From node to node."""

    first: int
    then: int
    weight: float
    """0–1."""
    strong: bool = False
    label: str = ""


class Network(Struct, frozen=True, tag=True):
    """Nodes and edges: the condensed operator graph, layers of control."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]


Chart: TypeAlias = Bars | Waterfall | Areas | Lines | Heat | Network


class Picture(Struct, frozen=True, tag=True):
    """A chart with its title, and in words what it shows, for those who cannot see it."""

    title: str
    alt: str
    chart: Chart


class Sides(Struct, frozen=True, tag=True):
    """Two answers side by side."""

    left_title: str
    left: Sequence[Block]
    right_title: str
    right: Sequence[Block]


Block: TypeAlias = Text | Facts | Grid | Bullets | Terms | Empty | Picture | Sides


class Section(Struct, frozen=True):
    """A headed part of the document."""

    key: str
    """Anchor: letters and hyphens."""
    title: str
    blocks: Sequence[Block]
    commands: Sequence[str] = ()
    """What shows the same figures again."""
    page: bool = False
    """Whether it begins a page in print."""


class Document(Struct, frozen=True):
    """Title and sections."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footer: str
