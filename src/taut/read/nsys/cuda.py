"""The CUDA tables of an Nsight Systems export: what ran on the GPUs, and the calls that put it there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Mask
from taut.core.device_words import is_copy
from taut.core.errors import TooLarge
from taut.core.ids import dense, distinct
from taut.core.tables import NULL
from taut.read.columns import Codes
from taut.read.communication_families import is_communication
from taut.read.copy_words import copy_class, is_memory
from taut.read.kineto.event_kinds import is_launch
from taut.read.nsys.sqlite import Database
from taut.read.op_rows import NAME_LENGTH, coded
from taut.read.step_marks import PROCESS

KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
)
# More than these in one report are no GPUs.
GPUS = 4096
# Times beyond this many ns (63 years) are no times.
FAR = 2_000_000_000_000_000_000
_PLACE = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
_COPY = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD")
_VERSION = re.compile(r"(?:_v\d+|_pt(?:sz|ds))+$")
_WAITING = re.compile(r"Synchronize|^cudaMemcpy$|^cuMemcpy(?:DtoH|HtoD)$")


class Work(Struct, frozen=True):
    """What ran on GPUs: kernels, copies, and graphs that were recorded whole."""

    start: Ints
    end: Ints
    process: Ints
    device: Ints
    stream: Ints
    issue: Ints
    """What a call and its work have in common; -1 where nothing."""
    name: Ints
    size: Ints
    copied: Mask
    """Copies and fills of memory; the rest are kernels and graphs."""
    names: list[str]

    def collective(self) -> Mask:
        """One boolean a row: whether it is a kernel that communicates."""
        passed = np.array([is_communication(name) for name in self.names], dtype=np.bool_)
        return passed[self.name] & ~self.copied if len(self.name) else np.zeros(0, dtype=np.bool_)


class Calls(Struct, frozen=True):
    """Calls into the driver that launched some of the work, or waited for it."""

    start: Ints
    end: Ints
    thread: Ints
    process: Ints
    issue: Ints
    launches: Mask
    """False for calls that only waited."""
    name: Ints
    names: list[str]
    lost: dict[int, Ints]
    """Process → when it launched work of which nothing is recorded, in order."""


def _issue(processes: Ints, process: Ints, correlation: Ints) -> Ints:
    """Correlations count inside a process; -1 where there is none, or no such process."""
    if not len(processes):
        return np.full(len(process), NULL, dtype=np.int64)
    code = np.minimum(np.searchsorted(processes, process), len(processes) - 1)
    known = (processes[code] == process) & (correlation > 0) & (correlation < 1 << 40)
    return np.where(known, code << 40 | np.where(known, correlation, 0), NULL)


def work(db: Database, strings: Mapping[int, str], counts: Counter[str]) -> Work:
    """All that ran on GPUs; rows without a time are dropped and counted."""
    names = Codes()
    parts = [
        _table(db, KERNEL, ("demangledName", "shortName", "mangledName", "graphNodeId"), counts),
        _table(db, MEMCPY, ("bytes", "copyKind"), counts),
        _table(db, MEMSET, ("bytes",), counts),
        _table(db, GRAPH, ("graphId", "graphExecId"), counts),
    ]
    kernels, copies, sets, graphs = parts
    if len(distinct(np.concatenate([part["globalPid"] + (part["deviceId"] & ~PROCESS) for part in parts]))) > GPUS:
        raise TooLarge(db.label, f"more than {GPUS:,} GPUs", "export fewer processes")
    counts["launched by cuda graphs"] += int((kernels["graphNodeId"] >= 0).sum())
    counts["cuda graphs recorded whole"] += len(graphs["start"])
    # The demangled name, else the short one, else the mangled one: exports differ in which they have.
    text = kernels["demangledName"]
    for column in ("shortName", "mangledName"):
        text = np.where(text >= 0, text, kernels[column])
    kernels["name"] = coded(names, text, lambda key: _kernel(strings.get(key, "")[:NAME_LENGTH]))
    copies["name"] = coded(names, copies["copyKind"], _copy)
    sets["name"] = np.full(len(sets["start"]), names["set"])
    graphs["name"] = coded(names, _turns(graphs), lambda turn: f"cuda graph {turn}")
    start, end, process, device, stream, correlation, name, size = (
        np.concatenate([part.get(column, np.full(len(part["start"]), NULL)) for part in parts])
        for column in (*_PLACE, "name", "bytes")
    )
    issue, texts = _issue(distinct(process), process, correlation), list(map(str, names))
    return Work(start, end, process, device, stream, issue, name, size, is_copy(texts)[name], texts)


def _table(db: Database, table: str, extra: Sequence[str], counts: Counter[str]) -> dict[str, Ints]:
    """A table's rows that have a time."""
    part = db.integers(table if db.has(table, "start", "end") else "", (*_PLACE, *extra))
    keep = _timed(part)
    counts["events"] += len(keep)
    counts["dropped: no time"] += int((~keep).sum())
    return {name: column[keep] for name, column in part.items()}


def _timed(part: Mapping[str, Ints]) -> Mask:
    return (part["start"] >= 0) & (part["end"] >= part["start"]) & (part["end"] < FAR)


def _kernel(name: str) -> str:
    return copy_class(name) if is_memory(name) else name or "kernel without a name"


def _copy(kind: int) -> str:
    return copy_class(_COPY[kind] if 0 <= kind < len(_COPY) else "")


def _turns(graphs: dict[str, Ints]) -> Ints:
    """Graphs of a process in the order of their first launch: their numbers differ from rank to rank."""
    key = np.where(graphs["graphExecId"] >= 0, graphs["graphExecId"], graphs["graphId"])
    turn = np.zeros(len(key), dtype=np.int64)
    order = np.argsort(graphs["start"], kind="stable")
    for process in distinct(graphs["globalPid"]).tolist():
        mine = order[graphs["globalPid"][order] == process]
        turn[mine] = Codes().of(key[mine].tolist())
    return turn


def calls(db: Database, strings: Mapping[int, str], work: Work, counts: Counter[str]) -> Calls:
    """Calls that launched or waited; the others cost nobody anything and are dropped."""
    part = db.integers(
        RUNTIME if db.has(RUNTIME, "start", "end") else "", ("start", "end", "globalTid", "correlationId", "nameId")
    )
    # Where kernels name no process, calls must name none either, or nothing would match.
    process = part["globalTid"] & PROCESS if (work.process >= 0).any() else np.full(len(part["start"]), NULL)
    codes, name = dense(part["nameId"])
    names = [_VERSION.sub("", strings.get(code, "call without a name"))[:NAME_LENGTH] for code in codes.tolist()]
    waits = np.array([_WAITING.search(text) is not None for text in names], dtype=np.bool_)
    issue = _issue(distinct(work.process), process, part["correlationId"])
    launches = (issue != NULL) & np.isin(issue, work.issue)
    used = launches | (waits[name] if len(waits) else False)
    keep = _timed(part)
    counts["events"] += len(keep)
    counts["dropped: runtime calls that launch nothing"] += int((keep & ~used).sum())
    launching = np.array([is_launch(text) for text in names], dtype=np.bool_)
    lost = np.flatnonzero(keep & ~used & launching[name]) if len(names) else name[:0]
    keep &= used
    start, end, thread = (part[column][keep] for column in ("start", "end", "globalTid"))
    by_process = {one: np.sort(part["start"][lost[process[lost] == one]]) for one in distinct(process[lost]).tolist()}
    return Calls(start, end, thread, process[keep], issue[keep], launches[keep], name[keep], names, by_process)
