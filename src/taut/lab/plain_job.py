"""Processes without torch that sleep and meet in a real all-reduce: jobs of up to 64 ranks on a machine of two cores.

Every rank is a forked process with a socket to the one that sums. A step is a sleep and the all-reduce; with local steps
ranks meet in every fourth step only. What each rank did and when becomes an op table, which is what is analysed.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.errors import TautError
from taut.lab import truth
from taut.lab.case import LOCAL, TAU, Spec, draw
from taut.lab.net import die_with_parent
from taut.lab.on_all import load
from taut.lab.truth import TRACES, Truth

BASE_MS, JITTER = 40.0, 0.02
"""Work of a step, and its spread from step to step."""
GRADIENT = 256
"""Numbers that are summed."""
OPS = "ops.csv"
HEAD = ("rank", "step", "class", "start_ns", "duration_ns", "bytes", "group", "seq", "host")
PATIENCE_S = 30.0
"""An all-reduce that takes longer than this has failed."""


def run(spec: Spec) -> float:
    """One run into ``spec.folder``, by a process of its own that all ranks die with; returns how long it took, s."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "taut.lab.plain_job"], input=msgspec.json.encode(spec), capture_output=True, check=False
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise TautError(f"{spec.job} with {spec.fault}, seed {spec.seed}: {last[-1][:300] if last else 'ended without a word'}")
    return time.monotonic() - began


def main() -> None:
    """Run the spec on standard input; what was made stands in its folder afterwards, or nothing does."""
    die_with_parent()
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    scratch = Path(spec.folder + ".partial")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        (scratch / TRACES).mkdir(parents=True)
        parts = {part: _part(spec, part) for part in spec.parts}
        _write(spec, parts[TRACES], scratch / TRACES / OPS)
        truth.save(_truth(spec, parts), scratch)
        shutil.rmtree(spec.folder, ignore_errors=True)
        scratch.replace(spec.folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _part(spec: Spec, part: str) -> Ints:
    """Begin of the work, begin and end of the all-reduce, of every rank and step, ns since 1970; ranks × steps × 3."""
    ours, pids = [], []
    zero = time.time_ns() - time.monotonic_ns()
    for rank in range(spec.ranks):
        mine, theirs = socket.socketpair()
        mine.settimeout(PATIENCE_S)
        pid = os.fork()
        if pid == 0:
            _rank(spec, rank, part, theirs)
        theirs.close()
        ours.append(mine)
        pids.append(pid)
    try:
        for step in range(-1, spec.steps):  # one more before the first, so that all begin together
            if _meets(part, step):
                _sum(ours)
        took = [np.frombuffer(_received(one, 24 * spec.steps), dtype=np.int64).reshape(spec.steps, 3) for one in ours]
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        for one in ours:
            one.close()
    return np.array(took) + zero


def _meets(part: str, step: int) -> bool:
    return part != LOCAL or (step + 1) % TAU == 0


def _rank(spec: Spec, rank: int, part: str, link: socket.socket) -> None:
    """Called in a process of its own, which it ends."""
    code = 1
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loaded = load(spec, rank)
        jitter = np.random.default_rng((spec.seed, rank, 1)).standard_normal(spec.steps)
        work_s = (BASE_MS * loaded.factor * (1 + JITTER * jitter) + loaded.pause_ms) / 1e3
        for slow in (i for i in draw(spec) if rank in i.ranks):
            work_s[slow.first_step : slow.last_step + 1] += slow.strength["ms"] / 1e3
        gradient = np.full(GRADIENT, float(rank))
        took = np.zeros((spec.steps, 3), dtype=np.int64)
        _reduced(link, gradient)
        for step in range(spec.steps):
            took[step] = time.monotonic_ns()
            time.sleep(max(float(work_s[step]), 0.0))
            took[step, 1:] = time.monotonic_ns()
            if _meets(part, step):
                _reduced(link, gradient)
                took[step, 2] = time.monotonic_ns()
        link.sendall(took.tobytes())
        link.recv(1)  # until this process is ended
        code = 0
    finally:
        os._exit(code)


def _reduced(link: socket.socket, gradient: Floats) -> Floats:
    """The sum of all ranks' gradients."""
    link.sendall(gradient.tobytes())
    return np.frombuffer(_received(link, gradient.nbytes))


def _sum(links: Sequence[socket.socket]) -> None:
    """One all-reduce, as the one who sums has it: who comes last is waited for wherever it stands in the order."""
    total = np.sum([np.frombuffer(_received(link, 8 * GRADIENT)) for link in links], axis=0).tobytes()
    for link in links:
        link.sendall(total)


def _received(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = link.recv(size - len(data))
        if not some:
            raise TautError("a rank ended without a word")
        data += some
    return bytes(data)


def _write(spec: Spec, took: Ints, path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(HEAD)
        for rank, step in np.ndindex(took.shape[:2]):
            begin, meet, end = took[rank, step].tolist()
            rows.writerow((rank, step, "compute", begin, meet - begin, "", "", "", spec.hosts[rank]))
            rows.writerow((rank, step, "all-reduce", meet, end - meet, 8 * GRADIENT, "all", step, spec.hosts[rank]))


def _walls(took: Ints) -> tuple[int, ...]:
    """Wall time of every step but the first: from the latest end of the one before to its own latest end."""
    return tuple(np.diff(took[:, :, 2].max(axis=0)).tolist())


def _truth(spec: Spec, parts: dict[str, Ints]) -> Truth:
    took = parts[TRACES]
    work = took[:, 1:, 1] - took[:, 1:, 0]
    late = (work.max(axis=0) - work.mean(axis=0)).sum()
    walls = _walls(took)
    return Truth(
        job=spec.job,
        fault=spec.fault,
        seed=spec.seed,
        ranks=spec.ranks,
        injected=draw(spec),
        hosts=spec.hosts,
        traced_steps=spec.steps,
        faulted_ns=walls,
        policy=f"{LOCAL}={TAU}",
        policy_ns=_walls(parts[LOCAL]),
        late_share=float(late / sum(walls)),
    )


if __name__ == "__main__":
    main()
