"""Forecasts on a terminal: the verdict and its scale, one table over scales, what it takes, what makes the limit, policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET
from rich.console import ConsoleRenderable, Group
from rich.text import Text

from taut.render.advice_screen import render_advice, render_sweep
from taut.render.figure_table import aligned, amount, cell, digits, in_blocks, number, price
from taut.render.gains_screen import policy_parts
from taut.render.terminal import Screen, spaced_text
from taut.render.text import count, duration, money, percent, safe, three
from taut.render.threshold_screen import what_makes_it
from taut.render.workload_words import Words, middle_of, words_of
from taut.result.types import Estimate, Forecast, Part, ProjectResult, Regime, Threshold, TokenBudget

DEFAULTS = 8
"""Keys that took their defaults, named at most."""
KWH_J = 3.6e6


def render_forecasts(result: ProjectResult, screen: Screen) -> str:
    """The whole screen of ``taut project``; scales from the smallest to the largest, however they were asked for."""
    rows, words = sorted(result.forecasts, key=lambda row: row.ranks), words_of(result.workload)
    own = next(row for row in rows if row.ranks == result.ranks)
    parts: list[ConsoleRenderable | None] = [Text(_headline(result, own, words), style="bold"), _stands(result, own, words)]
    limit, found = what_makes_it(result.threshold), result.threshold and result.threshold.ranks is not None
    parts += [] if found else limit
    parts += [_bound(rows, screen, words), _times_at(rows, screen, words)]
    parts += [*_takes(rows, screen, words), *_losses(rows, screen), *_budget(rows, screen)]
    parts += [_terms(rows, screen, words)]
    parts += [Text("What makes the limit", style="bold"), *limit] if limit and found else []
    parts += policy_parts(result, words, screen)
    parts += [part for about in result.envelope or () for part in _rows(about, getattr(result.envelope, about), screen)]
    parts += _separated(result)
    parts.append(_notes(result, own))
    return spaced_text(parts, screen)


def _headline(result: ProjectResult, own: Forecast, words: Words) -> str:
    step = duration(own.step_ns.p50)
    text = f"{safe(result.scenario)} on {count(own.ranks, words.ranks)}: {step} a {words.piece}"
    if own.sla_attainment is not UNSET:
        text += f", {percent(own.sla_attainment)} of the {words.piece}s as promised"
    elif own.mfu is not None:
        text += f", {percent(own.mfu)} of the peak"
    if own.cost_per_unit is not None and own.currency:
        text += f", {price(own.cost_per_unit)} {safe(own.currency)} for {words.unit}"
    bound = own.bound or own.dominant
    if bound:
        text += f"; bound by {safe(bound)}" + (f" ({safe(own.dominant)})" if own.dominant and own.dominant != bound else "")
    text += "."
    return text if own.in_range else text + " That scale is beyond what is known: a guess."


def _stands(result: ProjectResult, own: Forecast, words: Words) -> Text | None:
    """The regime at the scale of the headline, the turns, and the scale at which one accelerator more stops paying."""
    regime, far = own.regime, result.threshold
    lines = []
    if regime and regime.kind:
        reserve = regime.reserve
        room = _room(reserve, "on average" in (regime.rule or "")) if reserve and reserve.value is not None else ""
        lines.append(f"{safe(regime.kind).capitalize()} on {count(own.ranks, words.ranks)}{room}.")
    lines += _turned(result, words)
    if far:
        lines.append(safe(threshold(far, words.ranks)))
    if own.budget is not UNSET:
        lines.append(_whole(own.budget, own.ranks, words))
    return Text("\n".join(lines)) if lines else None


def _turned(result: ProjectResult, words: Words) -> Iterator[str]:
    """What scales are bound by, and from which on that changes."""
    if len(result.forecasts) < 2 or result.turns is UNSET:
        return
    if not result.turns:
        ranks = [row.ranks for row in result.forecasts]
        yield f"{str(result.forecasts[0].bound).capitalize()}-bound from {min(ranks):,} to {count(max(ranks), words.ranks)}."
        return
    first = result.turns[0]
    turns = [f"{safe(turn.after)}-bound from {count(turn.ranks, words.ranks)} on" for turn in result.turns]
    yield f"{safe(first.before).capitalize()}-bound up to {count(first.last_ranks, words.ranks)}, {', '.join(turns)}."


def _whole(found: TokenBudget, ranks: int, words: Words) -> str:
    """A training run in a sentence."""
    days = number(found.days).replace(" (", " days (") if found.days.lo is not None else f"{number(found.days)} days"
    text = f"{amount(found.tokens)} tokens take {days} on {count(ranks, words.ranks)}"
    if found.cost is not None:
        cost, _, interval = amount(found.cost).partition(" ")
        text += f" and {cost} {safe(found.currency or '')} {interval}".rstrip()
    return text + "."


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


def threshold(far: Threshold, ranks: str = "rank") -> str:
    """Where the next accelerator stops paying, in a sentence; ``ranks``: what they are called."""
    if far.ranks is None:
        upto = f" up to {count(far.tried, ranks)}" if far.tried else ""
        return f"No limit found{upto}: {far.rule}."
    text = f"One more accelerator stops paying at {count(far.ranks, ranks)}"
    if far.lo is not None:
        text += f" ({far.lo:,}–{far.hi:,})" if far.hi is not None else f" ({far.lo:,} at least)"
    return f"{text}: {far.rule}."


def _times(found: Estimate) -> str:
    """An estimate of a multiple: 3.2 times (2.9–3.5)."""
    value, low, high = found.value, found.lo, found.hi
    if low is None:
        return f"{value:.2g} times"
    return f"{value:.2g} times ({low:.2g}–{high:.2g})" if high is not None else f"at least {value:.2g} times"


def _bound(rows: Sequence[Forecast], screen: Screen, words: Words) -> ConsoleRenderable | None:
    """The one table: what of all time each group takes, which of them bounds the scale, and what a unit then costs."""
    ranks = f"{words.ranks}s"
    cells = {ranks: [_scale(row) for row in rows]}
    grouped = [dict(row.groups or {}) for row in rows]
    cells |= {name: [percent(groups.get(name)) for groups in grouped] for name in grouped[0]}
    cells["bound by"] = [safe(row.bound or row.dominant or "–") for row in rows]
    if _priced(rows):
        cells[words.cost(rows)] = [price(row.cost_per_unit) for row in rows]
    else:
        cells |= _rates(rows, words)
    return in_blocks(cells, screen.width, [ranks])


def _priced(rows: Sequence[Forecast]) -> bool:
    """Whether a unit has a price; else the first table has room for what is delivered."""
    return any(row.cost_per_unit is not None for row in rows)


def _rates(rows: Sequence[Forecast], words: Words) -> dict[str, list[str]]:
    """What is asked for and delivered a second."""
    rates: dict[str, list[float | None]] = {
        "tokens/s": [row.tokens_per_s for row in rows],
        "requests/s": [_known(row.requests_per_s) for row in rows],
        "tasks/s": [_known(row.tasks_per_s) for row in rows],
    }
    if words.rate.endswith("as promised"):
        rates[words.rate] = [_known(row.goodput_per_s) for row in rows]
    return {name: [number(one) for one in found] for name, found in rates.items() if any(one is not None for one in found)}


def _known(found: object) -> float | None:
    return float(found) if isinstance(found, (int, float)) else None


def _times_at(rows: Sequence[Forecast], screen: Screen, words: Words) -> ConsoleRenderable:
    """Times and throughput at each scale, what of it is kept, and how it stands."""
    ranks = f"{words.ranks}s"
    cells = {ranks: [_scale(row) for row in rows]}
    cells[words.piece] = [duration(row.step_ns.p50) for row in rows]
    cells["10–90 %"] = [f"{duration(row.step_ns.p10)}–{duration(row.step_ns.p90)}" for row in rows]
    if _priced(rows):
        cells |= _rates(rows, words)
    if any(row.mfu is not None for row in rows):
        cells["of peak"] = [percent(row.mfu) for row in rows]
    cells[words.kept] = [percent(words.kept_of(row)) for row in rows]
    cells |= _regimes([row.regime for row in rows])
    if screen.width >= WIDE:
        cells["mean lies in"] = [
            f"{duration(row.mean_step_ns.lo)}–{duration(row.mean_step_ns.hi)}" if row.mean_step_ns else "–" for row in rows
        ]
        cells["TFLOP/s a device"] = ["–" if row.tflops_per_device is None else f"{row.tflops_per_device:.0f}" for row in rows]
    return in_blocks(cells, screen.width, [ranks])


WIDE = 110
"""Narrower screens have no room for the interval of the mean and for TFLOP/s."""


def _regimes(regimes: Sequence[Regime | None]) -> dict[str, list[str]]:
    """How each scale stands: its regime, and how far jitter may grow, where either is known of one of them."""
    cells = {}
    if any(regimes):
        cells["regime"] = [_kind(one) for one in regimes]
    if any(one and one.reserve for one in regimes):
        cells["jitter may grow"] = [_grows(one) for one in regimes]
    return cells


def _kind(regime: Regime | None) -> str:
    return safe(regime.kind) if regime and regime.kind else "–"


def _scale(row: Forecast) -> str:
    """Ranks, with a mark where that is a guess."""
    return f"{row.ranks:,}" + ("" if row.in_range else " ?")


def _grows(regime: Regime | None) -> str:
    """Times that jitter may grow; 0 where one more accelerator would not pay even without any."""
    reserve = regime.reserve if regime else None
    if not reserve:
        return "–"
    if reserve.value <= 0:
        return "0 ×"
    return f"≥ {reserve.value:.2g} ×" if reserve.hi is None else f"{reserve.value:.2g} ×"


def _takes(rows: Sequence[Forecast], screen: Screen, words: Words) -> list[ConsoleRenderable]:
    """Interruptions, power, and the energy and carbon of a unit; nothing where nothing of it is known."""
    power = [row.power_at_load for row in rows]
    costs = [row.cost_per_unit_interval or None for row in rows]
    columns: dict[str, list[str]] = {
        # The space before the sign does not break.
        f"cost, 80\u00a0%{_in(rows)}": [_ends(one) for one in costs],
        "interruptions a day": [number(_known(row.interruptions_per_day)) for row in rows],
        "MTBF, h": [number(_known(row.mtbf_h)) for row in rows],
        "time up": [percent(row.availability.value) if row.availability else "–" for row in rows],
        "MW": ["–" if one is UNSET else digits(one.total_w / 1e6) for one in power],
        "kWh": [number(_over(row.energy_per_unit_j, KWH_J)) for row in rows],
        "kg CO2e": [number(_known(row.kg_co2e_per_unit)) for row in rows],
        f"energy{_in(rows)}": [number(_known(row.energy_cost_per_unit)) for row in rows],
        f"network{_in(rows)}": [number(_known(row.network_cost_per_unit)) for row in rows],
        "moving data, of energy": ["–" if not row.movement_share else percent(row.movement_share) for row in rows],
    }
    known = {name: found for name, found in columns.items() if set(found) != {"–"}}
    if not known:
        return []
    ranks = f"{words.ranks}s"
    cells = {ranks: [_scale(row) for row in rows], **known}
    return [
        Text(f"What it takes: power at load; cost, energy and carbon of {words.unit}", style="bold"),
        in_blocks(cells, screen.width, [ranks]),
    ]


def _losses(rows: Sequence[Forecast], screen: Screen) -> list[ConsoleRenderable]:
    """What control loops hold accelerators for and nobody keeps, an hour, with its money and its energy."""
    found = [(row, one) for row in rows for one in row.losses or ()]
    if not found:
        return []
    cells = {
        "accelerators": [_scale(row) for row, _ in found],
        "held for": [safe(one.term) for _, one in found],
        "of them": [three(one.accelerators) for _, one in found],
        "money an hour": [money(one.money_per_hour, one.currency) for _, one in found],
        "kWh an hour": [number(_over(one.joules_per_hour, KWH_J)) for _, one in found],
    }
    if all(one.money_per_hour is None for _, one in found):
        del cells["money an hour"]
    if all(one.joules_per_hour is None for _, one in found):
        del cells["kWh an hour"]
    return [Text("What the loops lose", style="bold"), in_blocks(cells, screen.width, ["accelerators", "held for"])]


def _ends(found: Estimate | None) -> str:
    return "–" if found is None or found.lo is None else f"{price(found.lo)}–{price(found.hi)}"


def _in(rows: Sequence[Forecast]) -> str:
    found = {row.currency for row in rows if row.currency}
    return f", {safe(str(found.pop()))}" if len(found) == 1 else ""


def _over(value: float | None, by: float) -> float | None:
    return None if value is None else value / by


def _budget(rows: Sequence[Forecast], screen: Screen) -> list[ConsoleRenderable]:
    """What a training run over the tokens asked for takes at each scale."""
    found = [row.budget for row in rows if row.budget is not UNSET]
    if not found:
        return []
    money = _in(rows)
    columns: dict[str, list[str]] = {
        "days": [number(one.days) for one in found],
        f"cost{money}": [amount(one.cost) for one in found],
        "accelerator hours": [amount(one.accelerator_hours.value) for one in found],
        "energy, MWh": [amount(middle_of(one.energy_mwh)) for one in found],
        f"energy{money}": [amount(middle_of(one.energy_cost)) for one in found],
        f"network{money}": [amount(middle_of(one.network_cost)) for one in found],
        "t CO2e": [amount(middle_of(one.t_co2e)) for one in found],
        "interruptions": [amount(one.interruptions) for one in found],
    }
    known = {name: cells for name, cells in columns.items() if set(cells) != {"–"}}
    cells = {"ranks": [_scale(row) for row in rows], **known}
    return [Text(f"{amount(found[0].tokens)} tokens", style="bold"), in_blocks(cells, screen.width, ["ranks"])]


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
        table = aligned((words.where, *(f"{row.ranks:,}" for row in rows[some])), cells)
        tables += [Text(), table] if tables else [table]
    return Group(*tables)


def _rows(about: str, rows: Sequence[Part], screen: Screen) -> list[ConsoleRenderable]:
    """Tables of plain rows; what no row knows is left out."""
    names = [name for name in (rows[0] if rows else ()) if any(row[name] not in (None, []) for row in rows)]
    if not names:
        return []
    # Durations carry their unit in the cell.
    cells = {name.replace("_ns", "").replace("_", " "): [cell(name, row[name]) for row in rows] for name in names}
    return [Text(about.replace("_", " ").capitalize(), style="bold"), in_blocks(cells, screen.width)]


def _separated(result: ProjectResult) -> list[ConsoleRenderable]:
    """Advice and the sweep of capacity, where they were asked for."""
    out: list[ConsoleRenderable] = []
    if result.advice is not UNSET:
        found = render_advice(result.advice) if result.advice else Text("No run shows a relation.")
        out += [Text("Separations, tried in the simulator", style="bold"), found]
    if result.sweep:
        out += [Text("More accelerators, the same demand", style="bold"), render_sweep(result.sweep)]
    return out


def _notes(result: ProjectResult, own: Forecast) -> ConsoleRenderable | None:
    """What all of it rests on, and what is not known."""
    keys = result.defaults
    lines = _assumed(result.assumed or ())
    lines += _interval(own)
    if own.power_at_load is not UNSET:
        power = own.power_at_load
        default = " by default" if "price.host_w" in keys else ""
        pue = 1 + power.cooling_w / max(power.total_w - power.cooling_w, 1.0)
        given = " by default" if "price.pue" in keys else ""
        lines.append(
            f"power: accelerators at load, {power.hosts_w / own.ranks:.0f} W of host for each{default} (price.host_w), "
            f"{'' if power.network_w is not None else 'no '}network, times {pue:.3g} for cooling{given} (price.pue)"
        )
    if any(not row.in_range for row in result.forecasts):
        lines.append("?: larger than the fabric, or the measurement, is known for; a guess")
    lines += _unknown(own, result.workload)
    if keys:
        more = f" and {len(keys) - DEFAULTS} more" if len(keys) > DEFAULTS else ""
        lines.append(f"by default: {', '.join(map(safe, keys[:DEFAULTS]))}{more} (all in --json)")
    return Text("\n".join(lines), style="dim") if lines else None


def _assumed(lines: Sequence[str]) -> list[str]:
    """What it rests on; of many scales near what devices hold, the first and the last."""
    near = [line for line in lines if line.startswith("memory: ")]
    if len(near) <= SHOWN:
        return [safe(line) for line in lines]
    between = f"memory: the {len(near) - 2} scales between them are near it, too (all in --json)"
    others = [line for line in lines if line not in near]
    return [*map(safe, [near[0], near[-1]]), between, *map(safe, others)]


SHOWN = 3
"""Lines about memory, at most."""


def _interval(own: Forecast) -> Iterator[str]:
    """What the interval of a step is made of."""
    error, mean = own.model_error, own.mean_step_ns
    if error is UNSET or mean is None or mean.parts is UNSET:
        return
    basis = f"a prior, {count(error.papers, 'paper')} being too few" if error.prior else count(error.papers, "paper")
    parts = mean.parts
    yield (
        f"10–90 %: where a measured step should lie. Width of the mean: model error ({safe(error.kind)}: {basis}) "
        f"{percent(parts.model)}, parameters {percent(parts.parameters)}, noise {percent(parts.noise)}"
    )


def _unknown(own: Forecast, workload: str) -> Iterator[str]:
    """What the scenario does not say, and what says it."""
    missing = []
    if workload != "measured" and own.cost_per_unit is None:
        missing.append("cost (no price of an accelerator hour: --gpu-hour 2.50USD)")
    if own.interruptions_per_day is None:
        missing.append("interruptions (nothing is said to fail: [failure])")
    if own.kg_co2e_per_unit is None:
        missing.append("carbon (price.kg_co2e_per_kwh)")
    if own.energy_cost_per_unit is None:
        missing.append("price of energy (price.kwh)")
    if missing:
        yield f"not known: {', '.join(missing)}"


__all__ = ["render_forecasts", "threshold"]
