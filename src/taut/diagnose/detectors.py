"""Graph + Timeline → findings: one file per failure mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from taut.core.reporting import LISTED_SHARE, spell
from taut.core.trend import corrected
from taut.diagnose import (
    contention,
    degradation,
    energy,
    hang,
    imbalance,
    stalls,
    straggler,
    synchronisation,
    tail_inflation,
)
from taut.diagnose.finding import BESIDE, Evidence, Finding, as_a_habit, recovered, why_listed
from taut.diagnose.slow_place import RECURS

DETECTORS = (
    straggler,
    degradation,
    stalls,
    synchronisation,
    contention,
    tail_inflation,
    imbalance,
    energy,
    hang,
)
FALSE_DISCOVERIES = 0.05
"""Share of the findings of many runs that may be false."""
ONE_STEP = "; this rests on one step: more steps would tell whether it stays"
MOST_HIDDEN = 8
"""Findings that are worth nothing alone are tried behind the others, the costliest of them."""


def diagnose(evidence: Evidence) -> list[Finding]:
    """All findings of a run that are worth listing, the most recoverable first."""
    found: list[Finding] = []
    hidden: list[Finding] = []
    for finding in _significant([detector.detect(evidence) for detector in DETECTORS]):
        saved = recovered(evidence, finding.changes)
        first, last = map(int, np.searchsorted(evidence.graph.steps, finding.steps))
        why: str | None = f"; {finding.certain}"
        if not finding.certain:
            why = why_listed(saved, evidence.observed, first, last)
            lasts = last - first + 1 >= RECURS
            if why is not None and lasts and why_listed(as_a_habit(saved), evidence.observed, first, last) is None:
                why = None
        alone = ONE_STEP if first == last and not finding.certain else ""
        replayed = replace(
            finding, recoverable_wall_ns=int(saved.sum()), saved_ns=saved, because=finding.because + (why or "") + alone
        )
        (hidden if why is None else found).append(replayed)
    found += _exposed_by_others(evidence, found, hidden)
    return most_recoverable(found)


def most_recoverable(findings: Sequence[Finding]) -> list[Finding]:
    """A hang first, then what recovers most."""
    return sorted(findings, key=lambda f: (f.mode != hang.MODE, -f.recoverable_wall_ns, f.id))


def _significant(by_mode: list[list[Finding] | None]) -> list[Finding]:
    """Findings whose false discovery rate over all detectors is small enough (Benjamini–Hochberg).

    A detector has corrected for its own places and spans; one that tested and found nothing counts as a chance of one.
    """
    findings = [finding for found in by_mode for finding in found or ()]
    # None is no test: the traces do not have what the detector needs.
    silent = sum(found == [] for found in by_mode)
    q = corrected([*(1 - finding.confidence for finding in findings), *[1.0] * silent])
    return [finding for finding, value in zip(findings, q, strict=False) if (value or 0.0) <= FALSE_DISCOVERIES]


def _exposed_by_others(evidence: Evidence, found: list[Finding], hidden: list[Finding]) -> list[Finding]:
    """Findings that matter beside the others: fixing the slowest exposes the second slowest, and one fault may wander."""
    if not hidden:
        return []
    if not found:
        return _only_together(evidence, hidden)
    mended, wall = [change for finding in found for change in finding.changes], evidence.observed.wall_ns
    saved = recovered(evidence, mended)
    out = []
    for finding in sorted(hidden, key=lambda f: -f.lost_rank_ns)[:MOST_HIDDEN]:
        then = recovered(evidence, [*mended, *finding.changes])
        first, last = map(int, np.searchsorted(evidence.graph.steps, finding.steps))
        more = int((as_a_habit(then - saved) if last - first + 1 >= RECURS else then - saved).sum())
        every = int(saved.sum()) + more
        if more >= LISTED_SHARE * (wall - int(saved.sum())) or (more >= BESIDE * every and every >= LISTED_SHARE * wall):
            little = "next to nothing" if 2 * finding.recoverable_wall_ns < more else "little"
            why = f"; alone it saves {little}, but once the other findings are mended it saves {spell(more)} more"
            out.append(replace(finding, because=finding.because + why))
            mended, saved = [*mended, *finding.changes], then
    return out


def _only_together(evidence: Evidence, hidden: list[Finding]) -> list[Finding]:
    """Findings of which none is worth anything alone, such as a slow rank beside a slow link: those that all of it needs."""
    some, wall = sorted(hidden, key=lambda f: -f.lost_rank_ns)[:MOST_HIDDEN], evidence.observed.wall_ns

    def saved(findings: list[Finding]) -> int:
        return int(as_a_habit(recovered(evidence, [change for finding in findings for change in finding.changes])).sum())

    whole = saved(some) if len(some) > 1 else 0
    if whole < LISTED_SHARE * wall:
        return []
    needed = [one for one in some if whole - saved([other for other in some if other is not one]) >= LISTED_SHARE * wall]
    together = saved(needed)
    if len(needed) < 2 or together < LISTED_SHARE * wall or not _at_once(needed):
        return []
    why = f"; alone it saves next to nothing, mended together the {len(needed)} findings save {spell(together)}"
    return [replace(finding, because=finding.because + why) for finding in needed]


def _at_once(findings: list[Finding]) -> bool:
    """Whether half of the shortest span, at least, lies in all spans: what hides another does so at the same time."""
    first, last = (max(f.steps[0] for f in findings), min(f.steps[1] for f in findings))
    return 2 * (last - first + 1) >= min(f.steps[1] - f.steps[0] + 1 for f in findings)


__all__ = ["DETECTORS", "Evidence", "Finding", "diagnose"]
