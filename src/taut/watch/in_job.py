"""``taut.watch.start()``: one line in a job, and its collector knows who comes late. It never raises into the job."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial

from taut.watch.observed import Observer
from taut.watch.ring import Ring
from taut.watch.sender import Sender
from taut.watch.wire import Json

ADDRESS, SECRET = "TAUT_WATCH", "TAUT_WATCH_SECRET"
_running: tuple[Observer, Sender] | None = None


def start(address: str | None = None, *, secret: str | None = None) -> bool:
    """Tell the collector at ``address`` (host:port, else ``TAUT_WATCH``) when this rank comes to its gates.

    The secret is that of the collector, else ``TAUT_WATCH_SECRET``. Returns whether it watches; if not, a line on stderr
    says why, and the job goes on.
    """
    global _running
    if _running is not None:
        return True
    try:
        where, key = address or os.environ.get(ADDRESS, ""), secret or os.environ.get(SECRET, "")
        host, _, port = where.rpartition(":")
        if not host or not port.isdigit():
            return _off(f"give the collector's address as HOST:PORT in {ADDRESS}, not {where!r}")
        if not key:
            return _off(f"give the collector's secret in {SECRET}")
        observer = Observer(Ring())
        try:
            sees = observer.attach()
        except BaseException:
            observer.detach()
            raise
        sender = Sender(observer, (host, int(port)), key.encode(), partial(_hello, sees, os.urandom(8).hex()))
        sender.start()
        _running = observer, sender
    except Exception as error:  # whatever it is, it is ours and not the job's
        return _off(f"{type(error).__name__}: {error}")
    return True


def step() -> None:
    """The end of a step, for loops without an optimizer of torch; once it was called, optimizers end none."""
    if _running is not None:
        observer = _running[0]
        observer.by_hand = True
        with observer.quietly():
            observer.end_step()


def stop() -> None:
    """Watch no more: torch is left as it was, what is in the ring is sent."""
    global _running
    if _running is not None:
        observer, sender = _running
        _running = None
        observer.detach()
        sender.stop()


def _off(why: str) -> bool:
    print(f"taut.watch is off: {why}", file=sys.stderr)
    return False


def _hello(sees: str, process: str) -> Json:
    """Who this rank is; a ValueError as long as nobody has told its number."""
    import torch

    from taut import __version__

    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world = str(torch.distributed.get_rank()), str(torch.distributed.get_world_size())
    if not rank:
        raise ValueError("the rank is not known yet")
    local = os.environ.get("LOCAL_RANK", "")
    job = next(
        (os.environ[name] for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME") if os.environ.get(name)), "job"
    )
    return {
        "rank": int(rank), "world": int(world or -1), "host": socket.gethostname(), "gpu": int(local or -1), "job": job,
        "pid": os.getpid(), "torch": torch.__version__, "taut": __version__, "sees": sees, "boot": _boot(),
        "process": process,
    }  # fmt: skip


def _boot() -> str:
    """Processes with the same boot share a clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
