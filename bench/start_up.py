"""Whole commands of two checkouts by turns: user CPU, peak memory and modules imported, median and range of the rounds.

    python bench/start_up.py OTHER FILE… [--rounds 9] [--floor]

OTHER is the ``src`` folder of another commit (``git archive COMMIT src | tar -x -C FOLDER``). Each round runs ``taut --help``
and ``taut analyze FILE`` of both, kernels and bytecode warm. With ``--floor`` it measures instead what this checkout cannot be
below: processes that only import libraries, only import what the analysis of a FILE imports, or only decode it and write the
tables of its run folder, all of them by turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from measure import Cost, load, run, spread

SOURCE = str(Path(__file__).parents[1] / "src")
LIBRARIES = {
    "Python itself": "pass",
    "click": "import click",
    "msgspec": "import msgspec",
    "numpy, and what medians and intervals import of it": "import numpy, numpy.ma, numpy.random",
    "pyarrow.parquet (with numpy)": "import pyarrow.parquet",
    "rich": "import rich.console, rich.padding, rich.table, rich.text",
    "sqlite3 and cryptography, for the signed record": "import sqlite3, cryptography.hazmat.primitives.asymmetric.ed25519",
}
"""Processes that import one library, with all that it imports."""
ALL = "; ".join(LIBRARIES.values())
MODULES = """
import gc, importlib, os, sys
gc.disable()
from taut.core import memory
memory.fit()
for name in sys.argv[1].split(","):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
os._exit(0)
"""
"""Imports modules as a process of taut does, and ends as one."""
DECODED = """
import io, os, sys, tarfile
import msgspec
from isal import igzip
class Event(msgspec.Struct, gc=False):
    name: str | None = None
    ph: str | None = None
    cat: str | None = None
    ts: float | None = None
    dur: float | None = None
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    args: msgspec.Raw = msgspec.Raw()
class Document(msgspec.Struct):
    traceEvents: list[Event]
with igzip.open(sys.argv[1]) as stream:
    data = stream.read()
if ".tar" in sys.argv[1]:
    archive = tarfile.open(fileobj=io.BytesIO(data))
    texts = [archive.extractfile(one).read() for one in archive if one.name.endswith(".json")]
else:
    texts = [data]
documents = [msgspec.json.decode(text, type=Document) for text in texts] if sys.argv[2] == "decoded" else []
os._exit(0)
"""
TABLES = """
import os, pathlib, sys
import pyarrow.parquet as pq
for path in map(pathlib.Path, sys.argv[2:]):
    pq.write_table(pq.read_table(path), pathlib.Path(sys.argv[1]) / path.name, compression="lz4")
os._exit(0)
"""


def cost_of(source: str, command: list[str]) -> Cost:
    """What a command of the checkout with this source costs."""
    os.environ["PYTHONPATH"] = source
    cost = run([sys.executable, "-m", "taut", *command])
    assert cost.code == 0, (source, command)
    return cost


def modules(source: str, command: list[str]) -> list[str]:
    """The modules that the command imports."""
    environment = {**os.environ, "PYTHONPATH": source}
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "taut", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in told.stderr.splitlines() if line.startswith("import time:")]
    return [line.rpartition("|")[2].strip() for line in lines[1:]]


def beside_other(other: str, commands: Mapping[str, list[str]], rounds: int) -> None:
    """Measure the commands of both checkouts, and print the table."""
    print("| command | other: modules | user CPU s | peak MB | this: modules | user CPU s | peak MB | CPU, this to other |")
    print("|---|---:|---|---|---:|---|---|---|")
    for name, command in commands.items():
        sources = other, SOURCE
        for source in sources:
            cost_of(source, command)
        found: tuple[list[Cost], list[Cost]] = ([], [])
        for _ in range(rounds):
            for source, costs in zip(sources, found, strict=True):
                costs.append(cost_of(source, command))
        cells = []
        for source, costs in zip(sources, found, strict=True):
            peak = spread([c.peak_mb for c in costs], 0)
            cells += [str(len(modules(source, command))), spread([c.user_s for c in costs]), peak]
        ratio = median(c.user_s for c in found[1]) / median(c.user_s for c in found[0])
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


def steps_of(path: Path, command: list[str], scratch: str) -> dict[str, list[str]]:
    """What of the analysis of a file can be done by processes that do nothing else: name → arguments of Python."""
    cost_of(SOURCE, command)
    read = {
        f"{path.name}: inflated by ISA-L (with msgspec)": ["-c", DECODED, str(path), "inflated"],
        f"{path.name}: inflated, and decoded by msgspec": ["-c", DECODED, str(path), "decoded"],
    }
    tables = sorted(map(str, Path(scratch, "run").glob("*.parquet")))
    kept = Path(scratch, path.name.partition(".")[0])
    kept.mkdir()
    for table in tables:
        Path(table).rename(kept / Path(table).name)
    mine = [str(kept / Path(table).name) for table in tables]
    if path.suffix == ".parquet":
        read = {f"{path.name}: read by Arrow": ["-c", f"import pyarrow.parquet; pyarrow.parquet.read_table({str(path)!r})"]}
    return {
        f"{path.name}: its modules imported, nothing done": ["-c", MODULES, ",".join(modules(SOURCE, command))],
        **read,
        f"{path.name}: tables of its run folder read and written by Arrow": ["-c", TABLES, scratch, *mine],
        f"{path.name}: taut analyze": ["-m", "taut", *command],
    }


def floor(steps: Mapping[str, Sequence[str]], rounds: int) -> None:
    """Measure processes that do one thing each, by turns, and print the table."""
    os.environ["PYTHONPATH"] = SOURCE
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as taut has it: threads that are started spin for a while
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    costs: dict[str, list[Cost]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, arguments in steps.items():
            cost = run([sys.executable, *arguments])
            assert cost.code == 0, name
            costs[name] += [cost] if turn else []  # the first is to warm up
    print("| a process that does only this | user CPU s | system CPU s | peak MB |")
    print("|---|---|---|---|")
    for name, each in costs.items():
        cells = (spread([c.user_s for c in each]), spread([c.system_s for c in each]), spread([c.peak_mb for c in each], 0))
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the src folder of another commit; with --floor it is not used")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", action="store_true", help="measure what the commands of this checkout cannot be below")
    args = parser.parse_args()
    os.environ["TAUT_AUDIT"] = "on" if args.floor else "off"
    print(load() + "\n")
    with tempfile.TemporaryDirectory() as scratch:
        commands = {"--help": ["--help"]}
        commands |= {path.name: ["analyze", str(path.resolve()), "-o", f"{scratch}/run"] for path in args.files}
        if args.floor:
            os.chdir(scratch)  # where the record of the commands goes
            steps = {name: ["-c", code] for name, code in LIBRARIES.items()} | {"all of these": ["-c", ALL]}
            for path in args.files:
                steps |= steps_of(path.resolve(), commands[path.name], scratch)
            floor(steps, args.rounds)
        else:
            beside_other(args.other, commands, args.rounds)
    print("\n" + load())


if __name__ == "__main__":
    main()
