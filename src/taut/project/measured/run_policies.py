"""Policies on a measured run: what each would have saved, what that costs, and the regime without and with it.

The regime under a policy is that of the graph which the policy leaves, findings mended: the same returns, from walls over
whole blocks of steps, with jitter scaled by the same factors and the meetings that are left twice as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.core.errors import UsageError
from taut.diagnose.detectors import Evidence, diagnose
from taut.diagnose.job_regime import FACTORS, PAYS, mended, regime_of, regime_of_walls
from taut.graph import Graph
from taut.project.training.policies import POLICIES
from taut.replay.after_meetings import Bound, bound_to_meetings
from taut.replay.blame import blame
from taut.replay.bounded_policies import own_times
from taut.replay.data_parallel import data_parallel
from taut.replay.exact_policies import Measured, Outcome, local, measured, with_work
from taut.replay.policy_names import KNOWN, Asked, asked, outcome, refusal
from taut.replay.timeline import Batch, Change, batch, changed, replay
from taut.result.types import Estimate, MeasuredPolicy, Regime, Regimes, Reserves

STALENESS = 8
"""Steps that a gradient may be behind, unless said: an assumption."""
COSTS = {name: POLICIES[name].costs for name in KNOWN}
BETTER = 0.001
"""A staler policy is worth showing if it saves this share of the wall more."""


@dataclass(frozen=True)
class Shared:
    """What all questions about policies of a run have in common: changes leave it as it is."""

    graph: Graph
    bound: Bound
    observed: Measured
    """With the work and gaps as observed."""
    mended: Measured
    """With the findings mended."""
    usual: Measured
    """With every op at its reference."""
    without: Regime
    regimes: dict[Asked, Regime] = field(default_factory=dict)
    """Under policies that were asked about."""

    @cached_property
    def own(self) -> tuple[Floats, Floats]:
        """How long replicas take by themselves: findings mended, and with every op at its reference."""
        return own_times(self.mended), own_times(self.usual)

    @property
    def pays(self) -> float:
        """The share from which one more accelerator pays."""
        return self.without.pays if isinstance(self.without.pays, float) else PAYS

    def regime(self, one: Asked) -> Regime:
        """The regime under an exact policy."""
        if one not in self.regimes:
            self.regimes[one] = self._regime(one)
        return self.regimes[one]

    def _regime(self, one: Asked) -> Regime:
        job, steps, pays = self.mended, int(one.value or 1), self.pays
        if one.name == "semi-synchronous":
            return regime_of_walls(*_walls(job, *self.own, steps), pays)
        left = local(job, steps)
        reference = np.where((left.work_ns == 0) & (job.graph.work_ns > 0), 0, self.usual.graph.work_ns)
        return regime_of(batch(left), (reference, left.work_ns, left.gap_ns), pays, _blocks(job, steps))


class PoliciesOfRun(Struct, frozen=True):
    """A run, ready to be asked about policies."""

    job: Measured
    """With the work and gaps as observed, or as other changes leave them."""
    shared: Shared
    more_steps: float | None = None
    """Share of steps that a policy needs more of; None where nobody knows."""

    @property
    def without(self) -> Regime:
        """The regime without a policy."""
        return self.shared.without

    def named(self, texts: Sequence[str]) -> list[MeasuredPolicy]:
        """The policies that were named, one by one."""
        chosen = [asked(text, self.job.met.units) for text in texts]
        return [self._entry(one, outcome(self.job, one)) for one in chosen]

    def advised(self, staleness: int) -> list[MeasuredPolicy]:
        """Policies within a budget of staleness: of each exact one the values that save more than fresher ones, then ranges.

        On the frontier is what saves more than all that is no staler; what is known as a range only is on none.
        """
        if self.job.met.refused:
            raise UsageError(f"--advice: {refusal(self.job, Asked('local-steps', 2))}")
        possible = [one for one in candidates(staleness, self.job.met.units) if not refusal(self.job, one)]
        tried = [(one, found, found.saved) for one in possible for found in [outcome(self.job, one)]]
        worth, best = [], dict.fromkeys(KNOWN, 0.0)
        for one, found, saved in tried:
            exact = one.known.kind == "exact"
            most = None if saved is None else saved.value if exact else saved.hi
            if most is not None and most >= best[one.name] + BETTER:
                worth.append(self._entry(one, found))
                best[one.name] = most
        return _frontier(sorted(worth, key=lambda one: (one.kind != "exact", one.staleness_steps, -one.saved_share.value)))

    def _entry(self, one: Asked, found: Outcome) -> MeasuredPolicy:
        saved = found.saved
        if saved is None:
            raise UsageError(f"--policy {one}: no step of this run took any time")
        regime = self.shared.regime(one) if one.known.kind == "exact" else None
        return MeasuredPolicy(
            name=str(one),
            kind=one.known.kind,
            saved_share=saved,
            staleness_steps=one.staleness,
            regime=Regimes(without=self.without.kind, with_=regime.kind if regime else None),
            reserve=Reserves(without=_reserve(self.without), with_=_reserve(regime)),
            more_steps_share=self.more_steps,
            net_saved_share=None if self.more_steps is None else _net(saved, self.more_steps),
            break_even_steps_share=saved.value / (1 - saved.value) if 0 < saved.value < 1 else None,
            costs=COSTS[one.name],
        )


Mended = tuple[Batch, tuple[Ints, Ints, Ints]]
"""(batched replays; reference, work and gap of every op with the findings mended)."""


def with_findings_mended(graph: Graph, prepared: Batch | None = None) -> Mended:
    """What regimes of a graph are told from."""
    prepared, observed = batch(graph) if prepared is None else prepared, replay(graph)
    blamed = blame(graph, observed, replay(graph, gaps=False))
    return prepared, mended(graph, blamed, diagnose(Evidence(graph, observed, blamed, prepared)))


def shared_of(graph: Graph, known: Mended | None = None, pays: float = PAYS) -> Shared:
    """What questions about policies of a graph share; ``known`` where its findings are mended already."""
    prepared, (usual, work, gap) = with_findings_mended(graph) if known is None else known
    met = data_parallel(graph)
    bound = bound_to_meetings(graph, met.ops)
    observed = measured(graph, met=met, bound=bound)
    at_work, at_reference = (with_work(observed, bound, some, gap) for some in (work, usual))
    return Shared(
        graph=graph,
        bound=bound,
        observed=observed,
        mended=at_work,
        usual=at_reference,
        without=regime_of(prepared, (usual, work, gap), pays),
    )


def of_run(
    graph: Graph, changes: Sequence[Change] = (), *, more_steps: float | None = None, shared: Shared | None = None
) -> PoliciesOfRun:
    """A measured graph ready to be asked about policies, after other changes; ``shared`` where it is known."""
    shared = shared_of(graph) if shared is None else shared
    given = with_work(shared.observed, shared.bound, *changed(graph, changes)[:2]) if changes else shared.observed
    return PoliciesOfRun(job=given, shared=shared, more_steps=more_steps)


def candidates(staleness: int, units: int) -> list[Asked]:
    """Policies within a budget of staleness: powers of two, the budget itself, and those that keep gradients fresh."""
    powers = [1 << k for k in range(staleness.bit_length() + 1)]
    local_steps = sorted({n for n in (*powers, staleness + 1) if 2 <= n <= staleness + 1})
    ahead = sorted({n for n in (*powers, staleness) if 1 <= n <= staleness})
    return [
        *(Asked("local-steps", float(n)) for n in local_steps),
        *(Asked("semi-synchronous", float(n)) for n in ahead),
        *(asked(name, units) for name, known in KNOWN.items() if known.kind == "bounded"),
    ]


def _blocks(job: Measured, steps: int) -> Ints:
    """Per window: the block that it belongs to, -1 where none is whole."""
    whole = job.place < job.run_steps // steps * steps
    return np.where(whole, np.cumsum(whole & (job.place % steps == 0)) - 1, -1)


def _walls(job: Measured, own: Floats, even: Floats, ahead: int) -> tuple[Floats, Floats]:
    """Steps × factors of jitter: how long steps take if nobody is more than so many steps ahead, and with twice the replicas.

    Replicas drift apart, so that what more of them cost is walked through: each takes its own time at reference plus the
    factor times what it took beyond, then the transfer; further replicas do what these did half a run later.
    """
    factors = np.array(FACTORS)[:, None]
    moved = np.maximum(job.window_ns - own.max(axis=1), 0.0)
    out = []
    for more in (0, 1):
        now, met, ended = np.zeros((len(FACTORS), (1 + more) * own.shape[1])), list[Floats](), [np.zeros(len(FACTORS))]
        for w in range(len(own)):
            if not job.place[w]:
                now, met = np.broadcast_to(now.max(axis=1, keepdims=True), now.shape), []
            rows = [w, (w + len(own) // 2) % len(own)][: 1 + more]
            took = np.concatenate([even[r] + factors * (own[r] - even[r]) for r in rows], axis=1)
            met.append(now + np.maximum(took, 0.0))
            now = (np.maximum(met[-1], met[-1 - ahead].max(axis=1, keepdims=True)) if len(met) > ahead else met[-1]) + moved[w]
            ended.append(now.max(axis=1))
        out.append(np.diff(np.stack(ended), axis=0))
    return out[0], out[1]


def _frontier(policies: list[MeasuredPolicy]) -> list[MeasuredPolicy]:
    """The same, by staleness, with those marked that save more than all before them."""
    out, best = [], 0.0
    for one in policies:
        better = one.kind == "exact" and one.saved_share.value >= best + BETTER
        best = one.saved_share.value if better else best
        out.append(replace(one, on_frontier=better))
    return out


def _net(saved: Estimate, more: float) -> Estimate:
    """What is saved if so many more steps are needed."""
    value, low, high = (None if end is None else 1 - (1 - end) * (1 + more) for end in (saved.value, saved.lo, saved.hi))
    return Estimate(value=0.0 if value is None else value, lo=low, hi=high)


def _reserve(regime: Regime | None) -> Estimate | None:
    found = regime.reserve if regime else None
    return found if isinstance(found, Estimate) else None
