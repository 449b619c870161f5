"""What an accelerator reaches, measured: ``python bench/device.py [--out FILE]`` on a machine with one and torch.

Times matrix products over their inner dimension and size, element-wise work, kernels that do nothing, and sustained load
with its power; fits from these the efficiencies of a device file (``gemm_share``, ``gemm_half_depth``, ``memory_share``,
``kernel_us``). Then times whole transformer layers, forward and backward, which no fit has seen, and says how far
``taut.project.training.device_work`` is from them. Random normal data: constant ones draw less power and run faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = [(4096, 4096), (8192, 8192), (16384, 8192)]
DEPTHS = [128, 256, 512, 1024, 2048, 4096, 8192]
SHAPE = ("hidden", "heads", "kv", "ffn", "gated", "sequence", "batch", "tp")
LAYERS = {
    name: dict(zip(SHAPE, shape, strict=True))
    for name, shape in {
        "GPT 175B, tp 8": (12288, 96, 96, 49152, False, 2048, 1, 8),
        "GPT 22B, tp 8, micro-batch 4": (6144, 64, 64, 24576, False, 2048, 4, 8),
        "Llama 405B, tp 8": (16384, 128, 8, 53248, True, 8192, 1, 8),
        "Llama 70B, tp 8": (8192, 64, 8, 28672, True, 8192, 1, 8),
        "Llama 8B, tp 1": (4096, 32, 8, 14336, True, 8192, 1, 1),
    }.items()
}
"""Layers; a rank of a tensor-parallel group holds its part of heads, kv and ffn."""


def timed(work: Callable[[], Any], seconds: float = 0.4) -> float:
    """Median time of a call, s."""
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    took, begin = [], time.monotonic()
    while time.monotonic() - begin < seconds or len(took) < 5:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        took.append(first.elapsed_time(last) / 1e3)
    return float(np.median(took))


def watts() -> float:
    """Power now."""
    output = subprocess.run(
        ["nvidia-smi", "--query-gpu=power.draw.instant", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(output.stdout.split()[0])


def products() -> list[dict[str, float]]:
    """Rate of matrix products, TFLOP/s, each long enough to feel the limit of power."""
    import torch

    rows = []
    for m, n in SHAPES:
        for k in DEPTHS:
            a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n)))
            took = timed(lambda a=a, b=b: a @ b)
            rows.append({"rows": m, "columns": n, "depth": k, "us": took * 1e6, "tflops": 2e-12 * m * n * k / took})
    return rows


EIGHT_BITS = 448.0
"""Largest number of an e4m3 float."""


def scaled(x: Any) -> tuple[Any, Any]:
    """A tensor in eight bits and what to multiply it by: one scale, from its largest value now."""
    import torch

    scale = (x.abs().amax().float() / EIGHT_BITS).clamp(min=1e-12)
    return (x / scale).to(torch.float8_e4m3fn), scale


def eight_bit_products() -> list[dict[str, float]]:
    """Rate of matrix products of eight-bit floats, TFLOP/s, and what making them of sixteen bits takes."""
    import torch

    rows = []
    for m, n in SHAPES:
        for k in DEPTHS:
            x = torch.randn((m, k), device="cuda", dtype=torch.bfloat16)
            a, b = (scaled(torch.randn(shape, device="cuda", dtype=torch.bfloat16)) for shape in ((m, k), (n, k)))
            exact = partial(torch._scaled_mm, a[0], b[0].t(), a[1], b[1], out_dtype=torch.bfloat16)
            took, slow, cast = timed(partial(exact, use_fast_accum=True)), timed(exact), timed(partial(scaled, x))
            rows.append(
                {"rows": m, "columns": n, "depth": k, "us": took * 1e6, "tflops": 2e-12 * m * n * k / took,
                 "exact_us": slow * 1e6, "cast_us": cast * 1e6}
            )  # fmt: skip
    return rows


GROUPS = [(8, 6144, 32768), (8, 4096, 14336), (32, 7168, 2048), (64, 7168, 2048), (128, 4096, 1536)]
"""Experts, hidden, width: of Grok-1, Mixtral, DeepSeek-V3 (a part of its experts), Qwen3."""
TOKENS = [4096, 8192, 16384, 65536]


def grouped_products() -> list[dict[str, float]]:
    """Rate of one product per expert in a single call, tokens dealt evenly and unevenly, TFLOP/s."""
    import torch

    rows = []
    for experts, hidden, width in GROUPS:
        weights = torch.randn((experts, hidden, width), device="cuda", dtype=torch.bfloat16)
        for tokens in TOKENS:
            x = torch.randn((tokens, hidden), device="cuda", dtype=torch.bfloat16)
            for uneven in (0.0, 1.0):
                share = np.exp(uneven * np.random.default_rng(0).normal(size=experts) * 0.5)
                ends = np.round(np.cumsum(share / share.sum()) * tokens / 16).astype(np.int64) * 16
                ends[-1] = tokens
                offs = torch.tensor(ends, device="cuda", dtype=torch.int32)
                took = timed(lambda x=x, w=weights, o=offs: torch._grouped_mm(x, w, offs=o))
                rows.append(
                    {"experts": experts, "hidden": hidden, "width": width, "tokens": tokens, "uneven": uneven, "us": took * 1e6,
                     "tflops": 2e-12 * tokens * hidden * width / took}
                )  # fmt: skip
            order = torch.randperm(tokens, device="cuda")
            moved_s = timed(lambda x=x, o=order: x.index_select(0, o))
            rows[-1]["permute_gb_per_s"] = 2 * x.nbytes / moved_s / 1e9
        del weights
    return rows


def eight_bit_layer(shape: dict[str, Any]) -> dict[str, float]:
    """The same layer with its four products in eight bits, forward and backward; attention and norms as they were."""
    import torch

    class Product(torch.autograd.Function):
        """x · wᵀ in eight bits both ways."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            (a, sa), (b, sb) = scaled(x.flatten(0, -2)), scaled(w)
            ctx.save_for_backward(a, sa, b, sb)
            ctx.lead = x.shape[:-1]
            out = torch._scaled_mm(a, b.t(), sa, sb, out_dtype=torch.bfloat16, use_fast_accum=True)
            return out.unflatten(0, ctx.lead)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            a, sa, b, sb = ctx.saved_tensors
            g, sg = scaled(grad.flatten(0, -2))
            dx = torch._scaled_mm(g, b.t().contiguous().t(), sg, sb, out_dtype=torch.bfloat16)
            dw = torch._scaled_mm(g.t().contiguous(), a.t().contiguous().t(), sg, sa, out_dtype=torch.bfloat16)
            return dx.unflatten(0, ctx.lead), dw

    def linear(self: Any, x: Any) -> Any:
        return Product.apply(x, self.weight)

    plain = torch.nn.Linear.forward
    torch.nn.Linear.forward = linear
    try:
        return layer(shape)
    finally:
        torch.nn.Linear.forward = plain


def sustained(seconds: float = 8.0) -> dict[str, float]:
    """A large product again and again: the rate and the power it settles at; then at rest."""
    import torch

    idle = watts()
    a, b = (torch.randn((8192, 8192), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    power, calls, begin = [], 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(200):
            a @ b
        torch.cuda.synchronize()
        calls += 200
        power.append(watts())
    took = (time.monotonic() - begin) / calls
    return {"tflops": 2e-12 * 8192**3 / took, "load_w": float(np.median(power[len(power) // 2 :])), "idle_w": idle}


def moved() -> dict[str, float]:
    """Element-wise work: GB/s of a sum of two, and of a normalisation; time of a kernel that does nothing."""
    import torch

    x, y = (torch.randn(1 << 28, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    add = timed(lambda: torch.add(x, y))
    rows = torch.randn((8192, 8192), device="cuda", dtype=torch.bfloat16)
    norm = timed(lambda: torch.nn.functional.layer_norm(rows, (8192,)))
    tiny = torch.zeros(8, device="cuda")

    def many() -> None:
        for _ in range(100):
            tiny.add_(1)

    return {
        "add_gb_per_s": 3 * x.nbytes / add / 1e9,
        "norm_gb_per_s": 2 * rows.nbytes / norm / 1e9,
        "kernel_us": timed(many) * 1e4,
    }


def layer(shape: dict[str, Any]) -> dict[str, float]:
    """A pre-norm layer with residuals, forward and backward, no transfers."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    hidden, wide = shape["hidden"], shape["hidden"] // shape["heads"]
    heads, kv, ffn = (shape[key] // shape["tp"] for key in ("heads", "kv", "ffn"))

    def linear(i: int, o: int) -> nn.Linear:
        return nn.Linear(i, o, bias=False, device="cuda", dtype=torch.bfloat16)

    qkv, out = linear(hidden, (heads + 2 * kv) * wide), linear(heads * wide, hidden)
    up, down = linear(hidden, ffn * (2 if shape["gated"] else 1)), linear(ffn, hidden)
    norms = [nn.LayerNorm(hidden, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    x = torch.randn((shape["batch"], shape["sequence"], hidden), device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def forward() -> Any:
        q, k, v = qkv(norms[0](x)).split((heads * wide, kv * wide, kv * wide), -1)
        q, k, v = (t.unflatten(-1, (-1, wide)).transpose(1, 2) for t in (q, k, v))
        a = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != heads)
        h = x + out(a.transpose(1, 2).flatten(2))
        u = up(norms[1](h))
        u = f.silu(u[..., :ffn]) * u[..., ffn:] if shape["gated"] else f.gelu(u)
        return h + down(u)

    grad = torch.randn_like(x)
    with torch.no_grad():
        one = timed(forward)
    both = timed(lambda: forward().backward(grad))
    return {"forward_us": one * 1e6, "backward_us": (both - one) * 1e6}


GRADIENTS = [(4096, 14336), (6144, 32768), (8192, 7168), (12288, 6144)]
"""Rows and columns of weights whose gradients are added up, over so many tokens."""
SPANS = [2048, 4096, 8192, 32768]
"""Sequences that attention is timed over."""
BRIEFLY = 0.15


def _added_apart(total: Any, a: Any, b: Any) -> None:
    total.add_(a @ b)


def weight_gradients() -> list[dict[str, float]]:
    """Gradients of weights: as a product, and as one that is added to a sum in 32 bits (what several micro-batches do)."""
    import torch

    rows = []
    for m, n in GRADIENTS:
        total = torch.zeros((m, n), device="cuda", dtype=torch.float32)
        for k in (512, 1024, 2048, 4096, 8192):
            a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n)))
            add = partial(torch.addmm, total, a, b, out_dtype=torch.float32, out=total)
            took = {"us": timed(partial(torch.mm, a, b), BRIEFLY), "added_us": timed(add, BRIEFLY),
                    "apart_us": timed(partial(_added_apart, total, a, b), BRIEFLY)}  # fmt: skip
            rows.append({"rows": m, "columns": n, "tokens": k, **{name: one * 1e6 for name, one in took.items()}})
    return rows


def eight_bit_grouped_products() -> list[dict[str, float]]:
    """One product per expert in a single call in eight bits, a scale for each row, tokens dealt unevenly; and the cast."""
    import torch

    rows = []
    for experts, hidden, width in GROUPS:
        weights = torch.randn((experts, width, hidden), device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
        per_column = torch.ones((experts, width), device="cuda", dtype=torch.float32)
        for tokens in TOKENS:
            x = torch.randn((tokens, hidden), device="cuda", dtype=torch.bfloat16)
            cast = timed(lambda x=x: scaled(x), BRIEFLY)
            per_row = torch.ones(tokens, device="cuda", dtype=torch.float32)
            share = np.exp(np.random.default_rng(0).normal(size=experts) * 0.5)
            ends = np.round(np.cumsum(share / share.sum()) * tokens / 16).astype(np.int64) * 16
            ends[-1] = tokens
            offs = torch.tensor(ends, device="cuda", dtype=torch.int32)
            small = x.to(torch.float8_e4m3fn)
            call = partial(torch._scaled_grouped_mm, small, weights.transpose(-2, -1), per_row, per_column, offs=offs)
            took = timed(partial(call, out_dtype=torch.bfloat16, use_fast_accum=True), BRIEFLY)
            rows.append({"experts": experts, "hidden": hidden, "width": width, "tokens": tokens, "us": took * 1e6,
                         "tflops": 2e-12 * tokens * hidden * width / took, "cast_us": cast * 1e6})  # fmt: skip
        del weights
    return rows


def both_ways(forward: Callable[[], Any], leaves: list[Any], seconds: float = BRIEFLY) -> tuple[float, float]:
    """Time of a forward pass and of the backward pass after it, µs."""
    import torch

    grad = torch.randn_like(forward())
    with torch.no_grad():
        one = timed(forward, seconds)
    both = timed(lambda: torch.autograd.grad(forward(), leaves, grad), seconds)
    return one * 1e6, (both - one) * 1e6


def attention() -> list[dict[str, float]]:
    """Fused causal attention of 32 heads of 128 (8 of keys and values), forward and backward."""
    import torch
    from torch.nn import functional as f

    rows = []
    for span in SPANS:
        batch = max(1, 8192 // span)
        q, k, v = (torch.randn((batch, heads, span, 128), device="cuda", dtype=torch.bfloat16, requires_grad=True)
                   for heads in (32, 8, 8))  # fmt: skip
        call = partial(f.scaled_dot_product_attention, q, k, v, is_causal=True, enable_gqa=True)
        there, back = both_ways(call, [q, k, v])
        flops = 2.0 * batch * 32 * span * span * 128
        rows.append({"batch": batch, "sequence": span, "forward_us": there, "backward_us": back, "tflops": flops / there / 1e6})
    return rows


def element_wise() -> dict[str, dict[str, float]]:
    """What stands between products, forward and backward, for 8,192 tokens: its time, and numbers that go in."""
    import torch
    from torch.nn import functional as f

    x, wide = (torch.randn((8192, n), device="cuda", dtype=torch.bfloat16, requires_grad=True) for n in (8192, 2 * 14336))
    weight = torch.ones(8192, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    logits = torch.randn((4096, 128256), device="cuda", dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, 128256, (4096,), device="cuda")
    made: dict[str, tuple[Callable[[], Any], list[Any], int]] = {
        "rms norm": (partial(f.rms_norm, x, (8192,), weight), [x, weight], x.numel()),
        "layer norm": (partial(f.layer_norm, x, (8192,), weight), [x, weight], x.numel()),
        "gated": (lambda: f.silu(wide[:, :14336]) * wide[:, 14336:], [wide], wide.numel() // 2),
        "gelu": (lambda: f.gelu(x), [x], x.numel()),
        "loss": (lambda: f.cross_entropy(logits.float(), labels), [logits], logits.numel()),
    }
    found = {}
    for name, (forward, leaves, numbers) in made.items():
        there, back = both_ways(forward, leaves)
        found[name] = {"numbers": numbers, "forward_us": there, "backward_us": back}
    return found


def optimiser() -> dict[str, float]:
    """One fused step of Adam over 2^29 parameters in 32 bits, and the copy in half precision: bytes a second by its 36."""
    import torch

    master = torch.zeros(1 << 29, device="cuda", dtype=torch.float32, requires_grad=True)
    master.grad = torch.randn_like(master)
    half = torch.zeros_like(master, dtype=torch.bfloat16)
    adam = torch.optim.AdamW([master], fused=True)

    def step() -> None:
        adam.step()
        half.copy_(master.detach())

    took = timed(step)
    norm = timed(lambda: torch.linalg.vector_norm(master.grad))
    return {"parameters": 1 << 29, "us": took * 1e6, "gb_per_s": 36 * (1 << 29) / took / 1e9, "norm_us": norm * 1e6}


def repeats(shape: dict[str, Any], seconds: float = 8.0) -> dict[str, float]:
    """A layer's products again and again without a pause: how far single passes stray once the clock has settled."""
    import torch

    hidden, ffn, tokens = shape["hidden"], shape["ffn"] // shape["tp"], shape["sequence"] * shape["batch"]
    x = torch.randn((tokens, hidden), device="cuda", dtype=torch.bfloat16)
    up, down = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((hidden, ffn), (ffn, hidden)))
    took: list[float] = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(201)]
        marks[0].record()
        for mark in marks[1:]:
            (x @ up) @ down
            mark.record()
        marks[-1].synchronize()
        took += [a.elapsed_time(b) for a, b in pairwise(marks)]
    late = np.array(took[len(took) // 2 :])
    blocks = late[: len(late) // 100 * 100].reshape(-1, 100).mean(axis=1)
    cuts = {f"p{q}": float(np.quantile(late, q / 100) / np.median(late)) for q in (1, 10, 90, 99)}
    return {"passes": len(late), "us": float(np.median(late) * 1e3), "spread": float(late.std() / late.mean()),
            "spread_of_100": float(blocks.std() / late.mean()), **cuts}  # fmt: skip


def rest() -> dict[str, Any]:
    """What a step has beside plain products; what cannot be measured here says why."""
    made: dict[str, Callable[[], Any]] = {
        "weight_gradients": weight_gradients, "eight_bit_grouped_products": eight_bit_grouped_products, "attention": attention,
        "element_wise": element_wise, "optimiser": optimiser,
        "repeats": lambda: {name: repeats(LAYERS[name]) for name in ("Llama 70B, tp 8", "Llama 8B, tp 1", "GPT 175B, tp 8")},
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, one in made.items():
        try:
            found[name] = one()
        except (RuntimeError, TypeError, AttributeError, ValueError) as error:
            found[name] = f"not measured: {error}"
    return found


def fitted(found: dict[str, Any], device: Any) -> tuple[float, float]:
    """gemm_share and gemm_half_depth that bring all products closest, in relative terms; and how far off they leave them."""
    from msgspec.structs import replace
    from scipy.optimize import least_squares

    from taut.project.training.device_work import gemm_ns

    def off(x: Any) -> list[float]:
        d = replace(device, gemm_share=float(x[0]), gemm_half_depth=float(x[1]))
        return [np.log(gemm_ns(d, p["rows"], p["columns"], p["depth"]) / 1e3 / p["us"]) for p in found["products"]]

    done = least_squares(off, [0.7, 150.0], bounds=([0.3, 0.0], [1.0, 2000.0]))
    print(f"products: mean error {np.abs(done.fun).mean():.1%}, largest {np.abs(done.fun).max():.1%} (calibrated on)")
    return float(done.x[0]), float(done.x[1])


SHORTEST = 512
"""Inner dimension below which the call of an eight-bit product takes longer than the product."""


def fitted_eight_bit(found: dict[str, Any], device: Any) -> tuple[float, float]:
    """fp8_gemm_share and fp8_gemm_half_depth likewise; of three products of a layer two (backward) are summed exactly. What a
    call adds to a kernel is fitted beside them and belongs to the library measured, not to the device."""
    from msgspec.structs import replace
    from scipy.optimize import least_squares

    from taut.project.training.device_work import gemm_ns

    rows = [p for p in found["eight_bit_products"] if p["depth"] >= SHORTEST]

    def off(x: Any) -> list[float]:
        d = replace(device, fp8_gemm_share=float(x[0]), fp8_gemm_half_depth=float(x[1]), kernel_us=float(x[2]))
        took = [gemm_ns(d, p["rows"], p["columns"], p["depth"], eight_bit=True) / 1e3 for p in rows]
        return [np.log(3 * ours / (p["us"] + 2 * p["exact_us"])) for ours, p in zip(took, rows, strict=True)]

    done = least_squares(off, [0.7, 150.0, 20.0], bounds=([0.3, 0.0, 0.0], [1.0, 2000.0, 80.0]))
    print(f"fp8 products: mean error {np.abs(done.fun).mean():.1%}, largest {np.abs(done.fun).max():.1%} (calibrated on)")
    return float(done.x[0]), float(done.x[1])


def compared_more(found: dict[str, Any], device: Any, shipped: dict[str, Any], name: str) -> None:
    """The fit of eight-bit products beside the shipped device file, and products of experts beside what taut says."""
    from taut.project.training.device_work import grouped_ns
    from taut.project.training.scenario import Fabric, Job, Model, Scenario, Tier

    share, half = fitted_eight_bit(found, device)
    print(f"fp8_gemm_share {share:.3f}, fp8_gemm_half_depth {half:.0f}; {name}.toml has "
          f"{shipped['fp8_gemm_share']}, {shipped['fp8_gemm_half_depth']}")  # fmt: skip
    s = Scenario(Model(1, 8, 1, 8), Job(1), device, Fabric("none", (Tier("none", 8, 1.0),)))
    rows = [p for p in found["grouped_products"] if p["uneven"]]
    took = [grouped_ns(s, p["tokens"] // p["experts"], p["width"], p["hidden"], p["experts"]) / 1e3 for p in rows]
    offs = np.abs([ours / p["us"] - 1 for ours, p in zip(took, rows, strict=True)])
    print(f"uneven experts: mean error {offs.mean():.1%}, largest {offs.max():.1%} (GROUPED_SHARE and _ROWS calibrated on)")


def compared(found: dict[str, Any], name: str) -> None:
    """The fit beside the shipped device file, and layers beside what taut says of them."""
    import tomllib
    from importlib.resources import files

    import msgspec
    from msgspec.structs import replace

    from taut.project.training.device_work import layer as modelled
    from taut.project.training.scenario import Device, Fabric, Job, Model, Scenario, Tier

    shipped = tomllib.loads(files("taut").joinpath(f"scenarios/devices/{name}.toml").read_text(encoding="utf-8"))
    if "eight_bit_products" in found:
        compared_more(found, msgspec.convert(shipped, Device), shipped, name)
    if "products" not in found:
        return
    device = replace(msgspec.convert(shipped, Device), kernel_us=round(found["moved"]["kernel_us"], 1))
    share, half = fitted(found, device)
    print(f"gemm_share {share:.3f}, gemm_half_depth {half:.0f}, kernel_us {device.kernel_us}; {name}.toml has "
          f"{shipped['gemm_share']}, {shipped['gemm_half_depth']}, {shipped['kernel_us']}\n")  # fmt: skip
    print("| layer | forward, µs | taut | | backward | taut | | both |\n|---|---:|---:|---:|---:|---:|---:|---:|")
    offs = []
    for label, shape in LAYERS.items():
        model = Model(1, shape["hidden"], shape["heads"], shape["sequence"], kv_heads=shape["kv"], ffn=shape["ffn"],
                      gated=shape["gated"], flash_attention=True, dropout=False)  # fmt: skip
        job = Job(shape["batch"], shape["batch"], tp=shape["tp"])
        made = modelled(Scenario(model, job, msgspec.convert(shipped, Device), Fabric("none", (Tier("none", 8, 1.0),))))
        ours, theirs = (made.forward_ns / 1e3, made.backward_ns("none") / 1e3), tuple(found["layers"][label].values())
        offs.append(sum(ours) / sum(theirs) - 1)
        cells = [f"{t:,.0f} | {o:,.0f} | {o / t - 1:+.1%}" for o, t in zip(ours, theirs, strict=True)]
        print(f"| {label} | {' | '.join(cells)} | {offs[-1]:+.1%} |")
    print(f"\nlayers: mean error {np.abs(offs).mean():.1%}, largest {np.abs(offs).max():.1%} (validated)")


def main() -> None:
    """Measure, print, write; or compare what was measured with what taut says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--more", action="store_true", help="also eight-bit floats, and one product per expert")
    parser.add_argument("--rest", action="store_true", help="only what a step has beside plain products, and how passes stray")
    parser.add_argument("--compare", nargs=2, metavar=("FILE", "DEVICE"), help="a file written before, a device that ships")
    args = parser.parse_args()
    if args.compare:
        compared(json.loads(Path(args.compare[0]).read_text(encoding="utf-8")), args.compare[1])
        return
    import torch

    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    if args.rest:
        found |= rest()
    else:
        found |= {
            "processors": torch.cuda.get_device_properties(0).multi_processor_count, "sustained": sustained(),
            "moved": moved(), "products": products(), "layers": {name: layer(shape) for name, shape in LAYERS.items()},
        }  # fmt: skip
    if args.more:
        found |= {
            "eight_bit_products": eight_bit_products(), "grouped_products": grouped_products(),
            "eight_bit_layers": {name: eight_bit_layer(shape) for name, shape in LAYERS.items()},
        }  # fmt: skip
    text = json.dumps(found, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
