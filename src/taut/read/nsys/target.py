"""What an Nsight Systems export records of the machine and of the command: clock, host, devices, environment, MPI ranks."""

from __future__ import annotations

import re

from taut.read.nsys.cuda import FAR
from taut.read.nsys.sqlite import Database
from taut.read.step_marks import PROCESS

SESSION, DETAILS = "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"
_VARIABLE = re.compile(r"\b(\w{1,100})=\"?([^\";]{0,200})")
_WANTED = re.compile(r"(?:^|_)(?:RANK|WORLD_SIZE|PROCID|NODEID|NTASKS|NNODES|SIZE|NUM_TASKS)$")


def origin(db: Database, last: int) -> int:
    """What to add to a time to get UTC; 0 where the export does not say.

    Times count from the start of the session, which has its UTC time. Where they do not fit into the session that way,
    they are of the same clock as its start; where they are of this century, they are UTC already.
    """
    utc = db.integers(SESSION, ("utcEpochNs",))["utcEpochNs"][:1]
    if not len(utc) or not 0 < utc[0] < FAR or last > FAR // 4:
        return 0
    details = db.integers(DETAILS, ("startTime", "stopTime"))
    begin, end = (int(column[0]) if len(column) else 0 for column in details.values())
    # Versions differ in what times count from: those that exceed the length of the session count from boot.
    counted_from_boot = 0 < begin < end and end - begin < last <= end
    return int(utc[0]) - (begin if counted_from_boot else 0)


def host(db: Database) -> str:
    """The name of the machine."""
    named = dict(db.texts("TARGET_INFO_SYSTEM_ENV", "name", "value", 200, "name = 'Hostname'"))
    named = named or dict(db.texts("META_DATA_CAPTURE", "name", "value", 200, "name = 'DEVICE_DISPLAY_NAME'"))
    return next(iter(named.values()), "")


def models(db: Database) -> dict[tuple[int, int], str]:
    """(process id, device) → the model of the GPU."""
    names = dict(db.texts("TARGET_INFO_GPU", "id", "name", 200))
    devices = db.integers("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
    rows = zip(*(devices[name].tolist() for name in ("pid", "cudaId", "gpuId")), strict=True)
    return {(pid, device): names.get(gpu, "") for pid, device, gpu in rows}


def environment(db: Database) -> dict[str, str]:
    """Variables of the command nsys was started with that may hold ranks, and its node rank as an argument."""
    found: dict[str, str] = {}
    for _, text in db.texts("TARGET_INFO_SYSTEM_ENV", "name", "value", 1_000_000, "name = 'DeviceEnvironment'"):
        found |= {k: v for k, v in _VARIABLE.findall(text) if _WANTED.search(k)}
    for name, text in db.texts("META_DATA_CAPTURE", "name", "value", 1000, "name LIKE 'PROCESS%'"):
        if str(name).endswith("ENVIRONMENT_VARIABLE"):
            found |= {k: v for k, v in _VARIABLE.findall(text[:300])[:1] if _WANTED.search(k)}
        elif match := re.fullmatch(r"--?node[-_]rank=(\d{1,7})", text):
            found["NODE_RANK"] = match[1]
    return found


def mpi_ranks(db: Database) -> dict[int, int]:
    """Process → MPI rank, where MPI was traced."""
    ranks = db.integers("MPI_RANKS", ("globalTid", "rank"))
    pairs = zip(ranks["globalTid"].tolist(), ranks["rank"].tolist(), strict=True)
    return {thread & PROCESS: rank for thread, rank in pairs if 0 <= rank < 2**31}
