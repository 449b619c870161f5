"""What a rank computes: a transformer cut by its parallelism, on a device whose roofline and efficiencies are given.

A matrix product takes its FLOPs over what of the peak it reaches: less where its inner dimension is short, or where its
tiles do not fill the last wave of processors. Everything else takes its bytes over what of the memory bandwidth it
reaches. Every kernel costs a little whatever it does, and the host must issue it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.project.training.pipeline import deal_layers, deal_recomputed
from taut.project.training.scenario import Device, Job, Model, Scenario, state_shards

# Bytes of a number in half precision.
HALF = 2
# Rows and columns of a product that one processor computes at once.
TILE = 128, 256
# Of what an unfilled last wave would lose by counting, this share is really lost: the rest is hidden or split up.
WHOLE_WAVES = 0.5
# Kernels of a layer's forward pass that are no product; those of its attention core.
ELEMENTWISE, ATTENTION = 8, 3
# Bytes an optimiser step reads and writes for a parameter: gradient, master copy, two moments, the copy in half precision;
# and the gradient once more for its norm.
OPTIMISER_BYTES = 40
# Measured, validation/h200_rest.json: the backward pass of fused attention over its forward pass; bytes that loss and softmax
# move for a logit in one direction, in full precision and kernel by kernel.
ATTENTION_BACKWARD, LOSS_BYTES = 2.8, 24
# Bytes that the optimiser keeps for a parameter: master copy and two moments in full precision.
STATE_BYTES = 12
# Bytes of a number of a product in fp8; those that a cast from half precision moves for each; and those of the two copies of
# a weight (one transposed) that are kept beside the one in half precision.
EIGHT, CAST_BYTES, COPIES_BYTES = 1, 3, 2
# Products of experts, one for each in a single kernel, against one product of that size (validation/h200_eight_bit.json,
# ``python bench/device.py --compare``): the share of its rate that they reach, and the rows of unfilled tiles that an
# expert adds where tokens are dealt unevenly. In fp8 the share is less (validation/h200_rest.json).
GROUPED_SHARE, GROUPED_SHARE_FP8, GROUPED_ROWS = 0.94, 0.89, 112


def gemm_ns(d: Device, rows: int, columns: int, depth: int, batch: int = 1, *, eight_bit: bool = False) -> float:
    """Time of ``batch`` products (rows × depth) · (depth × columns), in half precision or of eight-bit floats."""
    peak, share, half_depth, operand = d.peak_tflops, d.gemm_share, d.gemm_half_depth, HALF
    if eight_bit:
        assert d.fp8_tflops is not None, f"{d.name} has no products in fp8"
        peak, share, half_depth, operand = d.fp8_tflops, d.fp8_gemm_share, d.fp8_gemm_half_depth, EIGHT
    # Wave quantisation: the last wave of tiles leaves processors idle.
    tiles = ceil(rows / TILE[0]) * ceil(columns / TILE[1]) * batch
    filled = tiles / (ceil(tiles / d.processors) * d.processors)
    reached = share * depth / (depth + half_depth) * (1 - WHOLE_WAVES * (1 - filled))
    computed = 2.0 * rows * columns * depth * batch / (peak * 1e3 * reached)
    moved = moved_ns(d, (operand * (rows * depth + depth * columns) + HALF * rows * columns) * batch)
    return max(computed, moved) + d.kernel_us * 1e3


def linear_ns(s: Scenario, rows: int, columns: int, depth: int) -> float:
    """A product of a linear layer; in fp8 its input is cast first, by a kernel of its own."""
    d, eight_bit = s.device, s.job.precision == "fp8"
    return gemm_ns(d, rows, columns, depth, eight_bit=eight_bit) + (_cast_ns(d, rows * depth) if eight_bit else 0.0)


def grouped_ns(s: Scenario, rows: int, columns: int, depth: int, experts: int) -> float:
    """One product for each expert, with so many rows each on average and unevenly dealt."""
    d, eight_bit = s.device, s.job.precision == "fp8"
    share = GROUPED_SHARE_FP8 if eight_bit else GROUPED_SHARE
    took = gemm_ns(d, rows + GROUPED_ROWS, columns, depth, experts, eight_bit=eight_bit) / share
    return took + (_cast_ns(d, rows * depth * experts) if eight_bit else 0.0)


def _cast_ns(d: Device, count: float) -> float:
    return moved_ns(d, CAST_BYTES * count) + d.kernel_us * 1e3


def peak_tflops(s: Scenario) -> float:
    """Peak of the device in the precision of the job's products."""
    return s.device.fp8_tflops if s.job.precision == "fp8" and s.device.fp8_tflops else s.device.peak_tflops


def moved_ns(d: Device, count: float) -> float:
    """Time of element-wise work that moves so many bytes."""
    return count / (d.memory_gb_per_s * d.memory_share)


class Matrix(NamedTuple):
    """A matrix of a layer that tokens are multiplied with, whole: what goes in, what comes out, and what tp cuts."""

    name: Literal["query_key_value", "output", "up", "down"]
    columns: int
    depth: int
    cut: Literal["columns", "depth", "tokens"]
    """Tokens: every rank has the whole matrix, and with sequence parallelism multiplies its own tokens only."""

    def on_a_rank(self, tp: int) -> tuple[int, int]:
        """(columns, depth) of what one rank of tp holds."""
        cut = {"columns": (self.columns // tp, self.depth), "depth": (self.columns, self.depth // tp)}
        return cut.get(self.cut, (self.columns, self.depth))


def query_width(m: Model) -> int:
    """Numbers of a head's query and key."""
    return (m.head_width or m.hidden // m.heads) + m.rope_width


def value_width(m: Model) -> int:
    """Numbers of a head's value."""
    return m.value_width or query_width(m) - m.rope_width


def kv_heads(m: Model) -> int:
    """Heads of keys and values."""
    return m.kv_heads or m.heads


def kv_width(m: Model) -> int:
    """Numbers of a token's keys and values as attention needs them, all heads."""
    return kv_heads(m) * (query_width(m) + value_width(m))


def attention_matrices(m: Model) -> list[Matrix]:
    """Of attention; latent attention makes queries, keys and values in two steps, the first of them small and not cut."""
    queries, out = m.heads * query_width(m), Matrix("output", m.hidden, m.heads * value_width(m), "depth")
    if not m.kv_latent:
        return [Matrix("query_key_value", queries + kv_width(m), m.hidden, "columns"), out]
    down = [Matrix("query_key_value", m.kv_latent + m.rope_width, m.hidden, "tokens")]
    if m.query_latent:
        down.append(Matrix("query_key_value", m.query_latent, m.hidden, "tokens"))
    made = kv_width(m) - m.heads * m.rope_width
    return [
        *down,
        Matrix("query_key_value", queries, m.query_latent or m.hidden, "columns"),
        Matrix("query_key_value", made, m.kv_latent, "columns"),
        out,
    ]


def block_matrices(m: Model, inner: int) -> list[Matrix]:
    """Of a feed-forward block of some width."""
    return [Matrix("up", (2 if m.gated else 1) * inner, m.hidden, "columns"), Matrix("down", m.hidden, inner, "depth")]


def dense_matrices(m: Model) -> list[Matrix]:
    """Of a layer, those that every token meets: attention, and the feed-forward block or the experts that all share."""
    inner = expert_ffn(m) * m.shared_experts if m.experts else ffn(m)
    return attention_matrices(m) + (block_matrices(m, inner) if inner else [])


@dataclass(frozen=True)
class Layer:
    """Times of one layer for one micro-batch on one rank, transfers left out, ns."""

    forward_ns: float
    attention_ns: float
    """The part of it that selective recomputation repeats."""
    host_ns: float
    """Time the host needs to issue it."""
    frozen_ns: float = 0.0
    """Products of weights that are not trained: the backward pass has no gradients of them to compute."""
    beyond_ns: float = 0.0
    """What the backward pass takes beyond twice the forward pass: fused attention, and adding up gradients."""

    def backward_ns(self, recompute: str) -> float:
        """Backward pass: every product twice, and what was not kept once more."""
        again = {"none": 0.0, "selective": self.attention_ns, "full": self.forward_ns}[recompute]
        return 2 * self.forward_ns - self.frozen_ns + self.beyond_ns + again

    def issued_ns(self, recompute: str) -> float:
        """Time the host needs for the backward pass."""
        return self.host_ns * {"none": 2.0, "selective": 2.3, "full": 3.0}[recompute]


def layer(s: Scenario) -> Layer:
    """Forward pass of one layer; of a mixture, of one that has experts."""
    m, j, d = s.model, s.job, s.device
    tokens, core = tokens_of(m, j), _attention_ns(s)
    products = sum(linear_ns(s, _rows(one, m, j), *one.on_a_rank(j.tp)) for one in dense_matrices(m))
    ordered = 0.0
    if m.experts:
        routed, ordered = _experts_ns(s, tokens)
        products += routed
    rest = moved_ns(d, _elementwise_bytes(m, j, tokens)) + _elementwise_kernels(m) * d.kernel_us * 1e3
    adapters = sum(_adapter_ns(s, one) for one in adapted(m, j))
    forward = products + adapters + ordered + rest + core
    beyond = (ATTENTION_BACKWARD - 2) * core * m.flash_attention + _added_up_ns(s)
    return Layer(forward, core, d.host_layer_us * 1e3, products if j.lora_rank else 0.0, beyond)


def _added_up_ns(s: Scenario) -> float:
    """What a layer's gradients and weights move through memory beside its products, for every micro-batch.

    Gradients are added to those of the micro-batches before: the sum is read and written instead of a product in half precision
    being written. Fully sharded weights are copied out of the buffer they were gathered in, for each pass, and gradients into
    the one they are scattered from.
    """
    m, j = s.model, s.job
    if j.sharding in ("zero3", "hsdp"):
        each = 2 * 2 * HALF + HALF + j.gradient_bytes
    else:
        each = 2 * j.gradient_bytes - HALF if j.micro_batches > 1 else 0
    experts = expert_parameters(m) / j.ep
    if j.sharding == "zero3" and j.dp * j.cp == j.ep:  # experts that nobody else holds are not gathered
        experts *= 2 * j.gradient_bytes / each
    held = (layer_parameters(m) - expert_parameters(m) + experts) / j.tp
    return 0.0 if j.lora_rank else moved_ns(s.device, each * held)


def _rows(one: Matrix, m: Model, j: Job) -> int:
    """Tokens that a rank multiplies with a matrix."""
    return tokens_of(m, j) // (j.tp if one.cut == "tokens" and latents_gathered(m, j) else 1)


def latents_gathered(m: Model, j: Job) -> bool:
    """Whether ranks of tp make the latents of their own tokens and gather these, instead of the hidden state."""
    return j.sequence_parallel and m.query_latent > 0


def adapted(m: Model, j: Job) -> list[Matrix]:
    """Matrices of a layer that have an adapter."""
    return [one for one in dense_matrices(m) if one.name in j.lora_matrices] if j.lora_rank else []


def _adapter_ns(s: Scenario, one: Matrix) -> float:
    """Into the adapter's width, and out of it; in half precision."""
    columns, depth = one.on_a_rank(s.job.tp)
    rows, rank = _rows(one, s.model, s.job), s.job.lora_rank
    return gemm_ns(s.device, rows, rank, depth) + gemm_ns(s.device, rows, columns, rank)


def tokens_of(m: Model, j: Job) -> int:
    """Tokens of a micro-batch on one rank."""
    return j.micro_batch * m.sequence // j.cp


def ffn(m: Model) -> int:
    """Width of the feed-forward block."""
    return m.ffn or 4 * m.hidden


def expert_ffn(m: Model) -> int:
    """Width of one expert."""
    return m.expert_ffn or ffn(m)


def _experts_ns(s: Scenario, tokens: int) -> tuple[float, float]:
    """Products of the router and of every expert that is here; and putting tokens in the order of their experts."""
    m, j, d = s.model, s.job, s.device
    inner, up = expert_ffn(m) // j.tp, 2 if m.gated else 1
    here = m.experts // j.ep
    each = max(1, int(j.expert_imbalance * (tokens * m.experts_per_token * j.ep // m.experts)))
    router = gemm_ns(d, tokens, m.experts, m.hidden)
    # Tokens are put in the order of their experts and back: read and written, twice.
    copies = tokens * m.experts_per_token * j.expert_imbalance
    ordered = moved_ns(d, 2 * 2 * HALF * copies * m.hidden / j.tp) + 2 * d.kernel_us * 1e3
    return router + grouped_ns(s, each, up * inner, m.hidden, here) + grouped_ns(s, each, m.hidden, inner, here), ordered


def _attention_ns(s: Scenario) -> float:
    """Scores, softmax and context; scores that stay on the chip move nothing, and only half of them are needed."""
    m, j, d = s.model, s.job, s.device
    batch, queries = j.micro_batch * m.heads // j.tp, m.sequence // j.cp
    if m.flash_attention:
        reached = d.peak_tflops * 1e3 * d.gemm_share * d.attention_share
        return 1.0 * batch * queries * m.sequence * (query_width(m) + value_width(m)) / reached + d.kernel_us * 1e3
    scores = gemm_ns(d, queries, m.sequence, query_width(m), batch)
    products = scores + gemm_ns(d, queries, value_width(m), m.sequence, batch)
    # Softmax reads and writes a score; dropout reads, writes and masks it.
    return products + moved_ns(d, batch * queries * m.sequence * (4 * HALF + 1.0)) + ATTENTION * d.kernel_us * 1e3


def _activated(m: Model, j: Job) -> float:
    """Numbers that the activation of the feed-forward block is applied to for a token, of all experts that it goes to."""
    if not m.experts:
        return float(ffn(m))
    return expert_ffn(m) * (m.experts_per_token * j.expert_imbalance + m.shared_experts)


def _elementwise_bytes(m: Model, j: Job, tokens: int) -> float:
    """Norms, dropouts with residual (two of each, of parallel blocks one), the activation, biases; the first two are cut only
    by sequence parallelism. Latents have norms too, and a head's key is put together from its parts."""
    norms = 1 if m.parallel_blocks else 2
    outside = tokens * m.hidden * (norms * 2 * HALF + norms * (3 * HALF + m.dropout)) / (j.tp if j.sequence_parallel else 1)
    outside += tokens * 2 * HALF * (m.query_latent + m.kv_latent) / (j.tp if latents_gathered(m, j) else 1)
    joined = 2 * HALF * m.heads * query_width(m) if m.kv_latent else 0
    return outside + tokens * (2 * HALF * _activated(m, j) + 3 * HALF * m.hidden + joined) / j.tp


def _elementwise_kernels(m: Model) -> int:
    """Kernels of a layer that are no product; shared experts have an activation and a sum of their own."""
    latents = (m.query_latent > 0) + 2 if m.kv_latent else 0
    return ELEMENTWISE - 2 * m.parallel_blocks + latents + 2 * (m.shared_experts > 0)


def head_ns(s: Scenario) -> tuple[float, float]:
    """Logits and loss of one micro-batch on the last stage, forward and backward."""
    m, j, d = s.model, s.job, s.device
    tokens = tokens_of(m, j)
    product, moved = gemm_ns(d, tokens, m.vocab // j.tp, m.hidden), moved_ns(d, LOSS_BYTES * tokens * m.vocab / j.tp)
    return product + moved, (1 if j.lora_rank else 2) * product + moved


def layer_parameters(m: Model) -> float:
    """Parameters of one layer; of a mixture, of one that has experts."""
    dense = float(sum(one.columns * one.depth for one in dense_matrices(m)))
    norms = (1 if m.parallel_blocks else 2) * 2 * m.hidden + m.query_latent + m.kv_latent
    return dense + norms + m.hidden * m.experts + expert_parameters(m)


def expert_parameters(m: Model) -> float:
    """Parameters of one layer's routed experts."""
    return float(m.experts * sum(one.columns * one.depth for one in block_matrices(m, expert_ffn(m))))


def adapter_parameters(m: Model, j: Job) -> float:
    """Parameters of one layer's adapters."""
    return float(j.lora_rank * sum(one.columns + one.depth for one in adapted(m, j)))


def kinds(m: Model) -> list[Model]:
    """The model as if all its layers were of a kind: dense ones, then those with experts."""
    if not m.dense_layers:
        return [m]
    return [replace(m, experts=0, experts_per_token=0, expert_ffn=0, shared_experts=0, dense_layers=0), m]


def kind_layers(m: Model) -> list[int]:
    """Layers of each kind."""
    return [m.dense_layers, m.layers - m.dense_layers] if m.dense_layers else [m.layers]


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


def active_parameters(m: Model) -> float:
    """Parameters that a token meets; of the embeddings those of the logits."""
    idle = expert_parameters(m) * (m.experts - m.experts_per_token) / m.experts if m.experts else 0.0
    each = [layer_parameters(kind) for kind in kinds(m)]
    each[-1] -= idle
    return sum(n * one for n, one in zip(kind_layers(m), each, strict=True)) + m.vocab * m.hidden


def parameters(m: Model) -> float:
    """Parameters of the model."""
    layers = sum(n * layer_parameters(kind) for n, kind in zip(kind_layers(m), kinds(m), strict=True))
    return layers + (1 if m.tied_embeddings else 2) * m.vocab * m.hidden


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


def stage_parameters(s: Scenario) -> float:
    """Parameters on a rank of the busiest stage, before the state is sharded; experts are spread over their ranks."""
    return sum(stage_parts(s))


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


def optimiser_ns(s: Scenario) -> float:
    """One optimiser step over what a rank holds."""
    return moved_ns(s.device, OPTIMISER_BYTES * sharded_parameters(s))


def flops_per_step(m: Model, global_batch: int, job: Job | None = None) -> float:
    """FLOPs a step needs, forward and backward, nothing computed twice; a job with adapters trains nothing else."""
    tokens = float(global_batch) * m.sequence
    # 6 FLOPs a parameter and token (2 forward, 4 backward; 2 of a frozen one), and for attention scores 12·l·h·s where heads
    # are as wide as hidden (Narayanan et al. 2021).
    scores = 6 * tokens * m.layers * m.heads * (query_width(m) + value_width(m)) * m.sequence
    if job is None or not job.lora_rank:
        return 6 * tokens * active_parameters(m) + scores
    adapters = sum(n * adapter_parameters(kind, job) for n, kind in zip(kind_layers(m), kinds(m), strict=True))
    return tokens * (4 * active_parameters(m) + 6 * adapters) + scores


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


def memory_gb(s: Scenario) -> float:
    """What the busiest rank must hold: parameters, gradients, optimiser, and activations of the micro-batches in flight."""
    return sum(memory_parts_gb(s).values())


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
    wide = ((6 if m.gated else 4) - less) * _activated(m, j)
    return tokens * (outside + (inside + wide) / j.tp + small) + scores
