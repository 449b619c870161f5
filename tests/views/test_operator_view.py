"""The condensed operator graph: what each class takes, who follows whom, and where the critical path goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from build import analyze, job
from taut.result.brief_types import OperatorNode, OperatorView
from taut.views.operator_view import NODES, condensed

SLOW = {0: "fwd 5 | AR 1 | opt 2", 1: "fwd 9 | AR 1 | opt 2"}


def view(scripts: dict[int, str], steps: int = 4) -> OperatorView:
    done = analyze(job(scripts, steps=steps))
    return condensed(done.graph, done.ledger.cells)


def node(found: OperatorView, name: str) -> OperatorNode:
    return next(one for one in found.nodes if one.name == name)


def test_each_class_has_its_share_of_rank_time_waiting_and_critical_path() -> None:
    found = view(SLOW)  # a step of 12 ms: rank 0 works 8 and waits 4, rank 1 works 12
    assert {one.name for one in found.nodes} == {"fwd", "all-reduce", "opt"}
    assert node(found, "fwd").rank_share == pytest.approx(14 / 24)
    gate = node(found, "all-reduce")
    assert (gate.gate, gate.kind) == (True, "communicate")
    assert gate.wait_share == pytest.approx(4 / 24)
    assert node(found, "fwd").critical_share == pytest.approx(9 / 12)
    assert sum(one.critical_share or 0 for one in found.nodes) == pytest.approx(1)


def test_edges_count_who_follows_whom_and_the_steps_of_the_critical_path() -> None:
    found = view(SLOW)
    names = [one.name for one in found.nodes]
    edges = {(names[one.first], names[one.then]): one for one in found.edges}
    assert set(edges) == {("fwd", "all-reduce"), ("all-reduce", "opt"), ("opt", "fwd")}
    assert edges["fwd", "all-reduce"].count == 2 * 4
    assert edges["opt", "fwd"].count == 2 * 3  # from step to step
    assert edges["fwd", "all-reduce"].critical_share == 1


def test_a_receive_follows_its_send_on_the_critical_path() -> None:
    found = view({0: "fwd 9 | SEND>1 1", 1: "RECV<0 1 | bwd 5"}, steps=1)
    assert node(found, "bwd").critical_share == pytest.approx(5 / 15)
    assert node(found, "fwd").critical_share == pytest.approx(9 / 15)


def test_nodes_are_placed_in_the_order_of_the_step() -> None:
    found = sorted(view(SLOW).nodes, key=lambda one: one.place)
    assert [one.name for one in found] == ["fwd", "all-reduce", "opt"]


def test_the_critical_path_goes_back_as_seldom_as_it_can() -> None:
    # Most ranks begin to wait at the reduction long before the others reach the barrier that comes before it.
    late = dict.fromkeys((0, 1), "fwd 9 | BAR/x 1 | AR/y 1")
    found = view({**late, **dict.fromkeys(range(2, 6), "AR/y 1")})
    order = [one.name for one in sorted(found.nodes, key=lambda one: one.place)]
    assert order == ["fwd", "barrier", "all-reduce"]


def many(name: Callable[[int], str], count: int = 20) -> OperatorView:
    line = " | ".join(f"{name(k)} {count - k}" for k in range(count))
    return view({0: f"{line} | AR 1", 1: f"{line} | AR 1"}, steps=2)


def test_small_classes_are_together_in_the_last_node() -> None:
    found = many(lambda k: f"op{chr(97 + k)}")
    assert len(found.nodes) == NODES + 1
    assert found.nodes[-1].name == f"{found.left_out} other classes"
    assert sum(one.rank_share + one.wait_share for one in found.nodes) == pytest.approx(1)


def test_the_critical_path_passes_over_what_is_too_small_for_a_node() -> None:
    found = view({0: "fwd 500 | tiny 0.001 | AR 50", 1: "fwd 900 | tiny 0.001 | AR 50"})
    names = [one.name for one in found.nodes]
    assert (set(names), found.left_out) == ({"fwd", "all-reduce"}, 1)
    assert {(names[one.first], names[one.then]): one.critical_share for one in found.edges}["fwd", "all-reduce"] == 1


def test_of_many_classes_those_that_differ_in_numbers_are_one() -> None:
    found = many(lambda k: f"layer{k}")
    assert [one.name for one in found.nodes] == ["layer#"]  # the all-reduce takes next to nothing
    assert node(found, "layer#").ops == 20 * 2 * 2
