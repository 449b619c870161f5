"""What is known of real traces against what ``taut analyze`` says of them.

    python validation/known.py --shared ../shared/data

The traces are not part of this repository (their sources and licences are in the data's own README).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import taut

Row = tuple[str, str, str, bool]
"""(trace, what is known, what taut says, do they agree)."""


def dlrm(data: Path) -> Iterator[Row]:
    """Eight ranks, eight collectives: who is last changes in mid-step."""
    result = taut.analyze([data / "dlrm-8rank/dlrm_kineto.tar.gz"]).result
    gates = result["gates"]
    full = len(gates) == 8 and all(g["members"] == 8 for g in gates)
    yield (
        "dlrm-8rank",
        "8 collectives on all 8 ranks",
        f"{len(gates)} gates, {[g['members'] for g in gates]} members",
        full,
    )
    last = [g["last_rank"] for g in gates]
    late = ", ".join(f"{g['last_rank']}: {g['late_ns'] / 1e3:.0f} µs" for g in gates)
    right = last[:5] == [7] * 5 and set(last[5:]) == {4, 5}
    yield "dlrm-8rank", "rank 7 last in 0–4, ranks 4 and 5 in 5–7", late, right
    offsets = [abs(o["value"]) for o in result["fidelity"]["clock"]["offset_ns"].values()]
    yield (
        "dlrm-8rank",
        "clocks agree within 7 µs",
        f"largest offset applied {max(offsets) / 1e3:.1f} µs",
        max(offsets) <= 7000,
    )


def steps(data: Path) -> Iterator[Row]:
    """Per-worker step times: a burst that ends, and heterogeneity that is no fault."""
    result = taut.analyze([data / "alibaba-pai-steps/job_1_norm.csv"]).result
    found = [(f["ranks"], f["steps"]) for f in result["findings"]]
    yield "alibaba job 1", "worker 6, samples 181–194", str(found), found == [([6], (181, 194))]
    share = result["waits"]["observed_rank_ns"] / result["ledger"]["total_rank_ns"]
    yield "alibaba job 1", "wait share 10.0 %", f"{100 * share:.1f} %", abs(share - 0.1) < 0.001
    result = taut.analyze([data / "alibaba-pai-steps/job_2_norm.csv"]).result
    yield "alibaba job 2", "unequal workers, no fault", f"{len(result['findings'])} findings", not result["findings"]


def lab(data: Path) -> Iterator[Row]:
    """Jobs with a known fault, or none."""
    result = taut.analyze([data / "lab-slow-rank"]).result
    found = result["findings"][0]
    gain = found["recoverable_wall_ns"] / result["job"]["steps"] / 1e6
    right = found["ranks"] == [2] and len(result["findings"]) == 1
    yield "lab-slow-rank", "rank 2", f"ranks {found['ranks']}", right
    yield "lab-slow-rank", "recoverable 36.4 ms a step ± 10 %", f"{gain:.1f} ms", abs(gain / 36.4 - 1) <= 0.10
    result = taut.analyze([data / "lab-slow-link"]).result
    found = result["findings"][0]
    right = len(result["findings"]) == 1 and found["ranks"] == [2] and found["links"] == ["2:1", "3:2"]
    yield (
        "lab-slow-link",
        "rank 2's link, nobody's compute",
        f"links {found['links']} sharing rank {found['ranks']}",
        right,
    )
    gain = found["recoverable_wall_ns"] / result["job"]["steps"] / 1e6
    yield "lab-slow-link", "300.9 → 96.6 ms: 204 ms a step (for orientation)", f"{gain:.0f} ms", True
    applied = [o["value"] for o in result["fidelity"]["clock"]["offset_ns"].values()]
    yield "lab-slow-link", "no clock offset invented", f"offsets {applied}", not any(applied)
    for name in ("lab-baseline", "lab-baseline8", "lab-fsdp", "lab-pipeline"):
        result = taut.analyze([data / name]).result
        yield name, "no finding", f"{len(result['findings'])} findings", not result["findings"]


def straggler(data: Path) -> Iterator[Row]:
    """The slowed worker of production job AR, by blame."""
    result = taut.analyze([data / "bytedance-stragglers/trace-AR.parquet"]).result
    found: list[dict[str, Any]] = result["findings"]
    fault = result["waits"]["fault_rank_ns"]
    on_zero = sum(b["wait_rank_ns"] for b in result["blame"] if b["cause"]["rank"] == 0) / max(fault, 1)
    yield (
        "AR",
        "one worker slowed: all that is fault is on it",
        f"ranks {found[0]['ranks']}, {100 * on_zero:.1f} % of fault",
        on_zero > 0.98,
    )
    yield (
        "AR",
        "replay law exact",
        f"replay error {result['fidelity']['replay_error']}",
        result["fidelity"]["replay_error"] == 0,
    )


CHECKS = (dlrm, steps, lab, straggler)


def main() -> None:
    """Print the table; exit 1 if something known is contradicted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    data = parser.parse_args().shared
    agreed = True
    print("| trace | known | taut says | agrees |\n|---|---|---|---|")
    for check in CHECKS:
        for trace, known, ours, right in check(data):
            agreed &= right
            print(f"| {trace} | {known} | {ours} | {'yes' if right else 'NO'} |", flush=True)
    raise SystemExit(0 if agreed else 1)


if __name__ == "__main__":
    main()
