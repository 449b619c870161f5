"""Risk profile: does this deployment belong to the systems that lose without a failing part?"""

from __future__ import annotations

from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Section, Text
from taut.result.brief_types import BriefedRun, Briefing

NAMES = {
    "longer without errors": "Jobs take longer without any error",
    "re-runs without a reproducible bug": "Attempts are restarted without a bug that can be reproduced",
    "utilisation falls though allocated": "Utilisation falls although everything is allocated",
    "energy out of proportion": "Energy grows out of proportion to useful work",
}
KINDS = {
    "both": "it loses time without an error, and attempts fail too",
    "soft degradation": "it loses time without an error (soft degradation)",
    "hard failure": "attempts fail (hard failure)",
}
"""Class of a risk in plain words."""
NEEDED = "Four signs tell it; they need traces of a job, its attempts, a baseline or a second run, and power."


def risk(briefing: Briefing) -> Section:
    """The four signs, yes, no or not known."""
    blocks: list[Block] = []
    for run in briefing.runs:
        blocks += _of_run(run)
    if not blocks:
        blocks.append(Empty(f"Not measured. {NEEDED}", "a traced job", "taut analyze TRACES LOGS METRICS --baseline RUN"))
    return Section("risk", "Risk profile", blocks, [run.source.command for run in briefing.runs])


def _of_run(run: BriefedRun) -> list[Block]:
    found = run.result.risk
    if found is None:
        return []
    rows: list[list[Cell | str]] = []
    for one in found.answers:
        said = Cell(one.answer or "not known", "bad" if one.answer == "yes" else "good" if one.answer == "no" else "plain")
        rows.append([NAMES.get(one.question, one.question), said, one.says, one.needs or ""])
    columns = [Column("Sign"), Column("Seen"), Column("What was measured"), Column("What would decide it")]
    kind = KINDS.get(found.kind or "", "neither soft degradation nor hard failure shows")
    return [Text(f"{run.result.job.name}: {kind}. {found.says}."), Grid("Four signs", columns, rows)]
