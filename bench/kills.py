"""Kill writers of run folders at random moments and count what is lost.

    python bench/kills.py --kills 1000 --seed 1

A child that has its analysis ready replaces a run folder by another run; it is killed (SIGKILL) at a random moment of
that. Every tenth kill hits a whole ``taut demo`` process instead. Afterwards the folder must be whole, either the old run
or the new one, and the next writer must leave nothing but run folders behind.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import taut
from taut.cli import DEMO
from taut.core.folder import _clean, manifest_of


def state(run: Path, old: str) -> str:
    """Which run a folder holds, or what is wrong with it."""
    if not run.exists():
        return "lost"
    try:
        taut.open_run(run)
    except taut.TautError as error:
        return f"damaged: {error}"
    manifest = manifest_of(run)
    assert manifest is not None
    if {*manifest.files, "run.json"} != set(os.listdir(run)):
        return "with foreign files"
    return "old" if json.loads((run / "run.json").read_bytes())["digest"] == old else "new"


def kill_save(analysis: taut.Analysis, run: Path, after_s: float | None) -> str:
    """Replace a run in a child that is killed after a while, or not at all."""
    child = os.fork()
    if child == 0:
        analysis.save(run)
        os._exit(0)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    return "killed" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0 else "finished"


def kill_process(run: Path, after_s: float) -> str:
    """Start a whole analysis that replaces a run, and kill it after a while."""
    command = [sys.executable, "-m", "taut", "demo", "-q", "-o", str(run), "--power", "700,400"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    child.kill()
    return "killed" if child.wait() < 0 else "finished"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    old = taut.analyze([DEMO])
    new = dataclasses.replace(old, digest="another")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        old.save(run)
        scale_s = {False: 0.1, True: 1.5}
        for i in range(asked.kills):
            whole_process = i % 10 == 9
            after_s = rng.uniform(0, scale_s[whole_process])
            fate = kill_process(run, after_s) if whole_process else kill_save(new, run, after_s)
            # A quarter is to finish, however busy the machine is: then kills reach every moment of a save.
            scale_s[whole_process] *= 1.03 if fate == "killed" else 0.91
            counts[f"{'process' if whole_process else 'save'} {fate}: {state(run, old.digest)}"] += 1
            _clean(Path(place))
            if left := set(os.listdir(place)) - {"run"}:
                counts[f"left behind: {sorted(left)}"] += 1
            old.save(run)
    for what, count in sorted(counts.items()):
        print(f"{count:6}  {what}")
    bad = sum(n for what, n in counts.items() if not what.endswith((": old", ": new")))
    print(f"{asked.kills} kills, {bad} bad")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
