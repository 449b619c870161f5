"""Forecasts on a terminal: what dominates, then a line per scale, then where a step goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET
from rich.console import ConsoleRenderable
from rich.text import Text

from taut.render.advice_screen import render_advice, render_sweep
from taut.render.analysis_screen import Screen, _print, _table
from taut.render.text import count, duration, percent, safe
from taut.result.types import Estimate, Forecast, Part, PolicyComparison, ProjectResult, Threshold

DEFAULTS = 8
"""Keys that took their defaults, named at most."""


def render_forecasts(result: ProjectResult, screen: Screen) -> str:
    """The whole screen of ``taut project``."""
    rows = result.forecasts
    parts = [Text(_headline(result), style="bold"), _stands(result), _scales(rows, screen), _terms(rows)]
    parts += [part for one in result.policies for part in (_with(one), _compared(one), _costs(one))]
    parts += [part for about in result.envelope or () for part in _rows(about, getattr(result.envelope, about))]
    parts += _separated(result)
    parts.append(_notes(result))
    shown = [part for part in parts if part is not None]
    return _print([x for i, part in enumerate(shown) for x in ([Text()] if i else []) + [part]], screen)


def _headline(result: ProjectResult) -> str:
    rows = result.forecasts
    last = rows[-1]
    text = f"{safe(result.scenario)}: {count(last.ranks, 'rank')} take {duration(last.step_ns.p50)} a step"
    if last.mfu is not None:
        text += f", {percent(last.mfu)} of the peak"
    text += f"; {safe(last.dominant)} dominates."
    return text if last.in_range else text + " That scale is beyond what is known: a guess."


def _stands(result: ProjectResult) -> ConsoleRenderable | None:
    """The regime, and the scale at which one accelerator more stops paying."""
    regime, far = result.regime, result.threshold
    lines = []
    if regime and regime.kind:
        reserve = regime.reserve
        lines.append(f"{safe(regime.kind)}{_room(reserve) if reserve and reserve.value is not None else ''}.")
    if far:
        lines.append(safe(threshold(far)))
    return Text("\n".join(lines)) if lines else None


def _room(reserve: Estimate) -> str:
    """What the reserve says."""
    if reserve.value <= 0:
        return ": one more accelerator would not pay even without jitter"
    if reserve.value < 1:
        return f": one more accelerator does not pay; with {_times(reserve)} the jitter it would"
    return f": jitter may grow {_times(reserve)} before accelerators stop paying"


def threshold(far: Threshold) -> str:
    """Where the next accelerator stops paying, in a sentence."""
    if far.ranks is None:
        upto = f" up to {far.tried:,} ranks" if far.tried else ""
        return f"One more accelerator pays{upto} ({far.rule})."
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
    return _digits(found.value) + (f" ({_digits(low)}–{_digits(high)})" if low is not None and high is not None else "")


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= MANY else f"{value:.3g}"


MANY = 1000
"""From here on whole numbers are written."""


def _with(one: PolicyComparison) -> ConsoleRenderable:
    return Text(f"With {safe(one.name.replace(',', ', '))}", style="bold")


def _compared(one: PolicyComparison) -> ConsoleRenderable:
    """Indices before and after, and the regime."""
    table = _table(("index", "left"), "as it stands", "with", "ratio")
    indices = one.indices
    for name, before in indices.without.items():
        ratio = indices.ratio[name]
        after = indices.with_[name]
        table.add_row(name.replace("_", " "), number(before), number(after), "–" if ratio is None else f"{ratio:.2f}")
    sides = one.forecast.without, one.forecast.with_
    units = (("unit cost", [s.cost_per_unit for s in sides]), ("unit energy, J", [s.energy_per_unit_j for s in sides]))
    for name, (cost, then) in units:
        if cost and then:
            table.add_row(name, number(cost), number(then), f"{then / cost:.2f}")
    table.add_row("regime", safe(one.regime.without or "–"), safe(one.regime.with_ or "–"), "")
    if one.reserve.without and one.reserve.with_:
        table.add_row("reserve", number(one.reserve.without), number(one.reserve.with_), "")
    return table


def _rows(about: str, rows: Sequence[Part]) -> list[ConsoleRenderable]:
    """A table of plain rows; what no row knows is left out."""
    names = [name for name in (rows[0] if rows else ()) if any(row[name] not in (None, []) for row in rows)]
    if not names:
        return []
    table = _table(*((name.replace("_", " "), "left") for name in names))
    for row in rows[:ROWS]:
        table.add_row(*(_cell(name, row[name]) for name in names))
    more = f", {ROWS} of {len(rows)}" if len(rows) > ROWS else ""
    return [Text(about.replace("_", " ").capitalize() + more, style="bold"), table]


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
    if name.endswith("_ns") and isinstance(value, (int, float)):
        return duration(value)
    if isinstance(value, int):
        return f"{value:,}"
    return number(value if isinstance(value, (Estimate, float)) else None)


ROWS = 12
"""Rows of a table around a scenario; all are in --json."""


def _costs(one: PolicyComparison) -> ConsoleRenderable | None:
    """What the policies cost convergence, or risk."""
    lines = [f"{safe(policy.name)} costs: {safe(policy.costs)}" for policy in one.policies if policy.costs]
    return Text("\n".join(lines), style="dim") if lines else None


WIDE = 110
"""Narrower screens have no room for the interval of the mean and for TFLOP/s."""


def _scales(rows: Sequence[Forecast], screen: Screen) -> ConsoleRenderable:
    wide = screen.width >= WIDE
    more = ("mean lies in", "TFLOP/s a device") if wide else ()
    table = _table("ranks", "step", "10–90 %", *more, "of peak", "kept", "up", ("dominates", "left"))
    for row in rows:
        step, mean, flops, mfu = row.step_ns, row.mean_step_ns, row.tflops_per_device, row.mfu
        extra = (
            (f"{duration(mean.lo)}–{duration(mean.hi)}" if mean else "–", "–" if flops is None else f"{flops:.0f}")
            if wide
            else ()
        )
        table.add_row(
            f"{row.ranks:,}" + ("" if row.in_range else " ?"), duration(step.p50),
            f"{duration(step.p10)}–{duration(step.p90)}", *extra, "–" if mfu is None else percent(mfu),
            percent(_value(row.effective_throughput_ratio)),
            percent(row.availability.value) if row.availability else "–", safe(row.dominant),
        )  # fmt: skip
    return table


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


def _terms(rows: Sequence[Forecast]) -> ConsoleRenderable | None:
    if not (rows[0].terms or rows[0].terms_ns):
        return None
    shares = [_shares(row) for row in rows]
    table = _table(("share of a step", "left"), *(f"{row.ranks:,}" for row in rows))
    for name in shares[0]:
        table.add_row(safe(name), *(percent(share[name]) for share in shares))
    return table


def _notes(result: ProjectResult) -> ConsoleRenderable | None:
    keys = result.defaults
    lines = [safe(line) for line in result.assumed or ()]
    if keys:
        more = f" and {len(keys) - DEFAULTS} more" if len(keys) > DEFAULTS else ""
        lines.append(f"by default: {', '.join(map(safe, keys[:DEFAULTS]))}{more} (all in --json)")
    return Text("\n".join(lines), style="dim") if lines else None


__all__ = ["number", "render_forecasts", "threshold"]
