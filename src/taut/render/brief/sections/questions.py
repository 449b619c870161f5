"""The questions that architects and buyers ask, each with its answer or with what it needs."""

from __future__ import annotations

from taut.render.brief.document import Cell, Column, Grid, Section, Text
from taut.render.brief.written import answered
from taut.result.brief_types import Briefing
from taut.result.types import BriefQuestion

INTRODUCTION = "Each answer is a number with the interval that holds it, a sentence, and where it comes from."


def questions(briefing: Briefing) -> Section:
    """One row a question."""
    currency = next((one.result.forecasts[0].currency for one in briefing.scenarios if one.result.forecasts), None) or None
    columns = [Column("Question"), Column("Answer", True), Column("What it means"), Column("From")]
    rows = [_row(one, currency) for one in briefing.questions]
    commands = list(dict.fromkeys(one.command for one in briefing.questions))
    return Section("questions", "The questions", [Text(INTRODUCTION), Grid("Questions and answers", columns, rows)], commands)


def _row(one: BriefQuestion, currency: str | None) -> list[Cell | str]:
    if one.answer is None:
        return [Cell(one.question, "strong"), Cell("not measured", "bad"), f"needs {one.needs}", one.command]
    return [Cell(one.question, "strong"), answered(one.answer, one.unit, currency), one.says, one.taken_from or ""]
