"""CPU that the pages of a run take: a table of milliseconds, in a process that has opened it or of a real server.

python bench/views.py RUN... [--times 5]
python bench/views.py RUN... --serve

``--serve`` starts ``taut serve`` and asks it over loopback: overview, again, 60 frames, 40 different what-ifs. Wall is what
the client waited, CPU what the server and its threads took meanwhile (in ticks of the kernel, mostly 10 ms). After the
overview it waits until the server has prepared what-ifs by itself; ``--at-once`` does not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from taut.stored import Run, open_run
from taut.views.delay_wave import delay_wave
from taut.views.overview import overview
from taut.views.replays import Replays
from taut.views.run_card import run_card
from taut.views.run_questions import answer, question, questions
from taut.views.structure import structure


def took(ask: Callable[[], object], times: int) -> str:
    """Wall and CPU of the first call, ms; then the median of both and the longest of each over the others."""
    spent = np.empty((times + 1, 2))
    for k in range(times + 1):
        begun = time.perf_counter(), time.process_time()
        ask()
        spent[k] = time.perf_counter() - begun[0], time.process_time() - begun[1]
    again = spent[1:]
    return " | ".join(f"{1e3 * one:.0f}" for one in (*spent[0], *np.median(again, axis=0), *again.max(axis=0)))


def pages(folder: str, times: int) -> None:
    """The rows of one run."""
    begun = time.perf_counter()
    run = open_run(folder)
    opened = (time.perf_counter() - begun) * 1e3
    replays, name = Replays(run), Path(folder)
    rank, step = _middle(run)
    label = run.graph.names[0]
    asked: dict[str, Callable[[], object]] = {
        "card": lambda: run_card(folder),
        "overview": lambda: overview(run),
        "structure": lambda: structure(run),
        "delay": lambda: delay_wave(run, rank, step, 5_000_000),
        "questions": lambda: questions(replays),
        "whatif, a rank": lambda: answer(replays, question([f"rank={rank}"])),
        "whatif, a class": lambda: answer(replays, question([f"class={label}"])),
        "whatif, scales": lambda: answer(replays, question(scales={"work": "0.9", "bandwidth": "2", "gaps": "0"})),
    }
    print(f"| {name} | {len(run.graph):,} | open | {opened:.0f} | | | | | |")
    for what, ask in asked.items():
        print(f"| {name} | {len(run.graph):,} | {what} | {took(ask, times)} |", flush=True)


def _middle(run: Run) -> tuple[int, int]:
    """A rank and a step in the middle."""
    graph = run.graph
    return int(graph.ranks[len(graph.ranks) // 2]), int(graph.steps[len(graph.steps) // 2])


class Served:
    """A server of one run, and a client of it."""

    def __init__(self, folder: str) -> None:
        self.token, command = "bench-" * 4, [sys.executable, "-m", "taut", "serve", folder, "--no-open", "--port", "0"]
        about = os.environ | {"TAUT_SERVE_TOKEN": self.token, "TAUT_AUDIT": "off"}
        self.process = subprocess.Popen(command, env=about, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        self.client = http.client.HTTPConnection("127.0.0.1", int(said.split("127.0.0.1:")[1].split("/")[0]), timeout=600)
        self.settle()
        self.run = json.loads(self.get("/api/runs"))["runs"][0]["id"]

    def get(self, path: str) -> bytes:
        """An answer."""
        self.client.request("GET", path, headers={"authorization": f"Bearer {self.token}"})
        answer = self.client.getresponse()
        data = answer.read()
        if answer.status != 200 and b"ask in a shell" not in data:  # policies of very large runs are refused
            raise SystemExit(f"{path}: {answer.status} {data[:300]!r}")
        return data

    def cpu_ms(self) -> float:
        """CPU of the server so far, threads that ended too."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, key: str) -> float:
        """``VmRSS`` or ``VmHWM``, GB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{key}:")[1].split()[0]) / 1e6

    def settle(self) -> tuple[float, float]:
        """(wall, CPU) in ms until the server has nothing to do."""
        begun, first, idle = time.perf_counter(), self.cpu_ms(), 0
        while idle < 10:
            before = self.cpu_ms()
            time.sleep(0.2)
            idle = idle + 1 if self.cpu_ms() - before <= 10 else 0
        return (time.perf_counter() - begun) * 1e3 - 2000, self.cpu_ms() - first

    def asked(self, name: str) -> tuple[float, float]:
        """(wall, CPU) of one answer of the run, ms."""
        begun, first = time.perf_counter(), self.cpu_ms()
        self.get(f"/api/runs/{self.run}/{name}")
        return (time.perf_counter() - begun) * 1e3, self.cpu_ms() - first


def frames(axis: dict[str, Any], count: int) -> list[str]:
    """Frames of a walk: from the whole run to a thousandth of it, at other places and rows."""
    whole, rows = int(axis["wall_ns"]), len(axis["rows"])
    out = []
    for k in range(count):
        wide, many = max(int(whole / 2 ** (k % 11)), 1), max(rows >> (k % 5), 1)
        begin, first = (whole - wide) * (k * 7 % 13) // 13, (rows - many) * (k * 5 % 11) // 11
        out.append(f"frame?begin_ns={begin}&end_ns={begin + wide}&first_row={first}&rows={many}&columns=1200&lines=600")
    return out


def whatifs(questions: dict[str, Any]) -> list[str]:
    """Forty different questions: 12 fixes, 10 scales, all policies that are offered (14), and four of them after a change."""
    kinds = [[one["fix"] for one in kind] for kind in questions["choices"].values() if kind]
    fixes = list(dict.fromkeys([fix for some in zip_longest(*kinds) for fix in some if fix]))[:12]
    scales = ["work=0.5", "work=0.8", "work=1.2", "bandwidth=0.5", "bandwidth=2", "bandwidth=4", "gaps=0", "gaps=0.5"]
    scales += ["work=0.9&bandwidth=2", "work=0.9&bandwidth=4&gaps=0"]
    policies = [f"{one['name']}={value}" for one in questions["policies"] for value in one["values"]]
    policies += [one["name"] for one in questions["policies"] if not one["values"]]
    after = [
        f"{change}&policy={one}"
        for change, one in zip((f"fix={quote(fixes[0])}", "work=0.9") * 2, policies[1::3], strict=False)
    ]
    asked = [f"fix={quote(one)}" for one in fixes] + scales + [f"policy={one}" for one in policies] + after
    # Kinds take turns, as people do.
    return ["whatif?" + asked[k * 11 % len(asked)] for k in range(len(asked))]


def _row(name: str, what: str, spent: list[tuple[float, float]]) -> None:
    each = np.array(spent)
    shown = [f"{np.quantile(each[:, k], share):.0f}" for share in (0.5, 0.95, 1.0) for k in (0, 1)]
    print(f"| {name} | {what} | {' | '.join(shown)} |", flush=True)


def served(folder: str, at_once: bool) -> None:
    """The rows of one run over loopback."""
    server, name = Served(folder), Path(folder).name
    try:
        _row(name, "overview, first", [server.asked("overview")])
        _row(name, "overview, again", [server.asked("overview") for _ in range(5)])
        rss = server.memory("VmRSS")
        if not at_once:
            _row(name, "prepared by itself", [server.settle()])
        _row(name, "axis, first", [server.asked("axis")])
        axis = json.loads(server.get(f"/api/runs/{server.run}/axis"))
        _row(name, "60 frames", [server.asked(one) for one in frames(axis, 60)])
        _row(name, "questions", [server.asked("questions")])
        asked = whatifs(json.loads(server.get(f"/api/runs/{server.run}/questions")))
        spent = [(one, server.asked(one)) for one in asked]
        for kind in ("fix", "scale", "policy"):
            some = [took for one, took in spent if kind == _kind(one)]
            if some:
                _row(name, f"{len(some)} what-ifs: {kind}", some)
        _row(name, f"{len(spent)} what-ifs", [took for _, took in spent])
        most = server.memory("VmHWM")
        print(f"\nresident: {rss:.2f} GB after the overview, {server.memory('VmRSS'):.2f} GB after all, {most:.2f} GB at most")
        print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    finally:
        server.process.terminate()
        server.process.wait()


def _kind(asked: str) -> str:
    return "policy" if "policy=" in asked else "fix" if "fix=" in asked else "scale"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help="ask a real server")
    parser.add_argument("--at-once", action="store_true", help="with --serve: do not wait for what it prepares")
    args = parser.parse_args()
    if args.serve:
        print("| run | asked | median | its CPU | p95 | its CPU | longest | its CPU |")
        print("|---|---|---|---|---|---|---|---|")
        for folder in args.runs:
            served(folder, args.at_once)
        return
    print("| run | ops | page | first | its CPU | median | its CPU | longest | its CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in args.runs:
        pages(folder, args.times)
    print(f"\nmost memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
