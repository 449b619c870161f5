"""Max-min fair rates: textbook examples, and what every solution must satisfy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.project.fabric.flow import fill, filled, rates, slowest


def solve(routes: list[list[int]], capacity: list[float]) -> list[float]:
    start = np.concatenate([[0], np.cumsum([len(route) for route in routes])])
    link = [one for route in routes for one in route]
    found: list[float] = rates(start, np.array(link, dtype=np.int64), capacity).tolist()
    return found


@pytest.mark.parametrize(
    ("what", "routes", "capacity", "expected"),
    [
        ("two flows share a link", [[0], [0]], [10], [5, 5]),
        ("parking lot: the long flow meets one short flow on every link", [[0, 1, 2], [0], [1], [2]], [1, 1, 1], [0.5] * 4),
        ("parking lot of unequal links", [[0, 1], [0], [1]], [10, 4], [2, 8, 2]),
        ("three bottlenecks, one after the other", [[0], [0, 1], [1, 2], [2]], [2, 6, 10], [1, 1, 5, 5]),
        ("five flows, four links", [[0, 1], [0], [1, 2], [2, 3], [3]], [4, 9, 8, 20], [2, 2, 4, 4, 16]),
        ("incast: many to one", [[i, 8] for i in range(8)], [25] * 9, [25 / 8] * 8),
        ("a link that a flow crosses twice", [[0, 0], [0]], [9], [3, 3]),
        ("no link, no limit", [[], [0]], [3], [float("inf"), 3]),
    ],
)
def test_textbook_examples(what: str, routes: list[list[int]], capacity: list[float], expected: list[float]) -> None:
    assert solve(routes, capacity) == expected, what


def test_nobody_sends_nothing() -> None:
    assert solve([], [1.0]) == []


@st.composite
def problems(draw: Any) -> tuple[Any, Any, Any]:
    links = draw(st.integers(1, 8))
    routes = draw(st.lists(st.lists(st.integers(0, links - 1), min_size=1, max_size=5), min_size=1, max_size=25))
    capacity = draw(st.lists(st.floats(0.1, 1000), min_size=links, max_size=links))
    start = np.concatenate([[0], np.cumsum([len(route) for route in routes])])
    return start, np.array([one for route in routes for one in route]), np.array(capacity)


def loads(start: Any, link: Any, rate: Any, links: int) -> Any:
    return np.bincount(link, np.repeat(rate, np.diff(start)), minlength=links)


@given(problems())
def test_no_link_is_overfull_and_every_flow_has_its_bottleneck(problem: tuple[Any, Any, Any]) -> None:
    start, link, capacity = problem
    rate = rates(start, link, capacity)
    load = loads(start, link, rate, len(capacity))
    assert (load <= capacity * (1 + 1e-9)).all()
    flow = np.repeat(np.arange(len(rate)), np.diff(start))
    for f in range(len(rate)):
        bottleneck = [
            k
            for k in link[start[f] : start[f + 1]]
            if load[k] >= capacity[k] * (1 - 1e-9) and rate[f] >= rate[flow[link == k]].max() * (1 - 1e-9)
        ]
        assert bottleneck, f"flow {f} could have more without taking from a smaller one"


@given(problems())
def test_the_lowest_rate_is_where_the_first_link_is_full(problem: tuple[Any, Any, Any]) -> None:
    start, link, capacity = problem
    lowest = slowest(np.bincount(link, minlength=len(capacity)), capacity)
    assert lowest == pytest.approx(rates(start, link, capacity).min(), rel=1e-12)


@given(problems(), st.randoms(use_true_random=False))
def test_rates_do_not_depend_on_the_order_of_flows_or_links(problem: tuple[Any, Any, Any], random: Any) -> None:
    start, link, capacity = problem
    flows, links = list(range(len(start) - 1)), list(range(len(capacity)))
    random.shuffle(flows)
    random.shuffle(links)
    renamed = np.argsort(links)
    routes = [renamed[link[start[f] : start[f + 1]]] for f in flows]
    moved = rates(np.concatenate([[0], np.cumsum([len(r) for r in routes])]), np.concatenate(routes), capacity[links])
    assert moved == pytest.approx(rates(start, link, capacity)[flows], rel=1e-9)


def test_the_compiled_kernel_gives_the_very_numbers_of_the_plain_one() -> None:
    rng = np.random.default_rng(1)
    for flows, links in ((30_000, 900), (400, 60), (5, 3)):  # the first is large enough to be compiled, and stays so
        start, link = np.arange(flows + 1) * 4, rng.integers(0, links, flows * 4)
        capacity = rng.integers(1, 30, links).astype(float)
        assert (fill(start, link, capacity) == filled(start, link, capacity)).all()
