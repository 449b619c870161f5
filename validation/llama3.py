"""Steps of Llama 3 405B on H100, published: ours, theirs, difference, source, as Markdown: ``python validation/llama3.py``.

Nothing was fitted on these rows: the device file comes from matrix products measured on an H200 (bench/device.py), the
fabric file from an all-reduce of eight devices. Theirs is a rate; the step behind it is the FLOPs over it, with attention
counted where the mask lets it through (half): counted in full, the row of 131,072 tokens would exceed what the device can
do beside its own shorter rows. 126 layers lie in 128 chunks: embedding and logits have one of their own.
"""

from __future__ import annotations

from msgspec.structs import replace

from taut.project.training.device_work import layer_parameters
from taut.project.training.forecast import forecast
from taut.project.training.scenario import parse
from taut.project.training.step_time import step_ns
from taut.read.scenario_file import load_parts

SOURCE = "Llama 3 (arXiv:2407.21783), table 4"
ROWS = ((8192, 1, 64, 8192, 32, 430), (16384, 1, 128, 8192, 16, 400), (16384, 16, 8, 131072, 16, 380))
"""GPUs, cp, dp, sequence, batch a replica, TFLOP/s a GPU."""
LAYERS = 126


def main() -> None:
    """Print the table."""
    print("| row | theirs, s | still | | with jitter (default) | | source |\n|---|---:|---:|---:|---:|---:|---|")
    offs: tuple[list[float], list[float]] = ([], [])
    for gpus, cp, dp, sequence, batch, tflops in ROWS:
        table = load_parts({
            "device": "h100-80g", "fabric": "h100-ndr",
            "model": {"layers": LAYERS, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248, "gated": True,
                      "sequence": sequence, "vocab": 128256, "flash_attention": True, "dropout": False},
            "job": {"global_batch": batch * dp, "tp": 8, "pp": 16, "dp": dp, "cp": cp, "virtual_pp": 8,
                    "schedule": "interleaved", "sequence_parallel": True, "sharding": "zero2", "overlap_share": 1.0},
        })  # fmt: skip
        s = parse(table, "row")[0]
        m, tokens = replace(s.model, layers=LAYERS), float(batch * dp * sequence)
        flops = 6 * tokens * (LAYERS * layer_parameters(m) + m.vocab * m.hidden) + 6 * tokens * LAYERS * m.hidden * sequence
        theirs = flops / (tflops * 1e12 * gpus)
        ours = step_ns(s) / 1e9, float(forecast(s, count=50).step_ns.mean()) / 1e9
        cells = " | ".join(f"{one:.2f} | {one / theirs - 1:+.1%}" for one in ours)
        for off, one in zip(offs, ours, strict=True):
            off.append(abs(one / theirs - 1))
        print(f"| {gpus:,} GPUs, {sequence:,} tokens, cp {cp} | {theirs:.2f} | {cells} | {SOURCE} |")
    for name, off in zip(("still", "with jitter"), offs, strict=True):
        print(f"\n{name}: mean error {sum(off) / len(off):.1%}, largest {max(off):.1%}")


if __name__ == "__main__":
    main()
