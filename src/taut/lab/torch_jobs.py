"""Real training jobs on gloo: each gives a function that does one step. Compute is emulated by sleeping, because ranks
share the machine's cores, and on a GPU by a kernel that spins, because they share it; matrices, gradients, collectives and
hops are real.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from io import FileIO
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._C._profiler import _RecordFunctionFast
from torch.profiler import record_function
from torch.utils.data import DataLoader, IterableDataset

from taut.lab.case import FAULTED, LOCAL, MICRO, ON_DEVICE, PIECES, SAVE_EVERY, TAU, Spec, longer
from taut.lab.on_all import load
from taut.lab.truth import ON_ALL, Injected

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from torch.distributed.device_mesh import DeviceMesh

BLOCKS, CLASSES = 2, 10
SIZES = {"cpu": (256, 64), "cuda": (512, 256)}
"""Width of a layer and rows of a batch."""
SPIN = 20_000_000
"""Cycles of the kernel that measures how many of them a millisecond has."""
FORWARD_MS, BACKWARD_MS, LOAD_MS = 30.0, 50.0, 2.0
RATE = 1e-2
"""How far a step descends along the gradient."""
JITTER = 0.02
"""Spread of the emulated compute from call to call."""
HOPS, HOPS_ID, REMEMBERED = "hops", 1 << 16, 2000
"""Group, by name and number, under which hops stand in the flight recorder's dump, and how many: as many as it keeps."""


class Pace:
    """How long a rank's emulated work takes, healthy or with its fault."""

    def __init__(self, spec: Spec, rank: int, injected: tuple[Injected, ...]) -> None:
        self.rank, self.spec = rank, spec
        self.everywhere = injected
        self.mine = [i for i in injected if rank in i.ranks]
        self.rng = np.random.default_rng((spec.seed, rank, 1))
        self.faulted, self.local, self.step = False, False, 0
        self.all = load(spec, rank) if spec.fault in ON_ALL else None
        self.pieces = 0
        """Pieces of this step's work that are done."""
        self.cycles_a_ms = _cycles_a_ms(spec.ranks, rank) if spec.device != "cpu" else 0.0

    def begin(self, part: str, step: int) -> None:
        """A new step: which faults are on."""
        self.faulted, self.local, self.step, self.pieces = part in FAULTED, part == LOCAL, step, 0

    def extra_ms(self, *faults: str) -> float:
        """What the faults of these names add to this step."""
        on = [i for i in self.mine if self.faulted and i.fault in faults and i.first_step <= self.step <= i.last_step]
        return sum(i.strength.get("ms", 0.0) + i.strength.get("ms_a_step", 0.0) * (self.step - i.first_step) for i in on)

    def due(self, fault: str) -> bool:
        """Whether a fault that happens once happens now."""
        return self.faulted and any(i.fault == fault and i.first_step == self.step for i in self.mine)

    @property
    def alone(self) -> bool:
        """Whether this is a local step, in which ranks do not meet."""
        return self.local and (self.step + 1) % TAU != 0

    @property
    def apart(self) -> bool:
        """Whether the groups of the job have lost each other."""
        return self.faulted and any(i.fault == "out-of-step" and i.first_step <= self.step for i in self.everywhere)

    def work(self, healthy_ms: float, share: float) -> None:
        """One piece of emulated compute: its share of the step's work and of the step's excess."""
        ms = max(healthy_ms * (1 + JITTER * self.rng.standard_normal()), 0) + self._slow_ms() * share
        if self.all is not None and self.faulted:
            now = self.pieces % PIECES == self.all.piece[self.step]
            ms = ms * self.all.factor[self.step] + now * self.all.pause_ms[self.step]
        self.pieces += 1
        if self.cycles_a_ms:
            spin(int(ms * self.cycles_a_ms))
        else:
            time.sleep(ms / 1e3)

    def _slow_ms(self) -> float:
        return self.extra_ms(*ON_DEVICE)


def event_now() -> torch.cuda.Event:
    """A CUDA event, recorded on the stream of compute behind all that it was given."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def spin(cycles: int) -> None:
    """A kernel that takes so many cycles of the GPU's clock, whoever else uses the GPU meanwhile."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _cycles_a_ms(ranks: int, rank: int) -> float:
    """Cycles of the GPU's clock in a millisecond, measured by one rank after the other: they share the GPU."""
    cycles = 0.0
    for turn in range(ranks):
        if turn == rank:
            for _ in range(10):  # an idle GPU's clock is slow
                spin(SPIN)
            begin = event_now()
            spin(SPIN)
            end = event_now()
            torch.cuda.synchronize()
            cycles = SPIN / begin.elapsed_time(end)
        dist.barrier()
    return cycles


class _Paced(torch.autograd.Function):
    """Passes tensors through and takes its time, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: torch.Tensor,
        pace: Pace,
        forward_ms: float,
        backward_ms: float,
        share: float,
    ) -> torch.Tensor:
        ctx.pace, ctx.backward_ms, ctx.share = pace, backward_ms, share
        pace.work(forward_ms, share * FORWARD_MS / (FORWARD_MS + BACKWARD_MS))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:  # noqa: ANN401
        ctx.pace.work(ctx.backward_ms, ctx.share * BACKWARD_MS / (FORWARD_MS + BACKWARD_MS))
        return grads[0], None, None, None, None


class Block(nn.Module):
    """Two linear layers and the time they would take on a real device."""

    def __init__(self, pace: Pace, parts: int) -> None:
        super().__init__()
        width, _ = SIZES[pace.spec.device]
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        part = longer(pace.spec.ranks) / parts
        self.times = pace, FORWARD_MS * part, BACKWARD_MS * part, 1 / parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        paced = cast(torch.Tensor, _Paced.apply(x, *self.times))  # type: ignore[no-untyped-call]
        out: torch.Tensor = x + self.down(torch.relu(self.up(paced)))
        return out


def waited(pace: Pace) -> Iterator[int]:
    """Nothing, after as long as reading a batch takes."""
    while True:
        time.sleep((LOAD_MS + pace.extra_ms("loader")) / 1e3)
        yield 0


class SlowFile(FileIO):
    """A file whose first write takes longer."""

    def __init__(self, path: str, extra_ms: float) -> None:
        super().__init__(path, "w")
        self.extra_ms = extra_ms

    def write(self, data: ReadableBuffer, /) -> int:
        """Bytes written."""
        time.sleep(self.extra_ms / 1e3)
        self.extra_ms = 0.0
        return super().write(data)


class Input(IterableDataset[int]):
    """What a rank reads."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def __iter__(self) -> Iterator[int]:
        return waited(self.pace)


Loss = float | torch.Tensor
"""On a GPU it stays there: reading it would let the host wait for the device in every step."""
Step = Callable[[torch.Tensor, torch.Tensor], Loss]


class Job:
    """One rank of a job: model, optimiser, and how a step is done."""

    def __init__(self, spec: Spec, rank: int, pace: Pace) -> None:
        torch.manual_seed(spec.seed)
        self.spec, self.rank, self.pace = spec, rank, pace
        self.on_gpu = spec.device != "cpu"
        self.width, self.batch = SIZES[spec.device]
        self.hops: Hops | None = None
        self.generator = torch.Generator().manual_seed(spec.seed + 1 + (0 if spec.job == "pipeline" else rank))
        self.forward_backward, self.model = JOBS[spec.job](self)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.input = iter(DataLoader(Input(pace), batch_size=None)) if spec.watch else waited(pace)
        """A loader of torch where ranks are watched, who know it; profiles name what is read under a name of their own."""
        self.met: list[torch.Tensor] = []
        """With local steps, the parameters as they were when all ranks last met."""

    def step(self, number: int, scratch: str) -> Loss:
        """One step of the outer loop; returns the loss."""
        with record_function("data_load"):
            next(self.input)
        x = self._placed(torch.randn(self.batch, self.width, generator=self.generator))
        y = self._placed(torch.randint(0, CLASSES, (self.batch,), generator=self.generator))
        loss = self.forward_backward(x.requires_grad_(), y)  # so that every block has a backward
        self._update()
        if number % SAVE_EVERY == SAVE_EVERY - 1:
            self._save(scratch)
        return loss

    def _update(self) -> None:
        """Descend along the gradient.

        With local steps gradients add up until ranks meet, where DDP averages their sum: from the parameters at the last
        meeting, it leads to the average of where the ranks came to.
        """
        if not self.pace.local:
            self.optimiser.step()
            self.optimiser.zero_grad()
            return
        parameters = list(self.model.parameters())
        if self.pace.step == 0:
            self.met = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            for p, met in zip(parameters, self.met, strict=True):
                if p.grad is not None:
                    p.copy_(met - RATE * p.grad)
        if not self.pace.alone:
            self.met = [p.detach().clone() for p in parameters]
            self.optimiser.zero_grad()

    def _placed(self, x: torch.Tensor) -> torch.Tensor:
        return x.pin_memory().to(self.spec.device, non_blocking=True) if self.on_gpu else x

    def loss(self, out: torch.Tensor) -> Loss:
        """What a step returns as its loss."""
        return out.detach() if self.on_gpu else float(out.detach())

    def _save(self, scratch: str) -> None:
        """Every rank saves its own shard."""
        with record_function("checkpoint"):
            shard = {k: v.to_local() if hasattr(v, "to_local") else v for k, v in self.model.state_dict().items()}
            with SlowFile(os.path.join(scratch, f"shard{self.rank}.pt"), self.pace.extra_ms("checkpoint")) as file:
                torch.save(shard, file)

    def blocks(self, count: int = BLOCKS) -> list[nn.Module]:
        """The body of the model."""
        return [Block(self.pace, BLOCKS) for _ in range(count)]

    def model_of(self, *blocks: nn.Module, head: bool = True) -> nn.Sequential:
        """The blocks and the layer after them, where the job runs."""
        return nn.Sequential(*blocks, *([nn.Linear(self.width, CLASSES)] if head else [])).to(self.spec.device)

    def one_pass(self, model: nn.Module) -> Step:
        """Forward and backward of a model that knows its own collectives."""

        def step(x: torch.Tensor, y: torch.Tensor) -> Loss:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return self.loss(loss)

        return step


def _ddp(job: Job) -> tuple[Step, nn.Module]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(job.model_of(*job.blocks()), bucket_cap_mb=0.3)
    once = job.one_pass(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> Loss:
        with model.no_sync() if job.pace.alone else nullcontext():
            return once(x, y)

    return step, model


def _mesh(job: Job, names: tuple[str, ...]) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    n = job.spec.ranks
    shape = {"dp": (n,), "dp tp": (n // 2, 2), "replicate shard": (2, n // 2)}[" ".join(names)]
    return init_device_mesh(job.spec.device, shape, mesh_dim_names=names)


def _sharded(mesh: DeviceMesh, model: nn.Sequential) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for block in model:
        fully_shard(block, mesh=mesh)
    return cast(nn.Module, fully_shard(model, mesh=mesh))


def _fsdp(job: Job) -> tuple[Step, nn.Module]:
    model = _sharded(_mesh(job, ("dp",)), job.model_of(*job.blocks()))
    return job.one_pass(model), model


def _tp_fsdp(job: Job) -> tuple[Step, nn.Module]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = _mesh(job, ("dp", "tp"))
    job.generator.manual_seed(job.spec.seed + 1 + job.rank // 2)  # ranks of a tensor-parallel group see the same batch
    model = job.model_of(*job.blocks())
    for block in model:
        if isinstance(block, Block):
            parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    sharded = _sharded(mesh["dp"], model)
    return job.one_pass(sharded), sharded


def _hsdp(job: Job) -> tuple[Step, nn.Module]:
    model: Any = _sharded(_mesh(job, ("replicate", "shard")), job.model_of(*job.blocks()))
    once = job.one_pass(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> Loss:
        model.set_requires_all_reduce(not job.pace.apart)
        return once(x, y)

    return step, model


class Hops:
    """The lab's own hook: neither the flight recorder nor gloo's annotations say between whom a hop goes.

    Every hop is an event of the profiler and, as long as it is among the last, an entry for the flight recorder's dump.
    gloo sends and receives host memory only, so what lies on a GPU goes through pinned memory.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.seq: Counter[tuple[int, int]] = Counter()
        self.made = 0
        self.last: deque[tuple[dict[str, Any], Callable[[], bool]]] = deque(maxlen=REMEMBERED)

    @contextmanager
    def _noted(self, verb: str, x: torch.Tensor, source: int, target: int, done: Callable[[], bool]) -> Iterator[None]:
        args = {"Src Rank": source, "Dst Rank": target, "Seq": self.seq[source, target]}
        self.seq[source, target] += 1
        ends = f"{source}->{target}" if verb == "send" else f"{target}<-{source}"
        entry = {
            "record_id": self.made, "pg_id": HOPS_ID, "process_group": [HOPS, "the lab's own hook"], "is_p2p": True,
            "p2p_seq_id": self.made, "profiling_name": f"gloo:{verb} {ends}", "time_created_ns": time.time_ns(),
            "input_sizes": [list(x.shape)],
        }  # fmt: skip
        self.made += 1
        self.last.append((entry, done))
        with _RecordFunctionFast(f"taut::{verb}", [x], args):
            yield

    def entries(self) -> list[dict[str, Any]]:
        """The last hops as a flight recorder tells them."""
        return [{**entry, "state": "completed" if done() else "scheduled"} for entry, done in list(self.last)]

    def receive(self, source: int, like: torch.Tensor) -> torch.Tensor:
        """A tensor from another rank, waited for."""
        x = torch.empty_like(like, device="cpu", pin_memory=like.is_cuda)
        came: list[bool] = []
        with self._noted("recv", x, source, self.rank, lambda: bool(came)):
            dist.recv(x, source)
        came.append(True)
        return x.to(like.device, non_blocking=True)

    def send(self, x: torch.Tensor, target: int) -> tuple[dist.Work, torch.Tensor]:
        """Hand a tensor over without waiting; the result keeps it alive and can be waited for."""
        work: list[Any] = []
        if x.is_cuda:
            pinned = torch.empty_like(x, device="cpu", pin_memory=True)
            pinned.copy_(x, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            x = pinned
        with self._noted("send", x, self.rank, target, lambda: bool(work and work[0].is_completed())):
            work.append(dist.isend(x, target))
        return work[0], x


def _pipeline(job: Job) -> tuple[Step, nn.Module]:
    rank, last = job.rank, job.spec.ranks - 1
    body = Block(job.pace, MICRO)
    model = job.model_of(body, head=rank == last)
    hops = job.hops = Hops(rank)

    def step(x: torch.Tensor, y: torch.Tensor) -> Loss:
        micro = [(x.detach().clone(), y) for _ in range(MICRO)]
        held: list[tuple[torch.Tensor, torch.Tensor]] = []
        sent: list[Any] = []
        total: Loss = 0.0

        def forward(i: int) -> None:
            nonlocal total
            inlet = micro[i][0] if rank == 0 else hops.receive(rank - 1, micro[i][0])
            inlet.requires_grad_()
            out = model(inlet)
            if rank == last:
                out = nn.functional.cross_entropy(out, micro[i][1])
                total += job.loss(out)
            else:
                sent.append(hops.send(out.detach(), rank + 1))
            held.append((inlet, out))

        def backward() -> None:
            inlet, out = held.pop(0)
            if rank == last:
                out.backward()  # type: ignore[no-untyped-call]
            else:
                torch.autograd.backward(out, hops.receive(rank + 1, out))
            if rank > 0:
                sent.append(hops.send(inlet.grad, rank - 1))  # type: ignore[arg-type]

        warm = min(last - rank, MICRO)
        for i in range(MICRO):
            forward(i)
            if i >= warm:
                backward()
        while held:
            backward()
        for work, _ in sent:
            work.wait()
        return total / MICRO

    return step, model


JOBS: dict[str, Callable[[Job], tuple[Step, nn.Module]]] = {
    "ddp": _ddp, "fsdp": _fsdp, "tp-fsdp": _tp_fsdp, "pipeline": _pipeline, "hsdp": _hsdp,
}  # fmt: skip
