"""The loop of a run: findings, what was decided on them, what came of it, and whether the log proves it."""

from __future__ import annotations

import shlex
from pathlib import Path

from taut.audit.trail import FILE, FOLDER, verify_place
from taut.briefing.deciding import Chosen, Decided, record_decision
from taut.briefing.decisions import Trail, trail_of
from taut.core.errors import AuditError, RunError, UsageError
from taut.result.types import AnalysisResult, AuditVerification
from taut.result.view_types import DecisionRow, Decisions, NewDecision
from taut.stored import decoded_result, read_stored
from taut.views.headlines import headlines

MOST_DO, MOST_BY = 2_000, 200
"""Characters of what is to be done, and of who decides."""
NO_LOG = "There is no audit log: no verb was recorded here (TAUT_AUDIT=off?). A decision begins one."


def log_of(folder: Path, given: Path | None = None) -> Path:
    """The log that tells of a run: the one that was given, the one beside it, else that of ``taut`` in this folder."""
    beside = folder.parent / FILE
    return given or (beside if beside.is_file() else Path(FOLDER) / FILE)


def decisions(folder: str | Path, given: Path | None = None) -> Decisions:
    """What a log tells of a run; ``given`` is the log where it does not lie beside it."""
    root = Path(folder)
    log = log_of(root, given)
    result = _result(root)
    trail = trail_of(log, [root])
    decided = {str(one.record.details.get("finding")) for one in trail.decisions}
    verified, verified_is = _verified(root, log, trail)
    return Decisions(
        open=[one for one in headlines(result, str(root)) if one.id is not None and one.id not in decided],
        decisions=[DecisionRow(record=one.record, outcome=one.outcome) for one in trail.decisions],
        log=str(log) if log.is_file() else None, verified=verified, verified_is=verified_is,
        commands=_commands(root, log),
    )  # fmt: skip


def decide(folder: str | Path, new: NewDecision, given: Path | None = None) -> Decided:
    """Record a decision, as ``taut audit decide`` does."""
    root = Path(folder)
    for name, text, most in (("do", new.do, MOST_DO), ("by", new.by, MOST_BY), ("finding", new.finding, MOST_BY)):
        if not text.strip() or len(text) > most:
            raise UsageError(f"{name}: give 1 to {most:,} characters")
    return record_decision(log_of(root, given), root, _result(root), Chosen(new.finding, new.do.strip(), new.by.strip()))


def _result(root: Path) -> AnalysisResult:
    stored = read_stored(root)
    if stored.graph is None:
        raise RunError(f"{root}: has no findings to decide on; analyze the traces of the job")
    return decoded_result(root, stored.result)


def _verified(root: Path, log: Path, trail: Trail) -> tuple[bool | None, str]:
    """Whether run and log are what was recorded, and what that means in a sentence."""
    if not log.is_file():
        return None, NO_LOG
    if trail.fault is not None:
        return False, trail.fault
    try:
        found = verify_place(root, log)
    except AuditError as error:
        return False, str(error)
    return found.ok, _sentence(found)


def _sentence(found: AuditVerification) -> str:
    if not found.ok:
        return f"Not as it was recorded: {found.says}."
    held = f"anchored by a {found.anchor}" if found.anchored else "consistent in itself, anchored by nothing outside"
    return f"The run's files, its proof and {found.records:,} records of the log fit together: {held}."


def _commands(root: Path, log: Path) -> dict[str, str]:
    run = shlex.quote(str(root))
    where = "" if log == Path(FOLDER) / FILE else f" --audit {shlex.quote(str(log))}"
    return {
        "decide": f"taut audit decide {run} --finding ID --do TEXT --by NAME{where}",
        "outcome": f"taut audit outcome RECORD LATER-RUN{where}",
        "verify": f"taut audit verify {run}{where}",
        "why": f"taut audit why {run}{where}",
    }
