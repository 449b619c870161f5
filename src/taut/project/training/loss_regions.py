"""Around a training scenario: which loss dominates where, what each part of the machine is worth, what spare capacity hides.

All of it asks the fast rate (``sampled_replica.py``) with the same seeds before and after a change, so that draws cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, gcd, log, sqrt

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.project.marginal_gain import PAYS, Curve, Rule, rule, spread
from taut.project.reserve import STABLE
from taut.project.training.failures import nodes_of, spare_nodes, spare_ranks
from taut.project.training.scenario import Scenario
from taut.project.training.workload import WORKLOAD, scale_failures
from taut.project.workload import DEFAULT, Estimate, Sampling
from taut.result.types import Elasticity, LossRegion, Regime, SpareCapacity

# Times as many ranks; times as far as ranks differ for good; times as many synchronisations a token.
SCALES, HETEROGENEITY, INTENSITY = (1, 4, 16), (1.0, 2.0, 4.0), (0.25, 1.0, 4.0)
MAP_SEEDS, SEEDS = 2, 4
# What a part of the machine is made better by to see what that brings.
MORE = 1.1
SPARES = (1, 2, 4, 8, 16)
# Times as many replicas as there are: more are not tried to make up for losses.
FAR = 4


def regimes(
    s: Scenario, how: Sampling = DEFAULT, *, pays: float = PAYS, known: Mapping[int, Regime] | None = None
) -> list[LossRegion]:
    """The map: at each scale, heterogeneity and synchronisation intensity what is lost, to what most, and the regime.

    Lost is what the smallest whole job, without jitter and failures, does not lose. ``known`` are regimes by scale that were
    found with more draws for the scenario as it stands: the map says the same there.
    """
    quiet = _quiet(s, how, pays)
    rows = []
    for intensity in INTENSITY:
        often = scale_synchronisation(s, intensity)
        if often is None:
            continue
        for apart in HETEROGENEITY:
            place = _Place(scale_heterogeneity(often, apart), apart, intensity, how)
            given = (known or {}) if apart == 1 and intensity == 1 else {}
            found = (_region(place, quiet, s.job.world * scale, given.get(s.job.world * scale)) for scale in SCALES)
            rows += [region for region in found if region is not None]
    return rows


@dataclass(frozen=True)
class _Quiet:
    """The smallest whole job without jitter and failures, against which losses are told, and when one rank more pays."""

    pays: Rule[Scenario]
    least: int
    """Its ranks."""
    best: float
    """What each of its ranks delivers."""
    usual: dict[str, float]
    """Where the time of its micro-batches goes, ns."""


def _quiet(s: Scenario, how: Sampling, pays: float) -> _Quiet:
    decision, least = rule(WORKLOAD, s, how, pays), WORKLOAD.smallest(s)
    quiet = WORKLOAD.at(WORKLOAD.ideal(s), least)
    return _Quiet(decision, least, WORKLOAD.rate(quiet, how) / least, _spent(quiet, how))


class _Place:
    """A scenario somewhere on the map, and its rates at all scales: as it is, and with ``STABLE`` times its jitter."""

    def __init__(self, s: Scenario, apart: float, intensity: float, how: Sampling) -> None:
        self.scenario, self.apart, self.intensity, self.how = s, apart, intensity, how
        self.now, self.then = (Curve(WORKLOAD, WORKLOAD.scale_jitter(s, factor), how, MAP_SEEDS) for factor in (1.0, STABLE))


def _region(place: _Place, quiet: _Quiet, ranks: int, given: Regime | None) -> LossRegion | None:
    """What is lost at a place with so many ranks; None where they do not fit the job."""
    around = max(round(ranks / sqrt(2) / quiet.least), 1) * quiet.least
    now, then = (quiet.pays.gain(curve, around) for curve in (place.now, place.then))
    if now is None or then is None or place.now.rates(ranks) is None:
        return None
    kind = "unstable" if now[0] < 1 else "stable" if then[0] >= 1 else "marginal"
    marginal_return = float(now[0]) * quiet.pays.share
    spent = _spent(WORKLOAD.at(place.scenario, ranks), place.how)
    lost = {name: ns - quiet.usual[name] for name, ns in spent.items() if name != "compute"}
    return LossRegion(
        ranks=ranks,
        heterogeneity=place.apart,
        intensity=place.intensity,
        dominates=max(lost, key=lambda name: lost[name]) if max(lost.values()) > 0 else None,
        loss_share=1 - float(place.now.known_rates(ranks)[0]) / ranks / quiet.best,
        kind=given.kind if given and given.kind else kind,
        marginal_return=given.marginal_return.value if given and given.marginal_return else marginal_return,
    )


def _spent(s: Scenario, how: Sampling) -> dict[str, float]:
    """Where the time of a micro-batch goes on the busiest stage, and what failures add to it, ns."""
    made = WORKLOAD.sketch(s, how)
    terms = {**made.terms, "failures": float(made.step_ns.mean()) * (1 / max(made.useful, 1e-9) - 1)}
    return {name: ns / s.job.micro_batches for name, ns in terms.items()}


def scale_heterogeneity(s: Scenario, times: float) -> Scenario:
    """Ranks that differ for good so many times as far, or so many times as many of them older."""
    n = s.noise
    return replace(s, noise=replace(n, ranks_spread=n.ranks_spread * times, slow_share=min(n.slow_share * times, 1.0)))


def scale_synchronisation(s: Scenario, times: float) -> Scenario | None:
    """So many times as many synchronisations a token: fewer by local steps, more by smaller batches; None if not whole."""
    j = s.job
    every = j.steps_between_syncs / times
    if every >= 1:
        return replace(s, job=replace(j, steps_between_syncs=round(every)))
    micro = j.micro_batches * every
    whole = micro == int(micro) and (j.schedule != "interleaved" or micro % j.pp == 0)
    return replace(s, job=replace(j, steps_between_syncs=1, global_batch=round(j.global_batch * every))) if whole else None


# (what is made better, how, times as good; None for one more).
Knob = tuple[str, Callable[[Scenario], Scenario], float | None]


def knobs(s: Scenario) -> Iterator[Knob]:
    """What can be made better."""
    for i, tier in enumerate(s.fabric.tiers):
        place = f"{tier.name} ({i + 1} of {len(s.fabric.tiers)})"
        yield f"bandwidth of {place}", _tier(i, "gb_per_s", MORE), MORE
        if tier.latency_us:
            yield f"latency of {place}", _tier(i, "latency_us", 1 / MORE), MORE
    yield "jitter", lambda s: WORKLOAD.scale_jitter(s, 1 / MORE), MORE
    yield "failure rates", lambda s: scale_failures(s, 1 / MORE), MORE
    yield "spares", lambda s: more_spares(s, 1), None
    yield "memory bandwidth", _device("memory_gb_per_s"), MORE
    yield "peak", _device("peak_tflops", "fp8_tflops"), MORE
    yield "checkpoint time", lambda s: replace(s, failure=replace(s.failure, checkpoint_s=s.failure.checkpoint_s / MORE)), MORE


def _tier(i: int, name: str, times: float) -> Callable[[Scenario], Scenario]:
    def better(s: Scenario) -> Scenario:
        tiers = list(s.fabric.tiers)
        tiers[i] = replace(tiers[i], **{name: getattr(tiers[i], name) * times})
        return replace(s, fabric=replace(s.fabric, tiers=tuple(tiers)))

    return better


def more_spares(s: Scenario, nodes: int) -> Scenario:
    """So many nodes more held ready."""
    return replace(s, failure=replace(s.failure, spares=spare_nodes(s.failure, nodes_of(s)) + nodes))


def _device(*names: str) -> Callable[[Scenario], Scenario]:
    def better(s: Scenario) -> Scenario:
        given = {name: value for name in names if (value := getattr(s.device, name)) is not None}
        return replace(s, device=replace(s.device, **{name: value * MORE for name, value in given.items()}))

    return better


def elasticities(s: Scenario, how: Sampling = DEFAULT) -> list[Elasticity]:
    """Percent more useful rate, and percent less cost of a unit, for each percent that a part is better (or for one more)."""
    base = Curve(WORKLOAD, s, how, SEEDS).known_rates(s.job.world)
    rows = []
    for name, better, times in knobs(s):
        changed = better(s)
        after = Curve(WORKLOAD, changed, how, SEEDS).known_rates(s.job.world)
        by = 0.01 if times is None else log(times)
        gain = np.log(after / base) / by
        dearer = log(cost(changed) / cost(s)) / by
        rows.append(
            Elasticity(
                knob=name,
                per="one more" if times is None else "percent",
                rate=_estimate(gain).as_result(),
                cost_per_unit=_estimate(dearer - gain).as_result(),
            )
        )
    return rows


def _estimate(values: Floats) -> Estimate:
    width = spread(values)
    return Estimate(float(values[0]), float(values[0]) - width, float(values[0]) + width)


def cost(s: Scenario) -> float:
    """What the job costs a second: money where it is priced, else the accelerators held."""
    return WORKLOAD.value_and_cost(s)[1] or s.job.world + spare_ranks(s)


def excess_capacity(s: Scenario, how: Sampling = DEFAULT) -> list[SpareCapacity]:
    """What capacity held in excess buys, and what it hides: the job as it stands, with more replicas, with more spares.

    The plan is what the job would deliver without jitter and failures, at what it costs. Replicas are added until the target
    is met: then throughput looks as planned, and only the cost of a unit and ``hides_share``, the part of what the
    replicas could do that is lost, tell.
    """
    ranks, target = s.job.world, WORKLOAD.rate(WORKLOAD.ideal(s), how)
    curve = Curve(WORKLOAD, s, how, SEEDS)

    def row(what: str, extra: int, held: Scenario, reached: float) -> SpareCapacity:
        return SpareCapacity(
            what=what,
            extra_ranks=extra,
            extra_share=extra / ranks,
            target_share=reached / target,
            met=reached >= target,
            cost_per_unit_change=cost(held) / reached / (cost(s) / target) - 1,
            hides_share=1 - reached / target * ranks / held.job.world,
        )

    now, needed = float(curve.known_rates(ranks)[0]), _needed(curve, target)
    rows = [row("as it stands", 0, s, now)]
    if needed > ranks:
        rows.append(row("replicas", needed - ranks, WORKLOAD.at(s, needed), float(curve.known_rates(needed)[0])))
    for n in SPARES if WORKLOAD.sketch(s, how).kept < 1 else ():
        held = more_spares(s, n)
        reached = float(Curve(WORKLOAD, held, how, SEEDS).known_rates(ranks)[0])
        rows.append(row("spares", n * s.fabric.node, held, reached))
    return rows


def _needed(curve: Curve[Scenario], target: float) -> int:
    """The fewest ranks that deliver so much; FAR times as many as there are, or as many as can be dealt, if those do not."""
    s = curve.scenario
    dp, replica = s.job.dp, s.job.world // s.job.dp
    # Replicas come in such numbers that all experts have a rank each.
    whole = s.job.ep // gcd(s.job.ep, s.job.cp)
    while dp < FAR * s.job.dp:
        guess = min(max(ceil(dp * target / float(curve.known_rates(dp * replica)[0])), dp), FAR * s.job.dp)
        guess = -(-guess // whole) * whole
        if guess == dp or curve.rates(guess * replica) is None:
            break
        dp = guess
    return dp * replica
