"""Interrupt ``taut`` at random moments and count what becomes of it: exit codes, tracebacks, leftovers, lost runs.

python bench/interrupts.py [--count 500] [--seed 0] [--signal INT]

Every trial starts a command that replaces or reads a finished run, sends it a signal at a moment between its start and a
little after its usual end (to the process alone, or to its group as a terminal does), and looks at what is left. An
interrupt may also arrive while Python itself starts, before it runs anything of taut: those are counted apart.
"""

from __future__ import annotations

import argparse
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

LARGE_FILES, LARGE_STEPS, LONG_NAME = 3, 200, "work" * 400
"""Op tables of 11 MB each: together more than what is read in one process; long names keep the job itself small."""


def op_table(ranks: range, steps: int, name: str = "work") -> str:
    lines = ["rank,step,class,start_ms,duration_ms"]
    for step in range(steps):
        for rank in ranks:
            took = 10.0 + 0.01 * ((rank * 7 + step * 3) % 5) + (20.0 if rank == 3 else 0.0)
            lines.append(f"{rank},{step},{name},{step * 100}.0,{took:.3f}")
            lines.append(f"{rank},{step},all-reduce,{step * 100 + took:.3f},{42 - took:.3f}")
    return "\n".join(lines) + "\n"


def prepare(root: Path) -> dict[str, list[str]]:
    """Inputs, finished runs, and the commands that are interrupted."""
    small, large = root / "small.csv", root / "large"
    small.write_text(op_table(range(4), 20))
    large.mkdir()
    for number in range(LARGE_FILES):
        (large / f"part{number}.csv").write_text(op_table(range(32 * number, 32 * (number + 1)), LARGE_STEPS, LONG_NAME))
    log = root / "a.log"
    log.write_text("2026-01-01T00:00:01Z hpa replicas=3 web\n2026-01-01T00:00:02Z ops replicas=1 web\n")
    return {
        "demo": ["demo", "-o", "demo-run"],
        "analyze": ["analyze", str(small), "-o", "small-run", "--json"],
        "read": ["analyze", str(large), "-o", "large-run"],
        "control": ["control", str(log), "-o", "control-run"],
        "whatif": ["whatif", "demo-run", "--fix", "rank=1"],
        "project": ["project", "gpt-175b", "--evidence", "evidence"],
        "help": ["--help"],
    }


def start(arguments: list[str], root: Path) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if key != "TAUT_DEBUG"}
    return subprocess.Popen(
        [sys.executable, "-m", "taut", *arguments], cwd=root, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def listing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def group_left(group: int) -> list[str]:
    """Processes of the group that still run a second later; not those that only wait to be collected."""
    left: list[str] = []
    for _ in range(10):
        processes = subprocess.run(["ps", "-o", "stat=,args=", "-g", str(group)], capture_output=True, text=True, check=False)
        left = [line for line in processes.stdout.splitlines() if not line.startswith("Z")]
        if not left:
            break
        time.sleep(0.1)
    return left


def judge(code: int, errors: str, number: int) -> str:
    if code == -number or (code == 1 and "KeyboardInterrupt" in errors and f"{os.sep}taut{os.sep}" not in errors):
        return "while Python started"  # killed, or a traceback without a file of taut
    if "Traceback" in errors or "Exception ignored" in errors:
        return "traceback"
    if code == 128 + number:
        lines = [line for line in errors.splitlines() if line in ("taut: interrupted", "taut: terminated")]
        return f"exit {code}" if len(lines) == 1 else f"exit {code} without its line"
    return "finished" if code == 0 else f"exit {code}"


def trial(name: str, arguments: list[str], root: Path, whole: set[str], after_s: float, group: bool, number: int) -> list[str]:
    process = start(arguments, root)
    time.sleep(after_s)
    if process.poll() is None:
        (os.killpg if group else os.kill)(process.pid, number)
    _, errors = process.communicate(timeout=120)
    text = errors.decode(errors="replace")
    found = [judge(process.returncode, text, number)]
    if found[0] not in ("finished", f"exit {128 + number}", "while Python started"):
        print(f"--- {name} after {after_s:.3f} s, {'group' if group else 'process'}: {process.returncode}\n{text}", flush=True)
    if left := group_left(process.pid):
        print(f"--- {name} after {after_s:.3f} s left {left}", flush=True)
        found.append("a process left")
        os.killpg(process.pid, signal.SIGKILL)
    now = listing(root)
    if now - whole:
        print(f"--- {name} after {after_s:.3f} s left {sorted(now - whole)[:5]}", flush=True)
        found.append("leftovers")
        for path in sorted(now - whole, reverse=True):
            (root / path).rmdir() if (root / path).is_dir() else (root / path).unlink()
    if whole - now or any(json.loads(path.read_bytes()) is None for path in root.glob("*-run/run.json")):
        print(f"--- {name} after {after_s:.3f} s lost {sorted(whole - now)[:5]}", flush=True)
        found.append("a run lost")
        start(arguments, root).communicate(timeout=120)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=["INT", "TERM"], default="INT")
    parser.add_argument("--only", help="one of the commands")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this with interrupts ignored
    number, draws, counts = signal.Signals[f"SIG{asked.signal}"], random.Random(asked.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        commands = prepare(root)
        took_s = {}
        for _ in range(2):  # kernels are compiled once; the second time is the usual one
            for name, arguments in commands.items():
                begin = time.monotonic()
                process = start(arguments, root)
                errors = process.communicate()[1]
                if process.returncode:
                    sys.exit(f"{name} does not work here: {errors.decode()}")
                took_s[name] = time.monotonic() - begin
        size = sum(path.stat().st_size for path in root.glob("large/*"))
        print(f"{size >> 20} MB in {LARGE_FILES} files are read in processes")
        print("usual seconds:", {name: round(value, 2) for name, value in took_s.items()}, flush=True)
        names = [name for name in commands for _ in range(1 if name in ("read", "project") else 4)]
        whole = listing(root)
        for _ in range(asked.count):
            name = asked.only or draws.choice(names)
            after_s, group = draws.uniform(0, 1.05 * took_s[name]), draws.random() < 0.5
            counts.update(trial(name, commands[name], root, whole, after_s, group, number))
    for what, many in sorted(counts.items()):
        print(f"{many:6} {what}")
    bad = set(counts) - {"finished", f"exit {128 + number}", "while Python started"}
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
