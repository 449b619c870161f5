"""What every detector gets (evidence) and gives (findings: failure mode, place, time, cost and confidence)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints, Mask, Numbers
from taut.core.change_points import LEAST_STEPS
from taut.core.ids import weighed
from taut.core.reporting import LISTED_SHARE
from taut.core.student import student_tail
from taut.diagnose.slow_place import RECURS
from taut.diagnose.slowdowns import Slowdowns
from taut.graph import Graph
from taut.graph.joined import Joined
from taut.replay.blame import Blame
from taut.replay.exposed import Exposed, exposed
from taut.replay.timeline import Batch, Change, Timeline, walls

if TYPE_CHECKING:
    from taut.diagnose.against_baseline import Compared
    from taut.diagnose.early_warning import EarlyWarning
    from taut.diagnose.instability import Structure
    from taut.diagnose.slow_sets import Apart
    from taut.diagnose.synchronisation import SplitGroup

ReferenceKind = Literal["past", "baseline", "peers", "fabric"] | None
"""The same rank or link at other times, a healthy run, other ranks or links, or what the fabric promises; None for neither."""
EPISODE_SHARE = 0.05
"""A finding that recovers less than LISTED_SHARE of the wall is listed if it recovers this share of its own steps, and there
are at least EPISODE_STEPS of them; it says so."""
EPISODE_STEPS = 5
BESIDE = 0.2
"""What would not be listed alone is, beside others, if this share of what all of them save is lost without it."""
LEAST_EPISODE = 0.05
"""Spans with less than this share of the whole score are noise around the others."""
NOISE = 1.5
"""Spreads of ordinary variation taken off a window's excess before spans are cut."""


class Evidence(Struct, frozen=True, dict=True):
    """What every detector gets."""

    graph: Graph
    observed: Timeline
    blame: Blame
    batch: Batch
    both: Joined | None = None
    """The run after its baseline, where one is given."""

    @cached_property
    def compared(self) -> Compared | None:
        """The run beside its baseline."""
        from taut.diagnose.against_baseline import compared

        return compared(self)

    @cached_property
    def slowdowns(self) -> Slowdowns:
        """What became slower during the run, and since when."""
        return Slowdowns(self.graph)

    @cached_property
    def exposed(self) -> Exposed:
        """What of the ops' time is not hidden under other lanes."""
        return exposed(self.graph, self.observed)

    @cached_property
    def split(self) -> SplitGroup | None:
        """A group of ranks that no longer meets the others."""
        from taut.diagnose.synchronisation import split_group

        return split_group(self.graph)

    @cached_property
    def early_warnings(self) -> list[EarlyWarning] | None:
        """Series that recover ever more slowly: evidence of what may come, no finding."""
        from taut.diagnose.early_warning import early_warnings

        return early_warnings(self)

    @cached_property
    def late_ranks(self) -> list[Finding]:
        """Ranks that are late by their own work, of whatever mode: several detectors ask."""
        from taut.diagnose.late_ranks import late_ranks

        return late_ranks(self)

    @cached_property
    def apart(self) -> Apart | None:
        """How far the level of every rank lies from those of most others; None where too few tell."""
        from taut.diagnose.slow_sets import apart_from_peers

        return apart_from_peers(self.graph, self.blame)

    def steps(self, first: int, last: int) -> tuple[int, int]:
        """Numbers of the first and the last step of a span of windows."""
        return int(self.graph.steps[first]), int(self.graph.steps[last])

    def steps_of(self, ops: Ints) -> tuple[int, int]:
        """Numbers of the first and the last step that some ops lie in."""
        at = self.graph.window[ops]
        return self.steps(int(at.min()), int(at.max()))


class Grew(Struct, frozen=True):
    """A class of a place, and what it takes a step in the baseline and now, ns."""

    name: str
    before_ns: float
    after_ns: float


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One failure mode at one place in one span of steps."""

    mode: str
    ranks: tuple[int, ...] = ()
    links: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    steps: tuple[int, int]
    lost_rank_ns: int
    recoverable_wall_ns: int = 0
    """Known once the changes are replayed."""
    saved_ns: Numbers | None = field(default=None, repr=False, compare=False)
    """The same for every window, ns."""
    confidence: float
    because: str
    changes: tuple[Change, ...] = field(default=(), repr=False, compare=False)
    """What mending it would change: replayed, it gives the recoverable wall time."""
    alternatives: tuple[str, ...] = ()
    """Other failure modes it may be, where these traces cannot tell; ``because`` says which measurement would."""
    where: str = ""
    """What its ranks, and no others, have in common: a host, a stage, a device model, a group."""
    reference: ReferenceKind = None
    """What it was compared with."""
    grew: Grew | None = None
    """What of it takes longer than in a baseline."""
    certain: str = ""
    """Why it is listed whatever it recovers; empty if that is to be weighed."""
    structure: Structure | None = field(default=None, repr=False, compare=False)
    """Of a structural instability: what it costs, what its origins are like, and how it grows with ranks."""

    @property
    def id(self) -> str:
        """Stays the same for the same input."""
        place = f"{self.mode}|{self.ranks}|{self.links}|{self.stages}|{self.steps}"
        return "f-" + hashlib.sha256(place.encode()).hexdigest()[:10]


def why_listed(saved: Ints, observed: Timeline, first: int, last: int) -> str | None:
    """Why a finding that saves so much per window is listed: '' if for its share of the wall, None if it is not listed."""
    recovered, in_span = int(saved.sum()), int(saved[first : last + 1].sum())
    if recovered >= LISTED_SHARE * observed.wall_ns:
        return ""
    spent = max(int(observed.window_ns[first : last + 1].sum()), 1)
    if last - first + 1 >= EPISODE_STEPS and in_span >= EPISODE_SHARE * spent:
        share = 100 * recovered / max(observed.wall_ns, 1)
        return f"; mending it saves {share:.1f} % of the run, {100 * in_span / spent:.0f} % of these {last - first + 1} steps"
    return None


def as_a_habit(saved: Ints) -> Ints:
    """Savings per window, the largest held down to the one that recurs: what one or two steps carry alone is an accident.

    A level is found in values that are clipped, so steps that were held up by something else may lie in its span.
    """
    if len(saved) < LEAST_STEPS:
        return saved
    return np.asarray(np.minimum(saved, np.partition(saved, -RECURS)[-RECURS]))


def confidence(score: float, tests: int, free: float = inf) -> float:
    """One minus the corrected chance of such a score under the null; Student's where few degrees of freedom tell the spread."""
    return float(1 - min(1.0, max(tests, 1) * student_tail(score, free)))


def recovered(evidence: Evidence, changes: Sequence[Change]) -> Ints:
    """Wall time per window that the changes save when they are replayed, ns."""
    return evidence.observed.window_ns - walls(evidence.graph, changes)


def top_classes(graph: Graph, ops: Indices | Mask, weights: Numbers) -> tuple[str, ...]:
    """The (at most three) class names that hold most of the weight of some ops."""
    total = weighed(graph.ops.name[ops], weights)
    return tuple(graph.names[i] for i in np.argsort(-total)[:3] if total[i] > 0)


def episodes(score: Floats, most: int = 4) -> list[tuple[int, int]]:
    """Spans of windows with the largest sums of a signed score (what was seen minus what noise would bring).

    Quiet windows count against a span, so a single blip far from the others does not stretch it.
    """
    left = np.array(score, dtype=np.float64)
    whole = left[left > 0].sum()
    out: list[tuple[int, int]] = []
    for _ in range(most):
        best, best_sum, begin, running = (0, -1), 0.0, 0, 0.0  # Kadane: a span that sums to less than nothing is dropped
        for i, value in enumerate(left):
            if running <= 0:
                begin, running = i, 0.0
            running += value
            if running > best_sum:
                best, best_sum = (begin, i), running
        if best[1] < 0 or best_sum < LEAST_EPISODE * whole:
            break
        out.append(best)
        left[best[0] : best[1] + 1] = -np.inf
    return sorted(out)
