"""``torchrun`` whose restarts meet a stall that is longer than the timeout of a collective: all are burned, for nothing.

A real launcher, two real ranks on gloo. One of them sleeps before each all-reduce, as one that loads a checkpoint does;
the other waits for it as long as the process group's timeout allows. What the launcher and its workers say on standard
error is the log. With a timeout above the stall the same job completes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from taut.core.errors import RunError

if TYPE_CHECKING:
    from taut.lab.control_truth import Truth

EXPERIMENT = "torchrun"
LOG, STARTED = "torchrun.err", "started"
COMPLETES, BURNED = "completes", "burns all restarts"
TORCHRUN = "from torch.distributed.run import main; main()"
"""What the command of that name runs, in this interpreter."""
RESTARTS = 3
MOST_S = 300.0
"""A launcher that takes longer is stopped."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One job: how long a rank stalls, and how long the other waits for it."""

    stall_s: float
    timeout_s: float
    restarts: int = RESTARTS


def plans(short: bool) -> list[Plan]:
    """A timeout below the stall, and one above it."""
    times = ((2.0, 1.0), (2.0, 20.0)) if short else ((8.0, 5.0), (8.0, 20.0))
    return [Plan(stall_s=stall, timeout_s=timeout) for stall, timeout in times]


def missing() -> str | None:
    """Why it cannot run here."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; pip install 'taut[lab]'"
    return None


def predict(plan: Plan) -> dict[str, float | str]:
    """Doing the same again under the same timeout changes nothing."""
    burned = plan.stall_s > plan.timeout_s
    return {"outcome": BURNED if burned else COMPLETES, "attempts": float(1 + plan.restarts * burned)}


def run(folder: Path, seed: int, short: bool) -> list[tuple[Path, Truth]]:
    """Run all cases, each after its prediction is written; returns where each left its log, and the truth."""
    from taut.lab.control_truth import Truth, save

    out = []
    for plan in plans(short):
        place = folder / EXPERIMENT / f"timeout-{plan.timeout_s:g}s"
        case = f"{plan.stall_s:g} s stall, {plan.timeout_s:g} s timeout"
        truth = Truth(
            experiment=EXPERIMENT,
            case=case,
            seed=seed,
            done=msgspec.to_builtins(plan),
            predicted=predict(plan),
            relation="timeout mismatch",
        )
        save(truth, place)
        measured = _launch(plan, place)
        truth = msgspec.structs.replace(truth, measured=measured, present=measured["outcome"] == BURNED)
        save(truth, place)
        out.append((place / LOG, truth))
    return out


def _launch(plan: Plan, place: Path) -> dict[str, float | str]:
    """Run the launcher; its exit status and what the workers noted when they started are the truth."""
    started = place / STARTED
    started.unlink(missing_ok=True)
    worker = ["-m", "taut.lab.control_launch", str(plan.stall_s), str(plan.timeout_s), str(started)]
    command = [sys.executable, "-c", TORCHRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts",
               str(plan.restarts), *worker]  # fmt: skip
    # Without the variable the launcher says on standard error that it sets it, and so leaves a log even if all goes well.
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with (place / LOG).open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=inherited)
        try:
            code = process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            raise RunError(f"{place}: torchrun did not end within {MOST_S:.0f} s; see {LOG}") from None
        finally:
            _stop(process)
    attempts = len(started.read_text().split()) if started.exists() else 0
    if not attempts:
        raise RunError(f"{place}: no worker started; see {LOG}")
    return {"outcome": BURNED if code else COMPLETES, "attempts": float(attempts), "exit_status": float(code)}


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a launcher that still runs: asked first, because it then ends its workers, which have sessions of their own."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def work(stall_s: float, timeout_s: float, started: Path) -> None:
    """A rank: two all-reduces, before the second of which rank 1 stalls."""
    import time
    from datetime import timedelta

    import torch
    import torch.distributed

    dist: Any = torch.distributed
    rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    if rank == 0:
        with started.open("a") as notes:
            notes.write(f"{attempt}\n")
    limit = timedelta(seconds=timeout_s)
    # A standalone launcher keeps one store over all attempts: without a prefix a restarted rank finds the addresses of the
    # attempt before, and dies of those instead of the stall.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore(f"attempt-{attempt}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]), timeout=limit)
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        time.sleep(stall_s)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


def main(words: Sequence[str]) -> None:
    """``STALL TIMEOUT FILE``, as the launcher gives them."""
    work(float(words[0]), float(words[1]), Path(words[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
