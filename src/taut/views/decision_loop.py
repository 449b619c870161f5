"""The loop of a run: findings, what was decided on them, what came of it, and whether the log proves it."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from taut.audit.trail import FILE, FOLDER, verify_place
from taut.briefing.deciding import Chosen, Decided, record_decision
from taut.briefing.decisions import Trail, trail_of
from taut.core.errors import AuditError, RunError, UsageError
from taut.core.folder import PROOF
from taut.result.types import AnalysisResult, AuditRecord, AuditVerification, Estimate
from taut.result.view_types import DecisionRow, Decisions, NewDecision
from taut.stored import decoded_result, read_stored
from taut.views.headlines import headlines

MOST_DO, MOST_BY = 2_000, 200
"""Characters of what is to be done, and of who decides."""
NO_LOG = "There is no audit log: no verb was recorded here (TAUT_AUDIT=off?). A decision begins one."

NOT_RECORDED = "This run was never recorded (TAUT_AUDIT=off?), so nothing proves that it is as it was made."


def log_of(folder: Path, given: Path | None = None) -> Path:
    """The log that tells of a run: the one that was given, the one beside it, else that of ``taut`` in this folder."""
    beside = folder.parent / FILE
    return given or (beside if beside.is_file() else Path(FOLDER) / FILE)


def decided(folder: str | Path, given: Path | None = None) -> dict[str, int]:
    """Finding → record of the last decision on it, as far as a log tells."""
    root = Path(folder)
    return _by_finding(trail_of(log_of(root, given), [root]))


def _by_finding(trail: Trail) -> dict[str, int]:
    return {str(one.record.details.get("finding")): one.record.index for one in trail.decisions}


def decisions(folder: str | Path, given: Path | None = None) -> Decisions:
    """What a log tells of a run; ``given`` is the log where it does not lie beside it."""
    root = Path(folder)
    log = log_of(root, given)
    result = _result(root)
    trail = trail_of(log, [root])
    done = _by_finding(trail)
    verified, verified_is = _verified(root, log, trail)
    return Decisions(
        open=[one for one in headlines(result, str(root)) if one.id is not None and one.id not in done],
        decisions=[DecisionRow(record=r.record, expected=_expected(r.record), outcome=r.outcome) for r in trail.decisions],
        log=str(log) if log.is_file() else None,
        verified=verified,
        verified_is=verified_is,
        commands=_commands(root, log),
    )


def _expected(record: AuditRecord) -> Estimate | None:
    """What a decision was expected to save, as it was recorded."""
    try:
        return msgspec.convert(record.details.get("expected"), Estimate | None)
    except msgspec.ValidationError:  # of another version
        return None


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
        if not (root / PROOF).is_file() and str(root) not in trail.commands:
            return _unrecorded(verify_place(log, log))
        found = verify_place(root, log)
    except AuditError as error:
        return False, str(error)
    return found.ok, _sentence(found)


def _unrecorded(log: AuditVerification) -> tuple[bool | None, str]:
    """Of a run that no log ever told of: only the log itself can be held against anything."""
    if not log.ok:
        return False, _sentence(log)
    return None, f"{NOT_RECORDED} The {log.records:,} records of the log fit together."


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
