"""Small inputs of every format, made by the writers that the tests use, and pieces of the shared data where there are some.

A seed is the files of a folder by name, and which of them are to be mutated.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import importlib.util
import io
import json
import os
import pickle
import sqlite3
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SMALL = 12_000
"""Bytes of a shared file at most: larger ones are cut, or left out."""


class Seed(NamedTuple):
    """The files of a folder, and which of them are mutated."""

    files: dict[str, bytes]
    changed: tuple[str, ...]


def seed(files: dict[str, bytes | str], beside: dict[str, bytes | str] | None = None) -> Seed:
    """A seed whose files are mutated, beside others that are not."""
    both = {name: data if isinstance(data, bytes) else data.encode() for name, data in {**files, **(beside or {})}.items()}
    return Seed(both, tuple(files))


def each(name: str, *contents: bytes | str, beside: dict[str, bytes | str] | None = None) -> list[Seed]:
    """One seed for each content of one file."""
    return [seed({name: content}, beside) for content in contents]


@functools.cache
def of(module: str) -> ModuleType:
    """A module of the tests, with the writers and texts it holds."""
    for folder in (str(TESTS),):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = f"fuzzed_{module.replace('/', '_')}"
    spec = importlib.util.spec_from_file_location(name, TESTS / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def shared(*names: str) -> list[bytes]:
    """Files of the shared data that are small, or their first lines; none where there is no such data."""
    folder = Path(os.environ.get("TAUT_SHARED", ROOT.parent / "shared"))
    folder = folder / "data" if (folder / "data").is_dir() else folder
    out = []
    for name in names:
        path = folder / name
        if path.is_file():
            with path.open("rb") as stream:
                head = stream.read(SMALL)
            out.append(head if path.stat().st_size <= SMALL else head[: head.rfind(b"\n") + 1 or None])
    return out


def job_ops(ranks: int = 3, steps: int = 3) -> str:
    """An op table as CSV: computes of 10 ms and a collective; the last rank is slower."""
    return str(of("test_cli").op_table(20, "fwd", ranks, steps))


@functools.cache
def beside() -> dict[str, bytes | str]:
    """A trace beside which metrics, progress logs and the like are read."""
    return {"ops.csv": job_ops(2, 3)}


def dated_ops() -> str:
    """An op table whose times are dates, so that samples of metrics fall into it."""
    rows = ["rank,step,class,start_ns,duration_ns,host"]
    for step in range(3):
        for rank in range(2):
            start = 1_700_000_000_000_000_000 + step * 1_000_000_000
            rows.append(f"{rank},{step},fwd,{start},{400_000_000 + rank * 7},node{7 + rank}")
            rows.append(f"{rank},{step},all-reduce,{start + 400_000_000 + rank * 7},{1000 - rank * 7},node{7 + rank}")
    return "\n".join(rows) + "\n"


# traces


def kineto() -> list[Seed]:
    """Two ranks with kernels and launches, two with gloo on the host, and one rank alone."""
    c, awkward = of("read/conftest"), of("read/test_awkward")
    config = {
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}]
    }
    nccl = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Collective name": "allreduce", "In msg nelems": 64,
            "dtype": "Float", "Seq": 3}  # fmt: skip

    def device(rank: int) -> list[Any]:
        events: list[Any] = []
        for k in range(3):
            t = 1000 * k
            events += [c.step(k, t, 900), c.launch(4 * k + 1, t + 5), c.kernel("gemm", 4 * k + 1, t + 10, 200 + 50 * rank)]
            events += [c.event("cpu_op", "aten::mm", t + 3, 20, **{"Input Dims": [[4, 4]]}), c.launch(4 * k + 2, t + 20)]
            events += [c.kernel(awkward.ALL_REDUCE, 4 * k + 2, t + 300, 400, stream=20, **nccl)]
            events += [c.launch(4 * k + 3, t + 710, name="cudaStreamSynchronize")]
        return events

    def host(rank: int) -> list[Any]:
        events: list[Any] = []
        for k in range(3):
            t = 1000 * k
            events += [c.step(k, t, 900), c.event("cpu_op", "aten::mm", t + 5, 300 + 40 * rank)]
            events += [c.c10d("allreduce_", t + 400, 50, [[[64]], []]), c.gloo("all_reduce", t + 420, 100, 64)]
        return events

    out = []
    for made in (device, host):
        files: dict[str, bytes | str] = {
            f"rank{r}.json": c.as_bytes(made(r), rank=r, world_size=2, distributedInfo=config) for r in range(2)
        }
        out += [Seed(seed(files).files, ("rank1.json",)), seed({"rank0.json": files["rank0.json"]})]
    return out


def op_tables() -> list[Seed]:
    """Op tables as CSV, with and without the optional columns."""
    full = "rank,step,class,start_us,duration_us,lane,stage,dp_rank,mb_id,bytes,group,seq,peer,host\n" + "".join(
        f"{r},{s},{name},{100 * s + at},{took},{lane},{r % 2},{r // 2},{s},{64},{group},{s},{peer},h{r // 2}\n"
        for s in range(3)
        for r in range(4)
        for name, at, took, lane, group, peer in (
            ("fwd", 0, 30 + r, 0, "", ""), ("send", 40, 5, 1, "", (r + 1) % 4), ("recv", 41, 6, 1, "", (r + 3) % 4),
            ("all-reduce", 50, 20, 0, "all", ""),
        )
    )  # fmt: skip
    return each("ops.csv", job_ops(), full, of("read/jobs/test_progress_log").OPS)


def op_parquet() -> list[Seed]:
    """The same as Parquet."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    out = []
    for one in op_tables()[:3]:
        table = pyarrow.csv.read_csv(io.BytesIO(one.files["ops.csv"]))
        stream = io.BytesIO()
        pq.write_table(table, stream)
        out.append(seed({"ops.parquet": stream.getvalue()}))
    return out


def step_times() -> list[Seed]:
    """Tables of step times, with and without the moment each step began, and one that also tells the loss."""
    plain = "worker,time,batch_time_norm,gpu\n" + "".join(f"{w},{t},{1 + 0.1 * w},A100\n" for t in range(4) for w in range(3))
    dated = "rank,step,step_time_ms,start_ns,loss\n" + "".join(
        f"{w},{t},{100 + w},{1700000000000000000 + t * 10**8},2.5\n" for t in range(4) for w in range(2)
    )
    return each("steps.csv", plain, dated, *(text[:800] for text in shared("alibaba-pai-steps/steps.csv")))


def nsys() -> list[Seed]:
    """An export of two processes that meet in all-reduces."""
    t = of("read/nsys/test_reader")
    with tempfile.TemporaryDirectory() as folder:
        made = t.Export(Path(folder) / "good.sqlite")
        for process in (1, 2):
            made.note(process, 0, 1, "ncclCommInitRank", (0xABC, 2, process - 1, 0))
            t.steady(made, process, 0xABC, steps=3)
        made.row("TARGET_INFO_SYSTEM_ENV", "Hostname", "node1")
        path = made.save()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as base:
            base.execute("PRAGMA page_size = 512")
            base.execute("VACUUM")
        return each("report.sqlite", path.read_bytes())


def otf2() -> list[Seed]:
    """An archive of two ranks, where the library is installed; else an anchor that cannot be opened."""
    t = of("read/otf2/test_reader")
    if importlib.util.find_spec("otf2") is None:
        return [seed({"run/traces.otf2": t.ANCHOR, "run/traces.def": bytes(64), "run/traces/0.evt": bytes(64)})]
    with tempfile.TemporaryDirectory() as folder:
        made = t.Archive(Path(folder))
        for rank in range(2):
            for k in range(3):
                made.call(rank, 100 * k, 100 * k + 50 + rank, "work")
                made.call(rank, 100 * k + 60, 100 * k + 90, "MPI_Allreduce", collective=("ALLREDUCE", made.world, 0, 64))
        path = made.save()
        return [seed({str(p.relative_to(path.parent)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()})]


def _dumps() -> dict[str, dict[str, Any]]:
    t = of("read/flight/test_arrivals")
    made = t.blocking(t.healthy, steps=4)
    made.hop(0, 1)
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    common = {
        "version": "2.9",
        "nccl_version": "2.27",
        "pg_config": config,
        "pg_status": {"0": {"last_enqueued_collective": 8}},
    }
    return {f"flight_rank{rank}": {**common, "entries": entries} for rank, entries in made.entries.items() if rank < 3}


def flight_json() -> list[Seed]:
    """Dumps of three of four ranks alone, and one beside a trace."""
    c, r = of("read/conftest"), of("read/test_read")
    alone = seed({f"{name}.json": json.dumps(dump) for name, dump in _dumps().items()})
    events = [
        e
        for k in range(3)
        for e in (c.c10d("allreduce_", 1000 + 4000 * k, 500, [[[64]], []]), c.gloo("all_reduce", 2000 + 4000 * k, 500, 64))
    ]
    dump = {
        "entries": [r.fr_entry(7, -9000), r.fr_entry(8, 1100), r.fr_entry(3, 5100, group="tp")],
        "pg_config": {"tp": {"name": "tp", "ranks": "[0, 1]"}},
    }
    return [
        Seed(alone.files, ("flight_rank1.json",)),
        seed({"fr_rank0.json": json.dumps(dump)}, {"rank0.json": c.as_bytes(events)}),
    ]


def flight_pickle() -> list[Seed]:
    """The same dumps as pickles."""
    files: dict[str, bytes | str] = {name: pickle.dumps(dump, 2) for name, dump in _dumps().items()}
    return [Seed(seed(files).files, ("flight_rank1",)), seed({"flight_rank0": files["flight_rank0"]})]


def otlp() -> list[Seed]:
    """Spans of an agent, and of a client that tries again."""
    agent, retried = of("read/otlp/test_reader")._valid(), of("read/otlp/test_span_actions").retried().lines()
    listed = json.dumps({"resourceSpans": [one for line in retried.splitlines() for one in json.loads(line)["resourceSpans"]]})
    return each("spans.jsonl", agent, retried, listed)


def inspector() -> list[Seed]:
    """Logs of four plugins, verbose or not, and one alone."""
    t = of("read/flight/test_inspector")
    out = each("node0-pid100.log", t.valid())
    for verbose in (True, False):
        files: dict[str, bytes | str] = {
            f"node{p.rank // 2}-pid{100 + p.rank}.log": "".join(json.dumps(line) + "\n" for line in p.lines)
            for p in t.job(3, verbose, steps=3)
        }
        out.append(Seed(seed(files).files, ("node1-pid102.log",)))
    return out


def chakra_proto() -> list[Seed]:
    """Plans, and traces with times, in the current layout."""
    t = of("read/chakra/test_reader")
    two = {"job.0.et": t.file(*t.step(0, 100)), "job.1.et": t.file(*t.step(1, 160))}
    return [Seed(two, ("job.1.et",)), *each("job.0.et", *t.WHOLE[:2])]


def chakra_json() -> list[Seed]:
    """A workload graph."""
    t = of("read/chakra/test_reader")
    return each("job.0.json", t.as_graph({"forward": 20}), *shared("chakra/one.json"))


def xplane() -> list[Seed]:
    """XLA profiles of GPUs with a module beside them, of TPUs, and of a host alone."""
    t = of("xla_profiles")
    met = t.instruction("psum.1", "all-reduce", 1024, t.counted(1, 2, (2,), ()))
    meshed = t.instruction("all-reduce-start.1", "all-reduce-start", 1024, t.meshed((1, 2), (1,)))
    gpus = t.put(1, t.module(7, met, meshed)) + t.gpu_job(steps=3)
    thunks = [t.Event(n, 100 * k, 90, {"hlo_op": n, "program_id": 7}) for k, n in enumerate(("dot.1", "psum.1"))]
    host = t.space(t.module(7, met), t.plane("/host:CPU", t.Line("tf_XLA/1", thunks)))
    return each("node0.xplane.pb", gpus, t.tpu_job(), t.tpu_job(beside=False), host)


def xla_viewer() -> list[Seed]:
    """The same as the trace viewer's file has it."""
    t = of("xla_profiles")
    return each("node0.trace.json", *(gzip.decompress(t.as_viewed(data)) for data in (t.gpu_job(steps=3), t.tpu_job())))


def execution() -> list[Seed]:
    """Execution traces beside the trace they name, and linked ones."""
    t, c = of("read/chakra/test_execution"), of("read/conftest")
    tiny = __import__("types").SimpleNamespace(**vars(c))
    trace = c.as_bytes(
        t.kineto(tiny, t.ALL_REDUCE if hasattr(t, "ALL_REDUCE") else "ncclDevKernel_AllReduce"), rank=0, world_size=2
    )
    old = t.document(t.old(20, "allreduce", 41, 0))
    new = t.document(t.made({"0": [0, 1]}), t.new(20, "allreduce", 41, "0", 0), schema="1.1.0-chakra.0.0.4")
    return [*each("et_0.json", old, new, beside={"kineto_0.json": trace}), *each("linked.2.json", t.linked(c.BASE_NS // 1000))]
