"""Calculon beside ``taut project``, the same published steps in one run, as Markdown.

    python validation/calculon.py CALCULON [DIR] [--rows]

CALCULON is a checkout of calculon-ai/calculon (Apache-2, not on PyPI), DIR has the published tables (step_times.py). Its own
systems ``a100_80g`` and ``h100_80g_nvl8`` are used as they are, with memory without end. Left out is what it cannot say:
mixtures, context parallelism, weights that are sharded. Grouped keys and values and gated blocks, which it does not have,
count as a feed-forward block with as many FLOPs less or more; eight bits are all of its numbers. It leaves out logits, and has
no fused attention. Rows that taut or Calculon were fitted on do not count: vTrain's for taut, Korthikanti's for Calculon.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import step_times

from taut.project.training.scenario import Scenario

SYSTEMS = {"A100": "a100_80g", "H100": "h100_80g_nvl8"}
RECOMPUTED = {"none": "none", "selective": "attn_only", "full": "full"}
ITS_OWN = "Korthikanti et al."
"""The paper that Calculon's systems were set by."""


def expressed(s: Scenario) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Application and execution as Calculon's files have them; None for what it has no words for."""
    m, j = s.model, s.job
    if m.experts or m.kv_latent or j.cp > 1 or j.sharding in ("zero3", "hsdp"):
        return None
    width = m.hidden // m.heads
    ffn = m.ffn or 4 * m.hidden
    shared = 2 * (m.hidden - (m.kv_heads or m.heads) * width)
    wide = ffn * (3 if m.gated else 2) - shared
    app = {"hidden": m.hidden, "feedforward": wide // 2 // j.tp * j.tp, "seq_size": m.sequence, "attn_heads": m.heads,
           "attn_size": width, "num_blocks": m.layers}  # fmt: skip
    inside = j.pp == 1 and j.tp * j.dp <= 8
    exe = {
        "num_procs": j.world, "tensor_par": j.tp, "pipeline_par": j.pp, "data_par": j.dp, "tensor_par_net": 0,
        "pipeline_par_net": 1, "data_par_net": 0 if inside else 1, "batch_size": j.global_batch,
        "microbatch_size": j.micro_batch, "datatype": "float8" if j.precision == "fp8" else "float16",
        "fused_activation": False, "attention_type": "multihead", "activation_recompute": RECOMPUTED[j.recompute],
        "pipeline_interleaving": j.virtual_pp, "optimizer_sharding": j.sharding != "none" and j.dp > 1,
        "tensor_par_comm_type": "rs_ag" if j.sequence_parallel and j.tp > 1 else "ar",
        "tensor_par_overlap": "pipe" if j.tensor_overlap_share else "none",
        "seq_par_ag_redo": j.sequence_parallel and j.tp > 1 and j.recompute == "selective",
        "data_par_overlap": j.overlap_share > 0 and j.dp > 1, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "training": True,
    }  # fmt: skip
    return app, exe


def seconds(calculon: Any, where: Path, row: step_times.Row) -> float | None:
    """The step that Calculon says; None where it does not."""
    said = expressed(row.scenario())
    if said is None:
        return None
    cfg = json.loads((where / "systems" / f"{SYSTEMS[row.device]}.json").read_text(encoding="utf-8"))
    cfg["mem1"]["GiB"] = 1e6
    llm, system = calculon.llm.Llm, calculon.System(cfg)
    try:
        model = llm(llm.Application(said[0]), logging.getLogger("calculon"))
        model.compile(system, llm.Execution.from_json(said[1]))
        model.run(system)
    except (AssertionError, llm.Error):
        return None
    return float(model.get_total_time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calculon", type=Path, help="a checkout of Calculon")
    parser.add_argument("folder", type=Path, nargs="?", help="published tables")
    parser.add_argument("--rows", action="store_true", help="every row, not only the sums")
    given = parser.parse_args()
    sys.path.insert(0, str(given.calculon))
    import calculon
    import calculon.llm

    table: dict[str, list[tuple[float, float]]] = {}
    if given.rows:
        print("| paper | job | theirs, s | taut | | Calculon | |\n|---|---|---:|---:|---:|---:|---:|")
    known = [(row, seconds(calculon, given.calculon, row)) for row in step_times.rows(given.folder)]
    told = {id(row): other for row, other in known if other is not None and not row.calibrated}
    with tempfile.TemporaryDirectory() as made:
        for one in step_times.held_against((row for row, _ in known if id(row) in told), Path(made)):
            row, other = one.row, told[id(one.row)] / one.row.seconds - 1
            own = row.paper == ITS_OWN
            for name in (f"{row.paper}, {row.kind}, {row.device}", *(() if own else (f"**{row.kind}, {row.device}**",))):
                table.setdefault(name, []).append((one.off, other))
            if given.rows:
                cells = [f"{one.ours:.2f}", f"{one.off:+.1%}", f"{told[id(row)]:.2f}", f"{other:+.1%}"]
                print(f"| {row.paper} | {row.what} | {row.seconds:.2f} | {' | '.join(cells)} |", flush=True)
    print("\n| | rows | taut, mean error | largest | bias | Calculon, mean error | largest | bias |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, offs in sorted(table.items(), key=lambda item: (item[0].startswith("**"), item[0])):
        both = np.array(offs).T
        cells = [f"{np.abs(x).mean():.1%} | {np.abs(x).max():.1%} | {x.mean():+.1%}" for x in both]
        print(f"| {name} | {len(offs)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
