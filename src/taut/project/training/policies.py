"""Policies of training jobs: each a change of the scenario, with what it costs convergence or risks.

What a policy costs in numbers is in the forecast: the share of the batch that counts, updates that gradients are behind,
work done twice. docs/policies.md lists them with the closed forms they are checked against.
"""

from __future__ import annotations

import dataclasses
from math import isqrt

from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.policy import Policy, Value, number, switch, whole_number
from taut.project.training import model_shape, rank_memory
from taut.project.training.failures import nodes_of, spare_nodes
from taut.project.training.scenario import MOST_STEPS, Scenario, contradictions

# Of a policy that takes replicas or nodes.
MOST_NODES = 100_000


def _policy(s: Scenario, **keys: Value) -> Scenario:
    return replace(s, policy=replace(s.policy, **keys))


def _job(s: Scenario, **keys: Value) -> Scenario:
    return replace(s, job=replace(s.job, **keys))


def _failure(s: Scenario, **keys: Value) -> Scenario:
    return replace(s, failure=replace(s.failure, **keys))


def _gate(s: Scenario, gate: str, **keys: int) -> Scenario:
    """Another gate in place of the one there was."""
    return _policy(s, gate=gate, **{"backup_replicas": 0, "slack": 0, "group_replicas": 0, **keys})


def _distinct(s: Scenario) -> int:
    """Replicas that do different work."""
    return s.job.dp // s.policy.clones


def _group(s: Scenario) -> int:
    """As many replicas in a group as there are groups, as nearly as they can be dealt."""
    n = _distinct(s)
    return max(k for k in range(1, isqrt(n) + 1) if n % k == 0)


def _few(s: Scenario) -> int:
    """Four of a hundred, as in Chen et al. (2016), and one at least."""
    return max(1, round(0.04 * _distinct(s)))


def _spares(s: Scenario) -> int:
    """One node of fifty, and one at least: an assumption."""
    return spare_nodes(s.failure, nodes_of(s)) + max(1, nodes_of(s) // 50)


def _packed(s: Scenario) -> Scenario:
    return replace(s, fabric=replace(s.fabric, placement="packed"))


def _rerouted(s: Scenario) -> Scenario:
    return replace(s, fabric=replace(s.fabric, reroute=True))


def _prioritised(s: Scenario) -> Scenario:
    return _policy(_job(s, overlap_share=max(s.job.overlap_share, OVERLAP)), priority=True)


def _in_memory(s: Scenario) -> Scenario:
    """A rank's weights and optimiser state go to another node's memory over its port."""
    held = model_shape.HALF * rank_memory.trained_parameters(s) + rank_memory.STATE_BYTES * rank_memory.sharded_parameters(s)
    took_s = held / (s.fabric.tiers[min(1, len(s.fabric.tiers) - 1)].gb_per_s * 1e9)
    return _failure(s, checkpoint_s=took_s, restore_s=took_s, restore_nodes=0)


# Share of a pass that buckets hide under: an assumption, the last of ten has nothing left to hide under.
OVERLAP = 0.9

ALL: tuple[Policy[Scenario], ...] = (
    whole_number("hierarchical-barrier", _group, 1, MOST_NODES,
                 "groups of so many replicas meet each step; between groups one step of slack",
                 "gradients of other groups come one update late",
                 lambda s, n: _gate(s, "hierarchical", group_replicas=n, slack=1)),
    whole_number("semi-synchronous", lambda s: 2, 1, MOST_STEPS,
                 "nobody is more than so many steps ahead of the slowest (stale synchronous)",
                 "gradients are up to that many updates stale; error grows with it (Ho et al. 2013)",
                 lambda s, n: _gate(s, "stale", slack=n)),
    whole_number("ring", lambda s: 2, 1, MOST_STEPS,
                 "a replica waits only for its neighbour, and what that did so many meetings ago, less one",
                 "replicas average with neighbours only: mixing takes about N² steps on a ring (Lian et al. 2017)",
                 lambda s, n: _gate(s, "ring", slack=n)),
    switch("asynchronous", "nobody waits: every replica updates the parameters when it is done",
           "gradients are N − 1 updates stale on average, and the step size must fall with it",
           lambda s: _gate(s, "none")),
    whole_number("local-steps", lambda s: 8, 1, MOST_STEPS, "replicas synchronise every so many steps",
                 "replicas drift apart in between; the error of averaging grows with the steps (Stich 2019)",
                 lambda s, n: _job(s, steps_between_syncs=n)),
    whole_number("backup-workers", _few, 1, MOST_NODES,
                 "the slowest so many replicas are not waited for, and their gradients dropped",
                 "the batch is smaller by them (effective_batch_share), and what slow replicas hold is seen less",
                 lambda s, n: _gate(s, "fastest", backup_replicas=n)),
    whole_number("clones", lambda s: 2, 2, MOST_NODES, "so many replicas do the same work, and the first counts",
                 "the batch is so many times smaller on the same devices (effective_batch_share)",
                 lambda s, n: _policy(s, clones=n)),
    number("speculative", 0.95, 0.01, 0.9999,
           "work later than this quantile is begun again elsewhere, and the first to end counts",
           "extra_work_share of the work is done twice, on devices that must be free",
           lambda s, q: _policy(s, copy_after=q)),
    number("compression", 4.0, 1.0, 1e4, "gradients take so many times fewer bytes on their way",
           "needs error feedback to converge, and costs four passes through memory",
           lambda s, ratio: _policy(s, compression_ratio=ratio)),
    number("overlap", OVERLAP, 0.0, 1.0, "data-parallel transfers hide under this share of the last backward pass",
           "takes multiprocessors from the computation it hides under; not modelled",
           lambda s, share: _job(s, overlap_share=share)),
    switch("priority", "what the next step needs first goes first: transfers hide under its forward pass too",
           "no norm over all gradients before the first update",
           _prioritised),
    switch("packed", "the job's nodes lie side by side",
           "waits for such nodes to be free",
           _packed),
    switch("reroute", "a weak cable is taken out, and its flows go over the others",
           "less bandwidth until it is mended",
           _rerouted),
    switch("deal-by-speed", "devices of like speed make up a replica, and replicas get work by their speed",
           "gradients must be weighted by the work they stand for",
           lambda s: _policy(s, deal_by_speed=True)),
    number("checkpoint-interval", 0.0, 0.0, 1e9, "so many seconds from one checkpoint to the next; 0 or no value for the best",
           "",
           lambda s, t: _failure(s, checkpoint_every_s=t)),
    number("asynchronous-checkpoints", 1.0, 0.0, 1.0, "this share of a checkpoint hides under work",
           "memory for a copy; what was not written in whole is lost with a failure",
           lambda s, share: _failure(s, checkpoint_overlap=share)),
    switch("memory-checkpoints", "checkpoints go to the memory of another node, over one port a device",
           "a failure that takes both nodes goes back to storage (Wang et al. 2023); not modelled",
           _in_memory),
    whole_number("spares", _spares, 0, MOST_NODES, "so many nodes are held ready",
                 "they cost as much as nodes that work",
                 lambda s, n: _failure(s, spares=n)),
    number("power-smoothing", 0.8, 0.05, 1.0, "devices take at most this share of their power: less swing, slower products",
           "slower in any case; the clock falls with the cube root of the power",
           lambda s, share: _policy(s, power_cap_share=share)),
    number("power-floor", 0.6, 0.0, 1.0, "waiting devices burn at least this share of their power: less swing, no slower",
           "energy for nothing (energy_per_unit_j)",
           lambda s, share: _policy(s, power_floor_share=share)),
)  # fmt: skip


def _checked(policy: Policy[Scenario]) -> Policy[Scenario]:
    """The policy, refused where its result would be a contradiction."""

    def apply(s: Scenario, value: float | None) -> Scenario:
        changed = policy.apply(s, value)
        for wrong, key, why, remedy in contradictions(changed):
            if wrong:
                raise UsageError(f"--policy {policy.name}: {key}: {why}; {remedy}")
        return changed

    return dataclasses.replace(policy, apply=apply)


POLICIES = {policy.name: _checked(policy) for policy in ALL}
