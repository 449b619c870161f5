"""A finished run, asked what would have been: fixes, scales, delays and policies, as ``taut whatif`` takes them.

Prepared once and asked often: what an answer needs of the run itself is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from taut.core.array_types import Ints
from taut.core.errors import UsageError
from taut.diagnose.as_before import as_before
from taut.diagnose.slowdowns import Slowdowns
from taut.replay.timeline import Batch, Change, batch, completion, edited, replay, window_times
from taut.replay.whatif import DIMENSIONS, MEASURED, Dimension, delay, dimension_of, fix, scale
from taut.result.types import Estimate, MeasuredPolicy, Range, Regimes, Reserves, StalenessBudget, WhatIfResult
from taut.stored import Run

if TYPE_CHECKING:
    from taut.project.measured.run_policies import Shared

NAMED_KEYS = ("class", "gate")
"""Keys whose labels are names, of which a part is enough."""


REGIME_OPS = 2_000_000
"""Ops up to which a regime is told after a change."""


class Question(Struct, frozen=True, kw_only=True):
    """What is changed, and which policies are asked about."""

    fixes: Sequence[tuple[str, str]] = ()
    """Key and label of what is set to its reference."""
    scales: Mapping[str, float] = {}
    """work, bandwidth, gaps → factor."""
    delays: Sequence[tuple[int, int, int, int | None]] = ()
    """Rank, step, nanoseconds, and the op or none."""
    policies: Sequence[str] = ()
    advice: bool = False
    staleness: int | None = None
    more_steps: float | None = None


def _silent(line: str) -> None:
    """Nobody is told."""


class Replays:
    """A run that is replayed with something changed."""

    def __init__(self, run: Run, slowdowns: Slowdowns | None = None) -> None:
        """``slowdowns``: what became slower during the run, where it is known already."""
        self.run, self.graph = run, run.graph
        self.slowdowns = Slowdowns(run.graph) if slowdowns is None else slowdowns
        self._cuts: dict[str, Dimension | None] = {}

    @property
    def dims(self) -> list[Dimension]:
        """Ways to cut the ops."""
        return [one for one in map(self.cut, DIMENSIONS) if one is not None]

    def cut(self, name: str) -> Dimension | None:
        """One way to cut the ops; None where the run has none of that name."""
        if name not in self._cuts:
            self._cuts[name] = dimension_of(self.graph, name)
        return self._cuts[name]

    @cached_property
    def actual_wall_ns(self) -> int:
        """The wall as observed: a replay without changes gives the times of the ops."""
        return int(window_times(self.graph, completion(self.graph, self.graph.ops.end_ns)).sum())

    def prepare(self) -> None:
        """Compute what is kept for answers, before the first one: about a second for a million ops."""
        self.result(Question(fixes=[("rank", str(int(self.graph.ranks[0])))]))
        self.regime(Question())

    @cached_property
    def batch(self) -> Batch:
        """Batched replays."""
        return batch(self.graph)

    @cached_property
    def mended(self) -> tuple[Batch, tuple[Ints, Ints, Ints]]:
        """(batched replays, reference, work and gap of every op with the findings mended): what a regime is told from."""
        from taut.project.measured.run_policies import with_findings_mended

        return with_findings_mended(self.graph, self.batch)

    @cached_property
    def policies(self) -> Shared:
        """What questions about policies have in common."""
        from taut.project.measured.run_policies import shared_of

        return shared_of(self.graph, self.mended, self.pays)

    @property
    def pays(self) -> float:
        """The share from which one more accelerator pays, as the run was analyzed."""
        from taut.diagnose.job_regime import PAYS

        known = self.run.result.regime
        return known.pays if known is not None and isinstance(known.pays, float) else PAYS

    @property
    def nobodys(self) -> bool:
        """Whether the run loses by what nobody causes: its regime is then told in another way than that of a changed graph."""
        return any(finding.loss_share is not None for finding in self.run.result.findings)

    def regime(self, asked: Question) -> str | None:
        """The class of the regime after a question's changes, findings mended too, as the result tells that of the run.

        None where the run has none, is too large, or loses by what nobody causes: that has a regime of its own.
        """
        from taut.diagnose.job_regime import regime_of

        known = self.run.result.regime
        if known is None or known.kind is None or self.nobodys or len(self.graph) > REGIME_OPS:
            return None
        prepared, (usual, work, gap) = self.mended
        for change in self.changes(asked):
            usual, work, gap = _applied(change, usual, work, gap)
        return regime_of(prepared, (usual, work, gap), self.pays).kind

    def result(self, asked: Question, note: Callable[[str], None] = _silent) -> WhatIfResult:
        """The answer; ``note`` hears of fixes that change nothing."""
        changes = self.changes(asked, note)
        actual = self.actual_wall_ns
        wall = replay(self.graph, changes).wall_ns if changes else actual
        result = WhatIfResult(
            actual_wall_ns=actual,
            changed_wall_ns=wall,
            saved_wall_ns=actual - wall,
            saved_share=(actual - wall) / max(actual, 1),
            error=_error(asked),
            changes=list(dict.fromkeys(change.reason for change in changes)),
        )
        return self._with_policies(result, changes, asked) if asked.policies or asked.advice else result

    def changes(self, asked: Question, note: Callable[[str], None] = _silent) -> list[Change]:
        """The changes of a question: fixes, then scales, then delays."""
        together: dict[str, list[str]] = {}
        for key, said in asked.fixes:
            together.setdefault(key, []).append(self._label(key, said))
        mended = [self._at_reference(key, named) for key, named in together.items()]
        for (key, named), (now, before) in zip(together.items(), mended, strict=True):
            if len(now.ops) == 0 and not before:
                note(f"--fix {key}={','.join(named)}: no reference is known for it, so nothing changes")
        fixed = [now for now, _ in mended] + [change for _, before in mended for change in before]
        scaled = [scale(self.graph, what, factor) for what, factor in asked.scales.items()]
        return fixed + scaled + [delay(self.graph, *one) for one in asked.delays]

    def _at_reference(self, key: str, named: Sequence[str]) -> tuple[Change, list[Change]]:
        """(what is named at its reference, and as it was before it became slow)."""
        graph, known, cut = self.graph, self.run.reference_ns, self.cut(key)
        dims = self.dims if cut is None else [cut]
        now = fix(graph, known, key, named, baseline=self.run.result.baseline is not None, dims=dims)
        # Only ranks and links have a past of their own.
        before = as_before(graph, known, key, named, self.slowdowns) if key in ("rank", "link") else []
        return now, before

    def _label(self, key: str, said: str) -> str:
        """The label that is meant: itself, or the only one that holds it."""
        cut = self.cut(key) if key in NAMED_KEYS else None
        if cut is None or said in cut.labels:
            return said
        like = [label for label in cut.labels if said.lower() in label.lower()]
        if len(like) > 1:
            some = ", ".join(like[:12]) + (" …" if len(like) > 12 else "")
            raise UsageError(f"--fix {key}={said}: which of {some}?")
        return like[0] if like else said

    def _with_policies(self, result: WhatIfResult, changes: list[Change], asked: Question) -> WhatIfResult:
        """The result with policies beside it, applied after the changes."""
        from taut.project.measured.run_policies import STALENESS, of_run

        budget = StalenessBudget(
            steps=STALENESS if asked.staleness is None else asked.staleness, default=asked.staleness is None
        )
        job = of_run(self.graph, changes, more_steps=asked.more_steps, shared=self.policies)
        found = job.named(asked.policies) + (job.advised(budget.steps) if asked.advice else [])
        told = [self._as_recorded(one) for one in found]
        return replace(result, policies=told, replicas=job.job.met.says, staleness=budget if asked.advice else UNSET)

    def _as_recorded(self, one: MeasuredPolicy) -> MeasuredPolicy:
        """A policy beside the regime of the result; where nobody causes the loss, that under the policy is not known."""
        known = self.run.result.regime
        if not self.nobodys or known is None:
            return one
        reserve = known.reserve if isinstance(known.reserve, Estimate) else None
        without = Regimes(without=known.kind, with_=None)
        return replace(one, regime=without, reserve=Reserves(without=reserve, with_=None))


def _applied(change: Change, usual: Ints, work: Ints, gap: Ints) -> tuple[Ints, Ints, Ints]:
    """Reference, work and gap after a change: what scales work scales its reference, what mends an op is one."""
    if change.what == "gap":
        return usual, work, edited(gap, change)
    new = edited(work, change)
    if change.how == "scale":
        return edited(usual, change), new, gap
    lower = usual.copy()
    lower[change.ops] = np.minimum(new[change.ops], usual[change.ops])
    return lower, new, gap


def _error(asked: Question) -> Range | None:
    """How far such predictions were from what really happened, where the lab has measured it."""
    keys = {key for key, _ in asked.fixes}
    if asked.delays or asked.scales or not keys or not keys <= MEASURED.keys():
        return None
    known = [MEASURED[key] for key in keys]
    return Range(lo=min(lo for lo, _ in known), hi=max(hi for _, hi in known))
