"""What a rank computes: a transformer cut by its parallelism, on a device whose roofline and efficiencies are given.

A matrix product takes its FLOPs over what of the peak it reaches: less where its inner dimension is short, or where its
tiles do not fill the last wave of processors. Everything else takes its bytes over what of the memory bandwidth it
reaches. Every kernel costs a little whatever it does, and the host must issue it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from taut.project.training.model_shape import (
    EIGHT,
    HALF,
    Matrix,
    activated,
    adapted,
    dense_matrices,
    expert_ffn,
    expert_parameters,
    latents_gathered,
    layer_parameters,
    query_width,
    tokens_of,
    value_width,
)
from taut.project.training.rank_memory import sharded_parameters
from taut.project.training.scenario import Device, Job, Model, Scenario

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
# Bytes that a cast from half precision to fp8 moves for a number.
CAST_BYTES = 3
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


def _adapter_ns(s: Scenario, one: Matrix) -> float:
    """Into the adapter's width, and out of it; in half precision."""
    columns, depth = one.on_a_rank(s.job.tp)
    rows, rank = _rows(one, s.model, s.job), s.job.lora_rank
    return gemm_ns(s.device, rows, rank, depth) + gemm_ns(s.device, rows, columns, rank)


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


def _elementwise_bytes(m: Model, j: Job, tokens: int) -> float:
    """Norms, dropouts with residual (two of each, of parallel blocks one), the activation, biases; the first two are cut only
    by sequence parallelism. Latents have norms too, and a head's key is put together from its parts."""
    norms = 1 if m.parallel_blocks else 2
    outside = tokens * m.hidden * (norms * 2 * HALF + norms * (3 * HALF + m.dropout)) / (j.tp if j.sequence_parallel else 1)
    outside += tokens * 2 * HALF * (m.query_latent + m.kv_latent) / (j.tp if latents_gathered(m, j) else 1)
    joined = 2 * HALF * m.heads * query_width(m) if m.kv_latent else 0
    return outside + tokens * (2 * HALF * activated(m, j) + 3 * HALF * m.hidden + joined) / j.tp


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


def optimiser_ns(s: Scenario) -> float:
    """One optimiser step over what a rank holds."""
    return moved_ns(s.device, OPTIMISER_BYTES * sharded_parameters(s))
