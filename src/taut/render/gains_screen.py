"""Policies on a terminal: what each gives alone and all together, then each comparison in full."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from msgspec import UNSET
from rich.console import ConsoleRenderable
from rich.text import Text

from taut.render.figure_table import aligned, change, in_blocks, number, price
from taut.render.terminal import Screen
from taut.render.text import count, percent, safe
from taut.render.workload_words import Words
from taut.result.types import PolicyComparison, PolicyGain, ProjectResult

KWH_J = 3.6e6
NAMES = 30
"""Columns that the names of policies take at most."""


def policy_parts(result: ProjectResult, words: Words, screen: Screen) -> list[ConsoleRenderable | None]:
    """The table of gains, then one comparison after the other."""
    parts: list[ConsoleRenderable | None] = []
    if result.gains is not UNSET and len(result.gains) > 1:
        scale = count(result.ranks, words.ranks)
        parts = [
            Text(f"What each policy gives, alone and together, on {scale}", style="bold"),
            _gains(result.gains, words, screen),
        ]
    for name in dict.fromkeys(one.name for one in result.policies):
        parts += _policies(sorted((one for one in result.policies if one.name == name), key=lambda one: one.ranks), words)
    return parts


def _gains(rows: Sequence[PolicyGain], words: Words, screen: Screen) -> ConsoleRenderable:
    several = sum(row.together for row in rows) > 1
    columns = {
        "policy": ["\n".join(wrap(_name(row, several), NAMES, subsequent_indent="  ", break_on_hyphens=False)) for row in rows],
        words.rate: [change(row.rate_change) for row in rows],
        "cost": [change(row.cost_per_unit_change) for row in rows],
        "energy": [change(row.energy_per_unit_change) for row in rows],
        "regime": [safe(row.regime or "–") for row in rows],
        "stops paying at": ["–" if row.tried is None else _limit(row.threshold, row.tried) for row in rows],
    }
    known = {name: cells for name, cells in columns.items() if set(cells) != {"–"}}
    return in_blocks(known, screen.width, ["policy"])


def _name(row: PolicyGain, several: bool) -> str:
    """A policy as it is given; those of several comparisons by what they are of."""
    if not row.together:
        return safe(row.name)
    return f"together: {safe(row.name).replace(',', ', ')}" if several else "all together"


def _policies(rows: Sequence[PolicyComparison], words: Words) -> list[ConsoleRenderable | None]:
    """One comparison: in full at the largest scale, in a line at each."""
    last = rows[-1]
    name = safe(last.name.replace(",", ", "))
    more: list[ConsoleRenderable | None] = []
    if len(rows) > 1:
        more = [Text(f"With {name}, at each scale", style="bold"), _each_scale(rows, words)]
    title = Text(f"With {name}, on {count(last.ranks, words.ranks)}", style="bold")
    return [title, _compared(last, words), _costs(last), *more]


def _compared(one: PolicyComparison, words: Words) -> ConsoleRenderable:
    """Indices before and after, and the regime."""
    rows = []
    indices = one.indices
    for name, before in indices.without.items():
        ratio = indices.ratio[name]
        after = indices.with_[name]
        rows.append([words.index(name), number(before), number(after), "–" if ratio is None else f"{ratio:.2f}"])
    sides = one.forecast.without, one.forecast.with_
    units = (
        (words.cost(sides), [s.cost_per_unit for s in sides]),
        (f"energy of {words.unit}, kWh", [None if s.energy_per_unit_j is None else s.energy_per_unit_j / KWH_J for s in sides]),
    )
    for name, (cost, then) in units:
        if cost and then:
            rows.append([name, price(cost), price(then), f"{then / cost:.2f}"])
    rows.append(["regime", safe(one.regime.without or "–"), safe(one.regime.with_ or "–"), ""])
    if one.reserve.without and one.reserve.with_:
        rows.append(["reserve", number(one.reserve.without), number(one.reserve.with_), ""])
    if one.threshold.without and one.threshold.with_:
        rows.append(
            ["stops paying at", *(_limit(far.ranks, far.tried) for far in (one.threshold.without, one.threshold.with_)), ""]
        )
    return aligned(("index", "as it stands", "with", "ratio"), rows)


def _limit(ranks: int | None, tried: int) -> str:
    """The threshold in a cell."""
    return f"{ranks:,}" if ranks is not None else f"none to {tried:,}"


def _each_scale(compared: Sequence[PolicyComparison], words: Words) -> ConsoleRenderable:
    """What the policies change at each scale."""
    priced = any(side.cost_per_unit is not None for one in compared for side in (one.forecast.without, one.forecast.with_))
    cost = (words.cost([one.forecast.without for one in compared]), "with") if priced else ()
    rows = []
    for one in compared:
        sides = one.forecast.without, one.forecast.with_
        rows.append(
            [
                f"{one.ranks:,}",
                safe(one.regime.without or "–"),
                safe(one.regime.with_ or "–"),
                *(percent(words.kept_of(side)) for side in sides),
                *(price(side.cost_per_unit) for side in sides if priced),
            ]
        )
    return aligned((f"{words.ranks}s", "regime", "with", words.kept, "with", *cost), rows)


def _costs(one: PolicyComparison) -> ConsoleRenderable | None:
    """What the policies cost convergence, or risk."""
    lines = [f"{safe(policy.name)} costs: {safe(policy.costs)}" for policy in one.policies if policy.costs]
    return Text("\n".join(lines), style="dim") if lines else None
