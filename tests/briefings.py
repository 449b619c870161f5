"""Briefings of a few results, for the sections that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from briefs import source
from results import filled
from taut.render.brief.document import Block, Cell, Chart, Empty, Grid, Picture, Section, Text
from taut.result.brief_types import BriefedComparison, BriefedControl, BriefedRun, BriefedScenario
from taut.result.types import AnalysisResult, CompareResult, ControlResult, ProjectResult


def scenario(given: Mapping[str, Any], grown: Mapping[str, Any] | None = None, **more: Any) -> BriefedScenario:
    result = filled(ProjectResult, {"scenario": "toy", "workload": "training", **given})
    wide = None if grown is None else filled(ProjectResult, {"scenario": "toy", "workload": "training", **grown})
    parts = {"review": None, "declared": {}, **more}
    return BriefedScenario(source=source("toy", "scenario"), result=result, grown=wide, **parts)


def run(given: Mapping[str, Any], **more: Any) -> BriefedRun:
    parts = {"view": None, "course": None, "lateness": None, **more}
    return BriefedRun(source=source("toy", "run"), result=filled(AnalysisResult, given), **parts)


def control_log(given: Mapping[str, Any], **more: Any) -> BriefedControl:
    return BriefedControl(source=source("toy.log", "control log"), result=filled(ControlResult, given), **more)


def compared(given: Mapping[str, Any]) -> BriefedComparison:
    return BriefedComparison(source=source("two runs", "comparison"), result=filled(CompareResult, given))


def texts(section: Section) -> list[str]:
    return [block.text for block in section.blocks if isinstance(block, Text)]


def charts(section: Section, kind: type[Chart]) -> list[Any]:
    return [block.chart for block in section.blocks if isinstance(block, Picture) and isinstance(block.chart, kind)]


def grid(section: Section, title: str) -> Grid:
    return next(block for block in section.blocks if isinstance(block, Grid) and title in block.title)


def words(table: Grid) -> list[list[str]]:
    """The cells of a table, without their marks."""
    return [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in table.rows]


def empties(section: Section) -> Iterator[Empty]:
    blocks: list[Block] = list(section.blocks)
    return (block for block in blocks if isinstance(block, Empty))
