"""What page one does not count: restarts, while too few were seen to tell how often they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taut.render.text import count, duration, middle
from taut.result.brief_types import BriefedBill
from taut.result.types import AnalysisResult, AttemptsResult

FAILED = ("failed", "node failed", "timed out", "out of memory")
"""Outcomes of attempts that ended against their will."""
ENOUGH = 5
"""Restarts from which a rate can be told."""
LONGEST = 70
"""Letters of a reason, as a log gives it."""
LEAST = 0.01
"""Share of the time that a sentence is worth."""
REVERSED = " reversed "
"""What an unknown regime of control says of settings that were turned around."""
DOWN = "downtime after failures"


def left_out(results: Sequence[AnalysisResult], bills: Sequence[BriefedBill]) -> Iterator[str]:
    """A sentence for each run whose job was restarted, and one for controllers that may swing."""
    for result in results:
        yield from _not_ruled_out(result)
        found = result.attempts
        if found is not None and result.whatif is not None and found.total_rank_ns:
            down = sum(entry.rank_ns for entry in found.entries if entry.fate == "down")
            if down / found.total_rank_ns >= LEAST:
                yield f"{_stood_still(result.job.name, found, down)}{_charged(bills)}{_rate(found)}"


def _not_ruled_out(result: AnalysisResult) -> Iterator[str]:
    """Controllers that turned a setting around while nobody recorded what they follow."""
    told = result.control
    why = "" if told is None or told.regime.kind is not None else (told.regime.because or "").split("; ")[0]
    if result.whatif is not None and REVERSED in why:
        yield f"Not ruled out beside these causes: {why} (section “Control”)."


def _stood_still(name: str, found: AttemptsResult, down: int) -> str:
    failed = sum(number for outcome, number in found.outcomes.items() if outcome in FAILED)
    ended = next((row.reason for row in found.rows if row.outcome in FAILED and row.reason), None)
    why = f" ({middle(ended, LONGEST)})" if ended else ""
    share = f"{100 * down / (found.total_rank_ns or 1):.0f} %"
    return (
        f"Not in the figures above: restarts. {failed:,} of {count(found.attempts, 'attempt')} of {name} failed{why}; between "
        f"attempts nothing ran for {duration(found.down_ns)}, {share} of the time from the first start to the last end."
    )


def _charged(bills: Sequence[BriefedBill]) -> str:
    """What the bill charges meanwhile."""
    for bill in bills:
        down = next((one for one in bill.result.categories if one.name == DOWN and one.share), None)
        if down is not None:
            return f" The bill charges that time all the same: {100 * (down.share or 0):.0f} % of this bill."
    return ""


def _rate(found: AttemptsResult) -> str:
    seen = max(found.attempts - found.jobs, 0)
    if seen >= ENOUGH:
        return f" {count(seen, 'restart')} were seen."
    often = "One event" if seen == 1 else f"{seen:,} restarts, too few for a rate"
    return f" {often}: no monthly figure. What to do: find what ended it."
