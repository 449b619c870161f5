"""What the briefing rests on: assumptions and defaults, what was not measured, inputs with their digests, the audit root."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.document import Block, Bullets, Column, Grid, Section, Text
from taut.result.brief_types import Briefing

PLACEHOLDERS = (
    "TRACES, LOG… and IN… in commands stand for the files that the folder was made of: which they were is in the audit log, "
    "where one was kept."
)
MOST_LINES = 40


def assumptions(briefing: Briefing) -> Section:
    """Assumptions and defaults, and what was not measured."""
    blocks: list[Block] = []
    for title, lines in (("Assumed, or a default:", list(_assumed(briefing))), ("Not measured:", list(_missing(briefing)))):
        left = len(lines) - MOST_LINES
        shown = [*lines[:MOST_LINES], *([f"and {left} more: --json lists them"] if left > 0 else [])]
        blocks += [Text(title), Bullets(shown or ["nothing"])]
    return Section("assumptions", "Assumptions and gaps", blocks)


def _assumed(briefing: Briefing) -> Iterator[str]:
    for scenario in briefing.scenarios:
        yield from (f"{scenario.source.name}: {line}" for line in scenario.result.assumed or ())
        if scenario.result.defaults:
            named = ", ".join(scenario.result.defaults[:12])
            more = len(scenario.result.defaults) - 12
            yield f"{scenario.source.name}: defaults for {named}{f' and {more} more keys' if more > 0 else ''}"
    for bill in briefing.bills:
        yield from (f"bill: {line}" for line in bill.result.defaults)
    if briefing.costs is not None:
        yield f"a month is 30 days of going on like this; money from {briefing.costs.basis}"
    for run in briefing.runs:
        fidelity = run.result.fidelity
        if fidelity is not None:
            way = "longer" if fidelity.gapfree_error > 0 else "shorter"
            yield (
                f"{run.result.job.name}: {100 * fidelity.explained_share:.0f} % of all operations begin when another recorded "
                f"one ends; without the pauses of the others a replay is {100 * abs(fidelity.gapfree_error):.1f} % {way} than "
                "measured"
            )


def _missing(briefing: Briefing) -> Iterator[str]:
    yield from briefing.notes
    for run in briefing.runs:
        yield from (f"{run.result.job.name}: {line}" for line in run.result.job.partial)
        yield from (
            f"{name.replace('_', ' ')}: needs {needs.removeprefix('needs ')}" for name, needs in run.result.index_needs.items()
        )
    for control in briefing.controls:
        yield from (f"control: {line}" for line in control.result.partial)
    for bill in briefing.bills:
        yield from (f"bill: {_priced(line)}" for line in bill.result.missing)
    yield from (f"{one.question} Needs {one.needs}." for one in briefing.questions if one.needs)


def _priced(line: str) -> str:
    """What a price is missing for, the key that gives it behind."""
    key, colon, says = line.partition(": ")
    return f"{says}{'' if '[' in says else f' ({key})'}" if colon and " " not in key else line


def evidence(briefing: Briefing) -> Section:
    """Inputs by digest, and the root of the audit log at their records."""
    columns = [Column("Input"), Column("What"), Column("SHA-256"), Column("Command")]
    rows = [[one.name, one.kind, one.sha256 or "only a name", one.command] for one in briefing.inputs]
    root = (
        f"Audit log {briefing.audit_log}: root {briefing.audit_root} at the records of these inputs (taut audit verify)"
        if briefing.audit_root
        else "No record of these inputs was found in an audit log: taut keeps one in taut-runs/audit.db unless told not to."
    )
    named = [PLACEHOLDERS] if any(word in one.command for one in briefing.inputs for word in ("TRACES", "IN…", "LOG…")) else []
    notes = [Text(text, "note") for text in (*named, root)]
    return Section("evidence", "Evidence", [Grid("What this was made of", columns, rows), *notes])
