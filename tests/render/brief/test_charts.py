"""Charts: pictures that are the same each time, hold any text as text, and never overlap their boxes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import combinations, cycle
from math import inf, nan
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brief_documents import charts
from brief_payloads import PAYLOADS
from taut.core.errors import TautError
from taut.render.brief.canvas import COLOURS, HALF, INK, PAPER, themed
from taut.render.brief.charts import svg
from taut.render.brief.document import Areas, Bar, Bars, Chart, Edge, Heat, Line, Lines, Network, Node, Waterfall
from taut.render.brief.network_layout import placed, routes
from taut.render.text import safe

DRAWN = {"svg", "g", "path", "rect", "line", "text", "polygon", "circle", "tspan"}


def in_turn(texts: Sequence[str]) -> Callable[[str], str]:
    turn = cycle(texts)
    return lambda _: next(turn)


def words(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]


def test_the_scale_of_a_map_is_in_numbers_whatever_its_cells_say() -> None:
    cells = [(0, 0, 0.19, "failures 19 %"), (0, 1, 0.1, "waiting 10 %")]
    drawn = words(svg(Heat(["as it is"], ["8", "16"], "spread", "ranks", cells, "of the work")))
    assert [text for text in drawn if text.endswith(" of the work")] == ["19 %  of the work"]
    assert "0 %" in drawn


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: type(chart).__name__)
def test_same_bytes_twice(chart: Chart) -> None:
    assert svg(chart) == svg(chart)


def test_texts_are_text() -> None:
    shown: set[str] = set()
    payloads = [safe(payload) for payload in PAYLOADS]
    for chart in charts(in_turn(payloads)):
        picture = svg(chart)
        root = ElementTree.fromstring(picture)
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= DRAWN
        assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name]
        shown |= set(words(picture))
    assert len(shown & set(payloads)) > 25  # the longest are shortened


def test_every_bar_has_its_name_and_its_value() -> None:
    found = words(svg(charts()[0]))
    assert {"rank 137 waits", "31 %", "slow compute", "12 %", "share of all rank time"} <= set(found)


def test_parts_of_a_stack_have_the_numbers_of_the_legend() -> None:
    found = words(svg(charts()[1]))
    assert {"1  useful", "2  waiting", "3  other", "1: 60 %", "2: 30 %", "3"} <= set(found)


def test_bars_of_one_name_stay_two() -> None:
    found = words(svg(Bars([Bar("rank 0", 1, "slow", "1 s"), Bar("rank 0", 2, "slow", "2 s")], "s")))
    assert found.count("rank 0") == 2


def test_lines_and_areas_are_named() -> None:
    assert {"compute", "communication", "waiting"} <= set(words(svg(charts()[3])))
    assert {"computed", "nominal", "threshold", "half is lost", "this job"} <= set(words(svg(charts()[4])))


@pytest.mark.parametrize(
    "chart",
    [
        Bars([], "s"),
        Waterfall([], "s"),
        Areas([], [], "x", "y"),
        Areas([3], [("a", "useful", [1])], "x", "y"),
        Lines([], "x", "y"),
        Lines([Line("a", [1], [2])], "x", "y", log_x=True),
        Lines([Line("a", [1, 2], [nan, inf], [0, -inf], [1, nan])], "x", "y"),
        Bars([Bar("a", nan, "slow", "unknown")], "s"),
        Heat([], [], "r", "c", [], "v"),
        Heat(["a"], ["b"], "r", "c", [(0, 0, nan, "")], "v"),
        Network([], []),
    ],
    ids=repr,
)  # fmt: skip
def test_little_or_no_data_is_a_picture_too(chart: Chart) -> None:
    assert ElementTree.fromstring(svg(chart)).tag.endswith("svg")


def test_a_map_of_1024_ranks_is_drawn_in_groups() -> None:
    names = [f"rank {i}" for i in range(1024)]
    values = [(i, (i * 7 + k) % 1024, i / 1024, f"{i}") for i in range(1024) for k in range(16)]
    picture = svg(Heat(names, names, "late", "waits", values, "share"))
    assert len(picture) < 1_000_000
    assert "rank 0–rank 15" in words(picture)
    assert any("groups of 16 × 16, the largest of each" in text for text in words(picture))


def test_a_page_gives_its_ink() -> None:
    picture = svg(charts()[0])
    assert INK in picture
    assert not {INK, PAPER} & set(themed(picture).split('"'))
    assert COLOURS["waiting"] in themed(picture)


names = st.text("abcdefgh ", min_size=1, max_size=40)
nodes = st.builds(
    Node, names, st.sampled_from(["work", "gate", "layer", "controller"]), st.just("slow"),
    st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.booleans(), names,
)  # fmt: skip


@given(st.lists(nodes, min_size=1, max_size=14), st.sampled_from([HALF, 640]))
def test_boxes_never_overlap_and_stay_on_the_sheet(given_nodes: list[Node], width: float) -> None:
    last = len(given_nodes) - 1
    chart = Network(given_nodes, [Edge(0, last, 1), Edge(last, 0, 1, True, "back"), Edge(last, last, 1)])
    boxes = placed(chart, width)
    for one, other in combinations(boxes, 2):
        apart = one.right < other.left or other.right < one.left or one.bottom < other.top or other.bottom < one.top
        assert apart
    points = [point for way in routes(chart, boxes, width) for point in way]
    assert all(0 <= x <= width and y >= 0 for x, y in points)
    assert all(box.left >= 0 and box.right <= width and box.top >= 0 for box in boxes)


@pytest.mark.parametrize(("module", "name"), [("altair", "altair"), ("vl_convert", "vl-convert-python")])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TautError, match=rf"needs {name}.*pip install 'taut\[brief\]'"):
        svg(charts()[0])
