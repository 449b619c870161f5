"""Forecasts on a terminal: what dominates, then a line per scale, then where a step goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import ConsoleRenderable
from rich.text import Text

from taut.brief.terminal import Screen, _print, _table
from taut.brief.text import count, duration, percent, safe

DEFAULTS = 8
"""Keys that took their defaults, named at most."""


def render_forecasts(result: Mapping[str, Any], screen: Screen) -> str:
    """The whole screen of ``taut project``."""
    rows = result["forecasts"]
    parts = [Text(_said(result), style="bold"), _scales(rows), _terms(rows), _notes(result)]
    shown = [part for part in parts if part is not None]
    return _print([x for i, part in enumerate(shown) for x in ([Text()] if i else []) + [part]], screen)


def _said(result: Mapping[str, Any]) -> str:
    rows = result["forecasts"]
    last = rows[-1]
    text = f"{safe(result['scenario'])}: {count(last['ranks'], 'rank')} take {duration(last['step_ns']['p50'])} a step"
    if last.get("mfu") is not None:
        text += f", {percent(last['mfu'])} of the peak"
    text += f"; {safe(last['dominant'])} dominates."
    return text if last["in_range"] else text + " That scale is beyond what is known: a guess."


def _scales(rows: Sequence[Mapping[str, Any]]) -> ConsoleRenderable:
    table = _table(
        "ranks", "step", "10–90 %", "mean lies in", "TFLOP/s a device", "of peak", "throughput kept", "time kept",
        ("dominates", "left"),
    )  # fmt: skip
    for row in rows:
        step, mean, flops, mfu = row["step_ns"], row["mean_step_ns"], row.get("tflops_per_device"), row.get("mfu")
        table.add_row(
            f"{row['ranks']:,}" + ("" if row["in_range"] else " ?"), duration(step["p50"]),
            f"{duration(step['p10'])}–{duration(step['p90'])}", f"{duration(mean['lo'])}–{duration(mean['hi'])}",
            "–" if flops is None else f"{flops:.0f}", "–" if mfu is None else percent(mfu),
            percent(_value(row["effective_throughput_ratio"])),
            percent(row["availability"]["value"]) if row.get("availability") else "–", safe(row["dominant"]),
        )  # fmt: skip
    return table


def _value(number: Any) -> float:
    """A number, or the middle of an estimate."""
    return float(number["value"] if isinstance(number, Mapping) else number)


def _shares(row: Mapping[str, Any]) -> Mapping[str, float]:
    """Where a step goes."""
    if row.get("terms"):
        return dict(row["terms"])
    total = sum(row["terms_ns"].values()) or 1
    return {name: ns / total for name, ns in row["terms_ns"].items()}


def _terms(rows: Sequence[Mapping[str, Any]]) -> ConsoleRenderable:
    shares = [_shares(row) for row in rows]
    table = _table(("share of a step", "left"), *(f"{row['ranks']:,}" for row in rows))
    for name in shares[0]:
        table.add_row(safe(name), *(percent(share[name]) for share in shares))
    return table


def _notes(result: Mapping[str, Any]) -> ConsoleRenderable | None:
    keys = result.get("defaults") or []
    lines = [safe(line) for line in result.get("assumed") or []]
    if keys:
        more = f" and {len(keys) - DEFAULTS} more" if len(keys) > DEFAULTS else ""
        lines.append(f"by default: {', '.join(map(safe, keys[:DEFAULTS]))}{more} (all in --json)")
    return Text("\n".join(lines), style="dim") if lines else None


__all__ = ["render_forecasts"]
