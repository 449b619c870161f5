"""Forecasts on a terminal: the scale that the verdict speaks of, then a line per scale, then where a step goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from msgspec import UNSET
from rich.console import ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from taut.render.advice_screen import render_advice, render_sweep
from taut.render.analysis_screen import Screen, _print
from taut.render.text import count, duration, percent, safe
from taut.render.threshold_screen import what_makes_it
from taut.result.types import Estimate, Forecast, Part, PolicyComparison, ProjectResult, Regime, Threshold

DEFAULTS = 8
"""Keys that took their defaults, named at most."""


@dataclass(frozen=True)
class Words:
    """What a workload is made of, and what a unit of its delivered work is."""

    piece: str
    unit: str
    where: str
    """Title of the table that says where its time goes."""
    ranks: str = "rank"
    kept: str = "kept"
    """Title of the column that says what of the accelerators' work is of use."""


TRAINING = Words("step", "1M tokens", "share of a step")
WORDS = {
    "serving": Words("request", "1M tokens", "share of a request", "accelerator"),
    "agents": Words("task", "a task", "share of a task", "accelerator"),
    "loops": Words("request", "1,000 requests", "share of accelerators", "accelerator", "of use"),
}
"""Workload → its words; a training job and a measured run have steps."""


def render_forecasts(result: ProjectResult, screen: Screen) -> str:
    """The whole screen of ``taut project``; scales from the smallest to the largest, however they were asked for."""
    rows, words = sorted(result.forecasts, key=lambda row: row.ranks), WORDS.get(result.workload, TRAINING)
    own = next(row for row in rows if row.ranks == result.ranks)
    parts = [Text(_headline(result, own, words), style="bold"), _stands(result, own, words)]
    parts += what_makes_it(result.threshold)
    parts += [_scales(rows, screen, words), _delivered(rows, words), _terms(rows, screen, words)]
    for name in dict.fromkeys(one.name for one in result.policies):
        parts += _policies(sorted((one for one in result.policies if one.name == name), key=lambda one: one.ranks), words)
    parts += [part for about in result.envelope or () for part in _rows(about, getattr(result.envelope, about), screen)]
    parts += _separated(result)
    parts.append(_notes(result))
    shown = [part for part in parts if part is not None]
    return _print([x for i, part in enumerate(shown) for x in ([Text()] if i else []) + [part]], screen)


def _headline(result: ProjectResult, own: Forecast, words: Words) -> str:
    step = duration(own.step_ns.p50)
    text = f"{safe(result.scenario)} on {count(own.ranks, words.ranks)}: {step} a {words.piece}"
    if own.sla_attainment is not UNSET:
        text += f", {percent(own.sla_attainment)} of the {words.piece}s as promised"
    elif own.mfu is not None:
        text += f", {percent(own.mfu)} of the peak"
    text += f"; dominated by {safe(own.dominant)}." if own.dominant else "."
    return text if own.in_range else text + " That scale is beyond what is known: a guess."


def _stands(result: ProjectResult, own: Forecast, words: Words) -> ConsoleRenderable | None:
    """The regime at the scale of the headline, and the scale at which one accelerator more stops paying."""
    regime, far = own.regime, result.threshold
    lines = []
    if regime and regime.kind:
        reserve = regime.reserve
        room = _room(reserve, "on average" in (regime.rule or "")) if reserve and reserve.value is not None else ""
        lines.append(f"{safe(regime.kind).capitalize()} on {count(own.ranks, words.ranks)}{room}.")
    if far:
        lines.append(safe(threshold(far)))
    return Text("\n".join(lines)) if lines else None


def _room(reserve: Estimate, on_average: bool) -> str:
    """What the reserve says: of one more accelerator, or where demand is given of all there are, on average."""
    if on_average:
        if reserve.value < 1:
            return f": the accelerators do not pay on average; with {_times(reserve)} the jitter they would"
        return f": jitter may grow {_times(reserve)} before the accelerators there are stop paying on average"
    if reserve.value <= 0:
        return ": one more accelerator would not pay even without jitter"
    if reserve.value < 1:
        return f": one more accelerator does not pay; with {_times(reserve)} the jitter it would"
    return f": jitter may grow {_times(reserve)} before one more accelerator stops paying"


def threshold(far: Threshold) -> str:
    """Where the next accelerator stops paying, in a sentence."""
    if far.ranks is None:
        upto = f" up to {far.tried:,} ranks" if far.tried else ""
        return f"No limit found{upto}: {far.rule}."
    text = f"One more accelerator stops paying at {far.ranks:,} ranks"
    if far.lo is not None:
        text += f" ({far.lo:,}–{far.hi:,})" if far.hi is not None else f" ({far.lo:,} at least)"
    return f"{text}: {far.rule}."


def _times(found: Estimate) -> str:
    """An estimate of a multiple: 3.2 times (2.9–3.5)."""
    value, low, high = found.value, found.lo, found.hi
    if low is None:
        return f"{value:.2g} times"
    return f"{value:.2g} times ({low:.2g}–{high:.2g})" if high is not None else f"at least {value:.2g} times"


def number(found: Estimate | float | None) -> str:
    """A number, or an index with its interval; a dash where it is not known."""
    if found is None:
        return "–"
    if not isinstance(found, Estimate):
        return _digits(found)
    low, high = found.lo, found.hi
    if low is None or high is None:
        return _digits(found.value)
    return f"{_digits(found.value)} ({_digits(low)}{' to ' if low < 0 else '–'}{_digits(high)})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= MANY else f"{value:.3g}"


MANY = 1000
"""From here on whole numbers are written."""


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
        rows.append([name.replace("_", " "), number(before), number(after), "–" if ratio is None else f"{ratio:.2f}"])
    sides = one.forecast.without, one.forecast.with_
    units = (
        (_cost_of(sides, words), [s.cost_per_unit for s in sides]),
        (f"energy of {words.unit}, J", [s.energy_per_unit_j for s in sides]),
    )
    for name, (cost, then) in units:
        if cost and then:
            rows.append([name, number(cost), number(then), f"{then / cost:.2f}"])
    rows.append(["regime", safe(one.regime.without or "–"), safe(one.regime.with_ or "–"), ""])
    if one.reserve.without and one.reserve.with_:
        rows.append(["reserve", number(one.reserve.without), number(one.reserve.with_), ""])
    if one.threshold.without and one.threshold.with_:
        rows.append(["stops paying at", *(_limit(far) for far in (one.threshold.without, one.threshold.with_)), ""])
    return _aligned(("index", "as it stands", "with", "ratio"), rows)


def _limit(far: Threshold) -> str:
    """The threshold in a cell."""
    return f"{far.ranks:,}" if far.ranks is not None else f"none to {far.tried:,}"


def _each_scale(compared: Sequence[PolicyComparison], words: Words) -> ConsoleRenderable:
    """What the policies change at each scale."""
    priced = all(side.cost_per_unit is not None for one in compared for side in (one.forecast.without, one.forecast.with_))
    cost = (_cost_of([one.forecast.without for one in compared], words), "with") if priced else ()
    rows = []
    for one in compared:
        sides = one.forecast.without, one.forecast.with_
        rows.append([
            f"{one.ranks:,}", safe(one.regime.without or "–"), safe(one.regime.with_ or "–"),
            *(percent(_kept(side, words)) for side in sides), *(number(side.cost_per_unit) for side in sides if priced),
        ])  # fmt: skip
    return _aligned((f"{words.ranks}s", "regime", "with", words.kept, "with", *cost), rows)


def _cost_of(rows: Sequence[Forecast], words: Words) -> str:
    """The name of a column of unit costs, with its currency."""
    found = {row.currency for row in rows if row.currency}
    return f"cost of {words.unit}" + (f", {safe(str(found.pop()))}" if len(found) == 1 else "")


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Words on the left, figures on the right. Titles may take several lines, and so may a figure with its interval; no
    figure is cut, and what tells a row from the next is never given up."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, name in enumerate(names):
        justify: Literal["left", "right"] = "left" if i == 0 or name in LEFT else "right"
        whole = [part for row in rows for part in ([row[i]] if i == 0 else row[i].split(" ("))]
        table.add_column(name, justify=justify, min_width=max(_longest_word(name), *map(len, whole)), no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    return table


LEFT = {"regime", "dominates"}
"""Columns of words."""


def _longest_word(text: str) -> int:
    return max((len(word) for word in text.split()), default=0)


def _rows(about: str, rows: Sequence[Part], screen: Screen) -> list[ConsoleRenderable]:
    """Tables of plain rows; what no row knows is left out.

    Columns that do not fit beside each other go into further tables, each with those that tell its rows apart.
    """
    names = [name for name in (rows[0] if rows else ()) if any(row[name] not in (None, []) for row in rows)]
    if not names:
        return []
    cells = {name: [_cell(name, row[name]) for row in rows] for name in names}
    keys = _keys(cells)
    tables = [_block(cells, part) for part in _blocks(cells, keys, screen.width)]
    spaced = [one for i, table in enumerate(tables) for one in ([Text()] if i else []) + [table]]
    return [Text(about.replace("_", " ").capitalize(), style="bold"), Group(*spaced)]


def _keys(cells: Mapping[str, Sequence[str]]) -> list[str]:
    """The first columns, as many as tell all rows apart; of those the ones in which rows differ."""
    keys: list[str] = []
    for name in cells:
        keys.append(name)
        if len(set(zip(*(cells[key] for key in keys), strict=True))) == len(cells[name]):
            break
    return [name for name in keys if len(set(cells[name])) > 1] or keys[:1]


def _title(name: str) -> str:
    """The title of a column; durations carry their unit in the cell."""
    return name.replace("_ns", "").replace("_", " ")


def _width(name: str, cells: Sequence[str]) -> int:
    """Columns that a column needs: its longest cell, and the longest word of its title."""
    return max(_longest_word(_title(name)), *map(len, cells))


def _blocks(cells: Mapping[str, Sequence[str]], keys: Sequence[str], width: int) -> Iterator[list[str]]:
    """Names of the columns of each table."""
    room = width - sum(_width(key, cells[key]) + BETWEEN for key in keys)
    part, used = list(keys), 0
    for name in (name for name in cells if name not in keys):
        needs = _width(name, cells[name]) + BETWEEN
        if used and used + needs > room:
            yield part
            part, used = list(keys), 0
        part.append(name)
        used += needs
    yield part


def _block(cells: Mapping[str, Sequence[str]], names: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, BETWEEN, 0, 0), pad_edge=False, header_style="dim")
    for name in names:
        # Titles are broken here: a table that must narrow its columns would cut cells.
        title = wrap(_title(name), _width(name, cells[name]), break_long_words=False)
        table.add_column("\n".join(title), justify="left", vertical="bottom")
    for row in zip(*(cells[name] for name in names), strict=True):
        table.add_row(*row)
    return table


BETWEEN = 2
"""Columns of the screen between those of a table."""


def _separated(result: ProjectResult) -> list[ConsoleRenderable]:
    """Advice and the sweep of capacity, where they were asked for."""
    out: list[ConsoleRenderable] = []
    if result.advice is not UNSET:
        found = render_advice(result.advice) if result.advice else Text("No run shows a relation.")
        out += [Text("Separations, tried in the simulator", style="bold"), found]
    if result.sweep:
        out += [Text("More accelerators, the same demand", style="bold"), render_sweep(result.sweep)]
    return out


def _cell(name: str, value: object) -> str:
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(safe, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if (name.endswith("_ns") or "_ns_" in name) and isinstance(value, (int, float)):
        return duration(value)
    if isinstance(value, int):
        return f"{value:,}"
    return number(value if isinstance(value, (Estimate, float)) else None)


def _costs(one: PolicyComparison) -> ConsoleRenderable | None:
    """What the policies cost convergence, or risk."""
    lines = [f"{safe(policy.name)} costs: {safe(policy.costs)}" for policy in one.policies if policy.costs]
    return Text("\n".join(lines), style="dim") if lines else None


WIDE = 110
"""Narrower screens have no room for the interval of the mean and for TFLOP/s."""


def _scales(forecasts: Sequence[Forecast], screen: Screen, words: Words) -> ConsoleRenderable:
    """Times at each scale, and what of them is kept."""
    wide = screen.width >= WIDE
    more = ("mean lies in", "TFLOP/s a device") if wide else ()
    reserve = ("jitter may grow",) if any(row.regime and row.regime.reserve for row in forecasts) else ()
    rows = []
    for row in forecasts:
        step, mean, flops, mfu = row.step_ns, row.mean_step_ns, row.tflops_per_device, row.mfu
        extra = (
            (f"{duration(mean.lo)}–{duration(mean.hi)}" if mean else "–", "–" if flops is None else f"{flops:.0f}")
            if wide
            else ()
        )
        rows.append([
            _scale(row), duration(step.p50), f"{duration(step.p10)}–{duration(step.p90)}", *extra,
            "–" if mfu is None else percent(mfu), percent(_kept(row, words)),
            percent(row.availability.value) if row.availability else "–", *([_grows(row.regime)] if reserve else []),
        ])  # fmt: skip
    return _aligned((f"{words.ranks}s", words.piece, "10–90 %", *more, "of peak", words.kept, "up", *reserve), rows)


def _kept(row: Forecast, words: Words) -> float | None:
    """What of the accelerators' work is of use: of loops what they are paid for, else what they could do at best."""
    return _value(row.indices.get("effective_capacity") if words is WORDS["loops"] else row.effective_throughput_ratio)


def _scale(row: Forecast) -> str:
    """Ranks, with a mark where that is a guess."""
    return f"{row.ranks:,}" + ("" if row.in_range else " ?")


def _grows(regime: Regime | None) -> str:
    """Times that jitter may grow."""
    reserve = regime.reserve if regime else None
    if not reserve:
        return "–"
    if reserve.value <= 0:
        return "not at all"
    return f"≥ {reserve.value:.2g} times" if reserve.hi is None else f"{reserve.value:.2g} times"


def _delivered(rows: Sequence[Forecast], words: Words) -> ConsoleRenderable:
    """What dominates at each scale, beside what a unit of delivered work takes."""
    rates: tuple[tuple[str, list[float | None]], ...] = (
        ("tokens/s", [row.tokens_per_s for row in rows]),
        ("requests/s", [row.requests_per_s if row.requests_per_s is not UNSET else None for row in rows]),
        ("tasks/s", [row.tasks_per_s if row.tasks_per_s is not UNSET else None for row in rows]),
        (_cost_of(rows, words), [row.cost_per_unit for row in rows]),
    )
    known = [(name, values) for name, values in rates if any(value is not None for value in values)]
    cells = []
    for i, row in enumerate(rows):
        kind = safe(row.regime.kind) if row.regime and row.regime.kind else "–"
        cells.append([_scale(row), kind, *(number(values[i]) for _, values in known), safe(row.dominant or "–")])
    return _aligned((f"{words.ranks}s", "regime", *(name for name, _ in known), "dominates"), cells)


def _value(number: Estimate | float | None) -> float | None:
    """A number, or the middle of an estimate."""
    return number.value if isinstance(number, Estimate) else number


def _shares(row: Forecast) -> Mapping[str, float]:
    """Where a step goes."""
    if row.terms:
        return dict(row.terms)
    spent = row.terms_ns or {}
    total = sum(spent.values()) or 1
    return {name: ns / total for name, ns in spent.items()}


def _terms(rows: Sequence[Forecast], screen: Screen, words: Words) -> ConsoleRenderable | None:
    """Where the time goes; as many scales beside each other as there is room for."""
    if not (rows[0].terms or rows[0].terms_ns):
        return None
    shares = [_shares(row) for row in rows]
    names = list(dict.fromkeys(name for share in shares for name in share))
    room = screen.width - max(map(len, [words.where, *names]))
    across = max(room // (2 + max(len("100.0 %"), *(len(f"{row.ranks:,}") for row in rows))), 1)
    tables: list[ConsoleRenderable] = []
    for first in range(0, len(rows), across):
        some = slice(first, first + across)
        cells = [[safe(name), *(percent(share.get(name)) for share in shares[some])] for name in names]
        table = _aligned((words.where, *(f"{row.ranks:,}" for row in rows[some])), cells)
        tables += [Text(), table] if tables else [table]
    return Group(*tables)


def _notes(result: ProjectResult) -> ConsoleRenderable | None:
    keys = result.defaults
    lines = [safe(line) for line in result.assumed or ()]
    if keys:
        more = f" and {len(keys) - DEFAULTS} more" if len(keys) > DEFAULTS else ""
        lines.append(f"by default: {', '.join(map(safe, keys[:DEFAULTS]))}{more} (all in --json)")
    return Text("\n".join(lines), style="dim") if lines else None


__all__ = ["number", "render_forecasts", "threshold"]
