"""A finding in the words of ``--json``."""

from __future__ import annotations

from taut.diagnose.finding import Finding as Diagnosed
from taut.result.types import Finding, Money


def finding_result(f: Diagnosed, money: Money | None = None) -> Finding:
    """A finding without the changes that mend it."""
    return Finding(
        id=f.id,
        mode=f.mode,
        ranks=list(f.ranks),
        links=list(f.links),
        stages=list(f.stages),
        classes=list(f.classes),
        steps=f.steps,
        lost_rank_ns=f.lost_rank_ns,
        recoverable_wall_ns=f.recoverable_wall_ns,
        confidence=f.confidence,
        because=f.because,
        alternatives=list(f.alternatives),
        money=money,
    )
