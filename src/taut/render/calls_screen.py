"""What only traces of services have: names for ranks, calls made for nothing, tails of fan-outs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import ConsoleRenderable, Group
from rich.text import Text

from taut.render.text import count, duration, money, percent, safe
from taut.result.types import AnalysisResult, Redundant, Tail

TAILS = 3
"""Fan-outs at most, the longest tails first."""


def who(result: AnalysisResult, rank: int) -> str:
    """A rank, with its name, host and accelerator, where they are known."""
    label = next((row.label for row in result.ranks or () if row.rank == rank), None)
    if label is not None:
        return safe(label)
    name = result.job.names.get(str(rank))
    return f"rank {rank} ({safe(name)})" if name else f"rank {rank}"


def calls(result: AnalysisResult) -> ConsoleRenderable | None:
    """A line on redundant calls, and one for every fan-out with a long tail."""
    lines = [_redundant(result.redundant), *_tails(result.tails or [])]
    shown = [Text(line) for line in lines if line]
    return Group(*shown) if shown else None


def _redundant(found: Redundant | None) -> str:
    if not found or not found.of_calls:
        return ""
    if not found.calls:
        return f"Redundant: none of {count(found.of_calls, 'call')} was seen to be made for nothing"
    words = [
        f"Redundant: {found.calls:,} of {count(found.of_calls, 'call')} "
        f"({duration(found.busy_ns)}, {percent(found.share)} of their time) for nothing"
    ]
    if found.tokens_in is not None or found.tokens_out is not None:
        words.append(f"{found.tokens_in or 0:,} tokens in, {found.tokens_out or 0:,} out")
    if found.money is not None:
        words.append(money(found.money, found.currency))
    words += [f"{row.calls:,} × {safe(row.op_class)} {row.outcome}" for row in found.by[:3]]
    return " · ".join(words)


def _tails(found: Sequence[Tail]) -> list[str]:
    lines = []
    for row in sorted(found, key=lambda row: -row.ratio)[:TAILS]:
        line = (
            f"Tail: {safe(row.op_class)} of {row.fan_out}: p{100 * row.quantile:.0f} {duration(row.high_ns)} "
            f"is {row.ratio:.2f} × the median"
        )
        if row.independent_ratio is not None:
            line += f"; independent calls would give {row.independent_ratio:.2f} ×"
        lines.append(line)
    return lines
