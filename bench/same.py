"""Compare what two checkouts of taut print with ``--json`` on everything in a folder of data.

    python bench/same.py OLD NEW DATA [--only WORD] [--jobs 2]

Runs ``analyze``, ``whatif``, ``compare``, ``control`` and ``project`` of both checkouts in the same environment, and says
for each whether all numbers are equal. Texts, ids and keys that differ are listed apart; numbers of ``project`` may differ
within the interval that the old checkout gives. Exits 1 if a number of another verb differs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SCENARIOS = ("gpt-175b", "large-training", "multi-tenant", "mixed-fabric", "retry-heavy", "latency-inference", "agent-chain")
COMPARED = (("lab-baseline", "lab-slow-rank"), ("lab-baseline", "lab-slow-link", "lab-slow-rank"))
TIMEOUT_S = 600
INDEX = re.compile(r"\[\d+\]")
RENAMED = ((r"^(\.policies\[\d+\]\.\w+)\.baseline\b", r"\1.without"),)
"""Keys of schema 1 → keys of schema 2, so that what they hold is compared."""
Leaf = tuple[str, Any]


def leaves(value: Any, at: str = "") -> Iterator[Leaf]:
    """Every value of a JSON object with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{at}[{i}]")
    else:
        yield at, value


def is_number(value: Any) -> bool:
    """Whether a leaf is a number: booleans and text that holds digits are none, money is."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def printed(checkout: Path, place: Path, *args: str) -> dict[str, Any]:
    """What a checkout prints; its exit code and refusal if it prints no JSON."""
    env = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "taut", *args, "--json", "-q"]
    if args[0] == "whatif":
        command.remove("-q")
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    try:
        return {"exit": done.returncode, **json.loads(done.stdout)}
    except json.JSONDecodeError:
        return {"exit": done.returncode, "said": done.stderr.strip().splitlines()[-1:]}


def differences(old: dict[str, Any], new: dict[str, Any], within: bool) -> Counter[str]:
    """How many leaves differ, by kind."""
    before, after = ({_renamed(at): value for at, value in leaves(one)} for one in (old, new))
    found: Counter[str] = Counter()
    for word, keys in (("gone", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
        found[f"keys {word}"] = len(keys)
        found.update(f"{word}: {INDEX.sub('[]', at)}" for at in keys)
    for at in before.keys() & after.keys():
        one, other = before[at], after[at]
        found["compared"] += 1
        if one == other or (one != one and other != other):
            continue
        if not (is_number(one) and is_number(other)):
            found["texts"] += 1
        elif within and _inside(before, at, float(other)):
            found["within the interval"] += 1
        elif math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12):
            found["rounding"] += 1
        else:
            found["NUMBERS"] += 1
    return found


def _renamed(at: str) -> str:
    for old, new in RENAMED:
        at = re.sub(old, new, at)
    return at


def _inside(before: dict[str, Any], at: str, value: float) -> bool:
    stem = at.rpartition(".")[0]
    low, high = before.get(f"{stem}.lo"), before.get(f"{stem}.hi")
    return is_number(low) and is_number(high) and low <= value <= high


def cases(data: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and inputs of every analysis: the folders of the data and the files in folders that mix jobs."""
    for path in sorted(data.iterdir()):
        if not path.is_dir() or path.name in ("focus", "hostile"):
            continue
        one_job = path.name.startswith("lab-") or path.name == "dlrm-8rank"
        inside = [path] if one_job else sorted(p for p in path.iterdir() if p.name != "README.md")
        for one in inside:
            yield f"{path.name}/{one.name}" if one is not path else path.name, (str(one),)


def check(name: str, inputs: tuple[str, ...], roots: tuple[Path, Path], verb: str) -> tuple[str, Counter[str]]:
    """One case through both checkouts."""
    with tempfile.TemporaryDirectory() as place:
        results = []
        for k, root in enumerate(roots):
            here = Path(place) / str(k)
            here.mkdir()
            if verb == "project":
                results.append(printed(root, here, "project", *inputs))
                continue
            if verb == "compare":
                runs = [Path(one).name for one in inputs]
                for name, one in zip(runs, inputs, strict=True):
                    printed(root, here, "analyze", one, "-o", name)
                results.append(printed(root, here, "compare", *runs))
                continue
            if verb == "control":
                results.append(printed(root, here, "control", *inputs))
                continue
            result = {"analyze": printed(root, here, "analyze", *inputs, "-o", "run")}
            if (here / "run" / "ops.parquet").exists():
                rank = min(result["analyze"]["whatif"]["by"]["rank"], key=int, default="0")
                result["whatif"] = printed(root, here, "whatif", "run", "--fix", f"rank={rank}")
            results.append(result)
        return f"{verb} {name}", differences(results[0], results[1], verb == "project")


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(found.items()) if n and ":" not in kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    roots = (asked.old.resolve(), asked.new.resolve())
    data = asked.data.resolve()
    todo = [(name, inputs, roots, "analyze") for name, inputs in cases(data)]
    todo += [(path.name, (str(path),), roots, "control") for path in sorted((data / "control").iterdir())]
    todo += [("all", tuple(map(str, sorted((data / "slurm").iterdir()))), roots, "control")]
    todo += [(" ".join(names), tuple(str(data / name) for name in names), roots, "compare") for names in COMPARED]
    todo += [(name, (name,), roots, "project") for name in SCENARIOS]
    todo = [one for one in todo if asked.only in f"{one[3]} {one[0]}"]
    total: Counter[str] = Counter()
    with ThreadPoolExecutor(asked.jobs) as pool:
        for name, found in pool.map(lambda one: check(*one), todo):
            print(
                f"{name:60} " + ", ".join(f"{n} {kind}" for kind, n in sorted(found.items()) if n and ":" not in kind),
                flush=True,
            )
            total += found
    print(f"{len(todo)} cases: {_counts(total)}")
    for kind, n in sorted(total.items()):
        if ":" in kind:
            print(f"  {kind} ({n} times)")
    sys.exit(total["NUMBERS"] > 0)


if __name__ == "__main__":
    main()
