"""What an iteration of a server takes: prompts are limited by products, decoding by reading weights, keys and values.

Times are those of all layers on the devices of one tensor-parallel group, pipeline stages one after the other. Kernels are
replayed from captured graphs, so that no device waits for its host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.project.fabric.groups import Net
from taut.project.requests.replica_pool import PoolScenario, kv_bytes
from taut.project.training.device_work import gemm_ns, moved_ns
from taut.project.training.model_shape import (
    HALF,
    block_matrices,
    dense_matrices,
    expert_ffn,
    ffn,
    kind_layers,
    kinds,
    kv_heads,
    query_width,
    value_width,
)
from taut.project.training.scenario import Device, Fabric, Job, Model

# Kernels of a layer that are no product and no attention: two norms, rotary positions, activation (assumption).
FUSED = 4
# Of what products reach, attention on the chip reaches this share (as in ``training/device_work.py``).
ATTENTION_SHARE = 0.7
# Times are tabulated at 1, 2, 4 … tokens, up to 131,072.
DOUBLINGS = 18


@dataclass(frozen=True)
class Pace:
    """Times of a server, ns."""

    base: Floats
    """Of an iteration over 1, 2, 4 … tokens, attention left out."""
    kv_ns: float
    """Of reading the keys and values of a token of context."""
    score_ns: float
    """Of attention between a token of a prompt and one before it."""
    send_ns: float
    """Of sending the keys and values of a token to another replica …"""
    hop_ns: float
    """… and of doing so whatever their number."""

    def iteration_ns(self, tokens: float | Ints) -> Floats:
        """Time of an iteration over a number of tokens, attention left out; linear between the tabulated ones."""
        return np.asarray(np.interp(tokens, 2.0 ** np.arange(len(self.base)), self.base))

    def prefill_ns(self, prompt: float) -> float:
        """A prompt on its own."""
        return float(self.iteration_ns(prompt) + self.score_ns * prompt * prompt / 2)

    def alone_ns(self, prompt: float | Ints, fresh: float | Ints, generated: float | Ints) -> Floats:
        """A request on a server that does nothing else; ``fresh`` are the prompt tokens that are not cached."""
        read = self.iteration_ns(fresh) + self.score_ns * fresh * (prompt - fresh / 2)
        return np.asarray(read + (generated - 1) * (self.iteration_ns(1) + self.kv_ns * (prompt + generated / 2)))


def pace(s: PoolScenario) -> Pace:
    """Times of one server of a scenario."""
    return pace_of(s.model, s.device, s.fabric, s.pool.tp, s.pool.stages, s.pool.max_batch)


@lru_cache(maxsize=64)
def pace_of(m: Model, d: Device, fabric: Fabric, tp: int, pp: int, max_batch: int) -> Pace:
    """Times of a model on tp × pp devices; at most ``max_batch`` requests need a next token at once."""
    net = Net(Job(global_batch=1, tp=tp, pp=pp), fabric)
    base = []
    for tokens in (1 << k for k in range(DOUBLINGS)):
        met = (1 if m.parallel_blocks else 2) * net.ns("all-reduce", "tp", HALF * tokens * m.hidden)
        hops = (pp - 1) * net.ns("send", "pp", HALF * tokens * m.hidden / tp) if pp > 1 else 0.0
        head = gemm_ns(d, min(tokens, max_batch), m.vocab // tp, m.hidden)
        layers = sum(n * _layer_ns(kind, d, tp, tokens) for n, kind in zip(kind_layers(m), kinds(m), strict=True))
        base.append(layers + m.layers * met + hops + head)
    # A group larger than the heads holds them more than once; every rank holds the latents of all heads.
    shared = 1 if m.kv_latent else min(tp, kv_heads(m))
    kv = moved_ns(d, kv_bytes(m) / shared)
    wide = m.heads * (query_width(m) + value_width(m))
    score = 2.0 * m.layers * wide / tp / (d.peak_tflops * 1e3 * d.gemm_share * ATTENTION_SHARE)
    rate, latency = _between_replicas(fabric, tp * pp)
    return Pace(np.array(base), kv, score, kv_bytes(m) / (shared * pp) / rate, latency * 1e3)


def _layer_ns(m: Model, d: Device, tp: int, tokens: int) -> float:
    total = sum(gemm_ns(d, tokens, *one.on_a_rank(tp)) for one in dense_matrices(m))
    inner = ffn(m)
    if m.experts:
        touched = min(m.experts, tokens * m.experts_per_token)
        each = max(1, tokens * m.experts_per_token // touched)
        total += sum(gemm_ns(d, each, *one.on_a_rank(tp), touched) for one in block_matrices(m, expert_ffn(m)))
        inner = expert_ffn(m) * (m.experts_per_token + m.shared_experts)
    norms = 1 if m.parallel_blocks else 2
    # Norms and residuals read and write the hidden state, the activation its own width.
    moved = moved_ns(d, HALF * tokens * (2.0 * norms * m.hidden + 2.0 * (inner // tp)))
    return total + moved + (FUSED + norms - 1) * d.kernel_us * 1e3


def _between_replicas(fabric: Fabric, ranks: int) -> tuple[float, float]:
    """(GB/s of a device, latency in µs) to another replica: on the same node, or through the tier outside it."""
    tier = fabric.tiers[0 if 2 * ranks <= fabric.node or len(fabric.tiers) == 1 else 1]
    return tier.gb_per_s / tier.oversubscription, tier.latency_us
