"""A briefing as a card in a notebook: its verdict, what the job costs, the causes that matter, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.written import cash, share, worth
from taut.render.card_parts import framed, line
from taut.render.text import count
from taut.result.types import BriefCause, BriefResult


def brief_card(result: BriefResult) -> str:
    """HTML of a few lines; every text is escaped."""
    return framed(result.verdict, _lines(result))


def _lines(result: BriefResult) -> Iterator[str]:
    yield line(f"briefing on {result.title}, from {count(len(result.inputs), 'input')}", "muted")
    if result.costs is not None:
        cost = result.costs
        useful = "" if cost.useful_per_month is None else f", of which {cash(cost.useful_per_month)} for useful work"
        yield line(f"{cash(cost.per_month)} {cost.currency} a month{useful} ({cost.basis})")
    for cause in result.causes:
        yield line(_cause(cause), "wrong")
        yield line(f"next: {cause.do}", "do")
    open_ones = [one for one in result.questions if one.needs is not None]
    if open_ones:
        yield line(f"{len(open_ones)} of {len(result.questions)} questions are not answered: {open_ones[0].needs}", "muted")
    yield line("brief.save('brief.html') writes the document; .pdf and .md too", "muted")


def _cause(cause: BriefCause) -> str:
    size = [] if cause.share is None else [f"{share(cause.share)} {cause.share_is}"]
    size += [] if cause.money_per_month is None else [f"{worth(cause.money_per_month, cause.currency)} a month"]
    return f"{cause.what}: {', '.join(size)} ({cause.source})" if size else f"{cause.what} ({cause.source})"
