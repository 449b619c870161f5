"""The layers of agents that try again as a configuration of control loops has them, so that they can be reviewed.

A layer that has no limit of its own waits for all that the layer below it may try.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from taut.control.review import longest
from taut.project.requests.agents.scenario import AgentScenario
from taut.read.actions.loops_config import Loop

MODEL, TOOLS = "model", "tools"


def as_configured(s: AgentScenario) -> tuple[Loop, ...]:
    """A task, the drafts that it may ask for, and the layers of retries below: of calls of the model, and of tools."""
    a, t = s.agents, s.tools
    innermost = Loop("calls", "retry", target=MODEL, timeout_s=a.call_timeout_s or None, budget_share=a.retry_budget)
    calls = _layers(innermost, a.retries, a.backoff_s)
    tools = _layers(Loop("tools", "retry", target=TOOLS, timeout_s=t.timeout_s or None), t.retries, 0.0) if t.count else []
    deadline_s = a.deadline_s if a.deadline_s and not a.deadline_propagates else None
    task = Loop("task", "policy", deadline_s=deadline_s, calls=(*_first(calls), "drafts"))
    drafts = Loop("drafts", "model", retries=a.redos, calls=_first(tools))
    return (task, drafts, *calls, *tools)


def _first(layers: Sequence[Loop]) -> tuple[str, ...]:
    return tuple(one.name for one in layers[:1])


def _layers(innermost: Loop, retries: Sequence[int], pause_s: float) -> list[Loop]:
    """Layers of retries, the outermost first; only the innermost gives up on a call, and pauses, twice as long each time."""
    many = retries[-1] if retries else 0
    below = [replace(innermost, retries=many, back_off_s=pause_s * (2**many - 1) / (many or 1))]
    for more in reversed(retries[:-1]):
        below.insert(0, replace(innermost, retries=more, timeout_s=longest(below[0])))
    if len(below) == 1:
        return below
    names = [f"{innermost.name} {k}" for k in range(1, len(below) + 1)]
    return [
        replace(one, name=name, calls=tuple(names[k : k + 1]))
        for k, (one, name) in enumerate(zip(below, names, strict=True), 1)
    ]
