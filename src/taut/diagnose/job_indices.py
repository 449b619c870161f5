"""Dimensionless numbers that can be compared between jobs, each with an interval; docs/indices.md derives them.

None where something was not recorded, or where the number could not be told from noise.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.interval import NORMAL_WIDTH, estimate, over, share
from taut.replay.blame import Blame
from taut.replay.excess import Excess, excess, reached
from taut.replay.timeline import Timeline
from taut.replay.whatif import WhatIf
from taut.result.types import Estimate, Indices

LEAST_STEPS = 8
"""Fewer steps tell no quantiles."""
RECURS = 2
"""Steps in which a rank must be beyond noise, where there are so many: an accident is no habit."""
TICKS = 2
"""Step times that differ by no more ticks of the timer than this do not differ."""


def effective_throughput_ratio(whatif: WhatIf) -> Estimate | None:
    """Ideal replay ÷ actual, step by step drawn together."""
    ideal, actual = whatif.ideal_ns, whatif.actual_ns
    return estimate(lambda s: over(ideal[s].sum(axis=-1), actual[s].sum(axis=-1)), len(actual))


class StepEnergy(Struct, frozen=True):
    """Energy of all ranks in every step, from the ledger."""

    joules: Floats
    ideal_joules: Floats
    """The same where every op takes its reference."""


def energy_per_useful_step(energy: StepEnergy | None, kept: float) -> Estimate | None:
    """Joules per kept step ÷ the same at ideal, from joules per executed step; None where power is not known.

    ``kept`` is the share of executed steps that were kept; at ideal it is all of them.
    """
    if energy is None or kept <= 0:
        return None
    joules, ideal = energy.joules, energy.ideal_joules
    return estimate(lambda s: over(joules[s].sum(axis=-1), ideal[s].sum(axis=-1)) / kept, len(joules))


def runtime_variance_index(observed: Timeline) -> Estimate | None:
    """(q95 − q05) ÷ (3.29 · q50) of step time: the coefficient of variation, but deaf to one stalled step."""
    times, tick_ns = observed.window_ns, observed.graph.trace.timer_ns
    if len(times) < LEAST_STEPS or np.subtract(*np.quantile(times, (0.95, 0.05))) <= TICKS * tick_ns:
        return None

    def index(steps: Ints) -> Floats:
        low, middle, high = np.quantile(times[steps], (0.05, 0.5, 0.95), axis=-1)
        return over(high - low, NORMAL_WIDTH * middle)

    return estimate(index, len(times))


def sync_delay_amplification(blame: Blame, gap_free: Timeline, late: Excess) -> Estimate | None:
    """Delay of the whole job in a step ÷ mean excess of its ranks, over the steps in which some rank is beyond noise."""
    own = late.beyond_ns.mean(axis=0)
    steps = np.flatnonzero(own > 0)
    if len(late.beyond_ns) < 2 or len(steps) < min(RECURS, len(own)):
        return None
    delay, own = (gap_free.window_ns - blame.ordinary_ns)[steps], own[steps]
    return estimate(lambda s: over(delay[s].sum(axis=-1), own[s].sum(axis=-1)), len(steps))


def straggler_cascade_rate(blame: Blame, gap_free: Timeline, late: Excess) -> Estimate | None:
    """Share of steps in which one rank's excess shifts the opening of gates for at least half of the others."""
    ranks, windows = late.spread_ns.shape
    if ranks < 2 or not late.known or (blame.graph.wait < 0).all():
        return None
    top = late.largest
    noise = late.spread_ns[top, np.arange(windows)]
    moved = reached(blame, gap_free, late) > noise[:, None]
    moved[np.arange(windows), top] = False
    return share((top >= 0) & (2 * moved.sum(axis=1) >= ranks - 1))


def indices(
    observed: Timeline,
    gap_free: Timeline,
    blame: Blame,
    whatif: WhatIf,
    energy: StepEnergy | None = None,
    discarded: Mask | None = None,
    kept: float = 1.0,
) -> Indices:
    """All indices of a run.

    Energy comes from the ledger; which executed steps were ``discarded`` (flags), and the share ``kept``, from a
    progress log. Without a log the steps of the trace count as kept.
    """
    late = excess(blame)
    return Indices(
        effective_throughput_ratio=effective_throughput_ratio(whatif),
        energy_per_useful_step=energy_per_useful_step(energy, kept),
        runtime_variance_index=runtime_variance_index(observed),
        sync_delay_amplification=sync_delay_amplification(blame, gap_free, late),
        replay_probability=None if discarded is None else replay_probability(discarded),
        straggler_cascade_rate=straggler_cascade_rate(blame, gap_free, late),
    )


def replay_probability(discarded: Mask) -> Estimate | None:
    """Share of executed steps that were discarded later; a roll-back discards a run of them, so blocks are as long."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], discarded.astype(np.int8), [0]])))
    longest = int((ends[1::2] - ends[::2]).max()) if len(ends) else 1
    return share(discarded, max(longest, round(len(discarded) ** (1 / 3))))


def needs(found: Indices, observed: Timeline, watts_known: bool) -> dict[str, str]:
    """Index that is None → what it needs, or why it has no value, in a few words."""
    graph, steps = observed.graph, len(observed.window_ns)
    alone, without_gates = len(graph.ranks) < 2, bool((graph.wait < 0).all())
    met = "needs several ranks" if alone else "needs gates" if without_gates else ""
    reasons = {
        "effective_throughput_ratio": "needs ops with a duration",
        "energy_per_useful_step": "needs a step that was kept" if watts_known else "needs power",
        "runtime_variance_index": f"needs {LEAST_STEPS} steps" if steps < LEAST_STEPS else "steps are alike to the clock",
        "sync_delay_amplification": met or "no rank is late beyond noise",
        "replay_probability": "needs a progress log",
        "straggler_cascade_rate": met or "needs ranks with peers",
    }
    return {name: why for name, why in reasons.items() if getattr(found, name) is None}
