"""The debug servers of torch's workers (``torch.distributed.debug``), asked from outside of the job.

Every answer is somebody else's: no redirect is followed, no proxy of the environment used, no more bytes and no more seconds
are taken than the caps, and nothing of it is unpickled. A worker that does not answer is a rank that is missing.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from taut.core.errors import UsageError
from taut.core.whole_file import whole_file
from taut.read.metrics.web import connected

MOST_WORKERS = 4096
AT_ONCE = 256
"""Workers that are asked at the same time."""
ANSWER_S = 30.0
DUMP_BYTES, PROFILE_BYTES = 128 << 20, 1 << 30
"""Most bytes of one answer: a dump of 20,000 calls has 12 MB."""
CHUNK = 256 << 10
SCONTROL_S = 20.0
_WORKER = re.compile(r"(?:(\d{1,7})=)?(\[[0-9A-Fa-f:.%]+\]|[^\s:=/@\[\]]+):(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_SLURM_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?", re.ASCII)
_NODES = re.compile(r"(?:^|\s)NodeList=(\S+)")
_STATE = re.compile(r"(?:^|\s)JobState=(\S+)")


class Worker(Struct, frozen=True):
    """A rank and where its debug server listens."""

    rank: int
    host: str
    port: int

    @property
    def place(self) -> str:
        """Its address, as people write it."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Answer(Struct, frozen=True):
    """What a worker answered, or why it did not."""

    worker: Worker
    body: bytes = b""
    status: int = 0
    took_s: float = 0.0
    """Until the answer began: torch makes it up first, so the rank was held up for no longer than this."""
    failed: str = ""
    """Why there is none; empty where there is one."""


def workers(places: Sequence[str]) -> list[Worker]:
    """Workers of ``HOST:PORT``, ``HOST:FIRST-LAST`` and ``RANK=HOST:PORT``; without a number, ranks follow one another."""
    found: list[Worker] = []
    rank = 0
    for place in places:
        match = _WORKER.fullmatch(place)
        first = int(match[3]) if match else 0
        last = int(match[4] or first) if match else 0
        if match is None or not 0 < first <= last <= 65535:
            raise UsageError(f"{place!r} is no worker: give HOST:PORT, HOST:FIRST-LAST or RANK=HOST:PORT")
        rank = int(match[1]) if match[1] else rank
        for port in range(first, last + 1):
            found.append(Worker(rank, match[2].strip("[]"), port))
            rank += 1
        if len(found) > MOST_WORKERS:
            raise UsageError(f"more than {MOST_WORKERS:,} workers: give those of one job")
    for what in ([f"rank {one.rank}" for one in found], [one.place for one in found]):
        twice = [one for one, count in Counter(what).items() if count > 1]
        if twice:
            raise UsageError(f"{twice[0]} is given twice: give every worker once")
    return found


def slurm_places(job: str, ports: str) -> list[str]:
    """``HOST:PORTS`` of every node of a Slurm job that runs, in the order in which Slurm numbers them."""
    if not _SLURM_JOB.fullmatch(job):
        raise UsageError(f"--slurm {job!r} is no number of a job: give one as squeue shows it")
    told = _scontrol("show", "job", "--oneliner", job)
    state, nodes = _STATE.search(told), _NODES.search(told)
    if state is None or state[1] != "RUNNING" or nodes is None or nodes[1] == "(null)":
        raise UsageError(f"--slurm {job}: it is {state[1] if state else 'not known'}, not RUNNING; give a job that runs")
    return [f"{host}:{ports}" for host in _scontrol("show", "hostnames", nodes[1]).split()]


def _scontrol(*words: str) -> str:
    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=SCONTROL_S, check=False)
    except FileNotFoundError:
        raise UsageError("--slurm: scontrol is not installed here; run this where it is, or give HOST:PORT") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"--slurm: scontrol did not answer within {SCONTROL_S:g} s; give HOST:PORT") from None
    if done.returncode:
        why = " ".join(done.stderr.split())[:200] or f"exit {done.returncode}"
        raise UsageError(f"--slurm: scontrol {' '.join(words)}: {why}")
    return done.stdout


def ask_all(
    asked: Mapping[Worker, str],
    *,
    seconds: float = ANSWER_S,
    most_bytes: int = DUMP_BYTES,
    into: Callable[[Worker], Path] | None = None,
) -> dict[Worker, Answer]:
    """What each worker answers to the path asked of it, all at once: ranks that are held up together cost the job once.

    ``into`` names files for answers that are too long to be held.
    """
    if not asked:
        return {}

    def one(item: tuple[Worker, str]) -> Answer:
        worker, path = item
        if into is None:
            return ask(worker, path, seconds=seconds, most_bytes=most_bytes)
        return _kept(worker, path, into(worker), seconds, most_bytes)

    with ThreadPoolExecutor(min(len(asked), AT_ONCE)) as pool:
        return dict(zip(asked, pool.map(one, asked.items()), strict=True))


def ask(
    worker: Worker, path: str, *, seconds: float = ANSWER_S, most_bytes: int = DUMP_BYTES, out: BinaryIO | None = None
) -> Answer:
    """What a worker answers; its body goes to ``out`` where that is given."""
    connection = http.client.HTTPConnection(worker.host, worker.port, timeout=seconds)
    began: float | None = None
    took_s = 0.0
    body = out or BytesIO()
    try:
        with connected(connection, seconds):
            began = time.monotonic()
            connection.request("POST", path, headers={"User-Agent": "taut", "Connection": "close", "Content-Length": "0"})
            with connection.getresponse() as response:  # closed also where it is not read to its end
                took_s = time.monotonic() - began
                while chunk := response.read1(CHUNK):
                    body.write(chunk)
                    if body.tell() > most_bytes:
                        return Answer(worker, took_s=took_s, failed=f"answers more than {most_bytes >> 20:,} MiB")
                if response.length:
                    return Answer(worker, took_s=took_s, failed="its answer breaks off")
            whole = body.getvalue() if isinstance(body, BytesIO) else b""
            return Answer(worker, whole, response.status, took_s, _refusal(response.status))
    except TimeoutError:  # who was asked and is still at it is held up for as long
        held_s = 0.0 if began is None else took_s or time.monotonic() - began
        return Answer(worker, took_s=held_s, failed=f"no whole answer within {seconds:g} s")
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        return Answer(worker, took_s=took_s, failed=str(why)[:120])


def _kept(worker: Worker, path: str, target: Path, seconds: float, most_bytes: int) -> Answer:
    """What a worker answers, in a file; none where it does not answer well."""
    answer = Answer(worker, failed="not asked")
    try:
        with whole_file(target) as out:
            answer = ask(worker, path, seconds=seconds, most_bytes=most_bytes, out=out)
        if answer.failed:
            target.unlink(missing_ok=True)
    except OSError as error:
        return Answer(worker, failed=f"{target}: {error.strerror}")
    return answer


def _refusal(status: int) -> str:
    if status == 200:
        return ""
    return "sends on elsewhere, which is not followed" if 300 <= status < 400 else f"answers {status}"
