"""Published what-if figures of two production jobs against ours.

    python validation/stragglers.py --shared ../shared/data

Source: OSDI'25 straggler-analysis artifact, data and reference results (Apache-2.0), not part of this repository.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import taut

PARTS = (("dp_rank", "dp_rank"), ("stage", "stage"), ("class", "optype"))


def rows(data: Path, job: str) -> list[tuple[str, float, float, float, float]]:
    """(quantity, theirs, ours, difference, limit) for one job; differences are relative but for M_W and M_S."""
    theirs = json.loads((data / f"result-{job}.json").read_text())
    ours = taut.analyze([data / f"trace-{job}.parquet"]).result["whatif"]
    out = [("slowdown", theirs["blocking_slowdown"], ours["slowdown"], 0.0, 0.005)]
    for mine, name in PARTS:
        for key, value in theirs[f"blocking_decompose_by_{name}"].items():
            out.append((f"{name} {key}", value, ours["by"][mine][key], 0.0, 0.02))
    out = [(q, t, o, o / t - 1, limit) for q, t, o, _, limit in out]
    for name, file, key in (("M_W", "mw", "worst_ranks"), ("M_S", "ms", "last_stage")):
        value = json.loads((data / f"{file}-{job}.json").read_text())[name.replace("_W", "w").replace("_S", "s")]
        got = ours["explained"][key]
        out.append((name, value, got, got - value, 0.05))
    return out


def main() -> None:
    """Print the table; exit 1 if any difference is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    data = parser.parse_args().shared / "bytedance-stragglers"
    bad = 0
    print("| job | quantity | theirs | ours | difference | limit |\n|---|---|---|---|---|---|")
    for job in ("AR", "ST"):
        for quantity, theirs, ours, difference, limit in rows(data, job):
            bad += abs(difference) > limit
            print(f"| {job} | {quantity} | {theirs:.4f} | {ours:.4f} | {difference:+.4f} | {limit} |")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
