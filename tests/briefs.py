"""Small briefings of which only some parts matter, and what a section says as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from results import RESULT, filled
from taut.render.brief.document import (
    Block,
    Bullets,
    Cell,
    Empty,
    Facts,
    Grid,
    Picture,
    Section,
    Sides,
    Terms,
    Text,
)
from taut.result.brief_types import BriefedBill, BriefedControl, BriefedRun, BriefedScenario, Briefing
from taut.result.types import AnalysisResult, BillResult, BriefInput, ControlResult, InputKind, ProjectResult

B = TypeVar("B", bound=Block)


def source(name: str, kind: InputKind) -> BriefInput:
    return BriefInput(name=name, kind=kind, sha256=None, command=f"taut show {name}")


def briefed_run(name: str = "runs/a", *, view: Any = None, course: Any = None, lateness: Any = None, **keys: Any) -> BriefedRun:
    """A run whose result is the small analysis of ``results.RESULT`` with other keys."""
    result = filled(AnalysisResult, RESULT | {"coupling": {"turnover": {}}} | keys)
    return BriefedRun(source=source(name, "run"), result=result, view=view, course=course, lateness=lateness)


def briefed_bill(given: Mapping[str, Any], name: str = "bills/a", over_time: Any = None) -> BriefedBill:
    return BriefedBill(source=source(name, "bill"), result=filled(BillResult, given), over_time=over_time)


def briefed_control(given: Mapping[str, Any], name: str = "loops.log") -> BriefedControl:
    return BriefedControl(source=source(name, "control log"), result=filled(ControlResult, given))


def briefed_scenario(given: Mapping[str, Any], name: str = "gpt-175b", **keys: Any) -> BriefedScenario:
    result = filled(ProjectResult, {"ranks": 64, "workload": "training"} | dict(given))
    made: BriefedScenario = filled(BriefedScenario, {"source": source(name, "scenario"), "result": result} | keys)
    return made


def briefing(**parts: Any) -> Briefing:
    """A briefing of these parts, with their sources as inputs."""
    made = [one for key in ("runs", "comparisons", "scenarios", "controls", "bills") for one in parts.get(key, [])]
    whole: Briefing = filled(Briefing, {"inputs": [one.source for one in made]} | parts)
    return whole


def blocks(section: Section | None, kind: type[B]) -> list[B]:
    """All blocks of a kind, those inside of sides too."""
    assert section is not None
    return [one for one in _walked(section.blocks) if isinstance(one, kind)]


def _walked(some: Any) -> Iterator[Block]:
    for one in some:
        yield one
        if isinstance(one, Sides):
            yield from _walked([*one.left, *one.right])


def table(section: Section | None, title: str) -> list[list[str]]:
    """The rows of the table whose title begins so, as text; marks in front of what has one."""
    grid = next(one for one in blocks(section, Grid) if one.title.startswith(title))
    return [[_cell(cell) for cell in row] for row in grid.rows]


def _cell(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text if cell.mark in ("plain", "strong") else f"{cell.mark}: {cell.text}"


def words(section: Section | None) -> str:
    """Everything that a section says."""
    assert section is not None
    return "\n".join(word for one in _walked(section.blocks) for word in _said(one))


def _said(one: Block) -> Iterator[str]:
    match one:
        case Text():
            yield one.text
        case Facts():
            yield from (f"{fact.label} {fact.value} {fact.says}" for fact in one.facts)
        case Grid():
            yield one.title
            yield from (column.title for column in one.columns)
            yield from (" | ".join(_cell(cell) for cell in row) for row in one.rows)
            yield one.note
        case Empty():
            yield f"{one.says} {one.needs} {one.command}"
        case Picture():
            yield f"{one.title} {one.alt}"
        case Bullets():
            yield from one.items
        case Terms():
            yield from (f"{word} {meaning}" for word, meaning in one.terms)
