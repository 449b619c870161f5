"""The shape of a transformer: matrices of its layers, how tensor parallelism cuts them, parameters, FLOPs of a step."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec.structs import replace

from taut.project.training.scenario import Job, Model

# Bytes of a number in half precision, and of one of a product in fp8.
HALF, EIGHT = 2, 1


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


def latents_gathered(m: Model, j: Job) -> bool:
    """Whether ranks of tp make the latents of their own tokens and gather these, instead of the hidden state."""
    return j.sequence_parallel and m.query_latent > 0


def adapted(m: Model, j: Job) -> list[Matrix]:
    """Matrices of a layer that have an adapter."""
    return [one for one in dense_matrices(m) if one.name in j.lora_matrices] if j.lora_rank else []


def tokens_of(m: Model, j: Job) -> int:
    """Tokens of a micro-batch on one rank."""
    return j.micro_batch * m.sequence // j.cp


def ffn(m: Model) -> int:
    """Width of the feed-forward block."""
    return m.ffn or 4 * m.hidden


def expert_ffn(m: Model) -> int:
    """Width of one expert."""
    return m.expert_ffn or ffn(m)


def activated(m: Model, j: Job) -> float:
    """Numbers that the activation of the feed-forward block is applied to for a token, of all experts that it goes to."""
    if not m.experts:
        return float(ffn(m))
    return expert_ffn(m) * (m.experts_per_token * j.expert_imbalance + m.shared_experts)


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


def flops_per_step(m: Model, global_batch: int, job: Job | None = None) -> float:
    """FLOPs a step needs, forward and backward, nothing computed twice; a job with adapters trains nothing else."""
    tokens = float(global_batch) * m.sequence
    # 6 FLOPs a parameter and token (2 forward, 4 backward; 2 of a frozen one), and for attention scores 12·l·h·s where heads
    # are as wide as hidden (Narayanan et al. 2021); fused attention leaves out the masked half of them.
    scores = 6 * tokens * m.layers * m.heads * (query_width(m) + value_width(m)) * m.sequence
    scores *= 0.5 if m.flash_attention else 1.0
    if job is None or not job.lora_rank:
        return 6 * tokens * active_parameters(m) + scores
    adapters = sum(n * adapter_parameters(kind, job) for n, kind in zip(kind_layers(m), kinds(m), strict=True))
    return tokens * (4 * active_parameters(m) + 6 * adapters) + scores
