"""Two runs of one job, the first as the baseline of the second: what ``taut analyze SECOND --baseline FIRST`` finds."""

from __future__ import annotations

from taut.diagnose.detectors import Evidence, Finding, diagnose
from taut.graph.joined import difference, joined
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay
from taut.stored import Run


def against_first(before: Run, after: Run) -> list[Finding]:
    """Findings of the later run; none where the two are not the same graph."""
    graph = after.graph
    if difference(before.graph, graph) is not None:
        return []
    both, observed = joined(before.graph, graph), replay(graph)
    gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed
    return diagnose(Evidence(graph, observed, blame(graph, observed, gap_free, both), batch(graph), both))
