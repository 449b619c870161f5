"""Separations that were tried, and the sweep of capacity: on a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.render.terminal import new_table
from taut.render.text import safe
from taut.result.types import Advice, Brought, Effect, Estimate, Setting, Swept

SHOWN = 5
"""Indices of an advice that are shown, those that surely change first; all are in the JSON."""
SMALL = 0.01
"""Changes that are a smaller part of what was there are not shown."""
COLUMNS = {
    "cross_layer_coherence": "coherence", "decision_conflict_rate": "conflict", "control_overhead_fraction": "overhead",
    "effective_capacity": "capacity", "visible_success_rate": "success",
}  # fmt: skip
"""Indices of a sweep that are shown, in a word where room is short."""


def render_advice(rows: Sequence[Advice]) -> ConsoleRenderable:
    """A paragraph for every relation."""
    parts: list[ConsoleRenderable] = []
    shown: list[Mapping[str, Effect]] = []
    for row in rows:
        parts.append(Text(safe(headline(row)), style="bold" if row.separation else ""))
        lines = ["as above"] if row.effect and row.effect in shown else details(row)
        parts += [Padding(Text(safe(line), style="dim"), (0, 0, 0, 2)) for line in lines]
        shown.append(row.effect)
    return Group(*parts)


def what(row: Advice | Brought) -> str:
    """A relation by its name."""
    return f"{row.kind} on {row.target}" if row.target else str(row.kind)


def headline(row: Advice) -> str:
    """The relation, and what removes it."""
    name = what(row)
    runs = f"{row.shows} of {row.runs} runs"
    if not row.shows:
        return f"{name}: no advice; none of {row.runs} simulated runs shows it"
    if row.separation is None:
        tried = f"{row.tried} separations were tried" if row.tried else "no separation is known"
        return f"{name}, in {runs}: nothing removes it; {tried}"
    value = "" if row.value is None else f" {row.value:.3g}"
    return f"{name}, in {runs}: {row.separation}{value} removes it ({row.tried} tried)"


def details(row: Advice) -> Iterator[str]:
    """What it sets, what that changes, what it costs; for a log, which numbers of the plant are its own."""
    if row.sets:
        yield "sets " + ", ".join(f"{one.key} {_value(one.before)} → {_value(one.after)}" for one in row.sets)
    if row.effect:
        yield "changes " + "; ".join(changes(row))
    if row.brings:
        yield "brings about, in some run: " + ", ".join(what(one) for one in row.brings)
    if row.costs:
        yield f"costs: {row.costs}"
    if row.from_log:
        yield f"from the log: {_named(row.from_log)}; by default: {_named(row.default or {})}"


def changes(row: Advice) -> list[str]:
    """Indices before and after, and the change with its interval; those that surely change first."""
    known = [(name, one, one.change) for name, one in row.effect.items() if one.change is not None and _size(one) >= SMALL]
    ordered = sorted(known, key=lambda row: (not _surely(row[2]), -_size(row[1])))
    out = []
    for name, one, change in ordered[:SHOWN]:
        low, high = change.lo, change.hi
        by = "" if low is None or high is None else f" (by {low:+.2g} to {high:+.2g}{'' if _surely(change) else ', unsure'})"
        out.append(f"{name.replace('_', ' ')} {one.before:.3g} → {one.after:.3g}{by}")
    more = len(row.effect) - len(out)
    return out + ([f"{more} more in --json"] if more > 0 else [])


def _named(numbers: Mapping[str, Setting | dict[str, float]]) -> str:
    parts = []
    for name, value in numbers.items():
        unit = "/s" if name.endswith("_per_s") else " s" if name.endswith("_s") else ""
        parts.append(f"{name.removesuffix('_s').removesuffix('_per').replace('_', ' ')} {_value(value)}{unit}")
    return ", ".join(parts) or "nothing"


def _surely(change: Estimate) -> bool:
    low, high = change.lo, change.hi
    return low is not None and high is not None and low * high > 0


def _size(one: Effect) -> float:
    """A change relative to what it was."""
    by = one.change.value if one.change else 0.0
    return float(abs(by) / max(abs(one.before or 0.0), abs(one.after or 0.0), 1e-9))


def _value(value: Setting | dict[str, float]) -> str:
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return " and ".join(map(_value, value))
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value)


def render_sweep(rows: Sequence[Swept]) -> ConsoleRenderable:
    """A line for every number of accelerators."""
    names = swept(rows)
    table = new_table(("accel-\nerators", "right"), *((COLUMNS[name], "right") for name in names), ("worse than above", "left"))
    for row in rows:
        short = ", ".join(COLUMNS.get(name, name) for name in row.worse)
        table.add_row(f"{row.ranks:,}", *(_share(row.indices[name]) for name in names), short or "–")
    return table


def swept(rows: Sequence[Swept]) -> list[str]:
    """The indices that some row knows."""
    return [name for name in COLUMNS if any(row.indices.get(name) is not None for row in rows)]


def worse(row: Swept) -> str:
    """What is surely worse than with fewer accelerators."""
    return ", ".join(name.replace("_", " ") for name in row.worse) or "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def advice_page(advice: Sequence[Advice], sweep: Sequence[Swept]) -> Iterator[str]:
    """Both as Markdown, for the evidence of a scenario."""
    yield from ("## Separations, tried in the simulator", "")
    yield from (
        "For each relation that the runs show, the smallest of the separations tried after which none shows it, and what "
        "that changes on the same seeds (mean change, 95 % interval).", "",
        "| relation | runs that show it | separation | sets | changes | brings about | costs |",
        "|---|---|---|---|---|---|---|",
    )  # fmt: skip
    for row in advice:
        value = "" if row.value is None else f" = {row.value:g}"
        name = f"**{row.separation}{value}**" if row.separation else f"none of {row.tried} removes it"
        sets = ", ".join(f"`{one.key}` {_value(one.before)} → {_value(one.after)}" for one in row.sets)
        brings = ", ".join(what(one) for one in row.brings)
        changed = "; ".join(changes(row)).replace("--json", "evidence.json")
        cells = (what(row), f"{row.shows} of {row.runs}", name, sets, changed, brings, row.costs)
        yield f"| {' | '.join(cell or '–' for cell in cells)} |"
    names = swept(sweep)
    yield from ("", "## More accelerators, the same demand", "")
    yield f"| accelerators | {' | '.join(name.replace('_', ' ') for name in names)} | surely worse than the row above |"
    yield f"|---:|{'---:|' * len(names)}---|"
    for at in sweep:
        yield f"| {at.ranks:,} | {' | '.join(_share(at.indices[name]) for name in names)} | {worse(at)} |"
    yield ""
