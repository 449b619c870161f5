"""Graph + Timeline → findings: one file per failure mode."""

from taut.diagnose import stall, straggler
from taut.diagnose.finding import Evidence, Finding

DETECTORS = (straggler, stall)


def diagnose(evidence: Evidence) -> list[Finding]:
    """All findings of a run, the most recoverable first."""
    found = [finding for detector in DETECTORS for finding in detector.detect(evidence)]
    return sorted(found, key=lambda f: (-f.recoverable_wall_ns, f.id))


__all__ = ["DETECTORS", "Evidence", "Finding", "diagnose"]
