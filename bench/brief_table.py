"""Questions × inputs: ``python bench/brief_table.py ../shared/data [--only NAME]``. Every briefing is made once, as a process
of its own; the table tells which questions it answers, CPU and size of the HTML. Documents are kept with ``--keep DIR``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from taut.read.scenario_file import names

TAUT = [sys.executable, "-m", "taut"]


def analysed(traces: Path, run: Path) -> str:
    """The run folder of some traces."""
    subprocess.run([*TAUT, "analyze", str(traces), "-q", "--json", "-o", str(run)], check=True, stdout=subprocess.DEVNULL)
    return str(run)


def inputs(data: Path, work: Path) -> dict[str, list[str]]:
    """Name → words of ``taut brief``."""
    demo = Path(__file__).resolve().parents[1] / "src" / "taut" / "demo"
    incident = analysed(demo, work / "incident")
    job = analysed(data / "bytedance-stragglers" / "trace-AR.parquet", work / "AR")
    healthy, slow = analysed(data / "lab-baseline", work / "before"), analysed(data / "lab-slow-rank", work / "after")
    logs = [str(data / "control" / name) for name in ("slurmctld-preempt-rescue.log", "rescuer.log")]
    return {
        "incident": [incident, "--prices", str(demo / "prices.toml"), "--focus", str(demo / "bill.csv")],
        "AR": [job, "--gpu-hour", "2.50EUR"],
        "comparison": [healthy, slow],
        "control logs": logs,
        **{name: [name] for name in names("")},
    }


def main() -> None:
    """One row an input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        keep = given.keep or Path(scratch)
        keep.mkdir(parents=True, exist_ok=True)
        asked = inputs(given.data.resolve(), Path(scratch))
        print("| input | CPU, s | HTML, kB | " + " | ".join(str(k + 1) for k in range(7)) + " |\n|---|---:|---:|" + "---|" * 7)
        for name, words in asked.items():
            if given.only in (None, name):
                print(row(name, words, keep), flush=True)


def row(name: str, words: list[str], keep: Path) -> str:
    """Which questions one briefing answers."""
    page = keep / f"{name.replace(' ', '-')}.html"
    command = [*TAUT, "brief", *words, "--json", "-q", "-o", str(page), "-o", str(page.with_suffix(".pdf"))]
    before = os.times()
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    cells = [written(one) for one in told["questions"]]
    return f"| {name} | {cpu:.1f} | {page.stat().st_size / 1000:.0f} | " + " | ".join(cells) + " |"


def written(question: dict[str, object]) -> str:
    """A number with its interval, or what is needed."""
    answer = question["answer"]
    if not isinstance(answer, dict):
        return f"needs {question['needs']}"
    value, lo, hi = (None if answer[key] is None else f"{answer[key]:.3g}" for key in ("value", "lo", "hi"))
    ends = "" if lo is None and hi is None else f" ({lo or '?'}–{hi or '?'})"
    return f"{value} {question['unit']}{ends}"


if __name__ == "__main__":
    main()
