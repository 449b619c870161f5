"""Input stall and checkpoint stall: a rank is late because its loader or its checkpoint takes longer than that class does.

Null hypotheses and tests are those of ``late_ranks.py``; what makes it a stall is that most of the excess lies in the host ops
of the loader or of the checkpoint, on the branch that the others wait for.
"""

from __future__ import annotations

from taut.diagnose.finding import Evidence, Finding

MODES = ("input stall", "checkpoint stall")


def detect(evidence: Evidence) -> list[Finding] | None:
    """Ranks whose excess is a stall; None if none is, because the test is that of ``late_ranks.py``."""
    return [f for f in evidence.late_ranks if f.mode in MODES] or None
