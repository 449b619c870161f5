"""A scenario's step, noise left out: what every chunk of layers takes in each direction, the hops, the synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.project.fabric.collective_time import time_ns
from taut.project.fabric.groups import Net, net_of
from taut.project.training import device_work as work
from taut.project.training import model_shape, rank_memory
from taut.project.training import policy_effects as effects
from taut.project.training.scenario import Device, Fabric, Job, Model, Policies, Scenario


@dataclass(frozen=True)
class Plan:
    """Times of one replica, ns, and how many rendezvous are in them."""

    forward_ns: Floats
    """Per chunk: one micro-batch through its layers, transfers inside the stage included."""
    backward_ns: Floats
    transfer_ns: Floats
    """Of these, the transfers that do not hide under work, forward and backward × chunk."""
    gates: tuple[int, int]
    """Rendezvous inside one chunk, forward and backward: tensor, context and expert parallel groups meet there."""
    hop_ns: float
    """From one stage to the next, as long as the sender is busy with it …"""
    late_ns: float
    """… and as long as it takes beyond that, while the sender goes on: whoever needs it waits."""
    sync_ns: float
    """Data-parallel synchronisation that does not hide under the backward pass; with local steps, the share of one."""
    hidden_ns: float
    """What of it does, less what it slows the work that it hides under."""
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
    one, whole = (plan(replace(s, job=job, fabric=fabric)) for job in (alone, j))

    share = s.fabric.growth

    def between(name: str) -> Floats:
        first, then = np.asarray(getattr(one, name)), np.asarray(getattr(whole, name))
        return np.asarray(np.maximum(first + share * (then - first), 0.0))

    return Plan(
        between("forward_ns"),
        between("backward_ns"),
        between("transfer_ns"),
        whole.gates,
        float(between("hop_ns")),
        float(between("late_ns")),
        float(between("sync_ns")),
        float(between("hidden_ns")),
        whole.optimiser_ns,
    )


@lru_cache(maxsize=256)
def _cached_plan(model: Model, job: Job, device: Device, fabric: Fabric, policy: Policies) -> Plan:
    """Seeds and noise change no plan: what draws ask for again is kept."""
    s = Scenario(model=model, job=job, device=device, fabric=fabric, policy=policy)
    return _planned(s, net_of(s))


def _planned(s: Scenario, net: Net) -> Plan:
    s = replace(s, device=effects.capped_device(s))
    m, j = s.model, s.job
    layers, again = rank_memory.chunk_layers(m, j)
    forwards, backwards, transfers = _chunks(s, net, layers, again)
    head = work.head_ns(s)
    forwards[-1] += head[0]
    backwards[-1] += head[1]
    each, whole = _rounded(layers.sum() / len(layers)), _rounded((layers + again).sum() / len(layers))
    gates = (1 if m.parallel_blocks else 2) if j.tp * j.cp * j.ep > 1 else 0
    sync = sum(net.ns(*one) for one in sync_transfers(s, net)) / j.steps_between_syncs
    # Under the last micro-batch's backward pass, and with priorities under the first forward pass of the next step.
    under = float(backwards.max()) + (float(forwards.max()) if s.policy.priority else 0.0)
    hidden = _hides(s, sync, j.overlap_share * under * j.virtual_pp)
    pressed = _compressed_ns(s, net) / j.steps_between_syncs
    hop = net.ns(*stage_transfer(s)) if j.pp > 1 else 0.0
    return Plan(
        forwards,
        backwards,
        transfers,
        (gates * each, gates * whole),
        hop * (1 - j.pipeline_overlap_share),
        hop * j.pipeline_overlap_share,
        sync - hidden + pressed,
        hidden,
        work.optimiser_ns(s),
    )


def _rounded(mean: float) -> int:
    return max(round(mean), 1)


def _chunks(s: Scenario, net: Net, layers: Ints, again: Ints) -> tuple[Floats, Floats, Floats]:
    """Of every chunk: forward and backward pass of its layers, and the transfers in them that do not hide."""
    forwards, backwards, transfers = np.zeros(len(layers)), np.zeros(len(layers)), np.zeros((2, len(layers)))
    kept = "none" if s.job.recompute == "full" else s.job.recompute
    for k, kind in enumerate(model_shape.kinds(s.model)):
        one = replace(s, model=kind)
        for recompute, count in ((kept, layers[:, k] - again[:, k]), ("full", again[:, k])):
            if not count.any():
                continue
            times = _layer_times(one, net, recompute)
            forwards += count * times.forward_ns
            backwards += count * times.backward_ns
            transfers += count * np.array(times.transfer_ns)[:, None]
    return forwards, backwards, transfers


class LayerTimes(NamedTuple):
    """Of one layer and micro-batch: both passes, and the transfers in them that do not hide, ns."""

    forward_ns: float
    backward_ns: float
    transfer_ns: tuple[float, float]


def _layer_times(s: Scenario, net: Net, recompute: str) -> LayerTimes:
    """A layer of which nothing, the core of attention, or all is computed again; then its transfers come again too."""
    one, times = work.layer(s), 2 if recompute == "full" else 1
    whole, may_hide = _layer_transfers_ns(s, net)
    there = whole - _hides(s, may_hide, one.forward_ns)
    back = whole * times - _hides(s, may_hide * times, one.backward_ns(recompute))
    forward = max(one.forward_ns + there, one.host_ns)
    backward = max(one.backward_ns(recompute) + back, one.issued_ns(recompute))
    gather = _gathered_ns(s, net, forward, backward)
    return LayerTimes(forward + gather[0], backward + gather[1], (there + gather[0], back + gather[1]))


def _hides(s: Scenario, transfer: float, under: float) -> float:
    """What of a transfer hides under work, less what it slows this work."""
    return min(transfer, under) * (1 - s.device.overlap_slowdown)


def _layer_transfers_ns(s: Scenario, net: Net) -> tuple[float, float]:
    """Time of a layer's transfers in one direction, and what of it may hide under its work."""
    j = s.job
    shares = {"tp": j.tensor_overlap_share, "cp": j.context_overlap_share, "ep": j.expert_overlap_share}
    took = [(net.ns(*one), shares[one.axis]) for one in layer_transfers(s)]
    return sum(ns for ns, _ in took), sum(ns * share for ns, share in took)


def _activation_bytes(s: Scenario) -> float:
    return model_shape.HALF * model_shape.tokens_of(s.model, s.job) * s.model.hidden


class Transfer(NamedTuple):
    """A collective, or a message: its verb, the axis whose groups are at it, bytes."""

    verb: str
    axis: str
    size: float


def layer_transfers(s: Scenario) -> list[Transfer]:
    """Transfers of a layer's forward pass inside a stage: an all-reduce of tensor parallelism for either block (sequence
    parallelism moves as much in two halves), keys and values of context parallelism, tokens to their experts and back."""
    m, j, size = s.model, s.job, _activation_bytes(s)
    out = _tensor_transfers(s) if j.tp > 1 else []
    if j.cp > 1:
        out.append(
            Transfer("all-gather", "cp", model_shape.HALF * model_shape.tokens_of(m, j) * model_shape.kv_width(m) * j.cp / j.tp)
        )
    if m.experts and j.ep > 1:
        out += 2 * [Transfer("all-to-all", "ep", size * _copies_sent(s) * j.expert_imbalance / j.tp)]
    return out


def _copies_sent(s: Scenario) -> float:
    """Copies of a token that leave for experts: one for each of them, or for each of their nodes if it is handed on there."""
    j, copies = s.job, float(s.model.experts_per_token)
    nodes = j.ep * j.tp / s.fabric.node
    if not j.sent_once_a_node or nodes <= 1:
        return copies
    # Nodes that are met by as many draws as there are experts of a token.
    met = nodes * float(1 - (1 - 1 / nodes) ** copies)
    return min(met, float(j.expert_nodes or met))


def _tensor_transfers(s: Scenario) -> list[Transfer]:
    """Of each block what is gathered before it (as a share of a whole activation) and what is summed after it."""
    m, j, size = s.model, s.job, _activation_bytes(s)
    # In fp8 what a product takes is cast before it is gathered. Every expert that a token goes to is cut too: each copy of
    # the token is gathered, cast after that, and summed.
    cast = model_shape.EIGHT / model_shape.HALF if j.precision == "fp8" else 1.0
    narrow = (m.query_latent + m.kv_latent + m.rope_width) / m.hidden if model_shape.latents_gathered(m, j) else 1.0
    copies = float(m.experts_per_token) * j.expert_imbalance
    blocks = [(cast * narrow, 1.0)]
    if m.experts:
        blocks += [(copies, copies), *([(cast, 1.0)] if m.shared_experts else [])]
    elif not m.parallel_blocks:
        blocks.append((cast, 1.0))
    out = []
    for gathered, summed in blocks:
        if j.sequence_parallel:
            out += [Transfer("reduce-scatter", "tp", size * summed), Transfer("all-gather", "tp", size * gathered)]
        else:
            out.append(Transfer("all-reduce", "tp", size * summed))
    # What an adapter has between its two products is cut by tp as well, and summed.
    inside = model_shape.HALF * model_shape.tokens_of(m, j) * j.lora_rank
    return out + len(model_shape.adapted(m, j)) * [Transfer("all-reduce", "tp", float(inside))]


def sharding_transfers(s: Scenario) -> tuple[list[Transfer], list[Transfer]]:
    """Under fully sharded state, per layer, forward and backward: parameters are gathered before each pass, gradients
    scattered after the last."""
    m, j = s.model, s.job
    if j.sharding not in ("zero3", "hsdp"):
        return [], []
    experts, adapters = model_shape.expert_parameters(m), model_shape.adapter_parameters(m, j)
    held = {"dp": model_shape.layer_parameters(m) + adapters - experts, "expert": experts / j.ep}
    trained = {"dp": adapters} if j.lora_rank else held
    if j.sharding == "hsdp":
        held, trained = ({"shard": sum(parts.values())} for parts in (held, trained))
    gathers, scatters = (
        [Transfer(verb, axis, each * count / j.tp) for axis, count in parts.items() if count]
        for verb, parts, each in (("all-gather", held, model_shape.HALF), ("reduce-scatter", trained, j.gradient_bytes))
    )
    return gathers, gathers + scatters


def sync_transfers(s: Scenario, net: Net) -> list[Transfer]:
    """Gradients over the ranks that hold the same weights, once a step; sharded optimisers scatter them and gather parameters
    instead."""
    j, each = s.job, s.job.gradient_bytes / s.policy.compression_ratio
    if j.sharding == "zero3":
        return []
    if j.sharding == "hsdp":
        return [Transfer("all-reduce", "replica", each * rank_memory.trained_parameters(s) / net.members("shard"))]
    held = {axis: count for axis, count in zip(("dp", "expert"), rank_memory.trained_parts(s), strict=True) if count}
    if j.sharding in ("zero1", "zero2"):
        verbs = {"reduce-scatter": each, "all-gather": float(model_shape.HALF)}
        return [Transfer(verb, axis, bytes_ * count) for axis, count in held.items() for verb, bytes_ in verbs.items()]
    return [Transfer("all-reduce", axis, each * count) for axis, count in held.items()]


def stage_transfer(s: Scenario) -> Transfer:
    """What one stage sends to the next."""
    return Transfer("send", "pp", _activation_bytes(s) / s.job.tp)


def _gathered_ns(s: Scenario, net: Net, forward: float, backward: float) -> tuple[float, float]:
    """Gathers and scatters of a layer that do not hide: ``overlap_share`` of the pass may hide the next layer's."""
    there, back = (sum(_sharded_ns(s, net, one) for one in way) for way in sharding_transfers(s))
    share = s.job.overlap_share
    return there - _hides(s, there, share * forward), back - _hides(s, back, share * backward)


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
    return work.moved_ns(s.device, s.policy.compression_passes * s.job.gradient_bytes * rank_memory.trained_parameters(s))
