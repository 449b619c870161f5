"""A forecast as a card in a notebook: the answer at its scale, figures with intervals at each, the limit, the best policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from taut.render.card_parts import framed, line, rows
from taut.render.figure_table import number
from taut.render.forecast_screen import _headline, _scale, _stands
from taut.render.text import count, duration, percent
from taut.render.two_scenarios_screen import _headline as headline_of_two
from taut.render.two_scenarios_screen import _limits
from taut.render.workload_words import Words, words_of
from taut.result.types import Forecast, ProjectResult, TwoScenarios

SCALES = 8
"""Scales shown at most."""
HELPS = 0.005
"""A policy that brings less is not recommended."""


def forecast_card(result: ProjectResult) -> str:
    """HTML of a few lines; every text from a scenario is escaped."""
    own = next(row for row in result.forecasts if row.ranks == result.ranks)
    return framed(_headline(result, own, words_of(result.workload)), _lines(result, own, words_of(result.workload)))


def two_card(result: TwoScenarios) -> str:
    """Two scenarios: which delivers more, and where each stops paying."""
    words = words_of(result.scenarios[0].workload)
    return framed(headline_of_two(result, words), [line(one) for one in _limits(result, words)])


def _lines(result: ProjectResult, own: Forecast, words: Words) -> Iterator[str]:
    scales = sorted(result.forecasts, key=lambda row: row.ranks)[:SCALES]
    yield _table(scales, words)
    stands = _stands(result, own, words)
    yield from (line(one) for one in (stands.plain.split("\n") if stands else ()))
    best = max(result.gains or (), key=lambda one: one.rate_change or 0.0, default=None)
    if best is not None and (best.rate_change or 0.0) >= HELPS:
        gain = f"{percent(best.rate_change)} more {words.rate} on {count(best.ranks, words.ranks)}"
        yield line(f"next: {best.name.replace(',', ' + ')} gives {gain}", "do")
    if any(not row.in_range for row in scales):
        yield line("?: larger than what is known; a guess", "muted")


def _table(scales: Sequence[Forecast], words: Words) -> str:
    """A row for each scale; what no scale knows is left out."""
    columns = {
        f"{words.ranks}s": [_scale(row) for row in scales],
        words.piece: [duration(row.step_ns.p50) for row in scales],
        "10–90 %": [f"{duration(row.step_ns.p10)}–{duration(row.step_ns.p90)}" for row in scales],
        words.rate: [_rate(row) for row in scales],
        words.kept: [percent(words.kept_of(row)) for row in scales],
        "bound by": [str(row.bound or row.dominant or "–") for row in scales],
    }
    known = {title: cells for title, cells in columns.items() if set(cells) != {"–"}}
    return rows(zip(*known.values(), strict=True), list(known))


def _rate(row: Forecast) -> str:
    """What is delivered a second, with its interval where there is one."""
    if row.tokens_per_s_interval is not UNSET:
        return number(row.tokens_per_s_interval)
    known = [
        one for one in (row.goodput_per_s, row.requests_per_s, row.tasks_per_s, row.tokens_per_s) if isinstance(one, float)
    ]
    return number(known[0]) if known else "–"
