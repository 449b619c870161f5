"""The ideal of the pages: the run with nothing above its reference.

The reference is the one that findings, ``taut whatif --fix`` and what is recoverable use: the other ranks of a role, the op's
own rank left out; of a stage the other stages too; what a finding names (a link of a ring, a rank that became slow) as its own
fix leaves it. Gaps stay as they were, but for those that a finding's fix takes away. An op that was shorter than its reference
keeps its time. So no single fix of the page ends before the ideal, and the ideal never ends after the run.

``whatif.ideal_wall_ns``, of which the terminal's effective throughput and Perfetto's ideal are, is another: every op at what
its class takes over all ranks, the slow ones among them, without gaps.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.finding_place import fixes_of
from taut.core.question_words import fix_words
from taut.diagnose.as_before import pauses_before
from taut.diagnose.slow_place import Place
from taut.graph import Graph
from taut.replay.reference import whatever_role
from taut.replay.timeline import Change, Timeline, changed, replay
from taut.replay.whatif import Dimension, medians_among
from taut.result.types import Finding
from taut.stored import Run
from taut.views.replays import Question, Replays


def ideal_step_ns(run: Run) -> Ints:
    """What each step takes in the ideal replay: as the run folder keeps it, else replayed."""
    kept = run.ideal_step_ns
    return ideal(Replays(run)).window_ns if kept is None else kept


def ideal(replays: Replays) -> Timeline:
    """The ideal replay of a run."""
    work, gap = least_times(replays)
    every = np.arange(len(replays.graph))
    return replay(replays.graph, [Change(every, "work", "set", work), Change(every, "gap", "set", gap)])


def least_times(replays: Replays) -> tuple[Ints, Ints]:
    """(work, gap) of every op in the ideal."""
    graph = replays.graph
    work, gap = graph.work_ns.astype(np.float64), graph.gap_ns
    for one in _references(replays):
        np.fmin(work, np.rint(one), out=work)
    for changes in _mended(replays):
        fixed_work, fixed_gap, *_ = changed(graph, changes)
        np.minimum(work, fixed_work, out=work)
        gap = gap if fixed_gap is graph.gap_ns else np.minimum(gap, fixed_gap)
        del fixed_work, fixed_gap  # before those of the next finding are made
    return np.maximum(work, 0, out=work).astype(np.int64), gap


def of_other_stages(graph: Graph, stage: Dimension) -> Floats:
    """What every op takes on the other stages; NaN where it is on none of them."""
    out, (cls, classes) = np.full(len(graph), np.nan), whatever_role(graph)
    for key in range(len(stage.labels)):
        own = stage.key == key
        ops, rest = np.flatnonzero(own), np.flatnonzero(~own)
        out[ops] = medians_among(graph, cls, classes, rest)[cls[ops]]
    return out


def _references(replays: Replays) -> list[Floats]:
    """What every op would take, NaN where it is not known."""
    stage = replays.cut("stage")
    return [replays.run.reference_ns, *([] if stage is None else [of_other_stages(replays.graph, stage)])]


def _mended(replays: Replays) -> list[list[Change]]:
    """What the fix of each finding changes, and what the finding itself says to be saved: pauses of its ranks too."""
    told = [(one, fixes) for one in replays.run.result.findings if (fixes := fixes_of(one))]
    asked = [Question(fixes=[fix_words(fix) for fix in fixes]) for _, fixes in told]
    return [*map(replays.changes, asked), *(_pauses(replays, one) for one, _ in told if not one.links)]


def _pauses(replays: Replays, finding: Finding) -> list[Change]:
    """Gaps of a finding's ranks as in their other steps, and the transfers that they hold up."""
    graph, slowdowns = replays.graph, replays.slowdowns
    rows = np.flatnonzero(np.isin(graph.ranks, finding.ranks)).tolist()
    first, last = (int(one) for one in np.searchsorted(graph.steps, [finding.steps[0], finding.steps[-1]]))
    last = min(last, len(graph.steps) - 1)
    places = [Place(first, last, 0.0, False, 0.0, rank=row, gates=slowdowns.stopped(row)) for row in rows]
    return [change for place in places for change in pauses_before(slowdowns, place)]
