"""Energy feedback loop: power or heat lowers the clock, which makes steps longer, which lowers power, and so on.

Signature: a loop of edges between power, clock, temperature and the rank's own step time, each of the sign that a
governor gives it, with a loop gain near or above one: such a loop overshoots and swings instead of settling.

Null hypothesis, per loop: at least one of its edges is not there (``core/lagged.py`` has the null of an edge). A loop is as
likely as its least likely edge (intersection–union test), corrected for the loops and ranks of the run.

Alternatives it excludes. Load that power and step time both follow: it moves the two in the same direction, a loop in
opposite ones, and what a step's load was is known from its energy, which is given. A shared period: taken out first. A
clock that wanders by itself: nothing leads it. A cap that holds without swinging: its gain is far below one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered
from taut.core.lagged import Edge, goes_with, leads, without_period
from taut.core.rank_words import rank_label
from taut.core.reporting import spell
from taut.diagnose.class_medians import class_medians
from taut.diagnose.finding import Evidence, Finding, recovered
from taut.diagnose.metric_steps import Steps, steps_of
from taut.graph import Graph
from taut.replay.timeline import Change

MODE = "energy feedback loop"
MODES = (MODE,)
FALSE_ALARMS = 0.01
"""Chance that a run without a loop has one found, over all its ranks and loops."""
LEAST_STEPS = 40
"""Steps, or blocks of steps, that a loop needs to show."""
NEAR = 0.5
"""A loop gain whose interval does not reach this settles by itself: after two steps less than a quarter is left."""
UNTHROTTLED = 0.2
"""The share of steps with the highest clock (or the shortest for their energy) that stand for a rank not held back."""
POWER, CLOCK, TEMPERATURE = "power_w", "clock_mhz", "temperature_c"
DRAWS = 2000
"""Draws of the two slopes for the interval of their product."""


class Loop(Struct, frozen=True):
    """One loop of one rank."""

    path: str
    """The quantities that it goes through."""
    chance: float
    gain: dict[str, float]
    lever: Floats
    """One value per step, high while the loop does not hold the rank back."""
    held: str
    """The steps in which it is high, in words."""
    alternatives: tuple[str, ...] = ()


def detect(evidence: Evidence) -> list[Finding] | None:
    """One finding for all ranks that swing, with the gain of the surest."""
    steps = steps_of(evidence.graph, (POWER, CLOCK, TEMPERATURE), LEAST_STEPS)
    tested = {index: loops(one) for index, one in steps.items()}
    tests = sum(map(len, tested.values()))
    found = {}
    for index, some in tested.items():
        sure = [one for one in some if one.chance * tests <= FALSE_ALARMS and one.gain["hi"] >= NEAR]
        if sure:
            found[index] = min(sure, key=lambda one: one.chance)
    return [_finding(evidence, steps, found, tests)] if found else [] if tests else None


def loops(steps: Steps) -> list[Loop]:
    """The loops that this rank's metrics allow to test, each with its chance under the null and its gain."""
    series = {POWER: steps.metrics[POWER], "step": steps.took_ns, "energy": steps.metrics[POWER] * steps.length_ns}
    series |= {name: steps.metrics[name] for name in (CLOCK, TEMPERATURE) if name in steps.metrics}
    if min(np.ptp(series[POWER]), np.ptp(series["step"])) <= 0:
        return []
    s = dict(zip(series, without_period(list(series.values())), strict=True))
    quick = _less_line(s["energy"], -s["step"]), "shortest for their energy", ("work imbalance",)
    out = [_loop("power → step time → power", quick, leads(s[POWER], s["step"], 1, (s["energy"],)), _step_lowers_power(s))]
    if CLOCK not in s or np.ptp(s[CLOCK]) <= 0:
        return out
    fast = s[CLOCK], "with the highest clock", ()
    longer = goes_with(s[CLOCK], s["step"], -1)
    by_clock = leads(s[POWER], s[CLOCK], -1), goes_with(s[CLOCK], s[POWER], 1)
    out.append(_loop("power → clock → step time and power", fast, *by_clock, longer))
    if TEMPERATURE in s and np.ptp(s[TEMPERATURE]) > 0:
        by_heat = leads(s[TEMPERATURE], s[CLOCK], -1), leads(s[CLOCK], s[TEMPERATURE], 1)
        out.append(_loop("temperature → clock → step time and temperature", fast, *by_heat, longer))
    return out


def _step_lowers_power(s: dict[str, Floats]) -> Edge:
    """A longer step lowers power: in the same step, or in the next, where the sensor averages or the load hides it.

    By how much follows from the same energy over a longer time: measured, it would be mixed with what the load does.
    """
    chance = min(goes_with(s["step"], s[POWER], -1).chance, leads(s["step"], s[POWER], -1).chance)
    return Edge(min(1.0, 2 * chance), -float(s[POWER].mean() / s["step"].mean()), 0.0)


def _less_line(known: Floats, values: Floats) -> Floats:
    """What is left of values when a straight line over something known is taken out."""
    x = known - known.mean()
    return np.asarray(values - values.mean() - x * float(x @ values) / max(float(x @ x), 1e-300))


def _loop(path: str, free: tuple[Floats, str, tuple[str, ...]], there: Edge, back: Edge, *others: Edge) -> Loop:
    """There and back give the gain; what else must hold counts for the chance."""
    rng = np.random.default_rng(0)
    # The gain is a product of two uncertain slopes: its interval is drawn.
    draws = rng.normal(there.slope, there.error, DRAWS) * rng.normal(back.slope, back.error, DRAWS)
    low, high = np.quantile(-draws, (0.025, 0.975))
    value = -there.slope * back.slope
    gain = {"value": value, "lo": min(float(low), value), "hi": max(float(high), value)}
    return Loop(path, max(edge.chance for edge in (there, back, *others)), gain, *free)


def _finding(e: Evidence, steps: dict[int, Steps], found: dict[int, Loop], tests: int) -> Finding:
    graph = e.graph
    changes = [c for index, loop in found.items() for c in _unthrottled(graph, index, loop, steps[index])]
    surest = min(found, key=lambda index: found[index].chance)
    loop, gain = found[surest], found[surest].gain
    low, high = np.quantile(steps[surest].metrics[POWER], (0.05, 0.95))
    saved = int(recovered(e, changes).sum())
    return Finding(
        mode=MODE,
        reference="past",
        ranks=tuple(int(graph.ranks[index]) for index in sorted(found)),
        stages=tuple(sorted({int(s) for s in graph.members.stage[sorted(found)] if s >= 0})),
        steps=e.steps(0, -1),
        lost_rank_ns=saved * len(graph.ranks),
        confidence=1 - min(1.0, loop.chance * tests),
        because=f"on {rank_label(int(graph.ranks[surest]), graph.members)} power swings between {low:.0f} and {high:.0f} W, "
        f"and steps are {spell(saved / len(graph.steps))} longer than in the fifth of them {loop.held}: {loop.path} is a "
        f"loop with a gain of {gain['value']:.2f} a step ({gain['lo']:.2f} to {gain['hi']:.2f}; from one on it overshoots)",
        changes=tuple(changes),
        alternatives=loop.alternatives,
    )


def _unthrottled(graph: Graph, index: int, loop: Loop, steps: Steps) -> list[Change]:
    """The rank's own work and gaps as in the steps in which the loop did not hold it back."""
    lever = np.repeat(loop.lever, steps.block)
    free = np.zeros(len(graph.steps), dtype=bool)
    free[steps.window] = lever >= np.quantile(lever, 1 - UNTHROTTLED)
    mine = np.flatnonzero((graph.rank_index == index) & (graph.gate < 0))
    cls, count = numbered(graph.ops.name[mine], graph.ops.size[mine], graph.place[mine])
    reason = f"rank {int(graph.ranks[index])} as in steps in which it is not held back"
    parts: tuple[tuple[Literal["work", "gap"], Ints], ...] = (("work", graph.work_ns[mine]), ("gap", graph.gap_ns[mine]))
    out = []
    for what, values in parts:
        usual = class_medians(values, cls, count, free[graph.window[mine]])[cls]
        known = np.isfinite(usual)
        out.append(Change(mine[known], what, "set", np.rint(usual[known]).astype(np.int64), reason))
    return out
