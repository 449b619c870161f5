"""One rank of a lab job: a forked process in its own network, doing the recorded parts on command."""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from taut.core.array_types import Ints
from taut.lab import net
from taut.lab.case import FATAL, PLAIN, Spec, clocks
from taut.lab.net import Loopback, Socket
from taut.lab.torch_jobs import HOPS, Job, Loss, Pace, event_now
from taut.lab.truth import BASELINE, TRACES, Injected
from taut.lab.watched_rank import Watched

PORT = 29500
TIMEOUT_S, FATAL_TIMEOUT_S = 25, 6
WRITTEN = (BASELINE, TRACES)
"""Parts whose traces are kept: what is analysed, and the baseline."""


@dataclass
class Part:
    """What a rank tells about one part of the run."""

    steps: list[tuple[int, int, int, int, float]] = field(default_factory=list)
    """Start and end by the machine's clock, start and end by the rank's own, ns; the loss."""
    device_ns: list[int] = field(default_factory=list)
    """Time of each step on the GPU, between CUDA events at the ends of steps on the stream of compute, ns; else empty."""
    cpu_s: float = 0.0
    failed: str = ""


def main(
    spec: Spec,
    rank: int,
    injected: tuple[Injected, ...],
    place: Socket | Loopback,
    host: Connection,
    progress: Ints,
    folder: Path,
) -> None:
    """Never returns: ends the process, because gloo's teardown can deadlock."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        place.enter(spec.hosts[rank])
        _rank(spec, rank, injected, host, progress, folder)
        code = 0
    except BaseException as error:
        host.send(f"rank {rank}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
    finally:
        sys.stdout.flush()
        os._exit(code)


def _rank(spec: Spec, rank: int, injected: tuple[Injected, ...], host: Connection, progress: Ints, folder: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    on_gpu = spec.device != "cpu"
    mine = cores[rank % len(cores) :: spec.ranks] if on_gpu else cores[rank % len(cores) :][:1]
    os.sched_setaffinity(0, mine)
    torch.set_num_threads(1)
    timeout = timedelta(seconds=FATAL_TIMEOUT_S if spec.fault in FATAL else TIMEOUT_S)
    store = f"file://{folder}/store" if on_gpu else f"tcp://{net.address(0)}:{PORT}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=spec.ranks, timeout=timeout)
    pace = Pace(spec, rank, injected)
    job = Job(spec, rank, pace)
    scratch = str(folder)
    watched = Watched(folder, rank, spec.hosts[rank]) if spec.watch else None
    if spec.fault in FATAL:
        threading.Thread(target=_watch, args=(folder / "faulted", job, progress), daemon=True).start()
    host.send(_steps(job, pace, "plain", range(PLAIN), progress, scratch))
    for part in spec.parts:
        host.recv()
        (folder / part).mkdir(exist_ok=True)
        _set_clock(spec, rank, part)
        dist.barrier()
        if part == "unprofiled" or spec.watch:
            host.send(_steps(job, pace, part, range(spec.steps), progress, scratch))
        else:
            host.send(_recorded(spec, job, pace, part, progress, folder / part))
    dist.barrier()
    if watched is not None:
        watched.stop()


def _recorded(spec: Spec, job: Job, pace: Pace, part: str, progress: Ints, folder: Path) -> Part:
    """One part under the profiler; what was recorded is written even if the job fails in the middle.

    Of the healthy parts the first is written as well: a baseline. The other is recorded all the same, so that the
    counterfactual pays the same overhead. Steps that only the flight recorder holds come after the profiler's.
    """
    last, began = spec.steps - 1, time.time_ns()
    recorder = profile(
        activities=[ProfilerActivity.CPU] if spec.device == "cpu" else [ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        schedule=lambda step: ProfilerAction.RECORD_AND_SAVE if step == last else ProfilerAction.RECORD,
    )
    recorder.start()
    report = _steps(job, pace, part, range(spec.steps), progress, str(folder.parent), recorder)
    recorder.stop()
    if part not in WRITTEN:
        return report
    raw = folder / f"rank{job.rank}.json"
    recorder.export_chrome_trace(str(raw))
    if part == "faulted" and spec.untraced:
        after = _steps(job, pace, part, range(spec.steps, spec.steps + spec.untraced), progress, str(folder.parent))
        report.failed = report.failed or after.failed
    with gzip.open(raw.with_suffix(".json.gz"), "wb", compresslevel=1) as file:
        file.write(raw.read_bytes())
    raw.unlink()
    _dump(folder, job, began if spec.from_start or spec.again else 0)
    return report


def _dump(folder: Path, job: Job, since: int = 0) -> None:
    """Write the flight recorder; hops, which it does not see on gloo, as the lab's own hook has them.

    It has held the parts before as well; of a fault that was always there, or of local steps, it must not know them.
    """
    recorder = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
    if recorder is None:
        return  # another torch than the one the lab is pinned to
    dump = json.loads(recorder())
    if job.hops is not None:
        dump["entries"] = [*dump.get("entries", ()), *job.hops.entries()]
        hops = {"name": HOPS, "desc": "", "ranks": str(list(range(job.spec.ranks)))}
        dump["pg_config"] = {**dump.get("pg_config", {}), HOPS: hops}
    dump["entries"] = [entry for entry in dump.get("entries", ()) if entry["time_created_ns"] >= since]
    (folder / f"flight_rank{job.rank}.json").write_text(json.dumps(dump))


def _watch(folder: Path, job: Job, progress: Ints) -> None:
    """Runs beside the job: dumps the flight recorder of a rank that hangs, on command."""
    while progress[-1] == 0:
        time.sleep(0.1)
    folder.mkdir(exist_ok=True)
    _dump(folder, job)


def _steps(
    job: Job, pace: Pace, part: str, steps: range, progress: Ints, scratch: str, recorder: profile | None = None
) -> Part:
    report = Part()
    events = [event_now()] if job.on_gpu else []
    taken: list[tuple[int, int, int, int]] = []
    losses: list[Loss] = []
    cpu = time.process_time()
    for step in steps:
        progress[job.rank] = step
        pace.begin(part, step)
        if pace.due("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if pace.due("hang"):
            time.sleep(3600)
        begin, own = time.monotonic_ns(), time.time_ns()
        try:
            losses.append(job.step(step, scratch))
        except (RuntimeError, OSError) as error:
            report.failed = str(error).splitlines()[0][:200]
            break
        end = time.monotonic_ns()
        taken.append((begin, end, own, own + end - begin))
        if job.on_gpu:
            events.append(event_now())
        if recorder is not None and step < steps[-1]:
            recorder.step()
    report.cpu_s = time.process_time() - cpu
    if events:
        torch.cuda.synchronize()
    report.device_ns = [round(1e6 * a.elapsed_time(b)) for a, b in pairwise(events)]
    report.steps = [(*times, float(loss)) for times, loss in zip(taken, losses, strict=True)]
    return report


def _set_clock(spec: Spec, rank: int, part: str) -> None:
    """A wrong clock for the ranks that have one, in the analysed part only."""
    wrong = clocks(spec).get(rank)
    if wrong is not None:
        offset, ppm = wrong if part == "faulted" else (0.0, 0.0)
        ctypes.CDLL(None).skew_set(ctypes.c_longlong(int(offset)), ctypes.c_double(ppm))
