"""Two scenarios side by side on a terminal: rows are figures, columns the scenarios and the second over the first."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

from msgspec import UNSET
from rich.console import ConsoleRenderable
from rich.text import Text

from taut.render.figure_table import aligned, amount, change, digits, in_blocks, price
from taut.render.forecast_screen import threshold
from taut.render.terminal import Screen, spaced_text
from taut.render.text import count, duration, middle, percent, safe
from taut.render.workload_words import Words, words_of
from taut.result.types import FigureRatio, ProjectResult, ScalePair, TwoScenarios

LABEL, RATIO, NAMES = 34, 7, 24
"""Columns that names of figures, the ratio and names of policies take."""
SAME = 0.005
"""Ratios this near to 1 are no difference."""


def render_two(result: TwoScenarios, screen: Screen) -> str:
    """The whole screen of ``taut project A B``."""
    one, other = result.scenarios
    words = words_of(one.workload)
    names = _names(one, other, max((screen.width - LABEL - RATIO - 6) // 2, 8))
    parts: list[ConsoleRenderable] = [Text(_headline(result, words), style="bold"), Text("\n".join(_limits(result, words)))]
    if len(result.ratios) > 1:
        parts.append(_over_scales(result, names, words, screen))
    for pair in result.ratios:
        parts += [Text(_scale(pair, names, words), style="bold"), _table(pair, names, words, _tokens(result))]
    parts += _gains(result, names, words, screen)
    parts.append(Text("\n".join(_notes(result)), style="dim"))
    return spaced_text(parts, screen)


TIMES = 3.0
"""From here on a ratio is said as times, not as percent more."""


def _names(one: ProjectResult, other: ProjectResult, width: int) -> tuple[str, str]:
    """What the columns are called; two of one name by their place."""
    if one.scenario == other.scenario:
        return "first", "second"
    return middle(safe(one.scenario), width), middle(safe(other.scenario), width)


def _headline(result: TwoScenarios, words: Words) -> str:
    """Which of them delivers a unit for less, at the largest scale they share."""
    pair = max(result.ratios, key=lambda one: (all(one.ranks), one.ranks[0] or 0))
    figures = {one.figure: one for one in pair.figures}
    names = _names(*result.scenarios, 40)
    cost, rate = figures.get("cost_per_unit"), pair.figures[0]
    parts = []
    if rate.ratio is not None:
        more, than = ("the same", "as") if _same(rate.ratio) else (_more(rate.ratio), "than")
        more, than = (f"{rate.ratio:.1f} times the", "of") if rate.ratio >= TIMES else (more, than)
        parts.append(f"{names[1]} delivers {more} {words.rate} {than} {names[0]}")
    if cost and cost.ratio is not None:
        parts.append(f"the cost of {words.unit} is {'the same' if _same(cost.ratio) else _more(cost.ratio)}")
    text = "; ".join(parts) or f"{names[0]} and {names[1]} have no figure in common"
    return f"{text} ({_scale(pair, names, words)})."


def _same(ratio: float) -> bool:
    return abs(ratio - 1) < SAME


def _more(ratio: float) -> str:
    if ratio >= TIMES:
        return f"{ratio:.1f} times as much"
    return f"{100 * abs(ratio - 1):.1f} % {'more' if ratio > 1 else 'less'}"


def _limits(result: TwoScenarios, words: Words) -> list[str]:
    """Where each stops paying, and what it is bound by at its largest scale."""
    lines = []
    for name, one in zip(_names(*result.scenarios, 40), result.scenarios, strict=True):
        own = next(row for row in one.forecasts if row.ranks == one.ranks)
        said = [f"bound by {safe(own.bound or own.dominant or 'nothing known')} on {count(one.ranks, words.ranks)}"]
        if own.regime and own.regime.kind:
            said.append(safe(own.regime.kind))
        if one.threshold:
            far = threshold(one.threshold, words.ranks).partition(":")[0]
            said.append(far[0].lower() + far[1:])
        lines.append(f"{name}: {', '.join(said)}.")
    return lines


def _scale(pair: ScalePair, names: tuple[str, str], words: Words) -> str:
    one, other = pair.ranks
    if one == other and one is not None:
        return f"on {count(one, words.ranks)}"
    said = [
        f"{name} on {count(ranks, words.ranks)}" for name, ranks in zip(names, pair.ranks, strict=True) if ranks is not None
    ]
    return ", ".join(said)


def _tokens(result: TwoScenarios) -> str:
    """The tokens that were asked for, as people say them."""
    found = result.scenarios[0].forecasts[0].budget
    return "" if found is UNSET else amount(found.tokens)


def _over_scales(result: TwoScenarios, names: tuple[str, str], words: Words, screen: Screen) -> ConsoleRenderable:
    """What both deliver, what a unit costs and what binds them, a row for each scale."""
    pairs = sorted(result.ratios, key=lambda pair: pair.ranks[0] or pair.ranks[1] or 0)
    scales = f"{words.ranks}s"
    cells = {scales: [f"{pair.ranks[0] or pair.ranks[1] or 0:,}" for pair in pairs]}
    for key, called in ((pairs[0].figures[0].figure, words.rate), ("cost_per_unit", "cost")):
        found = [_of(pair, key) for pair in pairs]
        for side, name in enumerate(names):
            cells[f"{called} {name}"] = [_cell(one, one.values[side]) for one in found]
        cells[f"{called}, ratio"] = ["–" if one.ratio is None else f"{one.ratio:.2f}" for one in found]
    cells["bound by"] = [_either(_of(pair, "bound")) for pair in pairs]
    known = {name: column for name, column in cells.items() if set(column) != {"–"}}
    return in_blocks(known, screen.width, [scales])


def _of(pair: ScalePair, key: str) -> FigureRatio:
    """One figure of both; unknown where neither has it."""
    unknown = FigureRatio(figure=key, values=(None, None), ratio=None)
    return next((one for one in pair.figures if one.figure == key), unknown)


def _either(one: FigureRatio) -> str:
    """A word for both, or one for each."""
    first, second = (_cell(one, value) for value in one.values)
    return first if first == second else f"{first} / {second}"


def _table(pair: ScalePair, names: tuple[str, str], words: Words, tokens: str) -> ConsoleRenderable:
    """Figures of both; what neither knows is left out."""
    labels = _labels(pair, words, tokens)
    rows = []
    for one in pair.figures:
        if one.figure in labels and any(value is not None for value in one.values):
            ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
            rows.append([labels[one.figure], *(_cell(one, value) for value in one.values), ratio])
    return aligned(("figure", *names, "ratio"), rows)


def _labels(pair: ScalePair, words: Words, tokens: str) -> Mapping[str, str]:
    """Key of a figure → what it is called here."""
    found = next((one.values for one in pair.figures if one.figure == "currency"), (None, None))
    currencies = {str(value) for value in found if value}
    money = f", {safe(currencies.pop())}" if len(currencies) == 1 else ""
    return {
        pair.figures[0].figure: words.rate, "step_ns": words.piece, "mfu": "of peak", "effective_throughput_ratio": words.kept,
        "bound": "bound by", "compute_share": "compute", "interconnect_share": "interconnect",
        "synchronisation_share": "synchronisation", "recovery_share": "recovery", "regime": "regime",
        **({} if money or not currencies else {"currency": "currency"}),
        "cost_per_unit": f"cost of {words.unit}{money}", "energy_per_unit_j": f"kWh of {words.unit}",
        "kg_co2e_per_unit": f"kg CO2e of {words.unit}", "total_w": "MW at load", "interruptions_per_day": "interruptions a day",
        "mtbf_h": "MTBF, h", "days": f"days for {tokens} tokens", "cost": f"cost of {tokens} tokens{money}",
        "energy_mwh": f"MWh for {tokens} tokens", "t_co2e": f"t CO2e for {tokens} tokens",
    }  # fmt: skip


def _cell(one: FigureRatio, value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return safe(value)
    if one.figure == "step_ns":
        return duration(value)
    if one.figure.endswith(("_share", "_ratio")) or one.figure == "mfu":
        return percent(value)
    if one.figure == "cost_per_unit":
        return price(value)
    scaled = value / {"energy_per_unit_j": 3.6e6, "total_w": 1e6}.get(one.figure, 1.0)
    return amount(scaled) if one.figure in ("cost", "energy_mwh", "t_co2e") else digits(scaled)


def _gains(result: TwoScenarios, names: tuple[str, str], words: Words, screen: Screen) -> list[ConsoleRenderable]:
    """What each policy gives both, where some were asked for."""
    sides = [{one.name: one for one in scenario.gains or ()} for scenario in result.scenarios]
    policies = list(dict.fromkeys([*sides[0], *sides[1]]))
    if not policies:
        return []
    cells = {"policy": ["\n".join(wrap(safe(name).replace(",", ", "), NAMES, break_on_hyphens=False)) for name in policies]}
    for name, side in zip(names, sides, strict=True):
        found = [side.get(policy) for policy in policies]
        cells[f"{words.rate} {name}"] = [change(one.rate_change) if one else "–" for one in found]
        cells[f"cost {name}"] = [change(one.cost_per_unit_change) if one else "–" for one in found]
        cells[f"regime {name}"] = [safe(one.regime or "–") if one else "–" for one in found]
    known = {name: column for name, column in cells.items() if set(column) != {"–"}}
    title = "What each policy gives, at the largest scale of each"
    return [Text(title, style="bold"), in_blocks(known, screen.width, ["policy"])]


def _notes(result: TwoScenarios) -> list[str]:
    """What both rest on."""
    lines = ["ratio: second over first; figures of each alone: taut project NAME"]
    rules = {one.threshold.rule for one in result.scenarios if one.threshold}
    lines += [safe(rule) for rule in sorted(rules)]
    for one in result.scenarios:
        lines += [f"{safe(one.scenario)}: {safe(line)}" for line in one.assumed or ()]
    currencies = {row.currency for one in result.scenarios for row in one.forecasts if row.currency}
    if len(currencies) > 1:
        lines.append(f"costs are in {' and '.join(sorted(map(str, currencies)))}: not converted, so without a ratio")
    return lines
