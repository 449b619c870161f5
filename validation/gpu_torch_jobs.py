"""Jobs of torch for ``gpu_traces.py``: training, serving, streams, compiled code, one rank's collectives."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
MADE: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
Step = Callable[[int], object]
Job = Callable[[Path, str], dict[str, Any]]


def kept(profiler: profile, folder: Path, name: str) -> str:
    path = folder / f"{name}.json"
    profiler.export_chrome_trace(str(path))
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
    path.unlink()
    return f"{path.name}.gz"


def event() -> torch.cuda.Event:
    one = torch.cuda.Event(enable_timing=True)
    one.record()
    return one


def between(events: list[torch.cuda.Event]) -> list[float]:
    torch.cuda.synchronize()
    return [one.elapsed_time(other) for one, other in pairwise(events)]


def timed(step: Step, steps: int, after: Callable[[], object] = lambda: None) -> list[torch.cuda.Event]:
    events = []
    for i in range(steps):
        events.append(event())
        step(i)
        after()
    return [*events, event()]


def marked(step: Step, active: int = 8, wide: int = 1, **options: Any) -> Job:
    """A job whose steps the profiler marks, after three that it does not record."""

    def run(folder: Path, name: str) -> dict[str, Any]:
        timed(step, 4)
        torch.cuda.synchronize()
        when = schedule(wait=1, warmup=2, active=active, repeat=1)
        with profile(**{"activities": BOTH, "schedule": when, **options}) as profiler:
            events = timed(step, active + 3, profiler.step)
        file = kept(profiler, folder, name)
        return {file: {"ms": between(events), "marked": True, "wide": wide, "written": [active + 2]}}

    return run


def unmarked(step: Step, steps: int = 10, **options: Any) -> Job:
    def run(folder: Path, name: str) -> dict[str, Any]:
        timed(step, 4)
        torch.cuda.synchronize()
        with profile(**{"activities": BOTH, **options}) as profiler:
            events = timed(step, steps)
            torch.cuda.synchronize()
        return {kept(profiler, folder, name): {"ms": between(events), "marked": False}}

    return run


def in_cycles(step: Step) -> Job:
    """Three cycles of the profiler, a file each."""

    def run(folder: Path, name: str) -> dict[str, Any]:
        files: list[str] = []
        written = [6, 13, 20]
        when = schedule(wait=2, warmup=1, active=4, repeat=3)

        def ready(profiler: profile) -> None:
            files.append(kept(profiler, folder, f"{name}_{len(files)}"))

        with profile(activities=BOTH, schedule=when, on_trace_ready=ready) as profiler:
            events = timed(step, 22, profiler.step)
        times = between(events)
        return {file: {"ms": times, "marked": True, "written": written} for file in files}

    return run


def encoder(layers: int, width: int = 768, dtype: torch.dtype = torch.bfloat16) -> torch.nn.Module:
    some = [torch.nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, dropout=0.0) for _ in range(layers)]
    return torch.nn.Sequential(*some).to(device="cuda", dtype=dtype)


def trained(model: torch.nn.Module, batch: torch.Tensor, **options: Any) -> Step:
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)

    def step(_: int) -> None:
        model(batch).float().pow(2).mean().backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    return step


def product(value: torch.Tensor, by: list[torch.Tensor]) -> torch.Tensor:
    for one in by:
        value = torch.relu(value @ one) * 0.02
    return value


def training() -> dict[str, Job]:
    model, batch = encoder(4), torch.randn(32, 512, 768, **MADE)
    train = trained(model, batch)
    weights = [torch.randn(2048, 2048, requires_grad=True, **MADE) for _ in range(8)]
    rows, sgd = torch.randn(4096, 2048, **MADE), torch.optim.SGD(weights, lr=1e-6, momentum=0.9)

    def by_hand(_: int) -> None:
        product(rows, weights).float().square().mean().backward()
        with torch.no_grad():
            for one in weights:
                one.sub_(one.grad, alpha=1e-6)
                one.grad = None

    def accumulate(i: int) -> None:
        product(rows, weights).float().square().mean().backward()
        if i % 4 == 3:
            sgd.step()
            sgd.zero_grad(set_to_none=True)

    def evaluate(i: int) -> None:
        train(i)
        with torch.no_grad():
            for _ in range(4 if i % 3 == 2 else 0):
                model(batch)

    def offload(_: int) -> None:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = model(batch[:8]).float().pow(2).mean()
        loss.backward()
        sgd.zero_grad()
        model.zero_grad()

    small = torch.nn.Sequential(*[layer for _ in range(40) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]).cuda()
    few = torch.optim.Adam(small.parameters(), foreach=False)

    def tiny(_: int) -> None:
        loss = small(torch.ones(8, 64, device="cuda")).sum()
        loss.backward()
        few.step()
        few.zero_grad()
        loss.item()

    makes, judges = (torch.nn.Sequential(*[torch.nn.Linear(512, 512), torch.nn.ReLU()] * 4).cuda() for _ in range(2))
    adams = [torch.optim.Adam(one.parameters()) for one in (makes, judges)]
    noise = torch.randn(4096, 512, device="cuda")

    def adversaries(_: int) -> None:
        adams[1].zero_grad()
        (judges(noise).mean() - judges(makes(noise).detach()).mean()).backward()
        adams[1].step()
        adams[0].zero_grad()
        (-judges(makes(noise)).mean()).backward()
        adams[0].step()

    told = {"record_shapes": True, "with_stack": True, "profile_memory": True}
    return {
        "train_with_stacks_and_memory": marked(train, 4, **told),
        "three_cycles": in_cycles(train),
        "update_by_hand_unmarked": unmarked(by_hand),
        "device_only_unmarked": unmarked(by_hand, activities=[ProfilerActivity.CUDA]),
        "accumulated": marked(accumulate, 17, wide=4),
        "evaluated": marked(evaluate, 9),
        "activations_offloaded": marked(offload, 4),
        "tiny_kernels": marked(tiny, 4),
        "two_optimisers": marked(adversaries),
        "two_optimisers_unmarked": unmarked(adversaries),
    }


def serving() -> dict[str, Job]:
    model, batch = encoder(4), torch.randn(4, 512, 768, **MADE)
    frozen, few = [torch.randn(2048, 2048, **MADE) for _ in range(8)], torch.randn(16, 2048, **MADE)
    product(few, frozen)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = product(few, frozen * 4).argmax(-1)

    def request(i: int) -> None:
        with torch.no_grad(), record_function(f"request {i}"):
            with record_function("prefill"):
                model(batch)
            for _ in range(8):
                with record_function("decode"):
                    model(batch[:, :1]).argmax(-1).cpu()

    def token(_: int) -> None:
        graph.replay()
        result.tolist()

    def experts(_: int) -> None:
        choice = torch.randint(0, 8, (4096,), device="cuda")
        rows = few.repeat(256, 1)
        for e in range(8):
            torch.relu(rows[(choice == e).nonzero().squeeze(1)] @ frozen[e])

    return {
        "requests": unmarked(request, 6),
        "graph_and_read_unmarked": unmarked(token, 40),
        "graph_ahead_unmarked": unmarked(lambda _: graph.replay(), 30),
        "experts": marked(experts),
    }


def streams() -> dict[str, Job]:
    frozen = [torch.randn(2048, 2048, **MADE) for _ in range(8)]
    above, below, sides = torch.cuda.Stream(), torch.cuda.Stream(), [torch.cuda.Stream() for _ in range(24)]
    pinned = [torch.randn(4096, 2048).pin_memory() for _ in range(3)]
    there, back = (
        [torch.empty(4096, 2048, device="cuda") for _ in range(3)],
        torch.empty(4096, 2048, dtype=torch.bfloat16).pin_memory(),
    )
    large, host = torch.randn(1 << 27, device="cuda"), torch.empty(1 << 27, pin_memory=True)
    square = torch.randn(8192, 8192, **MADE)

    def prefetch(i: int) -> None:
        main = torch.cuda.current_stream()
        above.wait_stream(main)
        with torch.cuda.stream(above):
            there[(i + 2) % 3].copy_(pinned[(i + 2) % 3], non_blocking=True)
        value = product(there[i % 3].bfloat16(), frozen)
        below.wait_stream(main)
        with torch.cuda.stream(below):
            back.copy_(value, non_blocking=True)
        value.record_stream(below)
        main.wait_stream(above)

    train = trained(encoder(3), torch.randn(16, 256, 768, **MADE), fused=True)

    def checkpoint(i: int) -> None:
        train(i)
        if i % 4 == 2:
            below.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(below):
                host.copy_(large, non_blocking=True)

    def many(_: int) -> None:
        main = torch.cuda.current_stream()
        for side in sides:
            side.wait_stream(main)
            with torch.cuda.stream(side):
                frozen[0][:256, :256] @ frozen[1][:256, :256]
        for side in sides:
            main.wait_stream(side)

    def ahead(_: int) -> None:
        value = square
        for _ in range(12):
            value = (square @ value) * 1e-3

    def stopped(folder: Path, name: str) -> dict[str, Any]:
        """The profiler stops while the device is behind, and does not wait for it."""
        timed(ahead, 1)
        torch.cuda.synchronize()
        profiler, waits = profile(activities=BOTH), torch.cuda.synchronize
        profiler.start()
        events = []
        for i in range(8):
            events.append(event())
            with record_function(f"step {i}"):
                ahead(i)
        time.sleep(0.08)
        torch.cuda.synchronize = lambda *_: None
        try:
            profiler.stop()
        finally:
            torch.cuda.synchronize = waits
        file = kept(profiler, folder, name)
        return {file: {"ms": between([*events, event()]), "marked": True}}

    def threads(folder: Path, name: str) -> dict[str, Any]:
        """Two threads with a stream each."""
        events: dict[int, list[torch.cuda.Event]] = {}

        def loop(k: int) -> None:
            with torch.cuda.stream(sides[k]):
                events[k] = timed(lambda _: product(there[0].bfloat16(), frozen[: 4 + k]).sum(), 12)

        with profile(activities=BOTH) as profiler:
            both = [threading.Thread(target=loop, args=(k,)) for k in (0, 1)]
            for one in both:
                one.start()
            for one in both:
                one.join()
            torch.cuda.synchronize()
        return {kept(profiler, folder, name): {"ms": between(events[0]), "marked": False}}

    return {
        "prefetch_three_streams": marked(prefetch),
        "checkpoint_beside": marked(checkpoint, 10),
        "24_streams": marked(many),
        "far_ahead": marked(ahead),
        "stopped_early": stopped,
        "two_threads_unmarked": threads,
    }


def compiled() -> dict[str, Job]:
    fast = torch.compile(encoder(3), mode="reduce-overhead")
    batch = torch.randn(8, 256, 768, **MADE)
    train = trained(fast, batch, fused=True)

    def graphs(i: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        train(i)

    shaped = torch.compile(encoder(2))

    def again(i: int) -> None:
        with torch.no_grad():
            shaped(batch[:, : 256 if i < 6 else 192]).sum().item()

    return {"compiled_graphs": marked(graphs), "compiled_again_inside": marked(again)}


def distributed() -> dict[str, Job]:
    """Collectives of one rank: NCCL copies on the device, or does nothing."""
    from torch import distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    model = torch.nn.parallel.DistributedDataParallel(encoder(4, dtype=torch.float32), device_ids=[0])
    batch, adam = torch.randn(16, 256, 768, device="cuda"), torch.optim.AdamW(model.parameters())
    sent, got = (torch.randn(1 << 22, device="cuda") for _ in range(2))
    square = torch.randn(4096, 4096, **MADE)

    def accumulate(i: int) -> None:
        if i % 3 != 2:
            with model.no_sync():
                model(batch).pow(2).mean().backward()
            return
        model(batch).pow(2).mean().backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    def overlap(_: int) -> None:
        value, works = square, []
        for _ in range(6):
            value = (value @ square) * 1e-2
            works += [dist.all_reduce(sent, async_op=True), dist.all_gather_into_tensor(got, sent, async_op=True)]
        for work in works:
            work.wait()

    return {"no_sync": marked(accumulate, 9, wide=3), "collectives_beside": marked(overlap)}
