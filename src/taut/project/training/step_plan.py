"""A scenario's step, noise left out: what every chunk of layers takes in each direction, the hops, the synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.project.fabric.collective_time import time_ns
from taut.project.fabric.groups import Net, net_of
from taut.project.training import device_work as work
from taut.project.training import policy_effects as effects
from taut.project.training.scenario import Device, Fabric, Job, Model, Policies, Scenario


@dataclass(frozen=True)
class Plan:
    """Times of one replica, ns, and how many rendezvous are in them."""

    forward_ns: Floats
    """Per chunk: one micro-batch through its layers, transfers inside the stage included."""
    backward_ns: Floats
    transfer_ns: tuple[float, float]
    """Of these, the transfers of one chunk, forward and backward."""
    gates: tuple[int, int]
    """Rendezvous inside one chunk, forward and backward: tensor, context and expert parallel groups meet there."""
    hop_ns: float
    """From one stage to the next."""
    sync_ns: float
    """Data-parallel synchronisation that does not hide under the backward pass; with local steps, the share of one."""
    hidden_ns: float
    """What of it does."""
    optimiser_ns: float


def plan(s: Scenario, net: Net | None = None) -> Plan:
    """The step of a scenario."""
    if net is not None:
        return _planned(s, net)
    if s.fabric.growth != 1:
        return _grown(s)
    return _cached_plan(s.model, s.job, s.device, s.fabric, s.policy)


def _grown(s: Scenario) -> Plan:
    """The step with only a share of what transfers take longer than in the fewest replicas that hold all experts."""
    j, fabric = s.job, replace(s.fabric, growth=1.0)
    dp = j.ep // gcd(j.ep, j.cp)
    alone = replace(j, dp=dp, global_batch=j.global_batch // j.dp * dp)
    one, all_ = (plan(replace(s, job=job, fabric=fabric)) for job in (alone, j))

    def between(first: Floats | float, then: Floats | float) -> Floats:
        found: Floats = np.maximum(np.asarray(first) + s.fabric.growth * (np.asarray(then) - np.asarray(first)), 0.0)
        return found

    forward, backward = between(one.forward_ns, all_.forward_ns), between(one.backward_ns, all_.backward_ns)
    transfers = [float(between(*pair)) for pair in zip(one.transfer_ns, all_.transfer_ns, strict=True)]
    hop, sync, hidden = (float(between(getattr(one, name), getattr(all_, name))) for name in ("hop_ns", "sync_ns", "hidden_ns"))
    return Plan(forward, backward, (transfers[0], transfers[1]), all_.gates, hop, sync, hidden, all_.optimiser_ns)


@lru_cache(maxsize=256)
def _cached_plan(model: Model, job: Job, device: Device, fabric: Fabric, policy: Policies) -> Plan:
    """Seeds and noise change no plan: what draws ask for again is kept."""
    s = Scenario(model=model, job=job, device=device, fabric=fabric, policy=policy)
    return _planned(s, net_of(s))


def _planned(s: Scenario, net: Net) -> Plan:
    s = replace(s, device=effects.capped_device(s))
    m, j = s.model, s.job
    one = work.layer(s)
    each = sum(net.ns(*one) for one in layer_transfers(s))
    layers = m.layers // (j.pp * j.virtual_pp)
    again = 1 if j.recompute == "full" else 0
    forward = layers * max(one.forward_ns + each, one.host_ns)
    backward = layers * max(one.backward_ns(j.recompute) + each * (1 + again), one.issued_ns(j.recompute))
    gather = _gathered_ns(s, net, forward / layers, backward / layers)
    chunks = j.pp * j.virtual_pp
    forwards, backwards = np.full(chunks, forward + layers * gather[0]), np.full(chunks, backward + layers * gather[1])
    head = work.head_ns(s)
    forwards[-1] += head / 3
    backwards[-1] += 2 * head / 3
    gates = 2 if j.tp * j.cp * j.ep > 1 else 0
    sync = sum(net.ns(*one) for one in sync_transfers(s, net)) / j.steps_between_syncs
    # Under the last micro-batch's backward pass, and with priorities under the first forward pass of the next step.
    under = float(backwards.max()) + (float(forwards.max()) if s.policy.priority else 0.0)
    hidden = min(sync, j.overlap_share * under * j.virtual_pp)
    pressed = _compressed_ns(s, net) / j.steps_between_syncs
    hop = net.ns(*stage_transfer(s)) if j.pp > 1 else 0.0
    return Plan(
        forwards,
        backwards,
        (layers * (each + gather[0]), layers * (each * (1 + again) + gather[1])),
        (gates * layers, gates * layers * (1 + again)),
        hop,
        sync - hidden + pressed,
        hidden,
        work.optimiser_ns(s),
    )


def _activation_bytes(s: Scenario) -> float:
    return work.HALF * work.tokens_of(s.model, s.job) * s.model.hidden


class Transfer(NamedTuple):
    """A collective, or a message: its verb, the axis whose groups are at it, bytes."""

    verb: str
    axis: str
    size: float


def layer_transfers(s: Scenario) -> list[Transfer]:
    """Transfers of a layer's forward pass inside a stage: two all-reduces of tensor parallelism (sequence parallelism moves
    the same bytes in two halves), keys and values of context parallelism, tokens to their experts and back."""
    m, j, size = s.model, s.job, _activation_bytes(s)
    out = []
    if j.tp > 1:
        # In fp8 what a product takes is cast before it is gathered. Every expert that a token goes to is cut too: each copy of
        # the token is gathered, cast after that, and summed.
        cast = work.EIGHT / work.HALF if j.precision == "fp8" else 1.0
        for gathered, summed in ((cast, 1), (float(m.experts_per_token), m.experts_per_token) if m.experts else (cast, 1)):
            if j.sequence_parallel:
                out += [Transfer("reduce-scatter", "tp", size * summed), Transfer("all-gather", "tp", size * gathered)]
            else:
                out.append(Transfer("all-reduce", "tp", size * summed))
    if j.cp > 1:
        kv = (m.kv_heads or m.heads) / m.heads
        out.append(Transfer("all-gather", "cp", 2 * kv * size * j.cp / j.tp))
    if j.ep > 1:
        out += 2 * [Transfer("all-to-all", "ep", size * m.experts_per_token / j.tp)]
    return out


def sharding_transfers(s: Scenario) -> tuple[list[Transfer], list[Transfer]]:
    """Under fully sharded state, per layer, forward and backward: parameters are gathered before each pass, gradients
    scattered after the last."""
    j = s.job
    if j.sharding not in ("zero3", "hsdp"):
        return [], []
    experts = work.expert_parameters(s.model)
    parts = {"dp": work.layer_parameters(s.model) - experts, "expert": experts / j.ep}
    if j.sharding == "hsdp":
        parts = {"shard": sum(parts.values())}
    held = {axis: count / j.tp for axis, count in parts.items() if count}
    gathers = [Transfer("all-gather", axis, work.HALF * count) for axis, count in held.items()]
    return gathers, [*gathers, *(Transfer("reduce-scatter", axis, j.gradient_bytes * count) for axis, count in held.items())]


def sync_transfers(s: Scenario, net: Net) -> list[Transfer]:
    """Gradients over the ranks that hold the same weights, once a step; sharded optimisers scatter them and gather parameters
    instead."""
    j, each = s.job, s.job.gradient_bytes / s.policy.compression_ratio
    if j.sharding == "zero3":
        return []
    if j.sharding == "hsdp":
        return [Transfer("all-reduce", "replica", each * work.stage_parameters(s) / net.members("shard"))]
    held = {axis: count for axis, count in zip(("dp", "expert"), work.stage_parts(s), strict=True) if count}
    if j.sharding in ("zero1", "zero2"):
        verbs = {"reduce-scatter": each, "all-gather": float(work.HALF)}
        return [Transfer(verb, axis, bytes_ * count) for axis, count in held.items() for verb, bytes_ in verbs.items()]
    return [Transfer("all-reduce", axis, each * count) for axis, count in held.items()]


def stage_transfer(s: Scenario) -> Transfer:
    """What one stage sends to the next."""
    return Transfer("send", "pp", _activation_bytes(s) / s.job.tp)


def _gathered_ns(s: Scenario, net: Net, forward: float, backward: float) -> tuple[float, float]:
    """Gathers and scatters of a layer that do not hide: ``overlap_share`` of the pass may hide the next layer's."""
    there, back = (sum(_sharded_ns(s, net, one) for one in way) for way in sharding_transfers(s))
    return there - min(there, s.job.overlap_share * forward), back - min(back, s.job.overlap_share * backward)


def _sharded_ns(s: Scenario, net: Net, one: Transfer) -> float:
    """Time of a gather or scatter of sharded state; some implementations use one port of a node only."""
    if s.job.gather_striped:
        return net.ns(*one)
    tier, rate = net.rate(one.axis)
    late = net.late_us(one.verb, one.axis, net.pace(one.axis, "ring").level) * 1e3 if net.members(one.axis) > 1 else 0.0
    return late + time_ns(one.verb, tier.algorithm, net.members(one.axis), one.size, min(rate, tier.gb_per_s), tier.latency_us)


def _compressed_ns(s: Scenario, net: Net) -> float:
    """Making gradients smaller: they go through memory so many times."""
    if s.policy.compression_ratio == 1 or net.members("dp") <= 1:
        return 0.0
    return work.moved_ns(s.device, s.policy.compression_passes * s.job.gradient_bytes * work.stage_parameters(s))
