"""Tail latency inflation: the wider a rendezvous fans out, the longer its tail, beyond what independent tails predict.

Null hypothesis: a gate of n members takes as long as the longest of n/m gates of m members, the narrowest fan-out of the
same class name. Every wide gate is held against the longest of so many narrow ones of its own step, each measured in the
median of its class (group, bytes, place in the step), so neither sizes nor demand that lengthens a whole step make a tail.
Under the null the logarithm of the two's ratio is symmetric about its median; a tail pulls its mean up
(``core/persistence.py``, Bonferroni over the fan-outs compared). Where a step has too few narrow gates, nothing is tested.
Fan-outs whose root gathers answers are in ``fan_out_tails.py``.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered, weighed
from taut.core.persistence import above_zero
from taut.core.reporting import spell
from taut.diagnose import fan_out_tails
from taut.diagnose.class_medians import class_medians
from taut.diagnose.fan_out_tails import FALSE_ALARMS, LEAST, MODE
from taut.diagnose.finding import Evidence, Finding
from taut.replay.timeline import Change

MODES = (MODE,)
HIGH = 0.95
"""Quantile that is the tail."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """One finding for every class name whose widest fan-out has too long a tail."""
    graph = evidence.graph
    if not len(graph.gates):
        return None
    gathered = fan_out_tails.fan_outs(graph)[0] >= 0
    usual = _usual(evidence)
    tested: list[tuple[Ints, Floats, int, int]] = []
    cls, count = numbered(graph.gates.name)
    for one in range(count):
        mine = np.flatnonzero((cls == one) & (usual > 0) & ~gathered)
        members = graph.gates.members[mine]
        wide = [n for n in np.unique(members).tolist() if np.count_nonzero(members == n) >= LEAST]
        for n in wide[1:]:
            matched = _matched(evidence, usual, mine[members == wide[0]], mine[members == n], round(n / wide[0]))
            tested += [(*matched, wide[0], len(wide) - 1)] if len(matched[0]) >= LEAST else []
    found = [finding for one in tested if (finding := _compared(evidence, usual, *one)) is not None]
    asked = fan_out_tails.detect(evidence) if gathered.any() else None
    return [*found, *(asked or ())] if tested or asked is not None else None


def _usual(e: Evidence) -> Floats:
    """Per gate: the median transfer of its class, ns."""
    g = e.graph
    rows = np.flatnonzero(g.gate >= 0)
    place = np.zeros(len(g.gates), dtype=np.int64)
    place[g.gate[rows]] = g.place[rows]
    cls, count = numbered(g.gates.group, g.gates.name, g.gates.size, place)
    return class_medians(e.slowdowns.gates[2], cls, count)[cls]


def _matched(e: Evidence, usual: Floats, narrow: Ints, wide: Ints, draws: int) -> tuple[Ints, Floats]:
    """Wide gates, and of each the longest of so many narrow ones of its step, in medians of their class."""
    window, _, took = e.slowdowns.gates
    rng = np.random.default_rng(len(wide))
    # Which of a step's narrow gates are drawn is drawn with a seed: their order in the step is not random.
    narrow = rng.permutation(narrow)
    narrow = narrow[np.argsort(window[narrow], kind="stable")]
    begin, end = (np.searchsorted(window[narrow], window[wide], side) for side in ("left", "right"))
    enough = end - begin >= draws
    wide, begin, end = wide[enough], begin[enough], end[enough]
    turn = np.arange(len(wide)) - np.searchsorted(window[wide], window[wide])  # several wide ones take different narrow ones
    first = begin + (turn * draws) % np.maximum(end - begin - draws + 1, 1)
    relative = took[narrow] / usual[narrow]
    return wide, relative[first[:, None] + np.arange(draws)].max(axis=1)


def _compared(e: Evidence, usual: Floats, wide: Ints, longest: Floats, fewer: int, tests: int) -> Finding | None:
    """Hold the wide gates against what independent tails would give in the same steps."""
    graph, (window, _, took) = e.graph, e.slowdowns.gates
    apart = np.log(np.maximum(took[wide] / usual[wide], 1e-9) / np.maximum(longest, 1e-9))
    centre = float(np.median(apart))
    steps = numbered(window[wide])[0]
    score, chance = above_zero(weighed(steps, apart - centre) / np.bincount(steps))
    chance = min(1.0, tests * chance)
    # What lies as far above the middle as the null lets it lie below, or above, is ordinary.
    limit = max(-float(np.quantile(apart - centre, 1 - HIGH)), 0.0)
    above = np.maximum(apart - centre - limit, 0.0)
    tail = above > 0
    if chance >= FALSE_ALARMS or not tail.any():
        return None
    ordinary = np.zeros(len(graph.gates))
    ordinary[wide] = np.where(tail, took[wide] * np.exp(-above), 0.0)
    rows = np.flatnonzero((graph.gate >= 0) & (ordinary[graph.gate] > 0))
    kept = np.minimum(graph.work_ns[rows], np.rint(ordinary[graph.gate[rows]])).astype(np.int64)
    name = graph.names[int(graph.gates.name[wide[0]])]
    seen, expected = (_inflation(x) for x in (took[wide] / usual[wide], longest))
    return Finding(
        mode=MODE,
        reference="peers",
        classes=(name,),
        steps=e.steps_of(rows),
        lost_rank_ns=int((graph.work_ns[rows] - kept).sum()),
        confidence=1 - chance,
        because=f"{name} among {int(graph.gates.members[wide[0]])} ranks has a tail of {seen:.1f} times its median, where the "
        f"longest among as many ranks in groups of {fewer} has {expected:.1f} in the same steps: {int(tail.sum())} of "
        f"{len(wide)} take longer than independent tails explain, up to "
        f"{spell(float((took[wide] - ordinary[wide])[tail].max()))} ({score:.1f} standard errors)",
        changes=(Change(rows, "work", "set", kept, f"{name} with independent tails"),),
    )


def _inflation(sample: Floats) -> float:
    """Upper quantile over median."""
    top, middle = np.quantile(sample, (HIGH, 0.5))
    return float(top / max(middle, 1e-9))
