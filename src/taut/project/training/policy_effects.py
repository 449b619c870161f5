"""What the keys of ``[policy]`` do to the engine: gates, copies, power; and what they cost a job's convergence.

Transfers that are compressed or go by priority are in ``step_plan.py``, work that is dealt by speed is in ``noise.py``.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.project.noise import GRID, Slowness
from taut.project.training.gates import Gate, barrier, fastest, first_of, free, hierarchical, ring, stale
from taut.project.training.scenario import Device, Scenario

# Draws that tell what an op usually takes.
DRAWN = 1 << 14
# Power beyond that of waiting goes with the cube of the clock: capacitance × voltage² × clock, voltage with the clock.
CUBE = 3


def gate(s: Scenario) -> Gate:
    """Where replicas meet."""
    p, distinct = s.policy, s.job.dp // s.policy.clones
    found = {
        "barrier": lambda: barrier,
        "fastest": lambda: fastest(distinct - p.backup_replicas),
        "ring": lambda: ring(p.slack),
        "stale": lambda: stale(p.slack),
        "hierarchical": lambda: hierarchical(p.group_replicas, p.slack),
        "none": lambda: free,
    }[p.gate]()
    return found if p.clones == 1 else first_of(p.clones, found)


def copy_threshold(s: Scenario, tables: Floats, slowness: Slowness, seed: int) -> float:
    """Times its mean that an op takes at the quantile after which it is begun again; infinite without copies."""
    if s.policy.copy_after == 0:
        return np.inf
    rng = np.random.default_rng((seed, 3))
    u = rng.random((2, DRAWN // 2))
    ratios = np.concatenate([np.interp(np.log(x) - np.log1p(-x), GRID, row) for x, row in zip(u, tables, strict=True)])
    return float(np.quantile(ratios * rng.choice(slowness(0).ravel(), DRAWN), s.policy.copy_after))


def capped_device(s: Scenario) -> Device:
    """The device at the power it is allowed: products take longer, what moves through memory does not."""
    d, p = s.device, s.policy
    load = d.load_w * p.power_cap_share
    # Dynamic power beyond the idle one goes with the cube of the clock.
    clock = ((load - d.stall_w) / (d.load_w - d.stall_w)) ** (1 / CUBE) if p.power_cap_share < 1 else 1.0
    return replace(
        d,
        peak_tflops=d.peak_tflops * clock,
        fp8_tflops=None if d.fp8_tflops is None else d.fp8_tflops * clock,
        load_w=load,
        stall_w=max(d.stall_w, d.load_w * p.power_floor_share),
    )


def batch_share(s: Scenario) -> float:
    """Share of the batch whose gradients count: backups are dropped, clones do the same twice."""
    return 1 / s.policy.clones - s.policy.backup_replicas / s.job.dp


def staleness(s: Scenario) -> int:
    """Updates that a gradient may be behind the parameters it is applied to, or a replica behind another."""
    p, every = s.policy, s.job.steps_between_syncs
    apart = {"ring": p.slack - 1, "stale": p.slack, "hierarchical": p.slack, "none": s.job.dp // p.clones - 1}
    return apart.get(p.gate, 0) * every + every - 1
