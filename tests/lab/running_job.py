"""One rank of a small DDP job over gloo that runs until it is told to end: with torch's debug server, and watched."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.debug._handlers
from torch._C._distributed_c10d import _WorkerServer

import taut.watch

SLOW, WORK_S, EXTRA_S = 1, 0.02, 0.08


def main(folder: Path, rank: int, world: int, stops_at: int) -> None:
    """Steps of a tiny model; rank 1 takes longer, and stops at a step if it is asked to."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    server = _WorkerServer("127.0.0.1", 0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = not os.environ.get("TAUT_WATCH") or taut.watch.start()
    (folder / f"{rank}.part").write_text(str(server.port if watched else 0))
    (folder / f"{rank}.part").rename(folder / f"rank{rank}.port")
    for step in range(1_000_000):
        time.sleep(WORK_S + EXTRA_S * (rank == SLOW))
        while step == stops_at and rank == SLOW and not (folder / "end").exists():
            time.sleep(0.1)
        optimizer.zero_grad()
        model(torch.ones(4, 16)).sum().backward()
        optimizer.step()
        if (folder / "end").exists():
            break
    os._exit(0)  # gloo's teardown can deadlock


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
