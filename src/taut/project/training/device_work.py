"""What a rank computes: a transformer cut by its parallelism, on a device whose roofline and efficiencies are given.

A matrix product takes its FLOPs over what of the peak it reaches: less where its inner dimension is short, or where its
tiles do not fill the last wave of processors. Everything else takes its bytes over what of the memory bandwidth it
reaches. Every kernel costs a little whatever it does, and the host must issue it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from taut.project.training.scenario import Device, Job, Model, Scenario

# Bytes of a number in half precision.
HALF = 2
# Rows and columns of a product that one processor computes at once.
TILE = 128, 256
# Of what an unfilled last wave would lose by counting, this share is really lost: the rest is hidden or split up.
WHOLE_WAVES = 0.5
# Kernels of a layer's forward pass that are no product; those of its attention core.
ELEMENTWISE, ATTENTION = 8, 3
# Bytes an optimiser step reads and writes for a parameter: gradient, master copy, two moments, the copy in half precision.
OPTIMISER_BYTES = 36
# Bytes that the optimiser keeps for a parameter: master copy and two moments in full precision.
STATE_BYTES = 12


def gemm_ns(d: Device, rows: int, columns: int, depth: int, batch: int = 1) -> float:
    """Time of ``batch`` products (rows × depth) · (depth × columns)."""
    # Wave quantisation: the last wave of tiles leaves processors idle.
    tiles = ceil(rows / TILE[0]) * ceil(columns / TILE[1]) * batch
    filled = tiles / (ceil(tiles / d.processors) * d.processors)
    reached = d.gemm_share * depth / (depth + d.gemm_half_depth) * (1 - WHOLE_WAVES * (1 - filled))
    computed = 2.0 * rows * columns * depth * batch / (d.peak_tflops * 1e3 * reached)
    return max(computed, moved_ns(d, HALF * (rows * depth + depth * columns + rows * columns) * batch)) + d.kernel_us * 1e3


def moved_ns(d: Device, count: float) -> float:
    """Time of element-wise work that moves so many bytes."""
    return count / (d.memory_gb_per_s * d.memory_share)


@dataclass(frozen=True)
class Layer:
    """Times of one layer for one micro-batch on one rank, transfers left out, ns."""

    forward_ns: float
    attention_ns: float
    """The part of it that selective recomputation repeats."""
    host_ns: float
    """Time the host needs to issue it."""

    def backward_ns(self, recompute: str) -> float:
        """Backward pass: every product twice, and what was not kept once more."""
        again = {"none": 0.0, "selective": self.attention_ns, "full": self.forward_ns}[recompute]
        return 2 * self.forward_ns + again

    def issued_ns(self, recompute: str) -> float:
        """Time the host needs for the backward pass."""
        return self.host_ns * {"none": 2.0, "selective": 2.3, "full": 3.0}[recompute]


def layer(s: Scenario) -> Layer:
    """Forward pass of one layer."""
    m, j, d = s.model, s.job, s.device
    tokens, wide = tokens_of(m, j), m.hidden // m.heads
    products = gemm_ns(d, tokens, (m.hidden + 2 * _kv(m) * wide) // j.tp, m.hidden) + gemm_ns(
        d, tokens, m.hidden, m.hidden // j.tp
    )
    products += _feed_forward(s, tokens)
    rest = _elementwise_bytes(m, j, tokens)
    core = _attention_ns(s)
    return Layer(products + moved_ns(d, rest) + ELEMENTWISE * d.kernel_us * 1e3 + core, core, d.host_layer_us * 1e3)


def tokens_of(m: Model, j: Job) -> int:
    """Tokens of a micro-batch on one rank."""
    return j.micro_batch * m.sequence // j.cp


def _kv(m: Model) -> int:
    return m.kv_heads or m.heads


def _ffn(m: Model) -> int:
    return m.ffn or 4 * m.hidden


def _feed_forward(s: Scenario, tokens: int) -> float:
    """The two (or three) products of the feed-forward block, of every expert that is here."""
    m, j, d = s.model, s.job, s.device
    inner, up = _ffn(m) // j.tp, 2 if m.gated else 1
    if not m.experts:
        return gemm_ns(d, tokens, up * inner, m.hidden) + gemm_ns(d, tokens, m.hidden, inner)
    here = m.experts // j.ep
    each = max(1, tokens * m.experts_per_token * j.ep // m.experts)
    router = gemm_ns(d, tokens, m.experts, m.hidden)
    return router + gemm_ns(d, each, up * inner, m.hidden, here) + gemm_ns(d, each, m.hidden, inner, here)


def _attention_ns(s: Scenario) -> float:
    """Scores, softmax and context; scores that stay on the chip move nothing, and only half of them are needed."""
    m, j, d = s.model, s.job, s.device
    wide, batch, queries = m.hidden // m.heads, j.micro_batch * m.heads // j.tp, m.sequence // j.cp
    if m.flash_attention:
        reached = d.peak_tflops * 1e3 * d.gemm_share * 0.7
        return 2.0 * batch * queries * m.sequence * wide / reached + d.kernel_us * 1e3
    products = gemm_ns(d, queries, m.sequence, wide, batch) + gemm_ns(d, queries, wide, m.sequence, batch)
    # Softmax reads and writes a score; dropout reads, writes and masks it.
    return products + moved_ns(d, batch * queries * m.sequence * (4 * HALF + 1.0)) + ATTENTION * d.kernel_us * 1e3


def _elementwise_bytes(m: Model, j: Job, tokens: int) -> float:
    """Two norms, two dropouts with residual, the activation, biases; the first two are cut only by sequence parallelism."""
    outside = tokens * m.hidden * (2 * 2 * HALF + 2 * (3 * HALF + m.dropout)) / (j.tp if j.sequence_parallel else 1)
    return outside + tokens * (2 * 2 * HALF * _ffn(m) // 2 + 3 * HALF * m.hidden) / j.tp


def head_ns(s: Scenario) -> float:
    """Logits and loss of one micro-batch on the last stage, forward and backward."""
    m, j, d = s.model, s.job, s.device
    tokens = tokens_of(m, j)
    return 3 * gemm_ns(d, tokens, m.vocab // j.tp, m.hidden) + moved_ns(d, 3 * 4 * HALF * tokens * m.vocab / j.tp)


def layer_parameters(m: Model) -> float:
    """Parameters of one layer."""
    matrices = (3 if m.gated else 2) * _ffn(m) * m.hidden
    attention = (2 * m.hidden + 2 * _kv(m) * (m.hidden // m.heads)) * m.hidden
    return attention + matrices * max(m.experts, 1) + 4 * m.hidden


def parameters(m: Model) -> float:
    """Parameters of the model."""
    return m.layers * layer_parameters(m) + m.vocab * m.hidden


def stage_parameters(s: Scenario) -> float:
    """Parameters on a rank of the busiest stage, before the state is sharded; experts are spread over their ranks."""
    m, j = s.model, s.job
    dense = m.layers * (layer_parameters(m) - (0 if not m.experts else (3 if m.gated else 2) * _ffn(m) * m.hidden * m.experts))
    spread = parameters(m) - m.vocab * m.hidden - dense
    return (dense / j.pp + spread / j.pp / j.ep + m.vocab * m.hidden) / j.tp


def optimiser_ns(s: Scenario) -> float:
    """One optimiser step over what a rank holds."""
    sharded = s.job.dp if s.job.sharding != "none" else 1
    return moved_ns(s.device, OPTIMISER_BYTES * stage_parameters(s) / sharded)


def flops_per_step(m: Model, global_batch: int) -> float:
    """FLOPs a step needs, forward and backward, nothing computed twice."""
    tokens = float(global_batch) * m.sequence
    active = m.layers * (layer_parameters(m) - (0 if not m.experts else _idle_experts(m))) + m.vocab * m.hidden
    # 6 FLOPs a parameter and token (2 forward, 4 backward), and 12·l·h·s for attention scores (Narayanan et al. 2021).
    return 6 * tokens * active + 12 * tokens * m.layers * m.hidden * m.sequence


def _idle_experts(m: Model) -> float:
    return (3 if m.gated else 2) * _ffn(m) * m.hidden * (m.experts - m.experts_per_token)


def memory_gb(s: Scenario) -> float:
    """What the busiest rank must hold: parameters, gradients, optimiser, and activations of the micro-batches in flight."""
    m, j = s.model, s.job
    held = stage_parameters(s)
    shards = j.dp if j.sharding in ("zero1", "zero2", "zero3", "hsdp") else 1
    state = STATE_BYTES * held / shards
    gradients = j.gradient_bytes * held / (shards if j.sharding in ("zero2", "zero3", "hsdp") else 1)
    weights = HALF * held / (shards if j.sharding in ("zero3", "hsdp") else 1)
    in_flight = min(j.micro_batches, j.pp) if j.schedule != "gpipe" else j.micro_batches
    return (state + gradients + weights + in_flight * m.layers / j.pp * _kept_bytes(s)) / 1e9


def _kept_bytes(s: Scenario) -> float:
    """Activations of one layer of one micro-batch that are kept for the backward pass."""
    m, j = s.model, s.job
    tokens = tokens_of(m, j)
    inputs = HALF * tokens * m.hidden / (j.tp if j.sequence_parallel else 1)
    if j.recompute == "full":
        return inputs
    scores = 0.0 if m.flash_attention or j.recompute == "selective" else 5.0 * j.micro_batch * m.heads * m.sequence**2 / j.tp
    # Inputs of norms and of both blocks, masks of dropout; queries, keys, values, the context, what the feed-forward block has.
    outside = (8 + 2 * m.dropout) / (j.tp if j.sequence_parallel else 1)
    wide = (6 if m.gated else 4) * _ffn(m) / m.hidden * max(m.experts_per_token, 1)
    return tokens * m.hidden * (outside + (4 + 4 * _kv(m) / m.heads + wide) / j.tp) + scores
