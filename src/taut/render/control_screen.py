"""Control on a terminal: the regime first, then which controllers meet how, the indices, and what was left out."""

from __future__ import annotations

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.core.reporting import stuck_text
from taut.render.advice_screen import render_advice
from taut.render.terminal import Screen, clipped, heading, new_table, screen_text
from taut.render.text import count, duration, money, safe, span, three
from taut.result.types import ControlResult, Estimate, RelationCost, RelationResult

KWH_J = 3.6e6

STYLE = {"coherent": "bold green", "oscillating": "bold yellow", "amplifying": "bold red", "incoherent": "bold magenta"}
RELATIONS, CONTROLLERS, NOTES = 12, 6, 8
"""Lines at most; the rest stands in the JSON."""
PLACED, RANKS = 5, 4
"""Relations, and ranks of each, beside the rest of an analysis."""
COSTS = "redundant work"
SURE = 0.001
"""Chances below this are not told apart."""
NARROW = 110
"""Screens below this have no room for the statistic."""


def render_control(result: ControlResult, screen: Screen) -> str:
    """The whole screen of ``taut control``."""
    parts = [_verdict(result), _about(result), _relations(result, screen), _because(result), _advice(result), _indices(result),
             _left(result)]  # fmt: skip
    shown = [part for part in parts if part is not None]
    return screen_text([x for i, part in enumerate(shown) for x in ([Text()] if i > 1 else []) + [part]], screen)


def section(found: ControlResult) -> ConsoleRenderable:
    """Relations on the graph, as a part of the screen of ``taut analyze``."""
    table = new_table("relation", "where", "zone", "took", "cost")
    for number, one in enumerate(found.relations[:PLACED], 1):
        zone, who = one.zone, " – ".join(safe(name) for name in one.controllers)
        table.add_row(
            clipped(f"{safe(one.kind)}: {who or 'all'}", "bold"),
            clipped(_place(one)),
            str(number) if zone else "–",
            duration(zone.rank_ns) if zone else "–",
            _money(one.cost) or _cost(one.cost),
        )
    more = f", {PLACED} of {len(found.relations):,}" if len(found.relations) > PLACED else ""
    kind = found.regime.kind or "not known"
    what = "what repeats cost" if kind == "coherent" else "relations between controllers"
    return Group(heading(f"Control is {kind}: {what}{more}"), Padding(table, (0, 0, 0, 1)))


def _place(one: RelationResult) -> str:
    """Where a relation lies: ranks and steps of the graph, else what it is about."""
    zone = one.zone
    if zone is None or zone.steps is None:
        return f"{safe(one.target or 'all')}, not on the graph"
    ranks = ", ".join(map(str, zone.ranks[:RANKS])) + (" …" if len(zone.ranks) > RANKS else "")
    return f"rank {ranks}, {span(*zone.steps)}"


def _money(cost: RelationCost) -> str:
    """What rank time and tokens cost together, each in its own currency."""
    parts = ((cost.money or None, cost.currency or None), (cost.token_money or None, cost.token_currency or None))
    return " + ".join(money(amount, currency) for amount, currency in parts if amount is not None)


def _verdict(result: ControlResult) -> ConsoleRenderable:
    style = STYLE.get("not known" if result.regime.kind is None else str(result.regime.kind), "bold cyan")
    return Text(verdict_text(result), style="bold red" if result.stuck else style)


def verdict_text(result: ControlResult) -> str:
    """Whether controllers work against each other, in a sentence or two."""
    kind = result.regime.kind
    regime = "not known" if kind is None else str(kind)
    found = result.relations
    kinds = list(dict.fromkeys(safe(one.kind) for one in found))
    what = " and ".join(filter(None, (", ".join(kinds[:-1]), *kinds[-1:]))) or "no relation"
    text = f"Control is {regime}: {what} among {count(len(result.controllers), 'controller')}."
    if found and regime == "coherent":  # what is listed costs, and is nobody's fight
        text = f"Control is coherent: no controller works against another, {what} is what restarts and repeats cost."
    if kind is None and result.regime.because:
        text = f"Whether control is coherent is not known: {safe(result.regime.because)}."
    if not result.actions and kind is None:
        text = "No decision of a controller is in these logs."
    stuck = stuck_text([safe(one.text) for one in result.stuck or []])
    if stuck and regime == "coherent":  # nothing that fails is well because no controllers fight
        text = "No controller works against another."
    # What works against something comes before what it costs.
    first = next((one for one in found if one.kind != COSTS), found[0] if found else None)
    return " ".join(filter(None, (stuck, _headline(first) if first else "", text)))


def _headline(one: RelationResult) -> str:
    """Who does what to what, how often, and what comes of it: the first clause of why a relation is listed."""
    return f"{safe(one.because or one.kind).partition('; ')[0]}."


def _about(result: ControlResult) -> ConsoleRenderable:
    names = [safe(name) for name in result.controllers]
    more = f" and {len(names) - CONTROLLERS:,} more" if len(names) > CONTROLLERS else ""
    words = [safe(result.name or ""), count(result.actions, "action"), ", ".join(names[:CONTROLLERS]) + more]
    return Text(" · ".join(word for word in words if word))


def _relations(result: ControlResult, screen: Screen) -> ConsoleRenderable | None:
    """One line per relation, the costliest first as they come."""
    found = result.relations
    if not found:
        return None
    wide = screen.width >= NARROW
    table = new_table("relation", "who, on what", "count", *(["statistic"] if wide else []), "p", "q", "cost")
    for one in found[:RELATIONS]:
        table.add_row(
            clipped(safe(one.kind), "bold"),
            clipped(_where(one)),
            f"{one.count:,}" if one.count is not None else "–",
            *([_number(one.statistic)] if wide else []),
            _chance(one.p),
            _chance(one.q),
            _cost(one.cost),
        )
    more = f", {RELATIONS} of {len(found):,}" if len(found) > RELATIONS else ""
    return Group(heading(f"Relations{more}"), Padding(table, (0, 0, 0, 1)))


def _where(one: RelationResult) -> str:
    who = " – ".join(safe(name) or "unknown" for name in one.controllers) or "all"
    what = " ".join(safe(part) for part in (one.target, one.knob) if part)
    return f"{who}: {what}" if what else who


def _because(result: ControlResult) -> ConsoleRenderable | None:
    """Why, in the same order."""
    lines = [
        Padding(Text(f"{safe(one.kind)}: {safe(one.because)}", style="dim"), (0, 0, 0, 1))
        for one in result.relations[:RELATIONS]
        if one.because
    ]
    return Group(heading("Because"), *lines) if lines else None


def _advice(result: ControlResult) -> ConsoleRenderable | None:
    """What would remove each, where that was tried."""
    tried = {(one.kind, one.target): one.advice for one in result.relations if one.advice}
    return Group(heading("Separations, tried in the simulator"), render_advice(list(tried.values()))) if tried else None


def _number(value: float | None) -> str:
    return "–" if value is None else three(value) if abs(value) < 1e5 else f"{value:.3g}"


def _chance(value: float | None) -> str:
    """A probability; none where it was counted exactly."""
    return "exact" if value is None else f"<{SURE}" if value < SURE else f"{value:.3f}"


def _cost(cost: RelationCost) -> str:
    time, tokens = cost.rank_ns, cost.tokens
    words = [] if time is None else [duration(time)]
    words += [] if tokens is None else [count(tokens, "token")]
    words += [_money(cost)] if _money(cost) else []
    words += [f"{three(cost.joules / KWH_J)} kWh"] if cost.joules else []
    return " · ".join(words) or "–"


def _indices(result: ControlResult) -> ConsoleRenderable | None:
    """Those that could be had, with their intervals."""
    known = {name: value for name, value in result.indices.items() if value is not None}
    rows = [(name, *_interval(value)) for name, value in known.items()]
    if not rows:
        return None
    table = new_table("index", ("", "left"), "value", ("interval", "left"), header=False)
    for name, value, interval in rows:
        table.add_row(safe(name.replace("_", " ")), "", value, interval)
    silent = len(result.indices) - len(rows)
    more = f", {silent} not known from these logs" if silent else ""
    return Group(heading(f"Indices{more}"), Padding(table, (0, 0, 0, 1)))


def _interval(found: Estimate) -> tuple[str, str]:
    between = "" if found.lo is None or found.hi is None else f"{_number(found.lo)} to {_number(found.hi)}"
    return _number(found.value), between


def _left(result: ControlResult) -> ConsoleRenderable | None:
    """What was dropped or assumed."""
    notes = result.partial
    lines = [Text(f"partial: {safe(line)}", style="yellow") for line in notes[:NOTES]]
    if len(notes) > NOTES:
        lines.append(Text(f"partial: {len(notes) - NOTES} more, see --json", style="yellow"))
    return Group(*lines) if lines else None
