"""Step times that taut reads from traces of a GPU, against CUDA events around the same steps.

    python validation/gpu_steps.py record FOLDER      on a machine with a GPU and torch: small jobs of many kinds, profiled
    python validation/gpu_steps.py check FOLDER       anywhere with taut: one row a job

The jobs: training whose host runs ahead, training that waits and sleeps, copies on a side stream, CUDA graphs with and
without a wait, a slow loader, accumulated gradients, no marks, steps of different lengths, a transformer, the same compiled.
Nothing of taut is imported. The step in which the profiler writes its trace is left out of the events.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ACTIVE, BEFORE = 8, 3
SIZE, ROWS = 4096, 8192
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def jobs(torch: Any) -> dict[str, Callable[[int], None]]:
    """Name of a job → one step of it."""
    torch.manual_seed(0)
    made = {"device": "cuda", "dtype": torch.bfloat16}
    weights = [torch.randn(SIZE, SIZE, requires_grad=True, **made) for _ in range(6)]
    optimiser, rows = torch.optim.SGD(weights, lr=1e-6), torch.randn(ROWS, SIZE, **made)
    frozen, few = [one.detach() for one in weights], torch.randn(64, SIZE, **made)
    side, buffers = torch.cuda.Stream(), [torch.empty(ROWS, SIZE, device="cuda") for _ in range(2)]
    pinned = [torch.randn(ROWS, SIZE).pin_memory() for _ in range(2)]

    def product(value: Any, by: list[Any]) -> Any:
        for one in by:
            value = torch.relu(value @ one) * 0.02
        return value

    def train(_: int) -> None:
        product(rows, weights).float().pow(2).mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    def wait(i: int) -> None:
        train(i)
        weights[0].sum().item()
        time.sleep(0.004)

    def prefetch(i: int) -> None:
        with torch.cuda.stream(side):
            buffers[(i + 1) % 2].copy_(pinned[(i + 1) % 2], non_blocking=True)
        product(buffers[i % 2].bfloat16(), frozen[:3])
        torch.cuda.current_stream().wait_stream(side)

    product(few, frozen)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = product(few, frozen * 4)

    def decode(_: int) -> None:
        graph.replay()
        int(result.argmax())

    def unequal(i: int) -> None:
        product(rows[: 1024 * (1, 1, 8)[i % 3]], frozen)

    def loader(i: int) -> None:
        with torch.profiler.record_function(LOADER):
            time.sleep(0.015)
        train(i)
        torch.cuda.synchronize()

    def accumulate(i: int) -> None:
        product(rows, weights[:1]).float().mean().backward()
        if i % 2:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0) for _ in range(6)]
    model = torch.nn.Sequential(*layers).to(**made)
    adam, batch = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.randn(16, 512, 1024, **made)

    def learn(of: Any) -> Callable[[int], None]:
        def step(_: int) -> None:
            of(batch).float().pow(2).mean().backward()
            adam.step()
            adam.zero_grad(set_to_none=True)

        return step

    return {
        "train": train,
        "train and wait": wait,
        "prefetch": prefetch,
        "graph": lambda _: graph.replay(),
        "graph and wait": decode,
        "slow loader": loader,
        "accumulated gradients": accumulate,
        "no marks": train,
        "unequal steps": unequal,
        "transformer": learn(model),
        "compiled": learn(torch.compile(model)),
    }


def record(folder: Path) -> None:
    """Profile every job, and write its trace and the times of its steps by CUDA events."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for name, step in jobs(torch).items():
        for i in range(6):
            step(i)
        torch.cuda.synchronize()
        path = folder / f"{name.replace(' ', '_')}.json"
        profiled = _timed(torch, step, path, name != "no marks")
        truth[path.name + ".gz"] = {"profiled_ms": profiled, "unprofiled_ms": _timed(torch, step, None, False)}
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    (folder / "truth.json").write_text(json.dumps({"device": torch.cuda.get_device_name(), "jobs": truth}))


def _timed(torch: Any, step: Callable[[int], None], path: Path | None, marks: bool) -> list[float]:
    """Milliseconds of every step by CUDA events, profiled if there is a path for the trace."""
    profiler = torch.profiler
    events = [torch.cuda.Event(enable_timing=True) for _ in range(ACTIVE + BEFORE + 1)]

    def run(after: Callable[[], None]) -> None:
        for i, event in enumerate(events):
            event.record()
            if i < len(events) - 1:
                step(i)
                after()
        torch.cuda.synchronize()

    if path is None:
        run(lambda: None)
    else:
        kept = profiler.schedule(wait=1, warmup=BEFORE - 1, active=ACTIVE, repeat=1) if marks else None
        both = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
        with profiler.profile(activities=both, schedule=kept, record_shapes=True) as prof:
            run(prof.step if marks else lambda: None)
        prof.export_chrome_trace(str(path))
    return [one.elapsed_time(other) for one, other in pairwise(events)]


def check(folder: Path, taut: str) -> int:
    """Print a row for every job; 1 where a step time is off by more than 1 %."""
    truth, worst = json.loads((folder / "truth.json").read_text()), 0.0
    print(
        f"{truth['device']}\n\n"
        "| job | steps | taut, ms | CUDA events, ms | off by | unprofiled, ms |\n|---|---|---|---|---|---|"
    )
    for name, times in truth["jobs"].items():
        command = [taut, "analyze", str(folder / name), "--json", "--no-save", "-q"]
        windows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["device"]["windows"]
        ms, wide = times["profiled_ms"], 2 if "accumulated" in name else 1
        known = [one for one in windows if one["step"] + wide < len(ms)]
        read = sum(one["end_ns"] - one["start_ns"] for one in known) / len(known) / 1e6
        true = sum(sum(ms[one["step"] : one["step"] + wide]) for one in known) / len(known)
        bare = wide * sum(times["unprofiled_ms"][BEFORE:]) / len(times["unprofiled_ms"][BEFORE:])
        worst = max(worst, abs(read / true - 1))
        row = f"{len(known)} | {read:.3f} | {true:.3f} | {read / true - 1:+.2%} | {bare:.3f}"
        print(f"| {name.removesuffix('.json.gz').replace('_', ' ')} | {row} |")
    return int(worst > 0.01)


def main() -> int:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--taut", default="taut")
    given = parser.parse_args()
    if given.what == "check":
        return check(given.folder, given.taut)
    record(given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
