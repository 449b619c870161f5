"""Tail latency inflation: the wider a rendezvous fans out, the longer its tail, beyond what independent tails predict.

Null hypothesis: a gate of n members takes as long as the longest of n/m gates of m members, drawn independently from the
narrowest fan-out m of the same class name. The statistic is the ratio of an upper quantile to the median; its chance is
taken from seeded draws under that null, Bonferroni over the fan-outs compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.diagnose.finding import Evidence, Finding, spell
from taut.graph.ids import numbered
from taut.replay import Change

MODE = "tail latency inflation"
MODES = (MODE,)
FALSE_ALARMS = 0.01
"""Chance that a job whose tails are independent is said to have inflated ones."""
LEAST = 40
"""Gates of a fan-out below which it has no tail to speak of."""
DRAWS = 999
"""Samples drawn under the null hypothesis."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """One finding for every class name whose widest fan-out has too long a tail."""
    graph = evidence.graph
    if not len(graph.gates):
        return None
    took = evidence.slower.gates[2]
    out: list[Finding | None] = []
    cls, count = numbered(graph.gates.name)
    for one in range(count):
        mine = np.flatnonzero(cls == one)
        members = graph.gates.members[mine]
        wide = [n for n in np.unique(members).tolist() if np.count_nonzero(members == n) >= LEAST]
        out += [_compared(evidence, took, mine[members == wide[0]], mine[members == n], len(wide) - 1) for n in wide[1:]]
    return [finding for finding in out if finding is not None] if out else None


def _compared(e: Evidence, took: Any, narrow: Any, wide: Any, tests: int) -> Finding | None:
    """Hold a wide fan-out against draws from the narrow one."""
    graph = e.graph
    fewer, more = (int(graph.gates.members[some[0]]) for some in (narrow, wide))
    draws = max(round(more / fewer), 1)
    rng = np.random.default_rng(len(wide))
    high = 0.99 if len(wide) >= 200 else 0.95
    base = np.sort(took[narrow])
    # The largest of k uniform variables is the k-th root of one: one draw instead of k.
    null = base[(rng.random((DRAWS, len(wide))) ** (1 / draws) * len(base)).astype(np.int64)]
    expected = _inflation(null, high)
    seen = float(_inflation(took[wide][None, :], high)[0])
    chance = min(1.0, tests * (1 + np.count_nonzero(expected >= seen)) / (DRAWS + 1))
    limit = float(np.quantile(null, high))
    tail = wide[took[wide] > limit]
    if chance >= FALSE_ALARMS or not len(tail):
        return None
    rows = np.flatnonzero((graph.gate >= 0) & np.isin(graph.gate, tail))
    usual = np.minimum(graph.work_ns[rows], round(limit)).astype(np.int64)
    at = graph.window[rows]
    name = graph.names[int(graph.gates.name[wide[0]])]
    return Finding(
        MODE, (), (), (), (name,), (int(graph.steps[at.min()]), int(graph.steps[at.max()])),
        int((graph.work_ns[rows] - usual).sum()), 0, 1 - chance,
        f"{name} among {more} ranks has a tail of {seen:.1f} times its median, where independent tails of {fewer} ranks "
        f"would give {float(np.median(expected)):.1f}: {len(tail)} of {len(wide)} take longer than {spell(limit)}",
        changes=(Change(rows, "work", "set", usual, f"{name} with independent tails"),),
    )  # fmt: skip


def _inflation(samples: Any, high: float) -> Any:
    """Upper quantile over median, along the last axis."""
    top, middle = np.quantile(samples, (high, 0.5), axis=-1)
    return top / np.maximum(middle, 1.0)
