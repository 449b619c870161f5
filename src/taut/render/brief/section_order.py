"""What a briefing holds, in its order: page one for whoever decides, then what it rests on."""

from __future__ import annotations

from collections.abc import Callable

from taut.render.brief.document import Cell, Column, Document, Empty, Grid, Section, Terms
from taut.render.brief.input_names import short_name
from taut.render.brief.sections.accelerator_time import accelerator_time
from taut.render.brief.sections.compared_runs import comparison
from taut.render.brief.sections.control import control
from taut.render.brief.sections.coupling import coupling
from taut.render.brief.sections.course import course
from taut.render.brief.sections.envelope import envelope
from taut.render.brief.sections.evidence import assumptions, evidence
from taut.render.brief.sections.fabric import fabric
from taut.render.brief.sections.growth import growth
from taut.render.brief.sections.indices import indices
from taut.render.brief.sections.money import money
from taut.render.brief.sections.page_one import page_one
from taut.render.brief.sections.questions import questions
from taut.render.brief.sections.recommendations import recommendations
from taut.render.brief.sections.risk import risk
from taut.render.brief.sections.two_views import two_views
from taut.render.brief.sections.vendor_annex import vendor_annex
from taut.render.brief.terms import explained
from taut.result.brief_types import Briefing

SECTIONS: tuple[Callable[[Briefing], Section | None], ...] = (
    page_one,
    two_views,
    accelerator_time,
    course,
    coupling,
    money,
    indices,
    comparison,
    growth,
    envelope,
    fabric,
    control,
    recommendations,
    questions,
    risk,
    vendor_annex,
    assumptions,
    evidence,
)


def _is_empty(section: Section) -> bool:
    """Whether a section tells nothing but what would fill it."""
    return all(isinstance(block, (Empty, Terms)) for block in section.blocks)


def _not_told(sections: list[Section]) -> list[Section]:
    """What these inputs do not tell, in one place at the end, with what to record."""
    rows: list[list[Cell | str]] = [
        [Cell(section.title, "strong"), block.says, block.needs, block.command or ""]
        for section in sections
        for block in section.blocks
        if isinstance(block, Empty)
    ]
    if not rows:
        return []
    columns = [Column("Would show"), Column("Today"), Column("Needs"), Column("Command")]
    return [Section("not-told", "What these inputs do not tell", [Grid("What to record", columns, rows)])]


def document_of(briefing: Briefing) -> Document:
    """The document, section by section."""
    made = [section for make in SECTIONS if (section := make(briefing)) is not None]
    made = [*(one for one in made if not _is_empty(one)), *_not_told([one for one in made if _is_empty(one)])]
    kinds = ", ".join(f"{one.kind} {short_name(one)}" if one.kind != "bill" else short_name(one) for one in briefing.inputs[:4])
    more = f" and {len(briefing.inputs) - 4} more" if len(briefing.inputs) > 4 else ""
    return explained(
        Document(
            title=f"Architecture Risk Briefing: {briefing.title}",
            subtitle=f"From {kinds}{more}",
            sections=made,
            footer=f"Made by taut {briefing.version}; every figure has the command that shows it again.",
        )
    )
