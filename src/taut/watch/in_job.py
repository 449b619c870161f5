"""``taut.watch.start()``: one line in a job, and its collector knows who comes late. It never raises into the job."""

from __future__ import annotations

import atexit
import os
import shlex
import socket
import sys
from functools import partial

from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.profile_on_request import Profiles
from taut.watch.sender import Sender
from taut.watch.wire import LEAST_SECRET, Json

ADDRESS, SECRET, PROFILE = "TAUT_WATCH", "TAUT_WATCH_SECRET", "TAUT_WATCH_PROFILE"
_running: tuple[Observer, Sender] | None = None


def start(address: str | None = None, *, secret: str | None = None, profile: bool | None = None) -> bool:
    """Tell the collector at ``address`` (host:port, else ``TAUT_WATCH``) when this rank comes to its gates.

    The secret is that of this job (``taut watch collect --secret-for JOB`` prints it), else ``TAUT_WATCH_SECRET``. With
    ``profile`` (else ``TAUT_WATCH_PROFILE=1``) the collector may ask for a profile of a few steps, written to
    ``TAUT_WATCH_TRACES``. Returns whether it watches; if not, a line on stderr says why, and the job goes on.
    """
    global _running
    if _running is not None:
        return True
    try:
        where, key = address or os.environ.get(ADDRESS, ""), secret or os.environ.get(SECRET, "")
        host, _, port = where.rpartition(":")
        if not host or not port.isdigit():
            return _off(f"give the collector's address as HOST:PORT in {ADDRESS}, not {where!r}")
        if len(key) < LEAST_SECRET:
            lacks = f"has {len(key)} characters" if key else "is not set"
            return _off(f"{SECRET} {lacks}: give what taut watch collect --secret-for {shlex.quote(_job())} prints")
        observer = Observer(Ring())
        try:
            sees = observer.attach()
        except BaseException:
            observer.detach()
            raise
        allowed = os.environ.get(PROFILE) == "1" if profile is None else profile
        profiles = Profiles(observer, _rank, _job()) if allowed else None
        hello = partial(_hello, sees, os.urandom(8).hex(), allowed)
        sender = Sender(observer, (host, int(port)), key.encode(), hello, profiles)
        sender.start()
        _running = observer, sender
        atexit.register(_goodbye)
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
        atexit.unregister(_goodbye)
        observer.detach()
        sender.stop()


def _goodbye() -> None:
    """When the process ends: a job that is done says so. After an error that nobody caught the rank is lost, not done."""
    if getattr(sys, "last_value", None) is None:
        stop()


def _off(why: str) -> bool:
    print(f"taut.watch is off: {why}", file=sys.stderr)
    return False


def _hello(sees: str, process: str, profiles: bool) -> Json:
    """Who this rank is; a ValueError as long as nobody has told its number. Each is another: ``once`` is drawn."""
    import torch

    from taut import __version__

    rank, world = _rank(), os.environ.get("WORLD_SIZE", "")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world = str(torch.distributed.get_world_size())
    has_gpu = torch.version.cuda is not None or torch.version.hip is not None  # asking the driver may start it
    local = os.environ.get("LOCAL_RANK", "") if has_gpu else ""
    return {
        "rank": rank, "world": int(world or -1), "host": socket.gethostname(), "gpu": int(local or -1), "job": _job(),
        "pid": os.getpid(), "torch": torch.__version__, "taut": __version__, "sees": sees, "boot": _boot(),
        "process": process, "profiles": profiles, "once": os.urandom(8).hex(),
    }  # fmt: skip


def _rank() -> int:
    """The number of this rank; a ValueError as long as nobody has told it."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    if not os.environ.get("RANK"):
        raise ValueError("the rank is not known yet")
    return int(os.environ["RANK"])


def _job() -> str:
    names = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
    return next((os.environ[name] for name in names if os.environ.get(name)), "job")


def _boot() -> str:
    """Processes with the same boot share a clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
