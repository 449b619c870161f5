"""A comparison as a card in a notebook: the verdict, the runs, what rises or falls for sure, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.written import share
from taut.render.card_parts import framed, line, rows
from taut.render.compare_screen import LABELS, NOTABLE, _names, _say
from taut.render.text import duration, percent
from taut.result.types import CompareResult

RUNS, CHANGES = 8, 3
"""Runs, and changes of work, shown at most."""


def compare_card(result: CompareResult) -> str:
    """HTML of a few lines; every name of a run, a job or a class is escaped."""
    return framed(result.verdict.text, _lines(result))


def _lines(result: CompareResult) -> Iterator[str]:
    names, half = _names([row.run for row in result.runs]), RUNS // 2
    some = result.runs if len(result.runs) <= RUNS else [*result.runs[:half], *result.runs[-half:]]
    cells = [
        [
            names[row.run],
            duration(row.step_ns),
            share(row.effective_throughput_ratio),
            percent(row.waiting_share),
            percent(row.recoverable_share),
        ]
        for row in some
    ]
    yield rows(cells, ("run", "step", "throughput, of the ideal", "waiting", "recoverable"))
    if len(some) < len(result.runs):
        yield line(f"the first and the last {half} of {len(result.runs)} runs", "muted")
    yield from (line(words) for words in _trends(result))
    yield from (line(words, "wrong") for words in _changed(result))
    yield from (line(f"next: {one.remedy.do}", "do") for one in result.findings if one.remedy is not None)


def _trends(result: CompareResult) -> Iterator[str]:
    """What rises or falls from run to run beyond chance."""
    currency = next((run.currency for run in result.runs if run.currency), None)
    for one in result.trends:
        if one.slope is not None and one.q is not None and one.q <= NOTABLE:
            value, low, high = (
                _say(one.quantity, end, currency, signed=True) for end in (one.slope.value, one.slope.lo, one.slope.hi)
            )
            yield f"{LABELS[one.quantity]}: {value} a run ({low} to {high})"


def _changed(result: CompareResult) -> Iterator[str]:
    """Work that changed most, with what that costs."""
    for one in result.changed[:CHANGES]:
        cost = "" if one.effect_wall_ns is None else f", {_say('step_ns', one.effect_wall_ns, signed=True)} on the wall"
        yield f"rank {one.rank}, {one.op_class}: {duration(one.before_ns)} → {duration(one.after_ns)} a step{cost}"
