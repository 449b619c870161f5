"""The result of ``taut compare`` on a terminal: what to know first, the runs, trends, changes, repeats and restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.render.analysis_screen import _short
from taut.render.terminal import Screen, clipped, heading, new_table, spaced_text
from taut.render.text import count, duration, middle, money, percent, safe
from taut.result.types import ChangedBy, CompareResult, Difference, Estimate, NonDeterminism, Restarts

RUNS, CHANGES, UNLIKE, RESTARTS = 12, 10, 5, 8
"""Lines at most."""
NAME_WIDTH = 24
"""Longer names of runs are cut in the middle."""
NOTABLE = 0.05
"""Trends with a corrected chance up to this are set off."""
LABELS = {
    "step_ns": "step time", "runtime_variance_index": "variance", "effective_throughput_ratio": "throughput",
    "waiting_share": "waiting", "recoverable_share": "recoverable", "rerun_share": "re-run",
    "energy_per_kept_step_j": "energy a step", "cost_per_kept_step": "cost a step",
}  # fmt: skip
"""Headings of the quantities."""


def render_compare(result: CompareResult, screen: Screen) -> str:
    """The whole screen of ``taut compare``."""
    names = _names([row.run for row in result.runs])
    parts = [
        Text(safe(result.verdict.text), style="bold"), _runs(result, names, screen), _trends(result), _changed(result),
        _repeats(result.non_determinism, names), _restarts(result.restarts, names),
    ]  # fmt: skip
    return spaced_text(parts, screen)


def _names(runs: Sequence[str]) -> dict[str, str]:
    """What each run is called on the screen: the last part of its path where that tells them apart."""
    short = {run: safe(run.rstrip("/").rpartition("/")[2] or run) for run in runs}
    return short if len(set(short.values())) == len(short) else {run: safe(run) for run in runs}


def _say(quantity: str, value: Estimate | str | float | None, currency: str | None = None, signed: bool = False) -> str:
    """A quantity as people write it; a dash where it is not known."""
    if isinstance(value, Estimate):
        value = value.value
    if value is None:
        return "–"
    number = float(value)
    plus = "+" if signed and number > 0 else ""
    if quantity == "step_ns":
        return plus + duration(number)
    if quantity == "energy_per_kept_step_j":
        return f"{plus}{number:.4g} J"
    if quantity == "cost_per_kept_step":
        return plus + money(str(value), currency)
    return plus + (f"{100 * number:.1f} %" if signed else percent(number))


def _runs(result: CompareResult, names: Mapping[str, str], screen: Screen) -> ConsoleRenderable:
    """A line for each run; where that is too wide, a line for each quantity and a column for each run."""
    rows = result.runs
    order = "in order of time" if result.order == "time" else "in the order given"
    title = heading(f"{count(len(rows), 'run')}, {order}")
    shown = [q for q in LABELS if any(getattr(row, q) is not None for row in rows)]
    half = RUNS // 2
    some = rows if len(rows) <= RUNS else [*rows[:half], *rows[-half:]]
    lines = [[names[row.run], f"{row.first_step}–{row.last_step}"] for row in some]
    for line, row in zip(lines, some, strict=True):
        line += [_say(q, getattr(row, q), row.currency) for q in shown]
    titles = ["run", "steps", *(LABELS[q] for q in shown)]
    if _width([titles, *lines]) > screen.width and _width([*zip(titles, *lines, strict=True)]) <= screen.width:
        titles, *lines = map(list, zip(titles, *lines, strict=True))
    table = new_table(titles[0], (titles[1], "left" if titles[1] == "steps" else "right"), *titles[2:])
    for i, line in enumerate(lines):
        if len(some) < len(rows) and i == half:
            table.add_row(f"… {len(rows) - 2 * half} more")
        table.add_row(clipped(middle(line[0], NAME_WIDTH), "bold"), *line[1:])
    return Group(title, Padding(table, (0, 0, 0, 1)))


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Columns of the screen that a table of these lines takes."""
    return 1 + sum(2 + max(min(len(cell), NAME_WIDTH) for cell in column) for column in zip(*lines, strict=True))


def _trends(result: CompareResult) -> ConsoleRenderable | None:
    rows = [(row, row.slope) for row in result.trends if row.slope is not None]
    if not rows:
        return None
    currency = next((run.currency for run in result.runs if run.currency), None)
    table = new_table("quantity", ("a run", "right"), "from", "to", "p", "q")
    for row, slope in rows:
        q = row.quantity
        cells = (_say(q, end, currency, signed=True) for end in (slope.value, slope.lo, slope.hi))
        table.add_row(
            clipped(LABELS[q], "bold" if row.q is not None and row.q <= NOTABLE else ""), *cells, _chance(row.p), _chance(row.q)
        )
    return Group(heading("Trends: change a run, with its interval"), Padding(table, (0, 0, 0, 1)))


def _chance(p: float | None) -> str:
    return "–" if p is None else "<0.0001" if p < 1e-4 else f"{p:.2g}"


def _changed(result: CompareResult) -> ConsoleRenderable | None:
    rows = result.changed
    if not rows:
        return None
    table = new_table("rank", "class", "before", "after", "change", "on the wall", "q")
    for row in rows[:CHANGES]:
        before, after, effect = row.before_ns, row.after_ns, row.effect_wall_ns
        table.add_row(
            clipped(f"rank {row.rank}", "bold"),
            clipped(_short(row.op_class)),
            duration(before),
            duration(after),
            f"{100 * (after / before - 1):+.0f} %" if before else "new",
            "–" if effect is None else ("+" if effect > 0 else "") + duration(effect),
            _chance(row.q),
        )
    more = f", the first {CHANGES} of {len(rows):,}" if len(rows) > CHANGES else ""
    ends = "" if len(result.runs) == 2 else ", first run against last"
    return Group(heading(f"What changed: work a step{ends}{more}"), Padding(table, (0, 0, 0, 1)), *_by(result.changed_by))


def _by(by: ChangedBy) -> Sequence[Text]:
    lines = []
    for kind, costs in (("rank", by.rank), ("class", by.op_class)):
        top = sorted(((ns, name) for name, ns in costs.items() if ns), key=lambda pair: -abs(pair[0]))[:3]
        if top:
            text = ", ".join(f"{_short(name)} {'+' if ns > 0 else ''}{duration(ns)}" for ns, name in top)
            lines.append(Text(f" on the wall by {kind}, over the last run: {text}", style="dim"))
    return lines


def _repeats(found: NonDeterminism, names: Mapping[str, str]) -> ConsoleRenderable | None:
    lines: list[ConsoleRenderable] = []
    for row in found.repeats:
        between = row.between_share
        text = f" {len(row.runs)} runs of one graph: step time varies {percent(row.within_share)} within a run"
        if between is None:
            lines.append(Text(f"{text}; too few steps to compare them"))
            continue
        reach = f"at least {percent(between.lo)}" if len(row.runs) == 2 else f"{percent(between.lo)} to {percent(between.hi)}"
        spread = f"{percent(between.value)} ({reach}) between runs beyond that"
        lines.append(Text(f"{text}, {spread}; p {_chance(row.p)}; classes on ranks that differ: {row.count:,}"))
    for one in found.structure:
        if one.count:
            kind = "same graph" if one.same_graph else "another graph"
            lines.append(Text(f" {names[one.run]}: {kind}, {count(one.count, 'difference')} from {names[one.against]}"))
            lines += [Text(f"   {_unlike(other)}", style="dim") for other in one.differences[:UNLIKE]]
    return Group(heading("Repeats"), *lines) if lines else None


def _unlike(one: Difference) -> str:
    before, after = ("none" if side is None else safe(str(side)) for side in (one.before, one.after))
    name = f" {_short(one.op_class)}" if one.op_class and one.what != "gate order" else ""
    where = "" if one.step is None else f", from step {one.step} in {count(one.steps or 0, 'step')}"
    return f"{one.what}, rank {one.rank}{name}: {before} before, {after} after{where}"


def _restarts(found: Restarts, names: Mapping[str, str]) -> ConsoleRenderable | None:
    if not found.at:
        return None
    table = new_table("restart", "into", "at step", "run again", "before", "after", "step time", "spread")
    for row in found.at[:RESTARTS]:
        ratios = (
            "–" if one is None else f"× {one.ratio.value:.2f} (q {_chance(one.q if isinstance(one.q, float) else None)})"
            for one in (row.step_time, row.spread)
        )
        table.add_row(
            clipped(names[row.before], "bold"),
            clipped(names[row.after]),
            str(row.step),
            count(row.rerun_steps, "step"),
            duration(row.before_ns),
            duration(row.after_ns),
            *ratios,
        )
    more = f", the first {RESTARTS} of {len(found.at)}" if len(found.at) > RESTARTS else ""
    return Group(heading(f"Restarts{more}"), Padding(table, (0, 0, 0, 1)))
