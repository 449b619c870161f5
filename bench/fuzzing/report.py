"""Says what a run of the fuzzer found, and keeps it so that it can be seen again by one command."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fuzzing import kept, minimise
from fuzzing.judge import FOLDER, judged
from fuzzing.targets import TARGETS
from fuzzing.workers import Found, Outcome, Tally, scratch_folder

Key = tuple[str, str, str]
"""Kind, site, what a user sees."""


def summed(outcomes: Iterator[Outcome], asked: argparse.Namespace, targets: int) -> int:
    """Count the outcomes, print them, keep one small example of every site; 1 if anything was found."""
    begin, tallies = time.monotonic(), defaultdict(Tally)
    examples: dict[Key, Found] = {}
    for name, _, outcome, busy, found in outcomes:
        tally = tallies[name]
        tally.cases += 1
        tally.busy_s += busy
        tally.outcomes[outcome] += 1
        if found is not None:
            key = (found.finding.kind, found.finding.site, found.finding.seen)
            tally.sites[key] += 1
            old = examples.get(key)
            if old is None:
                print(f"{name} #{found.number}: {key[0]} {key[1]} ({key[2] or '-'})", file=sys.stderr)
            if old is None or _size(found) < _size(old):
                examples[key] = found
    took = time.monotonic() - begin
    _print(tallies, took)
    _written(examples, tallies, asked)
    return 1 if any(kind != "slow" for kind, _, _ in examples) else 0


def _size(found: Found) -> int:
    return sum(map(len, found.case.files.values()))


def _print(tallies: dict[str, Tally], took: float) -> None:
    print(f"{'target':16} {'cases':>8} {'accepted':>9} {'refused':>8} {'findings':>8} {'ms/case':>8}")
    for name, tally in sorted(tallies.items()):
        found = sum(tally.sites.values())
        ms = 1000 * tally.busy_s / max(tally.cases, 1)
        print(f"{name:16} {tally.cases:8} {tally.outcomes['accepted']:9} {tally.outcomes['refused']:8} {found:8} {ms:8.1f}")
    total = sum(tally.cases for tally in tallies.values())
    kinds: dict[str, int] = defaultdict(int)
    for tally in tallies.values():
        for (kind, _, seen), count in tally.sites.items():
            kinds[kind if seen != "refused" else "exception turned into a refusal"] += count
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing found"
    print(f"{total} cases in {took:.0f} s ({total / max(took, 1e-9):.0f}/s): {summary}")


def _written(examples: dict[Key, Found], tallies: dict[str, Tally], asked: argparse.Namespace) -> None:
    """One file for each site, made smaller first where that is possible, and an overview."""
    if not examples:
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for key, found in examples.items():
        count = sum(tally.sites[key] for tally in tallies.values())
        mode = " --plain" if asked.plain else ""
        again = f"python bench/fuzz.py --target {found.target} --seed {found.seed} --case {found.number}{mode}"
        if found.finding.kind in ("exception", "law"):
            found.case = minimise.smaller(TARGETS[found.target].judge, found.case, found.finding)
        rows.append((count, key, again, found))
        if asked.keep:
            kept.add(found)
    rows.sort(key=lambda row: (row[1][0], -row[0]))
    lines = ["| times | kind | site | seen | again |", "|---|---|---|---|---|"]
    for count, (kind, site, seen), again, found in rows:
        lines.append(f"| {count} | {kind} | {site} | {seen} | `{again}` |")
        name = "".join(c if c.isalnum() else "-" for c in f"{kind}-{site}")[:100]
        (asked.out / f"{name}.json").write_text(
            json.dumps({**kept.entry(found), "again": again, "trace": found.finding.text}, indent=1)
        )
    (asked.out / "FOUND.md").write_text("\n".join(lines) + "\n")
    print(f"written: {asked.out / 'FOUND.md'}")


def one(name: str, seed: int, number: int, show: Path | None) -> int:
    """Run one case here; print what became of it, and write its files if asked."""
    target = TARGETS[name]
    case = target.case(seed, number)
    if show is not None:
        for file, data in case.files.items():
            path = show / FOLDER / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        print(f"written: {show / FOLDER}")
    print("args:", case.args)
    root = scratch_folder()
    outcome, finding = judged(target.judge, case, root)
    shutil.rmtree(root, ignore_errors=True)
    print(
        outcome if finding is None else f"{finding.kind}: {finding.site} (a user sees: {finding.seen or '-'})\n{finding.text}"
    )
    return 1 if finding else 0
