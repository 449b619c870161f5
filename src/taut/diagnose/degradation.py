"""Silent degradation: work that grows step by step on a rank, or grows or jumps on all ranks together, without an error.

Null hypotheses: of a rank, that its work stands at a level, or at a new level since some step (then it is a straggler):
a ramp must fit better (``ramp`` in ``core/change_points.py``). Of all ranks, that the median over them of a class's work has
the same level in every span (``levels`` there, corrected for serial correlation); it must last until the end of the run, and
for ten steps at least, because what passes is an episode. If there was an early warning (``early_warning.py``), the finding
says so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taut.core.reporting import spell
from taut.diagnose.against_baseline import slow_everywhere
from taut.diagnose.class_medians import medians_of
from taut.diagnose.finding import Evidence, Finding, confidence
from taut.replay.timeline import Change

MODE = "silent degradation"
MODES = (MODE,)


def detect(evidence: Evidence) -> list[Finding]:
    """Ranks that grow slower, and classes that did on all ranks."""
    found = [*evidence.late_ranks, *(_on_all_ranks(evidence) or slow_everywhere(evidence))]
    return [_with_warning(evidence, finding) for finding in found if finding.mode == MODE]


def _with_warning(e: Evidence, finding: Finding) -> Finding:
    """The finding with the early warning that its series, or the job's, gave before it began."""
    for one in e.early_warnings or ():
        ranks = (int(e.graph.ranks[one.rank]),) if one.rank >= 0 else ()
        if ranks == finding.ranks and int(e.graph.steps[one.last]) < finding.steps[0]:
            return replace(finding, because=f"{finding.because}; there was an early warning: {one.text}")
    return finding


def _on_all_ranks(e: Evidence) -> list[Finding]:
    """At most one finding: all classes that take longer since about the same step."""
    places = e.slowdowns.on_all_ranks
    if not places or e.split is not None:  # groups out of step do different things: no median speaks for both
        return []
    graph = e.graph
    worst = max(places, key=lambda place: place.total_ns)
    names = [place.name for place in places if place.last >= worst.first]
    rows = np.flatnonzero(e.slowdowns.own & np.isin(graph.ops.name, names) & (graph.window >= worst.first))
    usual = e.slowdowns.outside(graph.work_ns, rows, worst.holds(np.arange(len(graph.steps))))
    rows, usual = rows[~np.isnan(usual)], usual[~np.isnan(usual)]
    # What all ranks have in common is mended, and what single ranks stray besides is not.
    keys = (graph.window, graph.roles, graph.ops.name, graph.ops.size, graph.place)
    common = medians_of(graph.work_ns[rows] - usual, *(key[rows] for key in keys))
    kept = np.maximum(np.rint(graph.work_ns[rows] - common), 0).astype(np.int64)
    classes, steps = tuple(graph.names[name] for name in names), e.steps(worst.first, worst.last)
    how = ", growing from step to step" if worst.grows else ""
    return [
        Finding(
            mode=MODE,
            classes=classes[:3],
            steps=steps,
            lost_rank_ns=int(np.maximum(graph.work_ns[rows] - kept, 0).sum()),
            confidence=confidence(worst.score, worst.tests),
            because=f"from step {steps[0]} on, {classes[0]} takes {spell(worst.extra_ns)} longer a step on all ranks{how} "
            f"({worst.score:.1f} standard errors); no peer is faster, and nothing failed",
            changes=(Change(rows, "work", "set", kept, f"{classes[0]} as before"),),
            reference="past",
        )
    ]
