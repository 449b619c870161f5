"""How fast records are appended, against the bare commits of the same machine, and what recording adds to a verb.

    python bench/audit_speed.py --rounds 9 --appends 200

Appends and bare commits take turns, one by one, because the speed of a disk changes from second to second: a bare commit is
one row of the same number of bytes in a file of its own, with the same settings of SQLite. What recording adds is the time to
import, open, append one record with 20 files read, commit and close, in a process that has just done a verb; and a whole verb
that signs nothing, by turns recorded and not.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from taut.audit.database import SETTINGS, connected
from taut.audit.log import open_log
from taut.audit.record import Detail, Text

DETAILS: dict[str, Detail] = {
    "verb": "analyze",
    "options": {"quiet": True},
    "inputs": [{"name": Text("traces"), "what": "folder", "sha256": None}],
    "read": [{"name": Text(f"rank{k}.json"), "sha256": f"{k:064x}"} for k in range(2)],
    "code": 0,
}
ADDED = """
import sys, time
from pathlib import Path
import msgspec, numpy  # what a verb has loaded anyway
from taut.core.folder import is_run_folder
began, busy = time.perf_counter(), time.process_time()
from taut.audit.log import open_log
from taut.audit.record import VERB, Text
read = [{"name": Text(f"rank{k}.json"), "sha256": f"{k:064x}"} for k in range(20)]
with open_log(Path(sys.argv[1]), "1", create=True) as log:
    log.append(VERB, {"verb": "whatif", "read": read, "code": 0})
print(time.perf_counter() - began, time.process_time() - busy, "cryptography" in sys.modules)
"""
COMPILED = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Modules have bytecode, as an installation has it."""


def by_turns(place: Path, count: int) -> tuple[list[float], list[float], int]:
    """(seconds of each append, of each bare commit, bytes of a row): one after the other, so that both meet the same disk."""
    ours, bare = [], []
    with open_log(place / "log.db", "1", create=True) as log, connected(place / "bare.db", create=True) as connection:
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, data BLOB)")
        log.append("verb", DETAILS)
        row = log.raw()[-1]
        size = len(row.leaf) + len(row.body or b"") + len(row.texts or b"")
        for k in range(count):
            ours.append(took(lambda: log.append("verb", DETAILS)))
            bare.append(took(lambda k=k: commit(connection, k, size)))
    return ours, bare, size


def took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def commit(connection: sqlite3.Connection, number: int, size: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO bare VALUES (?, ?)", (number, os.urandom(size)))
    connection.execute("COMMIT")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--appends", type=int, default=200)
    asked = parser.parse_args()
    ours, bare, means, middles = [], [], [], []
    with tempfile.TemporaryDirectory(dir=".") as place:
        for k in range(asked.rounds):
            folder = Path(place) / str(k)
            folder.mkdir()
            one, other, size = by_turns(folder, asked.appends)
            ours, bare = [*ours, len(one) / sum(one)], [*bare, len(other) / sum(other)]
            means.append(sum(other) / sum(one))
            middles.append(statistics.median(other) / statistics.median(one))
        print(f"settings: {'; '.join(SETTINGS)}")
        print(f"{asked.rounds} rounds of {asked.appends}, medians (lowest–highest), rows of {size} bytes")
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"appends a second: {spread(ours, '.0f')}; bare commits: {spread(bare, '.0f')}")
        print(f"ratio of the rates {spread(means, '.2f')}; of median appends {spread(middles, '.2f')}")
        record_alone(Path(place), asked.rounds * 3)
        whole_verb(Path(place), asked.rounds * 3)


def record_alone(place: Path, count: int) -> None:
    """What importing, opening, appending and closing take in a process that has done a verb."""
    wall_ms, cpu_ms, bare_ms = [], [], []
    for k in range(count + 1):
        command = [sys.executable, "-c", ADDED, f"{place}/added.db"]
        wall, busy, signs = subprocess.check_output(command, text=True, env=COMPILED).split()
        assert signs == "False", "a verb that signs nothing has loaded cryptography"
        with connected(place / f"one-{k}.db", create=True) as connection:
            connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, data BLOB)")
            commit_s = took(lambda: commit(connection, 0, 3000))
        if k:  # the first compiles the modules
            wall_ms, cpu_ms, bare_ms = [*wall_ms, float(wall) * 1e3], [*cpu_ms, float(busy) * 1e3], [*bare_ms, commit_s * 1e3]
    print(f"recording, {count} processes, ms: wall {spread(wall_ms, '.1f')}, CPU {spread(cpu_ms, '.1f')}, ", end="")
    print(f"of the wall one bare commit {spread(bare_ms, '.1f')}")


def whole_verb(place: Path, count: int) -> None:
    """A verb that signs nothing, by turns recorded and not."""
    added_ms, busy_ms = [], []
    for k in range(count + 1):
        on, off = (timed(place, switch) for switch in ("on", "off"))
        if k:
            added_ms, busy_ms = [*added_ms, on[0] - off[0]], [*busy_ms, on[1] - off[1]]
    print(
        f"taut export --to schema -o FILE, {count} pairs, recorded less unrecorded, ms: wall {spread(added_ms, '.1f')}, ",
        end="",
    )
    print(f"CPU {spread(busy_ms, '.1f')}")


def timed(place: Path, switch: str) -> tuple[float, float]:
    """(wall, CPU) of a verb's process, ms."""
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "taut", "export", "--to", "schema", "-o", "schema.json"]
    subprocess.run(
        command,
        cwd=place,
        env={**COMPILED, "TAUT_AUDIT": switch},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after, took_s = os.times(), time.perf_counter() - began
    busy_s = after.children_user + after.children_system - before.children_user - before.children_system
    return took_s * 1e3, busy_s * 1e3


if __name__ == "__main__":
    main()
