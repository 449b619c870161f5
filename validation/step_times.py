"""Step times of published A100 and H100 jobs, held against ``taut project``: ours, theirs, difference, source, as Markdown.

    python validation/step_times.py DIR [--rows] [--errors FILE] [--cli N]

DIR has the published tables; further rows are in validation/published_steps.toml. Each row is written as a scenario file and
asked of the function that the verb calls, with the default noise and the default draws; ``--cli N`` asks N rows, drawn at
random, of ``taut project FILE --json`` too and tells whether it prints the same bytes. One device file and one fabric file
serve all rows of a kind of device. Rows that were used to fit them (vTrain's 3.6 B and 18.4 B models; one of ZeRO-3) are
listed apart and are not counted; no step was used for the files of the H100, which come from kernels measured on an H200 and
an all-reduce of eight devices. ``--fit`` fits the seven numbers of the two files of the A100 again, on those rows alone, from
what data sheets and NCCL's own tests suggest, each with the spread it may well have.

A paper is one publication. Coverage is the share of the measured steps that lie between p10 and p90 of ``step_ns``, every
paper counting as much as the others; the score is Winkler's, of the logarithm of the step, for 80 % (the width of the
interval, and ten times what lies outside; less is better). Both stand also for intervals that other papers alone tell.
``--errors`` writes for every paper and class the mean and the standard deviation of log (forecast / measured) over the rows
that were not fitted.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.json_text import json_text
from taut.forecasts import project
from taut.project.training.forecast import forecast
from taut.project.training.model_error import class_of, model_error
from taut.project.training.scenario import Job, Scenario, parse
from taut.project.training.step_time import step_ns
from taut.read.scenario_file import load_parts
from taut.result.types import Forecast

Table = dict[str, Any]
PUBLISHED = Path(__file__).parent / "published_steps.toml"
CALIBRATED = ("3.6", "18.4")
SEQUENCE, VOCAB = 2048, 51200
JITTERED = 20
"""Steps that tell what noise adds, for a fit."""
OUTSIDE = 0.2
"""Share of the measured steps that an interval of 80 % leaves out."""
ZERO3 = {"overlap_share": 1.0, "gather_striped": False}
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
    paper: str
    what: str
    table: Table
    """The scenario, as its file says it."""
    seconds: float
    """Measured."""
    calibrated: bool = False
    held_out: bool = False
    """Of a paper that was not looked at while the engine was improved."""

    @cached_property
    def kind(self) -> str:
        """Its class: what the error of the model may depend on."""
        return class_of(self.scenario())

    @property
    def device(self) -> str:
        named = self.table["device"]
        return str(named if isinstance(named, str) else named["base"]).partition("-")[0].upper()

    def scenario(self) -> Scenario:
        return parse(load_parts(dict(self.table)), self.what)[0]


def scenario(layers: int, hidden: int, heads: int, **job: Any) -> Table:
    chunks = job.get("virtual_pp", 1)
    return {
        "model": {"layers": layers, "hidden": hidden, "heads": heads, "sequence": SEQUENCE, "vocab": VOCAB,
                  "tied_embeddings": True},  # as Megatron-LM has them
        "job": {**job, "schedule": "interleaved" if chunks > 1 else "1f1b"},
        "device": "a100-80g", "fabric": "dgx-a100-hdr",
    }  # fmt: skip


def sc21_seconds(layers: int, hidden: int, batch: int, gpus: int, tflops: float) -> float:
    """The step time behind a published TFLOP/s figure: their FLOPs, recomputation counted."""
    flops = 96.0 * batch * SEQUENCE * layers * hidden**2 * (1 + SEQUENCE / (6 * hidden) + VOCAB / (16 * layers * hidden))
    return flops / (gpus * tflops * 1e12)


def rows(folder: Path | None = None) -> Iterator[Row]:
    """All of them; without a folder those that are in the repository."""
    if folder is not None:
        for found in (vtrain, sc21_table1, sc21_table2, sequence_parallel, dgx_cloud):
            yield from found(folder)
    yield from published()


def vtrain(folder: Path) -> Iterator[Row]:
    for r in _csv(folder / "vtrain_a100_multi_node.csv"):
        f = list(r.values())
        layers, hidden, heads = int(f[6]), int(f[4]), int(f[5])
        job = {"global_batch": int(f[2]), "micro_batch": int(f[3]), "tp": int(f[8]), "dp": int(f[9]), "pp": int(f[10])}
        what = f"{f[0]} B, tp {f[8]} dp {f[9]} pp {f[10]}, micro {f[3]}"
        table = scenario(layers, hidden, heads, recompute="full", **job)
        yield Row("vTrain", what, table, float(f[11]) / 1e3, f[0] in CALIBRATED)


def sc21_table1(folder: Path) -> Iterator[Row]:
    for r in _csv(folder / "megatron_sc21_table1.csv"):
        micro, chunks = MICRO_SC21[r["params_B"]]
        layers, hidden, batch, gpus, tp, pp = (int(r[k]) for k in ("layers", "hidden", "batch", "gpus", "tp", "pp"))
        job = {"global_batch": batch, "micro_batch": micro, "tp": tp, "pp": pp, "dp": gpus // tp // pp, "virtual_pp": chunks,
               "recompute": "full"}  # fmt: skip
        seconds = sc21_seconds(layers, hidden, batch, gpus, float(r["tflops_per_gpu"]))
        yield Row("Narayanan et al. (SC21)", f"{r['params_B']} B", scenario(layers, hidden, int(r["heads"]), **job), seconds)


def sc21_table2(folder: Path) -> Iterator[Row]:
    for r in _csv(folder / "megatron_sc21_table2_zero3.csv"):
        layers, hidden, heads, pp = (96, 12288, 96, 12) if r["params_B"] == "174.6" else (105, 20480, 128, 35)
        gpus, batch, micro = int(r["gpus"]), int(r["batch"]), int(r["micro"])
        if r["scheme"] == "PTD-P":
            job = {"global_batch": batch, "micro_batch": 1, "tp": 8, "pp": pp, "dp": gpus // 8 // pp, "recompute": "full"}
        else:
            job = dict(global_batch=batch, micro_batch=micro, dp=gpus, sharding="zero3", recompute="full", **ZERO3)
        seconds = sc21_seconds(layers, hidden, batch, gpus, float(r["tflops_per_gpu"]))
        what = f"{r['scheme']} {r['params_B']} B on {gpus}"
        yield Row("Narayanan et al. (SC21)", what, scenario(layers, hidden, heads, **job), seconds, what == ZERO3_ROW)


def sequence_parallel(folder: Path) -> Iterator[Row]:
    for r in _csv(folder / "seqpar_2205.05198_table5.csv"):
        layers, hidden, heads, pp, batch, micro, chunks = SEQPAR[r["model"]]
        job = {"global_batch": batch, "micro_batch": micro, "tp": 8, "pp": pp, "dp": 1, "virtual_pp": chunks}
        full = scenario(layers, hidden, heads, recompute="full", **job)
        less = scenario(layers, hidden, heads, recompute="selective", sequence_parallel=True, **job)
        yield Row("Korthikanti et al.", f"{r['model']}, full", full, float(r["full_recompute_s"]))
        yield Row("Korthikanti et al.", f"{r['model']}, selective", less, float(r["seqpar_selective_s"]))


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


def overlaps(job: Table, experts: bool) -> Table:
    """How transfers hide as NVIDIA's recipes have it (``ub_tp_comm_overlap``, ring attention, ``overlap_p2p_comm``): cut into
    as many pieces as there are ranks, all but the first hide. Recipes of mixtures left tensor parallelism as it was."""
    out: Table = {}
    if job.get("tp", 1) > 1 and not experts:
        out["tensor_overlap_share"] = 1 - 1 / job["tp"]
    if job.get("cp", 1) > 1:
        out["context_overlap_share"] = 1 - 1 / job["cp"]
    if (chunks := job.get("virtual_pp", 1)) > 1:
        # Until every stage has begun, hops are waited for.
        all_ops = chunks * job["global_batch"] // (job["dp"] * job.get("micro_batch", 1))
        out["pipeline_overlap_share"] = max(0.0, 1 - ((chunks - 1) * job["pp"] + 2 * (job["pp"] - 1)) / all_ops)
    return out


def dgx_cloud(folder: Path) -> Iterator[Row]:
    if (path := folder / "dgxc_h100_step_times_part.csv").exists():
        yield from (dgxc_row(r) for r in _csv(path))


def dgxc_row(r: dict[str, str]) -> Row:
    """A row of the DGX Cloud benchmarks: what recipe and cut say; sequence parallel, a sharded optimiser that overlaps."""
    said = f"{r['recipe']} {r['cut']}"
    name = next(name for name in H100 if r["recipe"].startswith(name))
    model: Table = {**H100[name], "flash_attention": True, "dropout": False}
    for key, pattern in (("layers", r"(\d+) layers"), ("sequence", r"sequence (\d+)")):
        model[key] = int(found[1]) if (found := re.search(pattern, said)) else model[key]
    job: Table = {CUTS[key]: int(value) for key, value in re.findall(r"([A-Z]+)=(\d+)", said) if key in CUTS}
    (batch,) = [r["gbs"]] if r["gbs"] else re.findall(r"global batch (\d+)", said)
    job |= {"global_batch": int(batch), "dp": int(r["gpus"]) // (job["tp"] * job.get("pp", 1) * job.get("cp", 1)),
            "schedule": "interleaved" if job.get("virtual_pp", 1) > 1 else "1f1b",
            "precision": "fp8" if "FP8" in r["recipe"] else "bf16",
            "sequence_parallel": True, "sharding": "zero1", "overlap_share": 1.0}  # fmt: skip
    job |= overlaps(job, experts="experts" in model)
    what = f"{r['recipe'].split(' (')[0]}, {r['gpus']} GPUs, {r['tag']}"
    return Row("DGX Cloud", what, {"model": model, "job": job, "device": "h100-80g", "fabric": "h100-ndr"}, float(r["step_s"]))


SHOWN = {"precision": "in", "global_batch": "batch", "tp": "tp", "pp": "pp", "cp": "cp", "micro_batch": "micro"}


def published(path: Path = PUBLISHED) -> Iterator[Row]:
    """The rows in the repository: a paper gives what its rows have in common, a row what it measured: a step, or a rate."""
    if not path.exists():
        return
    with path.open("rb") as stream:
        said = tomllib.load(stream)
    for paper in said["papers"].values():
        for one in paper["rows"]:
            model = {**said["models"][one["model"]], **one.get("change", {})}
            job = {**paper.get("job", {}), **{k: v for k, v in one.items() if k in Job.__struct_fields__}}
            given = (job.get(axis, 1) for axis in ("tp", "pp", "cp"))
            job["dp"] = one["gpus"] // int(np.prod(list(given)))
            job["schedule"] = "interleaved" if job.get("virtual_pp", 1) > 1 else "1f1b"
            job |= overlaps(job, experts="experts" in model) if paper.get("recipes_overlap") else {}
            table = {
                "model": model,
                "job": job,
                **{part: paper[part] for part in ("device", "fabric", "policy") if part in paper},
            }
            cut = ", ".join(f"{name} {one[key]}" for key, name in SHOWN.items() if key in one)
            what = f"{one['model']}{' ' + one['note'] if 'note' in one else ''}, {one['gpus']:,} GPUs{', ' if cut else ''}{cut}"
            seconds = measured_seconds(one, job, model["sequence"])
            yield Row(paper["paper"], what, table, seconds, held_out=paper["held_out"])


def measured_seconds(one: Table, job: Table, sequence: int) -> float:
    """The step that a row measured, or the one behind its tokens a second and device."""
    return float(one["seconds"] if "seconds" in one else job["global_batch"] * sequence / (one["tokens_per_s"] * one["gpus"]))


def _csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


def toml(table: Table) -> str:
    """A scenario file: named parts first, then the tables."""

    def text(value: object) -> str:
        if isinstance(value, list):
            return f"[{', '.join(text(one) for one in value)}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {text(one)}" for key, one in value.items()) + "}"
        return str(value).lower() if isinstance(value, bool) else repr(value)

    lines = [f"{key} = {text(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, part in table.items():
        if isinstance(part, dict):
            lines += [f"[{key}]", *(f"{name} = {text(value)}" for name, value in part.items())]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Held:
    """A row, and what ``taut project`` says of it."""

    row: Row
    forecast: Forecast

    @property
    def ours(self) -> float:
        mean = self.forecast.mean_step_ns
        assert mean is not None
        return mean.value / 1e9

    @property
    def off(self) -> float:
        return self.ours / self.row.seconds - 1

    @property
    def log_error(self) -> float:
        return log(self.ours / self.row.seconds)

    @property
    def interval(self) -> tuple[float, float]:
        """Of 80 %, s."""
        quantiles = self.forecast.step_ns
        assert quantiles is not None
        return quantiles.p10 / 1e9, quantiles.p90 / 1e9

    @property
    def without_its_paper(self) -> tuple[float, float]:
        """The same, of the model's error as the other papers tell it; noise, which is far less, left out."""
        error = model_error(self.row.kind, without=self.row.paper)
        return self.ours * exp(-error.centre - error.half_width), self.ours * exp(-error.centre + error.half_width)

    def scored(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Whether an interval holds what was measured, and Winkler's score of the logarithm."""
        low, high = (log(end) for end in interval)
        at = log(self.row.seconds)
        outside = max(low - at, 0.0) + max(at - high, 0.0)
        return float(outside == 0), high - low + 2 / OUTSIDE * outside


def held_against(chosen: Iterable[Row], folder: Path) -> Iterator[Held]:
    """What the verb's own function says of each, from a scenario file."""
    for row in chosen:
        yield Held(row, project(_written(row, folder)).forecasts[0])


def _written(row: Row, folder: Path) -> Path:
    path = folder / "row.toml"
    path.write_text(toml(row.table), encoding="utf-8")
    return path


def same_by_command(chosen: list[Row], folder: Path) -> int:
    """How many rows get the same bytes from ``taut project FILE --json`` as from the function."""
    same = 0
    for row in chosen:
        path = _written(row, folder)
        command = [sys.executable, "-m", "taut", "project", str(path), "--json", "--quiet"]
        printed = subprocess.run(command, capture_output=True, check=True).stdout
        same += printed.strip() == json_text(project(path)).encode().strip()
    return same


def figures(name: str, part: list[Held]) -> str:
    """Errors of a group of rows: of all, and the mean over papers, whatever rows they have."""
    off = np.array([one.off for one in part])
    size, papers = np.abs(off), sorted({one.row.paper for one in part})
    each = np.mean([np.mean([abs(one.off) for one in part if one.row.paper == paper]) for paper in papers])
    shown = [f"{100 * x:.1f} %" for x in (size.mean(), each, size.max())]
    return "| " + " | ".join([name, f"{len(papers)}", f"{len(part)}", *shown, f"{100 * off.mean():+.1f} %"]) + " |"


def show_sums(title: str, part: list[Held], by: Callable[[Held], str]) -> None:
    """Errors of groups of rows."""
    groups: dict[str, list[Held]] = {}
    for one in part:
        groups.setdefault(by(one), []).append(one)
    if not part:
        return
    print(f"\n{title}\n\n| | papers | rows | mean error | of papers | largest | bias |\n|---|---:|---:|---:|---:|---:|---:|")
    for name, group in groups.items():
        print(figures(name, group))


def show_coverage(part: list[Held]) -> None:
    """Of the intervals, every paper counting as much as the others."""
    print("\n| 80 % interval | papers | coverage | score | of the other papers | score |\n|---|---:|---:|---:|---:|---:|")
    kinds = sorted({one.row.kind for one in part})
    for name, chosen in (*((kind, [one for one in part if one.row.kind == kind]) for kind in kinds), ("**all**", part)):
        groups = {(one.row.kind, one.row.paper) for one in chosen}
        means = [np.mean([(*one.scored(one.interval), *one.scored(one.without_its_paper)) for one in chosen
                          if (one.row.kind, one.row.paper) == group], axis=0) for group in sorted(groups)]  # fmt: skip
        covered, score, apart, apart_score = np.mean(means, axis=0)
        print(f"| {name} | {len(groups)} | {100 * covered:.0f} % | {score:.3f} | {100 * apart:.0f} % | {apart_score:.3f} |")


def errors_toml(part: list[Held]) -> str:
    """Log errors for every class and paper, as ``model_errors.toml`` has them."""
    lines = [
        "# Log errors of modelled step times, by class of job and publication: rows that no number was fitted on.",
        "# Written by: python validation/step_times.py DIR --errors src/taut/project/training/model_errors.toml",
    ]
    for kind, paper in sorted({(one.row.kind, one.row.paper) for one in part}):
        off = np.array([one.log_error for one in part if (one.row.kind, one.row.paper) == (kind, paper)])
        spread = float(off.std(ddof=1)) if len(off) > 1 else 0.0
        lines += ["", "[[papers]]", f'class = "{kind}"', f'name = "{paper}"', f"rows = {len(off)}",
                  f"mean = {off.mean():.4f}", f"spread = {spread:.4f}"]  # fmt: skip
    return "\n".join(lines) + "\n"


EXPECTED = {
    "gemm_share": (0.8, 0.1), "gemm_half_depth": (150.0, 0.7), "memory_share": (0.75, 0.15), "kernel_us": (8.0, 0.7),
    "host_layer_us": (1000.0, 0.7), "hdr": (17.0, 0.3), "nvlink": (230.0, 0.05),
}  # fmt: skip
"""What a number is expected to be before any row is seen, and the spread of its logarithm."""


def _jitter(s: Scenario) -> float:
    """How many times as long steps take with the default noise; numbers that are fitted hardly change it."""
    return float(forecast(s, count=JITTERED).step_ns.mean()) / step_ns(s)


def fit(chosen: list[Row]) -> None:
    """Least squares of log errors (5 % each, robust), with those expectations; steps as they come with the default noise."""
    from scipy.optimize import least_squares

    known = [(s, row.seconds / _jitter(s)) for row in chosen for s in [row.scenario()]]

    def with_(s: Scenario, p: dict[str, float]) -> Scenario:
        device = replace(s.device, **{k: v for k, v in p.items() if k not in ("hdr", "nvlink")})
        tiers = tuple(replace(t, gb_per_s=p[k]) for t, k in zip(s.fabric.tiers, ("nvlink", "hdr"), strict=True))
        return replace(s, device=device, fabric=replace(s.fabric, tiers=tiers))

    def of(x: Any) -> dict[str, float]:
        return {k: mean * float(np.exp(v)) for (k, (mean, _)), v in zip(EXPECTED.items(), x, strict=True)}

    def errors(x: Any) -> Any:
        off = [np.log(step_ns(with_(s, of(x))) / 1e9 / seconds) / 0.05 for s, seconds in known]
        return np.array([*off, *(v / spread for v, (_, spread) in zip(x, EXPECTED.values(), strict=True))])

    found = of(least_squares(errors, np.zeros(len(EXPECTED)), loss="soft_l1").x)
    print("\n".join(f"{key} = {value:.4g}" for key, value in found.items()))


def show_row(one: Held) -> None:
    low, high = one.interval
    cells = [one.row.paper, one.row.what, one.row.kind, f"{one.ours:.2f}", f"{low:.2f}–{high:.2f}", f"{one.row.seconds:.2f}"]
    role = "fitted" if one.row.calibrated else "held out" if one.row.held_out else ""
    print("| " + " | ".join([*cells, f"{100 * one.off:+.1f} %", role]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="published tables")
    parser.add_argument("--rows", action="store_true", help="every row, not only the sums")
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose paper, job or class has this")
    parser.add_argument("--errors", metavar="FILE", type=Path, help="write the errors of each paper and class")
    parser.add_argument("--cli", metavar="N", type=int, default=0, help="ask N rows, drawn at random, of the command too")
    parser.add_argument("--fit", action="store_true", help="fit the device and fabric numbers on the calibration rows")
    given = parser.parse_args()
    chosen = [row for row in rows(given.folder) if given.only in f"{row.paper} {row.what} {row.kind} {row.device}"]
    if given.fit:
        fit([row for row in chosen if row.calibrated and row.paper == "vTrain"])
        return
    if given.rows:
        print("| paper | job | class | ours, s | 80 % | theirs, s | difference | |\n|---|---|---|---:|---:|---:|---:|---|")
    found = []
    with tempfile.TemporaryDirectory() as made:
        for one in held_against(chosen, Path(made)):
            found.append(one)
            if given.rows:
                show_row(one)
        some = random.Random(0).sample(chosen, min(given.cli, len(chosen)))
        if some:
            print(f"\n`taut project FILE --json`: {same_by_command(some, Path(made))} of {len(some)} rows the same bytes")
    counted, fitted = ([one for one in found if one.row.calibrated is role] for role in (False, True))
    show_sums("Rows that were fitted, and are not counted:", fitted, lambda one: f"{one.row.paper}, {one.row.kind}")
    show_sums("By paper:", counted, lambda one: f"{one.row.paper}, {one.row.kind}, {one.row.device}")
    show_sums("By class:", counted, lambda one: f"{one.row.kind}, {one.row.device}")
    show_sums("All devices:", counted, lambda one: f"**{one.row.kind}**")
    if held := [one for one in counted if one.row.held_out]:
        show_sums("Held out:", held, lambda one: one.row.kind)
    show_coverage(counted)
    if given.errors:
        given.errors.write_text(errors_toml(counted), encoding="utf-8")


if __name__ == "__main__":
    main()
