"""Slurm's accounting as JSON: ``sacct --json``, of any version of its data parser. Job steps are passed over."""

from __future__ import annotations

import msgspec

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.contents import JobLog
from taut.read.jobs.job_words import (
    LIST,
    RUNNING,
    SECOND,
    SLURM,
    count_or_null,
    cut,
    held,
    outcome,
    table_of,
    without_accelerators,
)
from taut.read.jobs.sacct import placed_nodes, telling_reason
from taut.read.json_fields import under

# Larger numbers are no ids, times or lengths of Slurm.
MOST_ID = 2**40


def sniff(head: bytes) -> bool:
    """A JSON object with jobs that have an id, a state and times."""
    return head.lstrip()[:1] == b"{" and all(word in head for word in (b'"jobs"', b'"job_id"', b'"state"', b'"time"'))


class _Job(msgspec.Struct):
    job_id: Json = None
    name: Json = None
    array: Json = None
    time: Json = None
    state: Json = None
    exit_code: Json = None
    nodes: Json = None
    account: Json = None
    allocation_nodes: Json = None
    tres: Json = None
    required: Json = None


class _Answer(msgspec.Struct):
    jobs: list[_Job]


def load(data: bytes, label: str) -> JobLog:
    """The attempts of one file; times are whole seconds since 1970."""
    try:
        jobs = msgspec.json.decode(bytes(data), type=_Answer).jobs
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not readable as the JSON of sacct ({str(error)[:120]})", "write it again") from None
    jobs = [job for job in jobs if count_or_null(_number(job.job_id), MOST_ID) > 0]
    rows = [_row(job) for job in jobs]
    without_accelerators(
        rows, [bool(_resources(job)) and row["unit"] != "accelerator" for job, row in zip(jobs, rows, strict=True)]
    )
    if not rows:
        raise InputRefused(label, "a job list of Slurm without a job", "name more jobs or a longer time to sacct (-j, -S)")
    return JobLog(label, table_of(rows, label)[0], controller=SLURM)


def _row(job: _Job) -> dict[str, Json]:
    """The columns of one attempt; times as Slurm writes them."""
    word = outcome(_word(under(job.state, "current")))
    submit, start, end, took = (_number(under(job.time, key)) for key in ("submission", "start", "end", "elapsed"))
    begin, length = count_or_null(start, MOST_ID), count_or_null(took, MOST_ID)
    if word == RUNNING and begin > 0:
        end = begin + length if length >= 0 else None
    minutes = count_or_null(_number(under(job.time, "limit")))
    count, unit = _held(job)
    return {
        "job": _id(job),
        "name": cut(job.name),
        "submit_ns": submit,
        "start_ns": start,
        "end_ns": end,
        "outcome": word,
        "accelerators": count,
        "unit": unit,
        "nodes": cut(placed_nodes(job.nodes), LIST) if isinstance(job.nodes, str) else "",
        "team": cut(job.account) if isinstance(job.account, str) else "",
        "reason": _reason(_word(under(job.state, "reason")), job.exit_code),
        "limit_ns": minutes * 60 * SECOND if minutes > 0 else NULL,
        "held": 0,
    }


def _number(value: Json) -> Json:
    """A number, which newer versions wrap: ``{"set": true, "infinite": false, "number": 5}``."""
    if isinstance(value, dict):
        return value.get("number") if value.get("set") else None
    return value


def _word(value: Json) -> str:
    """A word, which newer versions put into a list."""
    if isinstance(value, list):
        value = value[0] if value else ""
    return value if isinstance(value, str) else ""


def _id(job: _Job) -> str:
    parent, task, own = (
        count_or_null(_number(value), MOST_ID)
        for value in (under(job.array, "job_id"), under(job.array, "task_id"), job.job_id)
    )
    return f"{parent}_{task}" if parent > 0 and task >= 0 else str(own)


def _resources(job: _Job) -> list[Json]:
    rows = under(job.tres, "allocated") or under(job.tres, "requested")
    return rows if isinstance(rows, list) else []


def _held(job: _Job) -> tuple[int, str]:
    rows = _resources(job)
    found = {"gpu": NULL, "cpu": NULL, "node": NULL}
    for row in rows:
        kind, name = under(row, "type"), _word(under(row, "name"))
        key = "gpu" if kind == "gres" and name.partition(":")[0] == "gpu" else kind
        if isinstance(key, str) and key in found:
            found[key] = max(found[key], count_or_null(_number(under(row, "count"))))
    cpus = found["cpu"] if found["cpu"] > 0 else _number(under(job.required, "CPUs"))
    return held(found["gpu"], cpus, found["node"] if found["node"] > 0 else _number(job.allocation_nodes))


def _reason(reason: str, code: Json) -> str:
    returned = count_or_null(_number(under(code, "return_code")))
    words = [f"exit code {returned}"] if returned > 0 else []
    return cut(", ".join(words + telling_reason(reason)))
