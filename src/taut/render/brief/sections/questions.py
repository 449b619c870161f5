"""The questions that architects and buyers ask, each with its answer or with what it needs."""

from __future__ import annotations

from taut.render.brief.document import Cell, Column, Grid, Section, Text
from taut.render.brief.input_names import short_name
from taut.render.brief.written import answered
from taut.result.brief_types import Briefing
from taut.result.types import BriefQuestion

INTRODUCTION = (
    "Each answer is a sentence, the number in it with its interval, and where it comes from. Intervals hold the value in 95 of "
    "100 repetitions, unless it is said otherwise."
)


def questions(briefing: Briefing) -> Section:
    """One row a question."""
    currency = next((one.result.forecasts[0].currency for one in briefing.scenarios if one.result.forecasts), None) or None
    columns = [Column("Question"), Column("Answer"), Column("Number", True), Column("From")]
    names = {one.name: short_name(one) for one in briefing.inputs}
    rows = [_row(one, currency, names) for one in briefing.questions]
    commands = list(dict.fromkeys(one.command for one in briefing.questions))
    return Section("questions", "The questions", [Text(INTRODUCTION), Grid("Questions and answers", columns, rows)], commands)


def _row(one: BriefQuestion, currency: str | None, names: dict[str, str]) -> list[Cell | str]:
    if one.answer is None:
        return [Cell(one.question, "strong"), f"needs {one.needs}", Cell("not measured", "bad"), one.command]
    level = "" if one.of_100 == 95 or one.answer.lo is None else f" in {one.of_100} of 100"
    number = f"{answered(one.answer, one.unit, currency)}{level}"
    name, colon, key = (one.taken_from or "").rpartition(": ")
    place = f"{names.get(name, name)}{colon}{key}"
    return [Cell(one.question, "strong"), f"{one.says[:1].upper()}{one.says[1:]}", number, place]
