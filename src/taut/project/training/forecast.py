"""A scenario at a scale: step times with their spread, what a unit of delivered work takes, and what dominates.

More ranks are more replicas. With weak scaling each has as much to do as before; with strong scaling they share the batch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.core.errors import InputRefused, UsageError
from taut.project.fabric import equipment as network
from taut.project.fabric.traffic import joules as joules_moved
from taut.project.figures import network_energy, over, power_at_load, times
from taut.project.noise import Slowness, table
from taut.project.pauses import Pauses
from taut.project.time_groups import bound_by, grouped, largest_term
from taut.project.training import device_work as work
from taut.project.training import model_shape
from taut.project.training import policy_effects as effects
from taut.project.training import training_indices as indices
from taut.project.training.failures import (
    WORK_S,
    JobHistories,
    Kept,
    KeptDraws,
    domains,
    interruptions_per_day,
    kept_ratios,
    nodes_of,
    simulate_jobs,
    spare_ranks,
)
from taut.project.training.grid import Grid, Sync
from taut.project.training.model_error import EXACT, class_of, factors, model_error, normal_quantiles
from taut.project.training.scenario import Scenario, filled_torus, gates, spread_state
from taut.project.training.step_plan import Plan, plan
from taut.project.training.step_time import pause_laws, pipeline_ns, sending, split_work, without_noise
from taut.project.workload import Estimate
from taut.result import types

STEPS, SEED = 200, 0
# Draws that a forecast takes if nobody says how many steps, about a tenth of a second; and steps whatever that says.
MOST_OPS, FEWEST_STEPS = 12_000_000, 24
# Ops of a job whose forecast replays its graph: some hundredths of a second. The grid is the same sweep without edges.
MOST_REPLAYED = 30_000
# Histories drawn.
HISTORIES = 60
# A unit of delivered work is a million tokens.
UNIT_TOKENS = 1e6
# Ranks that a scenario may be asked for: memory grows with them, by about 1 GB for a million.
MOST_RANKS = 1 << 21


@dataclass(frozen=True)
class Forecast:
    """What a scenario gives at a scale."""

    ranks: int
    step_ns: Floats
    """Drawn steps, ns."""
    noiseless_ns: float
    """The step without noise."""
    terms: dict[str, float]
    """Where a mean step goes on the busiest stage, ns; they sum to it."""
    scenario: Scenario
    histories: JobHistories | None = None
    """What failures make of the job; None where none are given."""
    record: indices.StepRecord | None = None
    """What the first of these steps were made of; None where no step was simulated."""
    expected: Kept | None = None
    """What failures leave on average, where no histories were drawn for it."""
    best_ns: float | None = None
    """The step that throughput is measured by; None for the one without noise."""

    @property
    def best(self) -> float:
        """The step without noise, or the one that throughput is measured by, ns."""
        return self.best_ns or self.noiseless_ns

    def measured_by(self, best: float) -> Forecast:
        """The same, its throughput measured by another step."""
        return dataclasses.replace(self, best_ns=best)

    @property
    def throughput_ratio(self) -> float:
        """Step without noise over the mean step, failures and gradients that do not count taken off; 1 at most."""
        ratio = self.best / float(self.step_ns.mean()) * self.useful
        return min(ratio * effects.batch_share(self.scenario), 1.0)

    @property
    def kept(self) -> float:
        """Share of its time that failures, checkpoints and restarts leave the job."""
        return self.histories.kept.mean if self.histories else self.expected.share if self.expected else 1.0

    @property
    def useful(self) -> float:
        """The same, of work as if it had run at full speed: a cold, hot or slow machine takes longer for it."""
        return self.histories.useful if self.histories else self.expected.useful if self.expected else 1.0

    @property
    def copied(self) -> float:
        """Work of copies of late ops, as a share of all work."""
        kept = self.record.kept if self.record else []
        return float(sum(made.copied.sum() for made in kept)) / max(float(sum(made.work.sum() for made in kept)), 1.0)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second that count: failures and dropped gradients taken off."""
        return self.tokens_per_s_of(self.scenario, float(self.step_ns.mean())) * self.useful

    @staticmethod
    def tokens_per_s_of(s: Scenario, step_ns: float) -> float:
        """Tokens a second that count with steps of this length, failures left out."""
        return s.job.global_batch * s.model.sequence * effects.batch_share(s) / (step_ns * 1e-9)

    @property
    def dominant(self) -> str:
        """The largest term of the group that the scale is bound by."""
        return largest_term(self.terms, self.groups)

    @property
    def groups(self) -> dict[str, float | None]:
        """Where all time goes: compute, interconnect, synchronisation, recovery."""
        return grouped(self.terms, self.useful if self.histories or self.expected else None)

    @property
    def in_range(self) -> bool:
        """Whether the fabric is known to be that large."""
        return self.ranks <= self.scenario.fabric.tiers[-1].devices

    def entry(self) -> types.Forecast:
        """Its part of the result."""
        s = self.scenario
        if self.kept <= 0:
            why = f"on {self.ranks:,} ranks failures come before any work is saved: nothing of it is kept"
            raise InputRefused(s.name, why, "lower the failure rates or checkpoint_s in [failure]")
        mean = float(self.step_ns.mean())
        error = model_error(class_of(s))
        steps, means = factors(self.step_ns / mean, error), factors(self._means(), error)
        given = self._kept_draws()
        delivered = factors(np.outer(self._means(), self._per_kept()).ravel(), error, 1 / np.maximum(given.useful, 1e-9))
        flops = model_shape.flops_per_step(s.model, s.job.global_batch, s.job) / (mean * self.ranks)
        units = s.job.global_batch * s.model.sequence / UNIT_TOKENS * effects.batch_share(s)
        price = s.device.price_per_hour
        seconds = mean * 1e-9 / units / self.useful
        cost = None if price is None else price / 3600 * seconds * self._paid()
        watts = network.whole(s)[1]
        joules = ((self._watts() + s.price.host_w) * self.ranks + (watts or 0.0)) * s.price.pue * seconds
        moved = times(1 / units / self.useful, joules_moved(s))
        late, penalty, per_day = self._late(), s.price.penalty, interruptions_per_day(s)
        return types.Forecast(
            ranks=self.ranks,
            step_ns=types.Quantiles(p10=mean * steps.lo, p50=float(np.median(self.step_ns)), p90=mean * steps.hi),
            mean_step_ns=means.of(mean),
            model_error=error,
            tflops_per_device=flops / 1e3,
            mfu=flops / 1e3 / work.peak_tflops(s),
            effective_throughput_ratio=self.throughput_ratio,
            availability=None if self.histories is None else self._availability(self.histories, given.share),
            cost_per_unit=cost,
            cost_per_unit_interval=None if cost is None else delivered.of(cost),
            currency=network.currency(s),
            energy_per_unit_j=joules,
            network_cost_per_unit=times(seconds, network.per_s(s, self.ranks)),
            network_w=watts,
            movement_energy_per_unit_j=moved,
            **network_energy(joules, times(watts, seconds), moved, s.price.pue),
            energy_cost_per_unit=times(joules / 3.6e6, s.price.kwh),
            kg_co2e_per_unit=times(joules / 3.6e6, s.price.kg_co2e_per_kwh),
            late_share=late,
            penalty_per_unit=None if late is None else times(late / units, penalty),
            tokens_per_s=self.tokens_per_s,
            tokens_per_s_interval=delivered.inverse().of(self.tokens_per_s),
            effective_batch_share=effects.batch_share(s),
            staleness_updates=effects.staleness(s),
            extra_work_share=self.copied,
            power_swing_w=self._swing_w(),
            terms={name: ns / mean for name, ns in self.terms.items()},
            dominant=self.dominant,
            in_range=self.in_range,
            groups=self.groups,
            bound=bound_by(self.groups),
            interruptions_per_day=per_day or None,
            mtbf_h=over(24.0, per_day),
            paid_ranks=self._paid(),
            power_at_load=power_at_load(self.ranks, effects.capped_device(s).load_w, watts, s.price),
        )

    def indices(self) -> dict[str, Estimate | None]:
        """All six, see ``training_indices.py``."""
        assert self.record is not None, "a sketch tells no indices"
        device, steps, alone, record = effects.capped_device(self.scenario), self.step_ns, self.noiseless_ns, self.record
        watts, counts, best = (device.load_w, device.stall_w), effects.batch_share(self.scenario), self.best
        return {
            "effective_throughput_ratio": indices.effective_throughput_ratio(record, steps, best, self.histories, counts),
            "energy_per_useful_step": indices.energy_per_useful_step(record, steps, alone, watts, self.histories, counts),
            "runtime_variance_index": indices.runtime_variance_index(steps),
            "sync_delay_amplification": indices.sync_delay_amplification(record, steps),
            "replay_probability": indices.replay_probability(self.histories),
            "straggler_cascade_rate": indices.straggler_cascade_rate(record),
        }

    def _means(self) -> Floats:
        """What another mean of so many steps may be, over this one: quantiles."""
        n = len(self.step_ns)
        return np.asarray(1 + normal_quantiles() * float(self.step_ns.std()) / (np.sqrt(n) * float(self.step_ns.mean())))

    def _per_kept(self) -> Floats:
        """Time for what is kept of another history of failures, over that of their mean."""
        return np.ones(1) if self.histories is None else self.kept / np.maximum(self.histories.each_kept, 1e-9)

    def _kept_draws(self) -> KeptDraws:
        """What is kept with each draw of uncertain keys, over that of the scenario as it stands."""
        seed = self.record.seed if self.record else SEED
        return kept_ratios(self.scenario.failure, nodes_of(self.scenario), float(self.step_ns.mean()) * 1e-9, seed)

    def _availability(self, histories: JobHistories, given: Floats) -> types.Estimate:
        """What is kept, with the interval of another history under other values of what is uncertain."""
        found = factors(1 / self._per_kept(), EXACT, given).of(histories.kept.mean)
        return replace(found, hi=min(found.hi or 1.0, 1.0))

    def _paid(self) -> float:
        """Devices that are paid for: those that work, those that copies take, and spares."""
        return self.ranks * (1 + self.copied) + spare_ranks(self.scenario)

    def _late(self) -> float | None:
        """Share of the steps that take longer than promised; None without a promise."""
        promised = self.scenario.price.step_deadline_ms
        return None if promised is None else float((self.step_ns > promised * 1e6).mean())

    def _swing_w(self) -> float:
        """By how much the job's power falls when all of it waits."""
        device = effects.capped_device(self.scenario)
        return (device.load_w - device.stall_w) * self.ranks

    def _watts(self) -> float:
        """Mean power of a device: under load while it computes, else stalled."""
        busy = min(1.0, self.terms["compute"] * (1 + self.copied) / max(float(self.step_ns.mean()), 1.0))
        device = effects.capped_device(self.scenario)
        return device.load_w * busy + device.stall_w * (1 - busy)


def at(s: Scenario, ranks: int) -> Scenario:
    """The scenario on so many ranks: more replicas, and with weak scaling as much more to do."""
    replica = s.job.world // s.job.dp
    if ranks > MOST_RANKS:
        raise UsageError(f"{ranks:,} ranks: a training job is projected on at most {MOST_RANKS:,}; ask for fewer")
    if ranks % replica:
        raise UsageError(f"{ranks} ranks: a replica takes {replica} (tp × pp × cp); give a multiple of it")
    dp = ranks // replica
    batch = s.job.global_batch // s.job.dp * dp if s.job.scaling == "weak" else s.job.global_batch
    if batch % (dp * s.job.micro_batch):
        raise UsageError(f"{ranks} ranks: a batch of {batch} cannot be divided among {dp} replicas in micro-batches")
    there = replace(s, job=replace(s.job, dp=dp, global_batch=batch))
    for wrong, key, why, remedy in (*gates(there.policy, there.job), *spread_state(there.job), *filled_torus(there)):
        if wrong:
            raise UsageError(f"{ranks} ranks: {key}: {why}; {remedy}")
    return there


def default_steps(s: Scenario) -> int:
    """Steps that are drawn if nobody says how many: STEPS, or as many as take MOST_OPS, a few at least."""
    ops = 2 * s.job.pp * s.job.virtual_pp * s.job.micro_batches * s.job.dp
    return max(min(STEPS, MOST_OPS // ops), FEWEST_STEPS)


def forecast(
    s: Scenario, *, count: int | None = None, seed: int = SEED, cores: int = 1, measured: Floats | None = None
) -> Forecast:
    """Simulated steps of a scenario, and its job histories."""
    p, count = plan(s), count or default_steps(s)
    grid = with_noise(s, p, seed, measured)
    every = s.job.steps_between_syncs
    record = indices.StepRecord(grid, Sync(effects.gate(s), every, p.sync_ns * every, p.optimiser_ns), seed, [])
    drawn = record.simulate(count, cores)
    if is_replayed(s, count):
        from taut.project.training import full_graph  # with it graph and replay, which larger jobs do not need

        drawn = full_graph.step_lengths(s, with_noise(s, p, seed, measured), count, seed, p)
    alone = pipeline_ns(s, p)
    terms = step_terms(s, p, alone, float(drawn.mean()))
    return Forecast(
        s.job.world, drawn, alone + p.sync_ns + p.optimiser_ns, terms, s, _job_histories(s, float(drawn.mean()), seed), record
    )


def is_replayed(s: Scenario, steps: int) -> bool:
    """Whether a job is replayed as a graph: a small one, whose gates wait for somebody and not for the fastest."""
    waits = s.policy.gate != "fastest" and s.policy.clones == 1 and s.policy.copy_after == 0
    ops = steps * s.job.world * (6 * s.job.micro_batches * s.job.virtual_pp + 3)
    return waits and ops <= MOST_REPLAYED


def _job_histories(s: Scenario, step_ns: float, seed: int) -> JobHistories | None:
    """The job's histories over WORK_S of work, if anything fails."""
    nodes = -(-s.job.world // s.fabric.node)
    if not any(domain.per_s > 0 for domain in domains(s.failure, nodes)):
        return None
    return simulate_jobs(s.failure, nodes, s.fabric.node, WORK_S, step_s=step_ns * 1e-9, count=HISTORIES, seed=seed)


def with_noise(s: Scenario, p: Plan, seed: int, measured: Floats | None = None) -> Grid:
    """The grid of a scenario: work varies between any two rendezvous, ranks differ for good."""
    j, chunks = s.job, len(p.forward_ns)
    members = j.tp * j.cp
    layers = max(s.model.layers // chunks, 1)
    tables = np.stack([table(s.noise, members, max(p.gates[d], layers), seed, measured) for d in (0, 1)])
    slownesses = [Slowness(s.noise, (j.dp, j.pp, members), seed, s.policy.deal_by_speed) for _ in range(2)]
    return Grid(
        without_noise(s, p).program,
        *split_work(p),
        tables,
        p.late_ns,
        j.dp,
        slownesses[0],
        effects.copy_threshold(s, tables, slownesses[1], seed),
        Pauses(kinds, (j.dp, j.pp, members), seed) if (kinds := pause_laws(s, p)) else None,
    )


def step_terms(s: Scenario, p: Plan, alone: float, mean: float) -> dict[str, float]:
    """The busiest stage's step: what it computes, sends and waits for."""
    j = s.job
    per_stage = (p.forward_ns + p.backward_ns).reshape(j.virtual_pp, j.pp).sum(axis=0) * j.micro_batches
    busy, busiest = float(per_stage.max()), int(per_stage.argmax())
    moved = np.stack([p.transfer_ns.sum(axis=0), sending(p).sum(axis=0)]).reshape(2, j.virtual_pp, j.pp).sum(axis=1)
    transfer, hops = (moved[:, busiest] * j.micro_batches).tolist()
    known = {
        "compute": busy - transfer + p.optimiser_ns, "transfer inside a stage": transfer, "pipeline hops": hops,
        "pipeline bubble": max(alone - busy - hops, 0.0), "data-parallel synchronisation": p.sync_ns,
    }  # fmt: skip
    return {**known, "jitter": mean - sum(known.values())}
