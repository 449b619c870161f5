"""Silent degradation: work that grows step by step on a rank, or grows or jumps on all ranks together, without an error.

Null hypotheses: of a rank, that its work stands at a level, or at a new level since some step (then it is a straggler):
a ramp must fit better (``change.ramp``). Of all ranks, that the median over them of a class's work has the same level in
every span (``change.levels``, corrected for serial correlation); it must last until the end of the run, because what
passes is an episode. If it announced itself (``early.py``), the finding says so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taut.core.reporting import spell
from taut.diagnose.finding import Evidence, Finding, confidence
from taut.replay.timeline import Change

MODE = "silent degradation"
MODES = (MODE,)


def detect(evidence: Evidence) -> list[Finding]:
    """Ranks that grow slower, and classes that did on all ranks."""
    return [_announced(evidence, f) for f in (*evidence.late, *_everywhere(evidence)) if f.mode == MODE]


def _announced(e: Evidence, f: Finding) -> Finding:
    """The finding with what its series, or the job's, showed before it began."""
    ranks = e.graph.ranks
    for one in e.early or ():
        place = (int(ranks[one.rank]),) if one.rank >= 0 else ()
        if place == f.ranks and int(e.graph.steps[one.last]) < f.steps[0]:
            return replace(f, because=f"{f.because}; it announced itself: {one.said}")
    return f


def _everywhere(e: Evidence) -> list[Finding]:
    """One finding for all classes that take longer since about the same step."""
    places = e.slower.everywhere
    if not places or e.apart is not None:  # groups out of step do different things: no median speaks for both
        return []
    graph = e.graph
    worst = max(places, key=lambda place: place.total_ns)
    names = [place.name for place in places if place.last >= worst.first]
    rows = np.flatnonzero(e.slower.own & np.isin(graph.ops.name, names) & (graph.window >= worst.first))
    usual = e.slower.outside(graph.work_ns, worst.first, worst.last)[rows]
    rows, usual = rows[~np.isnan(usual)], np.rint(usual[~np.isnan(usual)]).astype(np.int64)
    classes = tuple(graph.names[name] for name in names)
    first, last = int(graph.steps[worst.first]), int(graph.steps[worst.last])
    how = "takes longer with every step" if worst.grows else "takes longer"
    return [
        Finding(
            MODE, (), (), (), classes[:3], (first, last), int(np.maximum(graph.work_ns[rows] - usual, 0).sum()), 0,
            confidence(worst.score, worst.tests),
            f"{classes[0]} {how} from step {first} on, {spell(worst.extra_ns)} a step on all ranks alike "
            f"({worst.score:.1f} standard errors), so no peer shows it; nothing failed",
            changes=(Change(rows, "work", "set", usual, f"{classes[0]} as before"),),
        )
    ]  # fmt: skip
