"""What a rank computes: a transformer cut by its parallelism, on a device whose roofline and efficiencies are given.

A matrix product takes its FLOPs over what of the peak it reaches: less where its inner dimension is short, or where its
tiles do not fill the last wave of processors. Everything else takes its bytes over what of the memory bandwidth it
reaches. Every kernel costs a little whatever it does, and the host must issue it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from taut.project.training.scenario import Device, Job, Model, Scenario, state_shards

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
# Bytes of a number of a product in fp8; those that a cast from half precision moves for each; and those of the two copies of
# a weight (one transposed) that are kept beside the one in half precision.
EIGHT, CAST_BYTES, COPIES_BYTES = 1, 3, 2
# Products of experts, one for each in a single kernel, against one product of that size (validation/h200_eight_bit.json,
# ``python bench/device.py --compare``): the share of its rate that they reach, and the rows of unfilled tiles that an
# expert adds where tokens are dealt unevenly.
GROUPED_SHARE, GROUPED_ROWS = 0.94, 112


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
    took = gemm_ns(d, rows + GROUPED_ROWS, columns, depth, experts, eight_bit=eight_bit) / GROUPED_SHARE
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
    products = linear_ns(s, tokens, (m.hidden + 2 * _kv(m) * wide) // j.tp, m.hidden)
    products += linear_ns(s, tokens, m.hidden, m.hidden // j.tp)
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
        return linear_ns(s, tokens, up * inner, m.hidden) + linear_ns(s, tokens, m.hidden, inner)
    here = m.experts // j.ep
    each = max(1, tokens * m.experts_per_token * j.ep // m.experts)
    router = gemm_ns(d, tokens, m.experts, m.hidden)
    # Tokens are put in the order of their experts and back: read and written, twice.
    ordered = moved_ns(d, 2 * 2 * HALF * tokens * m.experts_per_token * m.hidden / j.tp) + 2 * d.kernel_us * 1e3
    return router + ordered + grouped_ns(s, each, up * inner, m.hidden, here) + grouped_ns(s, each, m.hidden, inner, here)


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
    return outside + tokens * (2 * HALF * _ffn(m) * max(m.experts_per_token, 1) + 3 * HALF * m.hidden) / j.tp


def head_ns(s: Scenario) -> float:
    """Logits and loss of one micro-batch on the last stage, forward and backward."""
    m, j, d = s.model, s.job, s.device
    tokens = tokens_of(m, j)
    return 3 * gemm_ns(d, tokens, m.vocab // j.tp, m.hidden) + moved_ns(d, 3 * 4 * HALF * tokens * m.vocab / j.tp)


def layer_parameters(m: Model) -> float:
    """Parameters of one layer."""
    attention = (2 * m.hidden + 2 * _kv(m) * (m.hidden // m.heads)) * m.hidden
    return attention + _block_parameters(m) * max(m.experts, 1) + 4 * m.hidden


def _block_parameters(m: Model) -> float:
    """Of one feed-forward block."""
    return (3 if m.gated else 2) * _ffn(m) * m.hidden


def expert_parameters(m: Model) -> float:
    """Parameters of one layer's experts."""
    return _block_parameters(m) * m.experts


def parameters(m: Model) -> float:
    """Parameters of the model."""
    return m.layers * layer_parameters(m) + m.vocab * m.hidden


def stage_parts(s: Scenario) -> tuple[float, float]:
    """Parameters on a rank of the busiest stage, before the state is sharded: those that every rank along dp and cp holds, and
    those of the experts that are here."""
    m, j = s.model, s.job
    experts, embedding = m.layers * expert_parameters(m), m.vocab * m.hidden
    return ((parameters(m) - experts - embedding) / j.pp + embedding) / j.tp, experts / j.pp / j.ep / j.tp


def stage_parameters(s: Scenario) -> float:
    """Parameters on a rank of the busiest stage, before the state is sharded; experts are spread over their ranks."""
    return sum(stage_parts(s))


def sharded_parameters(s: Scenario) -> float:
    """Of these, the part whose optimiser state a rank holds: a share of all ranks that hold the same, those of dp and cp."""
    j, (dense, experts) = s.job, stage_parts(s)
    if j.sharding == "none":
        return dense + experts
    if j.sharding == "hsdp":
        return (dense + experts) / state_shards(j, s.fabric.node)
    return dense / (j.dp * j.cp) + experts / (j.dp * j.cp / j.ep)


def optimiser_ns(s: Scenario) -> float:
    """One optimiser step over what a rank holds."""
    return moved_ns(s.device, OPTIMISER_BYTES * sharded_parameters(s))


def flops_per_step(m: Model, global_batch: int) -> float:
    """FLOPs a step needs, forward and backward, nothing computed twice."""
    tokens = float(global_batch) * m.sequence
    active = m.layers * (layer_parameters(m) - (0 if not m.experts else _idle_experts(m))) + m.vocab * m.hidden
    # 6 FLOPs a parameter and token (2 forward, 4 backward), and 12·l·h·s for attention scores (Narayanan et al. 2021).
    return 6 * tokens * active + 12 * tokens * m.layers * m.hidden * m.sequence


def _idle_experts(m: Model) -> float:
    return _block_parameters(m) * (m.experts - m.experts_per_token)


def memory_parts_gb(s: Scenario) -> dict[str, float]:
    """What the busiest rank must hold, part by part; beside it a library and the allocator take some."""
    m, j = s.model, s.job
    whole, part = stage_parameters(s), sharded_parameters(s)
    kept = part if j.sharding in ("zero3", "hsdp") else whole
    weight = HALF + (COPIES_BYTES if j.precision == "fp8" else 0)
    in_flight = float(min(j.micro_batches, j.pp) if j.schedule != "gpipe" else j.micro_batches)
    if j.schedule == "interleaved":
        # Warming up, a stage takes more chunks than it has micro-batches of its own (Korthikanti et al. 2022).
        in_flight = min(in_flight * (1 + (j.pp - 1) / (j.pp * j.virtual_pp)), j.micro_batches)
    counts = {
        "weights": weight * kept,
        "gradients": j.gradient_bytes * (part if j.sharding in ("zero2", "zero3", "hsdp") else whole),
        "optimiser": STATE_BYTES * part,
        "activations": in_flight * m.layers / j.pp * _kept_bytes(s),
    }
    return {name: count / 1e9 for name, count in counts.items()}


def memory_gb(s: Scenario) -> float:
    """What the busiest rank must hold: parameters, gradients, optimiser, and activations of the micro-batches in flight."""
    return sum(memory_parts_gb(s).values())


def _kept_bytes(s: Scenario) -> float:
    """Activations of one layer of one micro-batch that are kept for the backward pass."""
    m, j = s.model, s.job
    tokens = tokens_of(m, j)
    inputs = HALF * tokens * m.hidden / (j.tp if j.sequence_parallel else 1)
    if j.recompute == "full":
        return inputs
    scores = 0.0 if m.flash_attention or j.recompute == "selective" else 5.0 * j.micro_batch * m.heads * m.sequence**2 / j.tp
    # Inputs of norms and of both blocks, masks of dropout; queries, keys, values, the context, what the feed-forward block has.
    # In fp8 the inputs of three of the four products are kept as they were cast.
    less = HALF - EIGHT if j.precision == "fp8" else 0
    outside = (8 - 2 * less + 2 * m.dropout) / (j.tp if j.sequence_parallel else 1)
    wide = ((6 if m.gated else 4) - less) * _ffn(m) / m.hidden * max(m.experts_per_token, 1)
    return tokens * m.hidden * (outside + (4 + 4 * _kv(m) / m.heads + wide) / j.tp) + scores
