"""Decisions that were taken already, and what became of them."""

from __future__ import annotations

from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Mark
from taut.render.brief.written import share
from taut.render.text import UNKNOWN, safe
from taut.result.brief_types import BriefedDecision
from taut.result.types import Estimate

OUTCOMES: dict[str, tuple[str, Mark]] = {
    "kept": ("kept: at least what was expected", "good"),
    "missed": ("missed: less than was expected", "bad"),
    "unclear": ("unclear: the interval holds both", "plain"),
}
NONE = "No decision on these runs is in the audit log."
DECIDE = 'taut audit decide RUN --finding ID --do "…" --by NAME'


def decided(decisions: list[BriefedDecision]) -> list[Block]:
    """A row for each, oldest first; where there are none, how to record one."""
    if not decisions:
        return [Empty(NONE, "taut audit decide after a decision, taut audit outcome after the repair", DECIDE)]
    columns = [
        Column("Decided"), Column("By"), Column("What"), Column("Expected", True), Column("Measured", True), Column("Outcome"),
    ]  # fmt: skip
    return [Grid("Decisions already taken, and what became of them", columns, [_decision(one) for one in decisions])]


def _decision(one: BriefedDecision) -> list[Cell | str]:
    record, outcome = one.record, one.outcome
    day = (record.at or UNKNOWN)[:10]
    expected = outcome.expected_saving if outcome is not None else _expected(one)
    words, mark = OUTCOMES[outcome.says] if outcome is not None else ("not measured yet", "plain")
    measured = share(outcome.measured_saving) if outcome is not None else UNKNOWN
    return [day, _text(one, "by"), _text(one, "do"), share(expected), measured, Cell(words, mark)]


def _text(one: BriefedDecision, key: str) -> str:
    value = one.record.details.get(key)
    return safe(value) if isinstance(value, str) else "taken out"


def _expected(one: BriefedDecision) -> Estimate | None:
    told = one.record.details.get("expected")
    if not isinstance(told, dict):
        return None
    value, low, high = (told.get(key) for key in ("value", "lo", "hi"))
    if not isinstance(value, (int, float)):
        return None
    ends = [end if isinstance(end, (int, float)) else None for end in (low, high)]
    return Estimate(value=value, lo=ends[0], hi=ends[1])
