"""Input stall and checkpoint stall: a rank is late because its loader or its checkpoint takes long.

Null hypotheses and tests are those of ``late_ranks.py``; what makes it a stall is that most of the excess lies in the host ops
of the loader or of the checkpoint, on the branch that the others wait for. Checkpoints come every so many steps, and no level
of any step tells them: where they are recorded under their name, the long ones must be those of the same few ranks, at all
times or since some step (null: which are long has nothing to do with who saves and when; exact, Bonferroni over sets of so
many ranks and first steps). The run is replayed as if they took no longer than on other ranks, and what that saves must be
worth listing at the lower end of its interval over the steps since then that have a checkpoint: which steps these are is a
schedule, not chance. Checkpoints that are alike on all ranks are a schedule, not a stall.
"""

from __future__ import annotations

from math import log
from statistics import NormalDist

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import weighed
from taut.core.interval import FALSE_ALARMS, Z, estimate
from taut.core.rank_words import rank_labels
from taut.core.reporting import LISTED_SHARE, spell
from taut.core.tables import Kind
from taut.diagnose.class_medians import medians_of
from taut.diagnose.finding import Evidence, Finding, recovered
from taut.replay.timeline import Change

MODES = ("input stall", "checkpoint stall")
CHECKPOINT = ("checkpoint", "save_checkpoint", "save checkpoint", "torch.save")
"""Names of host ops that save state, in lower case, begin so."""
MOST_OF_IT = 0.1
"""Ranks and checkpoints that take less than this share of what the longest takes are beside the point."""
RECURS = 3
"""Checkpoints that make a habit: one that was long is an accident."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """Ranks whose excess is a stall; None if none is, because the test is that of ``late_ranks.py``."""
    found = [f for f in evidence.late_ranks if f.mode in MODES]
    if not any(f.mode == "checkpoint stall" for f in found):
        # A rank that is slow in whatever it does saves slowly, too.
        late = {rank for f in evidence.late_ranks for rank in f.ranks}
        found += [f for f in _checkpoints(evidence) if not late.issuperset(f.ranks)]
    return found or None


def _checkpoints(e: Evidence) -> list[Finding]:
    """Checkpoints of some ranks that take longer than those of the others, and hold the job up: at most one finding."""
    graph, ops, wall = e.graph, _saving(e), e.observed.window_ns
    kept = medians_of(graph.work_ns[ops], graph.window[ops], graph.ops.name[ops]).astype(np.int64)
    longer = np.maximum(graph.work_ns[ops] - kept, 0)
    by_rank = weighed(graph.rank_index[ops], longer, len(graph.ranks))
    ranks = np.flatnonzero(by_rank >= MOST_OF_IT * by_rank.max(initial=0.0))
    long = longer > MOST_OF_IT * longer.max(initial=0)
    theirs = np.isin(graph.rank_index[ops], ranks)
    saving, windows = np.unique(graph.window[ops]), np.unique(graph.window[ops[long & theirs]])
    if len(windows) < RECURS:
        return []
    tests = log(len(saving)) + float(_ways(len(graph.ranks), np.array([len(ranks)]))[0])
    if tests + _chance(long, theirs & (graph.window[ops] >= windows[0])) > log(FALSE_ALARMS):
        return []
    saving = saving[saving >= windows[0]]
    ops, kept = ops[long & theirs], kept[long & theirs]
    change = Change(ops, "work", "set", kept, "checkpoints as long as on other ranks")
    saved = recovered(e, [change])
    part = saved[saving] * (len(saving) / wall.sum())
    share = estimate(lambda s: part[s].mean(axis=-1), len(saving))
    if share is None or share.lo is None or share.lo < LISTED_SHARE:
        return []
    who = rank_labels(graph.ranks[ranks].tolist(), graph.members)
    return [
        Finding(
            mode="checkpoint stall",
            ranks=tuple(int(rank) for rank in graph.ranks[ranks]),
            classes=tuple(dict.fromkeys(graph.names[name] for name in graph.ops.name[ops])),
            steps=e.steps_of(ops),
            lost_rank_ns=int(saved.sum()) * len(graph.ranks),
            confidence=NormalDist().cdf(Z * share.value / max(share.value - share.lo, 1e-9)),
            because=f"{who} save{'' if len(ranks) > 1 else 's'} in {len(windows)} of {len(wall)} steps, "
            f"{spell(float(np.median(graph.work_ns[ops])))} each, while others wait; as long as on other ranks the run would "
            f"be {100 * share.value:.1f} % ({100 * share.lo:.1f}–{100 * (share.hi or share.value):.1f}) shorter",
            changes=(change,),
            reference="peers",
        )
    ]


def _chance(long: Mask, theirs: Mask) -> float:
    """Logarithm of the chance that at least so many of the long checkpoints are among some of all, if any may be long."""
    own, others, of = int(theirs.sum()), int((~theirs).sum()), int(long.sum())
    hits = np.arange(max(int((long & theirs).sum()), of - others), min(own, of) + 1)
    ways = _ways(own, hits) + _ways(others, of - hits)
    return float(np.logaddexp.reduce(ways) - _ways(own + others, np.array([of]))[0])


def _ways(of: int, some: Ints) -> Floats:
    """Logarithm of the number of ways to choose some of so many."""
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, of + 1))))
    return np.asarray(logs[of] - logs[some] - logs[of - some])


def _saving(e: Evidence) -> Ints:
    """Host ops that save state, by their name."""
    graph = e.graph
    named = np.array([name.lower().startswith(CHECKPOINT) for name in graph.names])
    return np.flatnonzero(named[graph.ops.name] & (graph.ops.kind == Kind.COORDINATE) & e.slowdowns.own)
