"""A bill as a card in a notebook: the verdict, where the money went, what is wrong with it, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.written import share, worth
from taut.render.card_parts import framed, line, rows
from taut.render.text import money, percent
from taut.result.types import BillResult

RECOVERIES = 3
"""Remedies shown at most."""


def bill_card(result: BillResult) -> str:
    """HTML of a few lines; every text from a bill or a log is escaped."""
    return framed(result.verdict, _lines(result))


def _lines(result: BillResult) -> Iterator[str]:
    yield rows([one.name or "none", money(one.money, result.currency), percent(one.share)] for one in result.categories)
    yield from (line(f"{one.kind}: {money(one.money, result.currency)}", "wrong") for one in result.defects)
    yield from (line(f"next: {words}", "do") for words in _next(result))


def _next(result: BillResult) -> list[str]:
    """What brings most back; else the first thing that is missing."""
    known = [
        f"{one.remedy}: {share(one.saved_share)} of the wall"
        + (f", {worth(one.per_month, result.currency)} a month" if one.per_month else "")
        for one in result.recoverable[:RECOVERIES]
    ]
    return known or result.missing[:1]
