"""Controllers of a log, of a run folder, and of a scenario: a simulated run's log is read as a real one, at its own prices."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace

from taut.briefing.loop_review import loops_named
from taut.control.action_log import prepare
from taut.control.control_stack import stack_of_log, stack_of_loops
from taut.control.relation_price import priced
from taut.control.relations import control
from taut.core.prices import Prices
from taut.core.tables import Op, Table, Trace
from taut.project.loops.scenario import Price, parse
from taut.project.loops.simulated_run import simulate
from taut.read.scenario_file import load
from taut.result.brief_types import ControlStack
from taut.result.types import ControlResult
from taut.stored_tables import open_tables


def stack_of(trace: Trace) -> ControlStack | None:
    """The controllers of a trace, and how their decisions follow each other; None where none is on record."""
    if not len(trace.actions):
        return None
    found = stack_of_log(prepare(trace))
    return found if found.controllers else None


def stack_in(folder: str | Path) -> ControlStack | None:
    """The same of the actions that a run folder keeps."""
    stored = open_tables(folder)
    empty = Table(Op, {}, 0)
    return stack_of(Trace(empty, [], [], [], stored.members, actions=stored.actions, metrics=stored.metrics))


def control_of(named: str, prices: Prices | None = None, seed: int = 0) -> tuple[ControlResult | None, ControlStack | None]:
    """(what a simulated log shows, its controllers) of a scenario of loops; only the controllers of other scenarios with
    loops, and nothing of those without."""
    table, text = load(named)
    if "loops" not in table:
        loops = loops_named(named)
        return None, stack_of_loops(loops) if loops else None
    scenario, _ = parse(table, named, text)
    trace = simulate(scenario, seed).trace
    found = control(trace, seed=seed)
    at = prices or _prices(scenario.price)
    return replace(found, relations=[priced(one, at) for one in found.relations]), stack_of(trace)


def _prices(price: Price) -> Prices:
    hour = None if price.per_hour is None else Decimal(str(price.per_hour))
    return Prices(hour, price.currency or None, price.load_w, price.stall_w, None)
