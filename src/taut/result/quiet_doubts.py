"""Why a run without a finding is not called healthy, and what would tell: silence is no evidence where much could be saved."""

from __future__ import annotations

import numpy as np

from taut.core.interval import estimate
from taut.core.rank_words import rank_label, rank_labels
from taut.core.reporting import LISTED_SHARE
from taut.diagnose.slow_sets import shared_place, two_levels
from taut.result.computed import Computed
from taut.result.types import Estimate

UNEXPLAINED = 10
"""Per cent of the bill without an explanation from which a run is not called healthy."""
UNJUDGED = 50
"""Per cent of the bill in exposed transfers from which a run is not called healthy: nothing says how long they should be."""
ASKED = 16
"""Ranks that are replayed one by one like their peers: those that others waited for most."""
FEW_STEPS = 20
"""Steps from which more of them would hardly tell more."""


def quiet_doubts(a: Computed, share: dict[str, float]) -> list[str]:
    """One sentence for each doubt, with what would settle it; empty where the run is healthy as far as can be told."""
    found = (_ranks_missing(a), _two_heaps(a), _saving(a) or _one_step(a, share), _unexplained(a, share), _transfers(share))
    return [doubt for doubt in found if doubt]


def _ranks_missing(a: Computed) -> str | None:
    world, traced = a.graph.trace.world_size, len(a.graph.ranks)
    if world is None or 2 * traced >= world:
        return None
    return f"{traced} of {world} ranks were traced: what the others do is not known; traces of all ranks would tell."


def _two_heaps(a: Computed) -> str | None:
    """Half of the ranks, or more, are slower than the others."""
    found, g = two_levels(a.graph, a.blame, a.observed), a.graph
    if found is None:
        return None
    slower, faster = (
        shared_place(g, some) or rank_labels([int(g.ranks[i]) for i in some], g.members)
        for some in (found.slower, found.faster)
    )
    return (
        f"{slower[:1].upper()}{slower[1:]}: {100 * found.share:.0f} % slower than {faster} for the same work; if all were as "
        f"fast, the run would be {100 * found.saving:.0f} % shorter. Which of them are right, a baseline run would tell."
    )


def _saving(a: Computed) -> str | None:
    """A rank that would save something if it were like its peers, though no test calls it slow."""
    g, blame, steps = a.graph, a.blame, len(a.graph.steps)
    asked = np.argsort(-blame.caused_ns, kind="stable")[:ASKED]
    asked = asked[blame.caused_ns[asked] > 0]
    if not len(asked):
        return None
    key = np.full(len(g.ranks), -1, dtype=np.int64)
    key[asked] = np.arange(len(asked))
    gap = np.where(np.isnan(blame.gap_reference), g.gap_ns, np.minimum(g.gap_ns, np.nan_to_num(blame.gap_reference)))
    walls = a.batch.walls(g.work_ns, blame.usual_ns, key[g.rank_index], len(asked), g.gap_ns, gap.astype(np.int64))
    saved = a.observed.window_ns[:, None] - walls
    best = int(np.argmax(saved.sum(axis=0)))
    found = estimate(lambda s: saved[s, best].sum(axis=-1) / np.maximum(a.observed.window_ns[s].sum(axis=-1), 1), steps)
    if found is None or (found.value if found.lo is None else found.lo) < LISTED_SHARE:
        return None
    who = rank_label(int(g.ranks[asked[best]]), g.members)
    return (
        f"If {who} were like its peers, the run would be {_per_cent(found)} shorter, and no test calls it slow: {_more(steps)}."
    )


def _one_step(a: Computed, share: dict[str, float]) -> str | None:
    """Waits of a single step: whether they recur is not known."""
    waiting = sum(share[fate] for fate in ("fault wait", "jitter wait", "unexplained"))
    if len(a.graph.steps) > 1 or waiting < UNEXPLAINED:
        return None
    return f"{waiting:.0f} % of the bill is waiting that is no structure: {_more(1)}."


def _per_cent(found: Estimate) -> str:
    if found.lo is None or found.hi is None:
        return f"{100 * found.value:.1f} %"
    return f"{100 * found.value:.1f} % ({100 * found.lo:.1f}–{100 * found.hi:.1f})"


def _more(steps: int) -> str:
    """What tells habit from accident."""
    few = f"{steps} {'step' if steps == 1 else 'steps'} cannot tell habit from accident; "
    return (
        f"{few}{FEW_STEPS - steps} more steps would" if steps < FEW_STEPS else "a baseline run would tell whether it always was"
    )


def _unexplained(a: Computed, share: dict[str, float]) -> str | None:
    if share["unexplained"] < UNEXPLAINED:
        return None
    more = f"{FEW_STEPS - len(a.graph.steps)} more steps" if len(a.graph.steps) < FEW_STEPS else "a baseline run"
    return f"{share['unexplained']:.0f} % of the bill is unexplained: the flight recorder of every rank, or {more}, would tell."


def _transfers(share: dict[str, float]) -> str | None:
    if share["exposed transfer"] < UNJUDGED:
        return None
    return (
        f"{share['exposed transfer']:.0f} % of the bill is exposed transfer, and nothing here says how long that should take: "
        "a baseline run, or bytes on a known fabric, would tell."
    )
