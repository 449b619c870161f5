"""The indices and the risk profile on the screen of ``taut analyze``: value, interval, and what it means in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from taut.render.terminal import Screen, heading
from taut.render.text import UNKNOWN, safe, three
from taut.result.types import AnalysisResult, Estimate, Indices, Turnover

WIDE = 120
"""From this width on meanings are spelled out."""
LABELS = {
    "re-runs without a reproducible bug": "re-runs without a bug",
    "utilisation falls though allocated": "utilisation falls",
}
"""Questions that are too long for a column."""
HELD = 0.05
"""Chance at which the critical path is said to be held, or to alternate."""


class Meaning(Struct, frozen=True):
    """How an index is called, how it is written, and what it means, short and spelled out."""

    key: str
    name: str
    unit: Literal["share", "times"]
    short: str
    long: str


MEANINGS = (
    Meaning("effective_throughput_ratio", "effective throughput", "share", "ideal over actual time",
            "time with every op at its reference, over the actual time"),
    Meaning("energy_per_useful_step", "energy per useful step", "times", "over the ideal's joules",
            "joules of a kept step, over those with every op at its reference"),
    Meaning("runtime_variance_index", "runtime variance", "share", "spread of step times",
            "spread of step times over their median (standard deviation)"),
    Meaning("sync_delay_amplification", "sync delay amplification", "times", "job's delay over ranks'",
            "delay of the whole job over the mean of its ranks; 1 is none"),
    Meaning("replay_probability", "replay probability", "share", "of steps discarded later",
            "of executed steps that were discarded later"),
    Meaning("straggler_cascade_rate", "straggler cascade rate", "share", "steps one rank holds up",
            "of steps in which one late rank holds up half of the others"),
)  # fmt: skip


def indices_part(result: AnalysisResult, screen: Screen) -> ConsoleRenderable | None:
    """The six indices and the turnover of the critical path; against a baseline old → new."""
    found = result.indices
    if found is None:
        return None
    old = result.baseline.indices if result.baseline else None
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column("", no_wrap=True, overflow="ellipsis")
    wide = screen.width >= WIDE
    for one in MEANINGS:
        value: Estimate | None = getattr(found, one.key)
        if value is not None:
            table.add_row(one.name, _value(value, _of(old, one.key), one.unit), Text(one.long if wide else one.short, "dim"))
    turnover = result.coupling.turnover if result.coupling else None
    if turnover is not None and turnover.value is not None:
        before = result.baseline.turnover if result.baseline else None
        table.add_row("critical path turnover", _changed(turnover.value, before), Text(_turns(turnover, wide), "dim"))
    lines: list[ConsoleRenderable] = [heading("Indices, with 95 % intervals")]
    lines += [Padding(table, (0, 0, 0, 1))] if table.row_count else []
    silent = _silent(result.index_needs)
    lines += [Padding(Text(f"no value: {silent}", style="dim"), (0, 0, 0, 1))] if silent else []
    return Group(*lines) if len(lines) > 1 else None


def _silent(needs: Mapping[str, str]) -> str:
    """Indices without a value, by what they need."""
    names: dict[str, list[str]] = {}
    for one in MEANINGS:
        if one.key in needs:
            names.setdefault(needs[one.key], []).append(one.name)
    return "; ".join(f"{', '.join(some)} ({safe(why)})" for why, some in names.items())


def _of(indices: Indices | None, key: str) -> Estimate | None:
    found: Estimate | None = getattr(indices, key) if indices is not None else None
    return found


def _value(new: Estimate, old: Estimate | None, unit: str) -> Text:
    """The value with its interval, behind the struck-through one of the baseline."""
    line = _struck(None if old is None else old.value, unit)
    line.append(_number(new.value, unit), style="bold")
    if new.lo is not None and new.hi is not None:
        scale = 100 if unit == "share" else 1
        line.append(f" ({_digits(scale * new.lo, unit)}–{_digits(scale * new.hi, unit)})")
    return line


def _changed(new: float, old: float | None) -> Text:
    return _struck(old, "share").append(_number(new, "share"), style="bold")


def _struck(old: float | None, unit: str) -> Text:
    """What it was; the unit stands behind what it is."""
    if old is None:
        return Text()
    return Text.assemble((_digits(100 * old if unit == "share" else old, unit), "strike dim"), " → ")


def _number(value: float, unit: str) -> str:
    return f"{_digits(100 * value, unit)} %" if unit == "share" else f"{_digits(value, unit)} ×"


def _digits(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit == "share" else three(value)


def _turns(turnover: Turnover, wide: bool) -> str:
    """What a turnover is held against, and what that says."""
    if turnover.expected is None or turnover.p is None or turnover.value is None:
        return "of the path changes a step"
    way = "held" if turnover.value < turnover.expected else "alternates"
    says = way if turnover.p <= HELD else "as by chance"
    chance = f"{100 * turnover.expected:.0f} %"
    if wide:
        return f"of the path changes a step; by chance {chance}: {says} (p {turnover.p:.2g})"
    return f"{says}; chance {chance}" if turnover.p <= HELD else f"as by chance ({chance})"


def risk_part(result: AnalysisResult, all_signs: bool = False) -> ConsoleRenderable | None:
    """Which kind of failure this is; the four signs where they are asked for, or more than traces was given."""
    risk = result.risk
    if risk is None:
        return None
    line = Text(f"Risk: {risk.kind or 'no sign of soft degradation or hard failure'}", style="bold")
    if risk.kind is not None:
        says = "slower, and no error is logged" if risk.kind == "soft degradation" else safe(risk.says)
        line.append(f" · {says}", style="not bold")
    if not all_signs and result.baseline is None and result.attempts is None:
        known = [one.answer for one in risk.answers if one.answer]
        if not known and risk.kind is None:
            return None
        signs = f"{known.count('yes')} of {len(known)} measured signs show" if known else "no sign measured"
        return line.append(f" · {signs}, --envelope lists all {len(risk.answers)}", style="not bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("")
    for one in risk.answers:
        says, needs = safe(one.says), f"needs {safe(one.needs)}" if one.needs else ""
        told = f"{says}; {needs}" if says and needs else says or f"not measured, {needs}"
        label, quiet = LABELS.get(one.question, one.question), "" if one.answer else "dim"
        table.add_row(label, Text(one.answer or UNKNOWN, "bold" if one.answer == "yes" else quiet), Text(told, quiet))
    return Group(line, Padding(table, (0, 0, 0, 1)))
