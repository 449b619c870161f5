"""The answer of ``taut whatif``: a changed wall, and what policies would have saved of it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import ConsoleRenderable
from rich.text import Text

from taut.render.analysis_screen import render_change
from taut.render.terminal import Screen, clipped, new_table, screen_text
from taut.render.text import UNKNOWN, percent, safe
from taut.result.types import MeasuredPolicy, WhatIfResult


def render_whatif(result: WhatIfResult, screen: Screen) -> str:
    """Before and after where something was changed, then the policies."""
    policies = result.policies if isinstance(result.policies, list) else None
    if policies is None:
        return render_change(result, screen)
    head = render_change(result, screen) + "\n" if result.changes else ""
    return head + screen_text([*_policies(result, policies)], screen)


def _policies(result: WhatIfResult, policies: list[MeasuredPolicy]) -> Iterator[ConsoleRenderable]:
    if policies:
        known = policies[0].more_steps_share is not None
        table = new_table("policy", "regime then", "saves", "range", "behind", "net" if known else "even at")
        for one in policies:
            last = _net(one) if known else _even(one)
            name = clipped(f"{safe(one.name)} *", "bold") if one.on_frontier is True else clipped(safe(one.name))
            table.add_row(name, clipped(_regime(one)), _saves(one), _range(one), str(one.staleness_steps), last)
        yield table
    else:
        yield Text("no policy within this budget saves anything worth showing")
    for line in _notes(result, policies):
        yield Text(safe(line), style="dim")


def _saves(one: MeasuredPolicy) -> str:
    """What is saved; of a range the end that saves less is in the range."""
    return percent_signed(one.saved_share.value) if one.kind == "exact" else ""


def percent_signed(share: float | None) -> str:
    """A share that may be below nothing."""
    if share is None or share >= 0:
        return percent(share)
    return "> -0.1 %" if share > -0.0005 else f"-{percent(-share)}"


def _range(one: MeasuredPolicy) -> str:
    low, high = one.saved_share.lo, one.saved_share.hi
    if low is None or high is None:
        return UNKNOWN
    return f"{percent_signed(low)} to {percent_signed(high)}"


def _regime(one: MeasuredPolicy) -> str:
    """With the policy; without any it is the same for all, and told once."""
    return one.regime.with_ or UNKNOWN


def _net(one: MeasuredPolicy) -> str:
    found = one.net_saved_share
    return UNKNOWN if found is None else percent_signed(found.value)


def _even(one: MeasuredPolicy) -> str:
    share = one.break_even_steps_share
    return UNKNOWN if share is None else f"+{percent(share)}"


def _notes(result: WhatIfResult, policies: list[MeasuredPolicy]) -> Iterator[str]:
    """What the figures rest on."""
    if isinstance(result.replicas, str):
        yield result.replicas
    if policies and policies[0].regime.without:
        yield f"without a policy the regime is {policies[0].regime.without}"
    budget = result.staleness
    if budget:
        given = " (default; --staleness N)" if budget.default else ""
        yield f"gradients at most {budget.steps} steps behind{given}; * saves more than all that is fresher"
    if any(one.kind == "bounded" for one in policies):
        yield "of some only a range is known, from what is surely saved to what is if all goes well; with backups by the sample"
    more = policies[0].more_steps_share if policies else None
    if more is not None:
        yield f"net: with {percent(more)} more steps, as given"
    elif policies:
        yield "what convergence costs is unknown: so many more steps (even at) use the saving up; --more-steps 0.03 counts 3 %"
    for name, costs in dict.fromkeys((one.name.partition("=")[0], one.costs) for one in policies):
        if costs:
            yield f"{name}: {costs}"
