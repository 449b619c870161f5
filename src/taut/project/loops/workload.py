"""Control loops: what autoscalers, retries, gates, schedulers and launchers make of one system together.

A run is simulated from each of several seeds, and its log is read as a real one would be: the indices are those of
``taut.control``. What only a simulator knows (what was really served, trained, lost) stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.control.action_log import prepare, series
from taut.control.control_indices import NAMES, indices
from taut.control.relations import control
from taut.core.errors import UsageError
from taut.core.prices import amount
from taut.core.student import student_quantile
from taut.project.figures import times
from taut.project.loops.as_configured import as_configured
from taut.project.loops.policies import POLICIES
from taut.project.loops.scenario import Scenario, parse
from taut.project.loops.simulated_run import SimulatedRun, simulate
from taut.project.time_groups import bound_by, grouped, largest_term
from taut.project.workload import Estimate, Sampling, Workload
from taut.read.actions.loops_config import Loop
from taut.result import types

COUNT, COUNT_PER_RUN, LEAST_RUNS, MOST_RUNS = 150, 50, 3, 50
"""Steps that a forecast is asked for: so many of them are one run."""
UNIT = 1000
"""A unit of delivered work is a thousand requests answered in time."""
KEPT = ("served", "trained")
"""Terms whose result somebody kept; the others are losses."""
AT_LOAD = (*KEPT, "served in vain", "trained in vain")
"""Terms in which accelerators compute."""
TOLERANCE = 0.1
"""A plan within this share of what came is one that could be relied on."""
TRUE = ("effective_throughput_ratio", "effective_capacity", "visible_success_rate", "planning_confidence")
"""Indices that need what only the simulator knows, or that plans alone tell."""
SHARES = {
    *TRUE, "retry_cascade_frequency", "decision_conflict_rate", "compensatory_action_rate", "cross_layer_coherence",
    "control_overhead_fraction", "control_oscillation_frequency", "planning_accuracy", "cost_attribution_accuracy",
}  # fmt: skip


@dataclass(frozen=True)
class Forecast:
    """What a scenario gave from several seeds."""

    scenario: Scenario
    runs: Sequence[SimulatedRun]
    found: Mapping[str, Estimate | None]

    @property
    def ranks(self) -> int:
        """Accelerators of the system."""
        return self.scenario.accelerators

    def indices(self) -> Mapping[str, Estimate | None]:
        """Those of control, and those that the simulator adds."""
        return self.found

    @property
    def best(self) -> float:
        """All that the accelerators could do."""
        return 1.0

    def measured_by(self, best: float) -> Forecast:
        """The same: what the accelerators could do does not depend on who steers them."""
        return self

    @property
    def terms(self) -> dict[str, float]:
        """Where accelerator-seconds went, shares of all that were held."""
        total = sum(run.paid_s for run in self.runs) or 1.0
        return {name: sum(run.terms_s[name] for run in self.runs) / total for name in self.runs[0].terms_s}

    def watts(self, term: str) -> float | None:
        """Power that the site supplies for an accelerator while it does this; None where none is given."""
        p = self.scenario.price
        drawn = p.load_w if term in AT_LOAD or p.stall_w is None else p.stall_w
        return None if drawn is None or p.load_w is None else (drawn + p.host_w) * p.pue

    @property
    def losses(self) -> list[types.LoopLoss]:
        """What accelerators were held for and nobody kept, an hour of the system, the largest first."""
        p, held_s = self.scenario.price, len(self.runs) * self.scenario.loops.horizon_s
        out = []
        for term in self.runs[0].terms_s:
            held = sum(run.terms_s[term] for run in self.runs) / held_s
            watts = self.watts(term)
            if term not in KEPT and held > 0:
                money = None if p.per_hour is None else amount(Decimal(str(p.per_hour)) * Decimal(held))
                out.append(
                    types.LoopLoss(
                        term=term,
                        accelerators=held,
                        money_per_hour=money,
                        currency=p.currency or None,
                        joules_per_hour=times(held * 3600, watts),
                    )
                )
        return sorted(out, key=lambda one: -one.accelerators)

    @property
    def joules(self) -> float | None:
        """Energy of all runs; None where no power is given."""
        parts = [times(s, self.watts(term)) for run in self.runs for term, s in run.terms_s.items()]
        known = [one for one in parts if one is not None]
        return sum(known) if len(known) == len(parts) else None

    @property
    def dominant(self) -> str:
        """The largest share of the group that the system is bound by."""
        return largest_term(self.terms, grouped(self.terms))

    def entry(self) -> types.Forecast:
        """The forecast as a part of the result; a step is a request that was answered."""
        took = np.concatenate([run.took_s for run in self.runs]) * 1e9
        if not len(took):
            raise UsageError(f"{self.scenario.name}: no request was answered; give it more replicas, or a longer horizon_s")
        low, middle, high = map(float, np.quantile(took, (0.1, 0.5, 0.9)))
        means = spread([float(run.took_s.mean()) * 1e9 if len(run.took_s) else None for run in self.runs])
        answered = sum(int(run.in_time.sum()) for run in self.runs)
        price = self.scenario.price.per_hour
        paid = sum(run.paid_s for run in self.runs)
        ratio = self.found["effective_throughput_ratio"]
        return types.Forecast(
            ranks=self.ranks,
            step_ns=types.Quantiles(p10=low, p50=middle, p90=high),
            mean_step_ns=means.as_result() if means else None,
            tflops_per_device=None,
            mfu=None,
            effective_throughput_ratio=ratio.value if ratio else None,
            availability=None,
            cost_per_unit=None if price is None or not answered else price * paid / 3600 / answered * UNIT,
            currency=self.scenario.price.currency or None,
            energy_per_unit_j=times(self.joules, UNIT / answered) if answered else None,
            losses=self.losses,
            requests_per_s=answered / len(self.runs) / self.scenario.loops.horizon_s,
            terms=self.terms,
            dominant=self.dominant,
            in_range=True,
            groups=grouped(self.terms),
            bound=bound_by(grouped(self.terms)),
        )


def spread(values: Sequence[float | None], share: bool = False) -> Estimate | None:
    """Mean over runs, and the interval in which 95 of 100 further runs would lie if they stray as a normal variable does."""
    known = np.array([value for value in values if value is not None], dtype=float)
    if not len(known):
        return None
    middle = float(known.mean())
    if len(known) < 2:
        return Estimate(middle)
    # A prediction interval: the spread of one further run and the error of the mean together.
    half = float(student_quantile(0.025, len(known) - 1) * known.std(ddof=1) * sqrt(1 + 1 / len(known)))
    low, high = middle - half, middle + half
    if (known >= 0).all():
        low = max(low, 0.0)
    return Estimate(middle, low, min(high, 1.0) if share and (known <= 1).all() else high)


def run_indices(run: SimulatedRun) -> dict[str, float | None]:
    """The indices of one run: its log as ``taut.control`` reads it, and what the simulator knows."""
    log = prepare(run.trace)
    from_log = {name: one.value if one else None for name, one in indices(log).items()}
    found = series(run.trace.metrics)
    where = f"{run.scenario.pool.name} by window"
    confident = None
    if (where, "planned") in found:
        planned, came = found[where, "planned"][1], found[where, "demand"][1]
        confident = float((np.abs(planned - came) <= TOLERANCE * came).mean())
    return {
        # A run whose requests came more evenly than they do on average would do more than all.
        "effective_throughput_ratio": min(run.useful_s / run.ideal_s, 1.0) if run.ideal_s else None,
        "effective_capacity": run.useful_s / run.paid_s if run.paid_s else None,
        "visible_success_rate": run.good / run.settled if run.settled else None,
        "planning_confidence": confident,
        **from_log,
    }


# The regime is read from the log of a run that a forecast has simulated too.
@lru_cache(maxsize=4)
def _run(s: Scenario, seed: int) -> SimulatedRun:
    return simulate(s, seed)


def forecast(s: Scenario, *, count: int | None = None, seed: int = 0) -> Forecast:
    """Simulate a scenario from several seeds, one for every so many steps asked for."""
    runs = [_run(s, seed + k) for k in range(min(max((count or COUNT) // COUNT_PER_RUN, LEAST_RUNS), MOST_RUNS))]
    rows = [run_indices(run) for run in runs]
    found = {name: spread([row[name] for row in rows], name in SHARES) for name in (*TRUE, *NAMES)}
    return Forecast(s, runs, found)


def at(s: Scenario, ranks: int) -> Scenario:
    """The system on so many accelerators, demand as it is: what the pool may grow to grows with them."""
    beside = s.trainer.accelerators if s.trainer else 0
    most = round(s.most * ranks / s.accelerators)
    # Where nobody sets the size of the pool, it is as large as it may be.
    steered = bool(s.autoscaler) or s.plan.utilisation is not None
    replicas = min(s.pool.replicas if steered else most, most, (ranks - beside) // s.pool.accelerators)
    if replicas < s.pool.least:
        need = s.pool.least * s.pool.accelerators + beside
        raise UsageError(f"{ranks} accelerators: the scenario needs at least {need}")
    pool = replace(s.pool, most=most, replicas=replicas)
    return replace(s, pool=pool, loops=replace(s.loops, accelerators=ranks))


class LoopsWorkload(Workload[Scenario]):
    """A pool of replicas and the controllers that act on it."""

    name = "loops"
    noun = "accelerator"
    piece = "request"
    policies = POLICIES
    has_advice = True

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[Scenario, list[str]]:
        """The scenario in a table."""
        return parse(table, label, text)

    def ranks(self, s: Scenario) -> int:
        """Accelerators of the system."""
        return s.accelerators

    def at(self, s: Scenario, ranks: int) -> Scenario:
        """More ranks are more replicas for the same demand."""
        return at(s, ranks)

    def forecast(self, s: Scenario, how: Sampling) -> Forecast:
        """Several simulated runs."""
        return forecast(s, count=how.count, seed=how.seed)

    def regime(self, s: Scenario, seed: int) -> types.Regime:
        """Coherent, oscillating, amplifying or incoherent, as the log of one run tells; jitter is not what it is about."""
        return types.Regime(kind=control(_run(s, seed).trace, seed=seed).regime.kind, reserve=None)

    def loops(self, s: Scenario) -> tuple[Loop, ...]:
        """All that decide."""
        return as_configured(s)

    def advice(self, s: Scenario, seed: int, stage: Callable[[str], None]) -> tuple[list[types.Advice], list[types.Swept]]:
        """What separates the loops, tried, and what more accelerators make worse."""
        from taut.project.loops.advice import advise, sweep

        return advise(s, seed=seed, stage=stage), sweep(s, seed=seed, stage=stage)


WORKLOAD = LoopsWorkload()
