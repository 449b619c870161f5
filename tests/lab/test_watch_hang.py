"""Real jobs in which one rank stops: what the others tell names it, below torch 2.14 too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taut.lab.case import JOBS
from taut.lab.watch_lab import _opened, _place
from taut.watch.event_rows import Room
from taut.watch.seen import Feed
from taut.watch.step_series import StepSeries
from taut.watch.stopped import LastCalls, stopped
from taut.watch.window import Hello, Names, Window

pytest.importorskip("torch")

RANKS, STOPS, STEPS = 4, 2, 12
JOB = """
import os, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
from taut.lab import watched_rank
from taut.lab.case import Spec
from taut.lab.torch_jobs import Job, Pace
from taut.watch import observed, observed_calls

folder, name, ranks, stops, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
watched_rank.EVERY_S = 0.1
observed.LASTING_NS, observed_calls.STILL_NS = 300_000_000, 600_000_000

def rank(number):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=ranks)
    pace = Pace(Spec(job=name, fault="none", ranks=ranks, watch=True, folder=folder), number, ())
    job = Job(pace.spec, number, pace)
    watched = watched_rank.Watched(Path(folder), number, "here")
    for step in range(steps):
        pace.begin("plain", step)
        job.step(1, folder)
    Path(folder, f"done{number}").touch()
    if number == stops:
        time.sleep(3600)
    job.step(1, folder)
    time.sleep(3600)

pids = []
for number in range(ranks):
    pid = os.fork()
    if pid == 0:
        try:
            rank(number)
        finally:
            os._exit(1)
    pids.append(pid)
while not all(Path(folder, f"done{number}").exists() for number in range(ranks)):
    if os.waitpid(-1, os.WNOHANG)[0]:
        sys.exit("a rank ended")
    time.sleep(0.05)
time.sleep(4)
for pid in pids:
    os.kill(pid, 9)
"""


@pytest.mark.parametrize("job", JOBS)
def test_the_rank_that_stopped_is_named(job: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", JOB, str(tmp_path), job, *map(str, (RANKS, STOPS, STEPS))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    abouts, bodies = _opened(tmp_path)
    window = Window(job, Room(1 << 26))
    for one in abouts:
        member, _ = window.join(Hello(one.rank, RANKS, one.host, -1, job, one.rank, f"{one.rank}", one.sees, "boot"), 1)
        window.name(member, Names(0, [_place(place) for place in one.places]))
        window.add(member, bodies[one.rank].until(1 << 62), 1)
        assert one.faults == 0
    window.fold(1)
    now = max(at for one in abouts for at, _ in one.sent)
    seen = Feed(window).new(now)
    calls, series = LastCalls(), StepSeries(list(range(RANKS)), ["here"] * RANKS)
    calls.add(seen, now)
    series.add(seen)
    found = stopped(calls, seen, series.meets, 0.1, now + 40_000_000_000)
    assert found is not None
    assert found.ranks == (STOPS,), (found, [(one.verb, one.group) for one in seen.classes], calls.came)
