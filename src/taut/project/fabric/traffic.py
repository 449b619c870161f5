"""What a step moves, kind by kind and tier by tier, and the energy of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.project.fabric.groups import Net, net_of
from taut.project.training.model_shape import kinds
from taut.project.training.rank_memory import chunk_layers
from taut.project.training.scenario import Scenario
from taut.project.training.step_plan import Transfer, layer_transfers, sharding_transfers, stage_transfer, sync_transfers
from taut.result.types import Traffic

KINDS = {
    "tp": "tensor parallel", "cp": "context parallel", "ep": "expert parallel", "dp": "data parallel", "shard": "sharded state",
    "replica": "data parallel", "expert": "data parallel", "pp": "pipeline hops",
}  # fmt: skip


def traffic(s: Scenario) -> list[Traffic]:
    """Per kind of transfer and tier: bytes that all ranks together send through it in a step, and the energy of that.

    A byte counts at the outermost tier that it crosses; its energy is null where that tier has none (``pj_per_bit``).
    """
    net = net_of(s)
    bytes_of: dict[str, Floats] = {}
    for one, times in _step(s, net):
        found = times * net.bytes_per_tier(*one)
        bytes_of[KINDS[one.axis]] = bytes_of.get(KINDS[one.axis], np.zeros(len(found))) + found
    return [
        Traffic(
            kind=kind,
            tier=tier.name,
            bytes_per_step=float(count),
            joules_per_step=None if tier.pj_per_bit is None else float(count) * 8e-12 * tier.pj_per_bit,
        )
        for kind, counts in bytes_of.items()
        for tier, count in zip(s.fabric.tiers, counts, strict=True)
        if count > 0
    ]


def joules(s: Scenario) -> float | None:
    """Energy of what a step moves; None where a tier that it crosses does not say."""
    if all(tier.pj_per_bit is None for tier in s.fabric.tiers):
        return None
    found = [row.joules_per_step for row in traffic(s)]
    known = [joules for joules in found if joules is not None]
    return float(sum(known)) if len(known) == len(found) else None


def _step(s: Scenario, net: Net) -> Iterator[tuple[Transfer, float]]:
    """The transfers of a step, and how often every rank takes part in each."""
    j = s.job
    layers, again = chunk_layers(s.model, j)
    for k, kind in enumerate(kinds(s.model)):
        # Uneven ranks of experts take longer, but all together send as much.
        of_kind = replace(s, model=kind, job=replace(j, expert_imbalance=1.0))
        passes = float(layers[:, k].sum()) / j.pp * j.micro_batches
        for one in layer_transfers(of_kind):
            yield one, 2 * passes + float(again[:, k].sum()) / j.pp * j.micro_batches
        for way in sharding_transfers(of_kind):
            yield from ((one, passes) for one in way)
    for one in sync_transfers(s, net):
        yield one, 1 / j.steps_between_syncs
    if j.pp > 1:
        chunks = j.pp * j.virtual_pp
        yield stage_transfer(s), 2 * j.micro_batches * (chunks - 1) / (j.pp if j.virtual_pp > 1 else j.pp - 1)
