"""Graph + Timeline → findings: one file per failure mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taut.diagnose import contention, degradation, energy, hang, imbalance, stall, straggler, synchronisation, tail
from taut.diagnose.finding import LISTED_SHARE, Evidence, Finding, recovered, spell, worth

DETECTORS = (straggler, degradation, stall, synchronisation, contention, tail, imbalance, energy, hang)
MOST_HIDDEN = 8
"""Findings that are worth nothing alone are tried behind the others, the costliest of them."""


def diagnose(evidence: Evidence) -> list[Finding]:
    """All findings of a run that are worth listing, the most recoverable first."""
    found: list[Finding] = []
    hidden: list[Finding] = []
    for finding in (f for detector in DETECTORS for f in detector.detect(evidence)):
        saved = recovered(evidence, finding.changes)
        first, last = np.searchsorted(evidence.graph.steps, finding.steps)
        why = (
            f"; {finding.certain}"
            if finding.certain
            else worth(int(saved.sum()), int(saved[first : last + 1].sum()), evidence.observed, int(first), int(last))
        )
        priced = replace(finding, recoverable_wall_ns=int(saved.sum()), because=finding.because + (why or ""))
        (hidden if why is None else found).append(priced)
    found += _behind(evidence, found, hidden)
    return sorted(found, key=lambda f: (f.mode != hang.MODE, -f.recoverable_wall_ns, f.id))


def _behind(evidence: Evidence, found: list[Finding], hidden: list[Finding]) -> list[Finding]:
    """Findings that cost something only once the others are mended: fixing the slowest exposes the second slowest."""
    if not found:
        return []
    mended = [change for finding in found for change in finding.changes]
    left = evidence.observed.wall_ns - int(recovered(evidence, mended).sum())
    out = []
    for finding in sorted(hidden, key=lambda f: -f.lost_rank_ns)[:MOST_HIDDEN]:
        then = evidence.observed.wall_ns - int(recovered(evidence, [*mended, *finding.changes]).sum())
        if left - then >= LISTED_SHARE * left:
            why = f"; hidden behind the other findings: once they are mended it recovers {spell(left - then)} more"
            out.append(replace(finding, because=finding.because + why))
            mended, left = [*mended, *finding.changes], then
    return out


__all__ = ["DETECTORS", "Evidence", "Finding", "diagnose"]
