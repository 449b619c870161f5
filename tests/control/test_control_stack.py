"""Controllers by layer, and decisions with and against each other."""

from __future__ import annotations

from actions import act, trace
from taut.control.action_log import prepare
from taut.control.control_stack import stack_of_log, stack_of_loops
from taut.read.actions.loops_config import Loop


def test_decisions_with_and_against_another_controller_are_counted() -> None:
    rows = []
    for k in range(5):
        rows += [act(10 * k, "scaler", 1, "chat", "replicas"), act(10 * k + 1, "saver", -1 if k < 3 else 1, "chat", "replicas")]
    found = stack_of_log(prepare(trace(rows)))
    names = [one.name for one in found.controllers]
    pairs = {(names[one.first], names[one.then]): (one.coherent, one.incoherent) for one in found.pairs}
    # Saver after scaler: down three times, up twice; scaler after saver: up against down three times, then up after up once.
    assert pairs == {("scaler", "saver"): (2, 3), ("saver", "scaler"): (1, 3)}
    assert {one.name: one.decisions for one in found.controllers} == {"scaler": 5, "saver": 5}
    assert {one.name: one.turned_back for one in found.controllers} == {"scaler": 0, "saver": 1}


def test_other_targets_do_not_meet() -> None:
    rows = [act(0, "a", 1, "chat", "replicas"), act(1, "b", -1, "search", "replicas")]
    assert stack_of_log(prepare(trace(rows))).pairs == []


def test_loops_have_layers_and_no_decisions_yet() -> None:
    found = stack_of_loops([Loop("sdk", "retry"), Loop("own")])
    assert [(one.name, one.layer, one.decisions) for one in found.controllers] == [("sdk", "retry", None), ("own", None, None)]
