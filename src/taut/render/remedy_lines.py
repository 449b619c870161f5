"""Commands that a finding asks for, each whole in a line of its own: a screen would break it, and it is to be copied."""

from __future__ import annotations

import shlex

from taut.render.text import safe
from taut.result.types import AnalysisResult, Finding

LONGEST = 400
"""Characters of a command that is shown."""


def remedy_lines(result: AnalysisResult, where: str, before: str) -> list[str]:
    """How to take out the hosts of the first finding that names some, and how to record that it was decided."""
    named = [(k, finding) for k, finding in enumerate(result.findings) if finding.remedy is not None]
    if not named:
        return []
    number, finding = named[0]
    return [*_drains(finding, number), f"next: {before}taut audit decide {where} {_decision(finding)}"]


def _drains(finding: Finding, number: int) -> list[str]:
    drain = None if finding.remedy is None else finding.remedy.drain
    place = f"findings[{number}].remedy in run.json"
    if drain is None:
        return [f"now: text for a ticket: {place}"]
    if max(len(drain.slurm), len(drain.kubernetes)) > LONGEST:
        return [f"now: commands that drain its hosts, and text for a ticket: {place}"]
    return [f"now: {safe(drain.slurm)}", f"or:  {safe(drain.kubernetes)}", f"text for a ticket: {place}"]


def _decision(finding: Finding) -> str:
    """What the decision says; what it expects is taken from the finding, with its interval."""
    return f'--finding {shlex.quote(finding.id)} --do "drain the host" --by NAME'
