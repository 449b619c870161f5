"""What a rank holds: the layers of its stage, their parameters, gradients, optimiser state and activations."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.project.training.model_shape import (
    EIGHT,
    HALF,
    activated,
    adapted,
    adapter_parameters,
    expert_parameters,
    kinds,
    kv_width,
    layer_parameters,
    query_width,
    tokens_of,
    value_width,
)
from taut.project.training.pipeline import deal_layers, deal_recomputed
from taut.project.training.scenario import Job, Model, Scenario, state_shards

# Bytes that the optimiser keeps for a parameter: master copy and two moments in full precision.
STATE_BYTES = 12
# Bytes of the two copies of a weight in fp8 (one transposed) that are kept beside the one in half precision.
COPIES_BYTES = 2


def chunk_layers(m: Model, j: Job) -> tuple[Ints, Ints]:
    """Layers of each chunk and kind, and those of them that are recomputed in full."""
    dealt = deal_layers(m.layers, j.pp, j.virtual_pp, (j.first_stage_layers, j.last_stage_layers))
    again = dealt
    if j.recompute != "full":
        again = (0,) * len(dealt)
    elif j.recompute_layers:
        again = deal_recomputed(dealt, j.pp, j.recompute_layers)
    return _by_kind(dealt, dealt, m.dense_layers), _by_kind(dealt, again, m.dense_layers)


@lru_cache(maxsize=256)
def _by_kind(dealt: tuple[int, ...], count: tuple[int, ...], dense_layers: int) -> Ints:
    """The first so many layers of each chunk by kind: chunks × kinds. The first layers of all are the dense ones."""
    many = np.array(count)
    if not dense_layers:
        return many[:, None]
    dense = np.clip(dense_layers - np.cumsum(dealt) + np.array(dealt), 0, many)
    return np.stack([dense, many - dense], axis=1)


def on_stages(per_chunk: Ints, j: Job) -> Ints:
    """Layers of each stage and kind, of those of each chunk."""
    out: Ints = per_chunk.reshape(j.virtual_pp, j.pp, -1).sum(axis=0)
    return out


def _embeddings(m: Model, j: Job) -> Floats:
    """Embeddings on each stage: the first has that of the input, the last that of the logits, tied or not."""
    out = np.zeros(j.pp)
    out[0] += 1
    out[-1] += 0 if m.tied_embeddings and j.pp == 1 else 1
    return out * (m.vocab * m.hidden)


def _held(s: Scenario) -> Floats:
    """Parameters on a rank of each stage: a row that every rank along dp and cp holds, a row of the experts that are here."""
    m, j = s.model, s.job
    layers = on_stages(chunk_layers(m, j)[0], j)
    experts = np.array([expert_parameters(kind) for kind in kinds(m)])
    dense = np.array([layer_parameters(kind) for kind in kinds(m)]) - experts
    return np.stack([(layers @ dense + _embeddings(m, j)) / j.tp, layers @ experts / j.ep / j.tp])


def _trained(s: Scenario) -> Floats:
    """Of these, the ones that have gradients and state; adapters, which come on top, if there are any."""
    m, j = s.model, s.job
    if not j.lora_rank:
        return _held(s)
    layers = on_stages(chunk_layers(m, j)[0], j)
    adapters = layers @ np.array([adapter_parameters(kind, j) for kind in kinds(m)]) / j.tp
    return np.stack([adapters, np.zeros(j.pp)])


def _busiest(per_stage: Floats) -> tuple[float, float]:
    dense, experts = per_stage[:, int(per_stage.sum(axis=0).argmax())].tolist()
    return dense, experts


def stage_parts(s: Scenario) -> tuple[float, float]:
    """Parameters on a rank of the busiest stage, before the state is sharded: those that every rank along dp and cp holds, and
    those of the experts that are here."""
    return _busiest(_held(s))


def trained_parts(s: Scenario) -> tuple[float, float]:
    """Parameters on a rank of the busiest stage that have gradients: all that it holds, or its adapters."""
    return _busiest(_trained(s))


def trained_parameters(s: Scenario) -> float:
    """The same, experts or not."""
    return sum(trained_parts(s))


def _sharers(s: Scenario) -> Floats:
    """Ranks that share one copy of the optimiser's state: of what every rank holds, and of experts."""
    j = s.job
    if j.sharding == "none":
        return np.ones(2)
    if j.sharding == "hsdp":
        return np.full(2, float(state_shards(j, s.fabric.node)))
    return np.array([j.dp * j.cp, j.dp * j.cp / j.ep])


def sharded_parameters(s: Scenario) -> float:
    """Parameters whose optimiser state a rank of the busiest stage holds: a share of all ranks that hold the same."""
    return float((np.array(trained_parts(s)) / _sharers(s)).sum())


def memory_parts_gb(s: Scenario) -> dict[str, float]:
    """What the busiest rank must hold, part by part; beside it a library and the allocator take some."""
    m, j = s.model, s.job
    held, sharers = _held(s), _sharers(s)[:, None]
    trained = _trained(s) if j.lora_rank else held
    held = held + trained if j.lora_rank else held
    part = (trained / sharers).sum(axis=0)
    weight = HALF + (COPIES_BYTES if j.precision == "fp8" else 0)
    layers, again = (on_stages(count, j) for count in chunk_layers(m, j))
    kept = np.array([[_kept_bytes(replace(s, model=kind), full=full) for kind in kinds(m)] for full in (False, True)])
    counts = {
        "weights": weight * (held / sharers if j.sharding in ("zero3", "hsdp") else held).sum(axis=0),
        "gradients": j.gradient_bytes * (part if j.sharding in ("zero2", "zero3", "hsdp") else trained.sum(axis=0)),
        "optimiser": STATE_BYTES * part,
        "activations": _in_flight(j) * ((layers - again) @ kept[0] + again @ kept[1]),
    }
    busiest = int(np.sum(list(counts.values()), axis=0).argmax())
    return {name: float(count[busiest]) / 1e9 for name, count in counts.items()}


def memory_gb(s: Scenario) -> float:
    """What the busiest rank must hold: parameters, gradients, optimiser, and activations of the micro-batches in flight."""
    return sum(memory_parts_gb(s).values())


def _in_flight(j: Job) -> Floats:
    """Micro-batches whose activations each stage keeps at most."""
    behind = j.pp - 1.0 - np.arange(j.pp)
    if j.schedule == "gpipe":
        return np.full(j.pp, float(j.micro_batches))
    if j.schedule == "interleaved":
        # Warming up, a stage takes more chunks than it has micro-batches of its own (Korthikanti et al. 2022).
        behind = (2 * behind + (j.virtual_pp - 1) * j.pp + 1) / j.virtual_pp - 1
    most: Floats = np.minimum(behind + 1, j.micro_batches)
    return most


def _kept_bytes(s: Scenario, *, full: bool) -> float:
    """Activations of one layer of one micro-batch that are kept for the backward pass; ``full``: it is computed again."""
    m, j = s.model, s.job
    tokens = tokens_of(m, j)
    inputs = HALF * tokens * m.hidden / (j.tp if j.sequence_parallel else 1)
    if full:
        return inputs
    scores = 0.0 if m.flash_attention or j.recompute == "selective" else 5.0 * j.micro_batch * m.heads * m.sequence**2 / j.tp
    # Inputs of norms and of both blocks, masks of dropout; queries, keys, values, the context, what the feed-forward block has.
    # In fp8 the inputs of three of the four products are kept as they were cast.
    less, blocks = HALF - EIGHT if j.precision == "fp8" else 0, 1 if m.parallel_blocks else 2
    outside = m.hidden * blocks * (2 * HALF - less + m.dropout) / (j.tp if j.sequence_parallel else 1)
    inside = HALF * (m.heads * (query_width(m) + value_width(m)) + kv_width(m))
    # Latents before and after their norms, the inputs of adapters' second products: every rank has them.
    small = 2 * HALF * (m.query_latent + m.kv_latent) + HALF * j.lora_rank * len(adapted(m, j))
    wide = ((6 if m.gated else 4) - less) * activated(m, j)
    return tokens * (outside + (inside + wide) / j.tp + small) + scores
