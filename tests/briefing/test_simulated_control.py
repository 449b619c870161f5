"""A scenario of loops, read as the log that a run of it writes."""

from __future__ import annotations

from actions import trace
from taut.briefing.simulated_control import control_of, stack_of


def test_nobody_decided() -> None:
    assert stack_of(trace([])) is None


def test_a_scenario_of_loops_is_read_as_its_log_and_others_by_their_configuration() -> None:
    result, stack = control_of("retry-heavy")
    assert result is not None
    assert stack is not None
    assert {one.kind for one in result.relations} >= {"amplification"}
    assert all(one.cost.currency == "USD" for one in result.relations)
    assert {one.name: one.layer for one in stack.controllers} == {"gateway": "retry", "sdk": "retry", "planner": "orchestrator"}
    nothing, agents = control_of("agent-chain")
    assert nothing is None
    assert agents is not None
    assert control_of("gpt-175b") == (None, None)
