"""Slurm's accounting as JSON: ``sacct --json``, of any version of its data parser. Job steps are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.jobs.job_words import RUNNING, SECOND, SLURM, JobLog, blank, counted, cut, outcome, table, times, whole

_KEYS = ("job", "name", "outcome", "accelerators", "unit", "nodes", "reason")


def sniff(head: bytes) -> bool:
    """A JSON object with jobs that have an id, a state and times."""
    return head.lstrip()[:1] == b"{" and all(word in head for word in (b'"jobs"', b'"job_id"', b'"state"', b'"time"'))


class _Job(msgspec.Struct):
    job_id: Any = None
    name: Any = None
    array: Any = None
    time: Any = None
    state: Any = None
    exit_code: Any = None
    nodes: Any = None
    allocation_nodes: Any = None
    tres: Any = None
    required: Any = None


class _Answer(msgspec.Struct):
    jobs: list[_Job]


def load(data: bytes, label: str) -> JobLog:
    """The attempts of one file; times are whole seconds since 1970."""
    try:
        jobs = msgspec.json.decode(bytes(data), type=_Answer).jobs
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not readable as the JSON of sacct ({str(error)[:120]})", "write it again") from None
    jobs = [job for job in jobs if whole(_number(job.job_id), 2**40) > 0]
    if not jobs:
        raise InputRefused(label, "a job list of Slurm without a job", "name more jobs or a longer time to sacct (-j, -S)")
    columns = blank(_KEYS)
    for job in jobs:
        word = outcome(_word(_in(job.state, "current")))
        count, unit = _held(job)
        reason = _word(_in(job.state, "reason"))
        row = (_id(job), cut(job.name), word, count, unit, cut(_nodes(job.nodes)), _reason(reason, job.exit_code))
        for key, value in zip(_KEYS, row, strict=True):
            columns[key].append(value)
    spans = [_span(job, word == RUNNING) for job, word in zip(jobs, columns["outcome"], strict=True)]
    for i, key in enumerate(("submit_ns", "start_ns", "end_ns")):
        columns[key] = times([span[i] for span in spans])[0].tolist()
    columns["limit_ns"] = [_limit(job) for job in jobs]
    return JobLog(label, table({**columns, "held": [0] * len(jobs)}, label), controller=SLURM)


def _in(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _number(value: Any) -> Any:
    """A number, which newer versions wrap: ``{"set": true, "infinite": false, "number": 5}``."""
    if isinstance(value, dict):
        return value.get("number") if value.get("set") else None
    return value


def _word(value: Any) -> str:
    """A word, which newer versions put into a list."""
    if isinstance(value, list):
        value = value[0] if value else ""
    return value if isinstance(value, str) else ""


def _id(job: _Job) -> str:
    parent, task = _number(_in(job.array, "job_id")), _number(_in(job.array, "task_id"))
    inside = whole(parent, 2**40) > 0 and whole(task, 2**40) >= 0
    return f"{int(parent)}_{int(task)}" if inside else str(int(_number(job.job_id)))


def _span(job: _Job, running: bool) -> tuple[Any, Any, Any]:
    submit, start, end, took = (_number(_in(job.time, key)) for key in ("submission", "start", "end", "elapsed"))
    begin, length = whole(start, 2**40), whole(took, 2**40)
    if running and begin > 0:
        end = begin + length if length >= 0 else None
    return submit, start, end


def _limit(job: _Job) -> int:
    """The time limit, which is told in minutes."""
    minutes = whole(_number(_in(job.time, "limit")))
    return minutes * 60 * SECOND if minutes > 0 else NULL


def _held(job: _Job) -> tuple[int, str]:
    rows = _in(job.tres, "allocated") or _in(job.tres, "requested")
    found = {"gpu": NULL, "cpu": NULL, "node": NULL}
    for row in rows if isinstance(rows, list) else ():
        kind, name = _in(row, "type"), _word(_in(row, "name"))
        key = "gpu" if kind == "gres" and name.partition(":")[0] == "gpu" else kind
        if isinstance(key, str) and key in found:
            found[key] = max(found[key], whole(_number(_in(row, "count"))))
    cpus = found["cpu"] if found["cpu"] > 0 else _number(_in(job.required, "CPUs"))
    return counted(found["gpu"], None, cpus, found["node"] if found["node"] > 0 else _number(job.allocation_nodes))


def _nodes(value: Any) -> str:
    return value if isinstance(value, str) and value not in ("None assigned", "(null)") else ""


def _reason(reason: str, code: Any) -> str:
    returned = whole(_number(_in(code, "return_code")))
    words = [f"exit code {returned}"] if returned > 0 else []
    words += [reason] if reason and reason.lower() not in ("none", "begintime", "priority", "resources") else []
    return cut(", ".join(words))
