"""Step times of published A100 and H100 jobs: ours, theirs, difference, source, as Markdown.

    python validation/step_times.py ../shared/validation [--rows]

One device file and one fabric file for all rows of a kind of device. Rows used to calibrate them (vTrain's 3.6 B and 18.4 B
models) stand in a column of their own and are not counted as validated; no step was used for those of the H100, whose files
come from kernels measured on an H200 and an all-reduce of eight devices. ``--fit`` fits the seven numbers of the two files of
the A100 again, on those rows alone, from what data sheets and NCCL's own tests suggest, each with the spread it may well have.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.project.training.forecast import forecast
from taut.project.training.scenario import Scenario, parse
from taut.project.training.step_time import step_ns
from taut.read.scenario_file import load, load_parts

CALIBRATED = ("3.6", "18.4")
SEQUENCE, VOCAB = 2048, 51200
STEPS = 20
ZERO3 = {"overlap_share": 0.84, "gather_striped": False}
ZERO3_ROW = "ZeRO-3 174.6 B on 384"
"""How ZeRO-3 hid its gathers, set on this row alone; that it used one port of a node is an assumption of ours."""
MICRO_SC21 = {"1.7": (16, 1), "3.6": (16, 1), "7.5": (16, 1), "18.4": (8, 1), "39.1": (4, 1), "76.1": (2, 3), "145.6": (2, 2),
              "310.1": (1, 2), "529.6": (1, 3), "1008.0": (1, 1)}  # fmt: skip
"""Micro-batch and chunks a stage of SC21's table 1, from the scripts published with it (examples/sc21 of Megatron-LM)."""
SEQPAR = {"22B": (48, 6144, 64, 1, 4, 4, 1), "175B": (96, 12288, 96, 8, 64, 1, 3), "530B": (105, 20480, 128, 35, 280, 1, 3),
          "1T": (128, 25600, 160, 64, 512, 1, 1)}  # fmt: skip
"""Layers, hidden, heads, pp, batch, micro-batch, chunks a stage: table 3 of Korthikanti et al."""


@dataclass(frozen=True)
class Row:
    source: str
    what: str
    scenario: Scenario
    seconds: float
    calibrated: bool
    kind: str = "dense BF16, A100"


def scenario(layers: int, hidden: int, heads: int, **job: Any) -> Scenario:
    chunks = job.get("virtual_pp", 1)
    table: dict[str, Any] = {
        "model": {"layers": layers, "hidden": hidden, "heads": heads, "sequence": SEQUENCE, "vocab": VOCAB,
                  "tied_embeddings": True},  # as Megatron-LM has them
        "job": {**job, "schedule": "interleaved" if chunks > 1 else "1f1b"},
        "device": DEVICE, "fabric": FABRIC,
    }  # fmt: skip
    return parse(table, "row")[0]


def sc21_seconds(layers: int, hidden: int, batch: int, gpus: int, tflops: float) -> float:
    """The step time behind a published TFLOP/s figure: their FLOPs, recomputation counted."""
    flops = 96.0 * batch * SEQUENCE * layers * hidden**2 * (1 + SEQUENCE / (6 * hidden) + VOCAB / (16 * layers * hidden))
    return flops / (gpus * tflops * 1e12)


def rows(folder: Path) -> Iterator[Row]:
    for r in _csv(folder / "vtrain_a100_multi_node.csv"):
        f = list(r.values())
        layers, hidden, heads = int(f[6]), int(f[4]), int(f[5])
        job = {"global_batch": int(f[2]), "micro_batch": int(f[3]), "tp": int(f[8]), "dp": int(f[9]), "pp": int(f[10])}
        what = f"{f[0]} B, tp {f[8]} dp {f[9]} pp {f[10]}, micro {f[3]}"
        yield Row(
            "vTrain", what, scenario(layers, hidden, heads, recompute="full", **job), float(f[11]) / 1e3, f[0] in CALIBRATED
        )
    for r in _csv(folder / "megatron_sc21_table1.csv"):
        micro, chunks = MICRO_SC21[r["params_B"]]
        layers, hidden, batch, gpus, tp, pp = (int(r[k]) for k in ("layers", "hidden", "batch", "gpus", "tp", "pp"))
        job = {
            "global_batch": batch,
            "micro_batch": micro,
            "tp": tp,
            "pp": pp,
            "dp": gpus // tp // pp,
            "virtual_pp": chunks,
            "recompute": "full",
        }
        seconds = sc21_seconds(layers, hidden, batch, gpus, float(r["tflops_per_gpu"]))
        yield Row("SC21 table 1", f"{r['params_B']} B", scenario(layers, hidden, int(r["heads"]), **job), seconds, False)
    for r in _csv(folder / "megatron_sc21_table2_zero3.csv"):
        layers, hidden, heads, pp = (96, 12288, 96, 12) if r["params_B"] == "174.6" else (105, 20480, 128, 35)
        gpus, batch, micro = int(r["gpus"]), int(r["batch"]), int(r["micro"])
        if r["scheme"] == "PTD-P":
            job = {"global_batch": batch, "micro_batch": 1, "tp": 8, "pp": pp, "dp": gpus // 8 // pp, "recompute": "full"}
        else:
            job = dict(global_batch=batch, micro_batch=micro, dp=gpus, sharding="zero3", recompute="full", **ZERO3)
        seconds = sc21_seconds(layers, hidden, batch, gpus, float(r["tflops_per_gpu"]))
        what = f"{r['scheme']} {r['params_B']} B on {gpus}"
        source = "SC21 table 2" + (", ZeRO-3" if r["scheme"] == "ZeRO-3" else "")
        kind = f"dense BF16{', ZeRO-3' if r['scheme'] == 'ZeRO-3' else ''}, A100"
        yield Row(source, what, scenario(layers, hidden, heads, **job), seconds, what == ZERO3_ROW, kind)
    for r in _csv(folder / "seqpar_2205.05198_table5.csv"):
        layers, hidden, heads, pp, batch, micro, chunks = SEQPAR[r["model"]]
        job = {"global_batch": batch, "micro_batch": micro, "tp": 8, "pp": pp, "dp": 1, "virtual_pp": chunks}
        full = scenario(layers, hidden, heads, recompute="full", **job)
        less = scenario(layers, hidden, heads, recompute="selective", sequence_parallel=True, **job)
        yield Row("sequence parallelism, full", r["model"], full, float(r["full_recompute_s"]), False)
        yield Row("sequence parallelism, selective", r["model"], less, float(r["seqpar_selective_s"]), False)
    if (path := folder / "dgxc_h100_step_times_part.csv").exists():
        yield from (dgxc_row(r) for r in _csv(path))


H100 = {
    "Llama 3.1 70b": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "gated": True, "sequence": 8192,
                      "vocab": 128256},
    "Nemotron4 15b": {"layers": 32, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 24576, "sequence": 4096,
                      "vocab": 256000},
    "Grok 1 314b": {"layers": 64, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 32768, "gated": True, "sequence": 8192,
                    "vocab": 131072, "experts": 8, "experts_per_token": 2},
}  # fmt: skip
"""Models of NVIDIA's DGX Cloud benchmarks; attention fused, no dropout."""
CUTS = {"TP": "tp", "PP": "pp", "CP": "cp", "EP": "ep", "VP": "virtual_pp", "MBS": "micro_batch"}


def dgxc_row(r: dict[str, str]) -> Row:
    """A row of the DGX Cloud benchmarks: what recipe and cut say; sequence parallel, a sharded optimiser that overlaps."""
    said = f"{r['recipe']} {r['cut']}"
    name = next(name for name in H100 if r["recipe"].startswith(name))
    model = {**H100[name], "flash_attention": True, "dropout": False}
    for key, pattern in (("layers", r"(\d+) layers"), ("sequence", r"sequence (\d+)")):
        model[key] = int(found[1]) if (found := re.search(pattern, said)) else model[key]
    job: dict[str, Any] = {CUTS[key]: int(value) for key, value in re.findall(r"([A-Z]+)=(\d+)", said) if key in CUTS}
    (batch,) = [r["gbs"]] if r["gbs"] else re.findall(r"global batch (\d+)", said)
    fp8 = "FP8" in r["recipe"]
    job |= {"global_batch": int(batch), "dp": int(r["gpus"]) // (job["tp"] * job.get("pp", 1) * job.get("cp", 1)),
            "schedule": "interleaved" if job.get("virtual_pp", 1) > 1 else "1f1b", "precision": "fp8" if fp8 else "bf16",
            "sequence_parallel": True, "sharding": "zero1", "overlap_share": 1.0}  # fmt: skip
    table = load_parts({"model": model, "job": job, "device": "h100-80g", "fabric": "h100-ndr"})
    kind = "MoE" if "experts" in model else "dense"
    what = f"{r['recipe'].split(' (')[0]}, {r['gpus']} GPUs, {r['tag']}"
    return Row(
        f"DGX Cloud, {name}, {'FP8' if fp8 else 'BF16'}",
        what,
        parse(table, "row")[0],
        float(r["step_s"]),
        False,
        f"{kind} {'FP8' if fp8 else 'BF16'}, H100",
    )


def _csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


EXPECTED = {
    "gemm_share": (0.8, 0.1), "gemm_half_depth": (150.0, 0.7), "memory_share": (0.75, 0.15), "kernel_us": (8.0, 0.7),
    "host_layer_us": (1000.0, 0.7), "hdr": (17.0, 0.3), "nvlink": (230.0, 0.05),
}  # fmt: skip
"""What a number is expected to be before any row is seen, and the spread of its logarithm."""


def fit(chosen: list[Row]) -> None:
    """Least squares of log errors (5 % each, robust), with those expectations."""
    from scipy.optimize import least_squares

    def with_(s: Scenario, p: dict[str, float]) -> Scenario:
        device = replace(s.device, **{k: v for k, v in p.items() if k not in ("hdr", "nvlink")})
        tiers = tuple(replace(t, gb_per_s=p[k]) for t, k in zip(s.fabric.tiers, ("nvlink", "hdr"), strict=True))
        return replace(s, device=device, fabric=replace(s.fabric, tiers=tiers))

    def of(x: Any) -> dict[str, float]:
        return {k: mean * float(np.exp(v)) for (k, (mean, _)), v in zip(EXPECTED.items(), x, strict=True)}

    def errors(x: Any) -> Any:
        off = [np.log(step_ns(with_(row.scenario, of(x))) / 1e9 / row.seconds) / 0.05 for row in chosen]
        return np.array([*off, *(v / spread for v, (_, spread) in zip(x, EXPECTED.values(), strict=True))])

    found = of(least_squares(errors, np.zeros(len(EXPECTED)), loss="soft_l1").x)
    print("\n".join(f"{key} = {value:.4g}" for key, value in found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", action="store_true", help="every row, not only the sums")
    parser.add_argument("--fit", action="store_true", help="fit the device and fabric numbers on the calibration rows")
    parser.add_argument("--jitter", action="store_true", help="mean of steps with the default jitter, as taut project has it")
    given = parser.parse_args()
    if given.fit:
        fit([row for row in rows(given.folder) if row.calibrated and row.source == "vTrain"])
        return
    table: dict[tuple[str, bool], list[float]] = {}
    if given.rows:
        print("| source | job | ours, s | theirs, s | difference | |\n|---|---|---:|---:|---:|---|")
    for row in rows(given.folder):
        ours = (float(forecast(row.scenario, count=STEPS).step_ns.mean()) if given.jitter else step_ns(row.scenario)) / 1e9
        off = ours / row.seconds - 1
        table.setdefault((row.source, row.calibrated), []).append(off)
        if not row.calibrated:
            table.setdefault((f"**all: {row.kind}**", False), []).append(off)
        if given.rows:
            cells = [row.source, row.what, f"{ours:.2f}", f"{row.seconds:.2f}", f"{100 * off:+.1f} %"]
            print("| " + " | ".join([*cells, "calibrated" if row.calibrated else ""]) + " |")
    print("\n| source | rows | mean error | largest | bias | |\n|---|---:|---:|---:|---:|---|")
    for (source, calibrated), errors in table.items():
        size = np.abs(errors)
        figures = [f"{100 * x:.1f} %" for x in (size.mean(), size.max())]
        role = "calibrated on" if calibrated else "validated"
        print("| " + " | ".join([source, f"{len(errors)}", *figures, f"{100 * np.mean(errors):+.1f} %", role]) + " |")


_SHIPPED = "name = 'x'\ndevice = 'a100-80g'\nfabric = 'dgx-a100-hdr'\n"


def _shipped() -> tuple[Any, Any]:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as stream:
        stream.write(_SHIPPED)
        stream.flush()
        table = load(stream.name)[0]
    return table["device"], table["fabric"]


DEVICE, FABRIC = _shipped()

if __name__ == "__main__":
    main()
