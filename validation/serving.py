"""Latency of a fixed batch on inference servers, as published, and what the roofline of ``requests/iteration_time.py`` says.

    python validation/serving.py

Nothing was fitted on these rows. Devices are the shipped ones with the data sheet's bandwidth where the variant differs, and
5 µs a kernel (captured graphs); fabrics are the shipped ones. Sources:

- vLLM's performance benchmark, build 9515 (buildkite.com/vllm/performance-benchmark): H200, batch 8, 32 tokens in, 128 out.
- J. Musgrave, vLLM throughput-latency sweep on NVIDIA A100 (40 GB): one request at a time, 1024 in, 128 out, 75 tokens/s.
- sfc-gh-zhwang/llm_benchmark: Llama 2 70B on eight A100 of 40 GB, tp 8, Triton with TensorRT-LLM and vLLM of 2023.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import NamedTuple

import msgspec

from taut.project.requests.iteration_time import pace_of
from taut.project.training.scenario import Device, Fabric, Model

KERNEL_US = 5.0
MODELS = {
    "8B": Model(layers=32, hidden=4096, heads=32, sequence=8192, vocab=128256, kv_heads=8, ffn=14336, gated=True),
    "70B": Model(layers=80, hidden=8192, heads=64, sequence=8192, vocab=128256, kv_heads=8, ffn=28672, gated=True),
    "8x7B": Model(
        layers=32,
        hidden=4096,
        heads=32,
        sequence=8192,
        vocab=32000,
        kv_heads=8,
        ffn=14336,
        gated=True,
        experts=8,
        experts_per_token=2,
    ),
}


class Case(NamedTuple):
    """A batch that is answered as a whole."""

    source: str
    model: str
    device: str
    fabric: str
    memory_gb_per_s: float
    tp: int
    batch: int
    prompt: int
    generated: int
    published_s: float


CASES = (
    Case("vLLM CI, H200", "70B", "h100-80g", "h100-ndr", 4800, 4, 8, 32, 128, 2.0775),
    Case("vLLM CI, H200", "8B", "h100-80g", "h100-ndr", 4800, 1, 8, 32, 128, 0.8334),
    Case("vLLM CI, H200", "8x7B", "h100-80g", "h100-ndr", 4800, 2, 8, 32, 128, 1.9174),
    Case("vLLM, A100 40 GB", "8B", "a100-80g", "dgx-a100-hdr", 1555, 1, 1, 1024, 128, 128 / 75),
    Case("TensorRT-LLM, A100 40 GB", "70B", "a100-80g", "dgx-a100-hdr", 1555, 8, 32, 1, 2048, 70.19),
    Case("TensorRT-LLM, A100 40 GB", "70B", "a100-80g", "dgx-a100-hdr", 1555, 8, 24, 1024, 1024, 38.97),
    Case("vLLM of 2023, A100 40 GB", "70B", "a100-80g", "dgx-a100-hdr", 1555, 8, 32, 1, 2048, 133.70),
    Case("vLLM of 2023, A100 40 GB", "70B", "a100-80g", "dgx-a100-hdr", 1555, 8, 24, 1024, 1024, 76.12),
)


def shipped(folder: str, name: str) -> dict[str, object]:
    text = (resources.files("taut") / "scenarios" / folder / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def ours_s(case: Case) -> float:
    """The prompts are read together, then every iteration makes a token of each."""
    changed = {"memory_gb_per_s": case.memory_gb_per_s, "kernel_us": KERNEL_US}
    device = msgspec.convert({**shipped("devices", case.device), **changed}, Device)
    fabric = msgspec.convert(shipped("fabrics", case.fabric), Fabric)
    p = pace_of(MODELS[case.model], device, fabric, case.tp, 1, case.batch)
    read = p.iteration_ns(case.batch * case.prompt) + case.batch * p.score_ns * case.prompt**2 / 2
    context = case.prompt + case.generated / 2
    token = p.iteration_ns(case.batch) + case.batch * p.kv_ns * context
    return float(read + (case.generated - 1) * token) * 1e-9


def rows() -> list[tuple[Case, float, float]]:
    """(case, ours in seconds, relative difference)."""
    return [(case, ours, ours / case.published_s - 1) for case in CASES for ours in (ours_s(case),)]


if __name__ == "__main__":
    print(f"{'source':26} {'model':5} {'tp':>2} {'batch':>5} {'in':>5} {'out':>5} {'published':>9} {'ours':>8} {'differs':>8}")
    for c, ours, off in rows():
        what = f"{c.source:26} {c.model:5} {c.tp:2} {c.batch:5} {c.prompt:5} {c.generated:5}"
        print(f"{what} {c.published_s:8.3f}s {ours:7.3f}s {off:8.1%}")
