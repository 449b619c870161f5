"""Tables of jobs and their attempts: JSON (a list of jobs, ``{"jobs": […]}`` or one job a line) and CSV (one attempt a row).

A job names itself, its accelerators and its attempts, an attempt its start and end. Spellings are listed below.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import msgspec

from taut.errors import InputRefused
from taut.read.job_words import JobLog, blank, counted, cut, outcome, table, times, whole
from taut.tables import NULL

JOB = ("job", "job_id", "jobid", "id", "job_name", "name")
START = ("start", "start_time", "started", "start_s", "start_ns", "started_at", "begin")
END = ("end", "end_time", "ended", "end_s", "end_ns", "ended_at", "finished_at", "finish_time")
SUBMIT = ("submit", "submit_time", "submitted_time", "submitted", "submitted_at", "queued_at")
HELD = ("accelerators", "gpus", "num_gpus", "gpu_num", "n_gpus", "gpu_count", "plan_gpu")
STATE = ("outcome", "status", "state")
REASON = ("reason", "error", "message")
STEPS = {
    "first_step": ("first_step",), "last_step": ("last_step",), "resumed_step": ("resumed_step", "resume_step"),
    "saved_step": ("saved_step", "checkpoint_step", "last_checkpoint"),
}  # fmt: skip
_KEYS = ("job", "submit", "start", "end", "outcome", "accelerators", "unit", "reason", *STEPS)
HEAD_BYTES = 4 << 20
_ATTEMPTS = re.compile(rb'"attempts"\s*:\s*\[')


def sniff(head: bytes) -> bool:
    """JSON in which something has attempts with a start, or a CSV header with job, attempt, start and end."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        return _ATTEMPTS.search(text) is not None and any(f'"{key}"'.encode() in text for key in START)
    line = text.split(b"\n", 1)[0]
    if b"\x00" in line:
        return False
    names = [name.strip().strip('"').lower() for name in line.decode("utf-8", "replace").split(",")]
    return _first(names, JOB) != "" and "attempt" in names and _first(names, START) != "" and _first(names, END) != ""


def _first(names: Any, spellings: tuple[str, ...]) -> str:
    return next((name for name in spellings if name in names), "")


class _Attempt(msgspec.Struct):
    start: Any = None
    start_time: Any = None
    started: Any = None
    start_s: Any = None
    start_ns: Any = None
    started_at: Any = None
    begin: Any = None
    end: Any = None
    end_time: Any = None
    ended: Any = None
    end_s: Any = None
    end_ns: Any = None
    ended_at: Any = None
    finished_at: Any = None
    finish_time: Any = None
    outcome: Any = None
    status: Any = None
    state: Any = None
    reason: Any = None
    error: Any = None
    message: Any = None
    gpus: Any = None
    num_gpus: Any = None
    accelerators: Any = None
    detail: Any = None
    first_step: Any = None
    last_step: Any = None
    resumed_step: Any = None
    resume_step: Any = None
    saved_step: Any = None
    checkpoint_step: Any = None
    last_checkpoint: Any = None


class _Job(msgspec.Struct):
    attempts: list[_Attempt] = []
    job: Any = None
    job_id: Any = None
    jobid: Any = None
    id: Any = None
    job_name: Any = None
    name: Any = None
    submit: Any = None
    submit_time: Any = None
    submitted_time: Any = None
    submitted: Any = None
    submitted_at: Any = None
    queued_at: Any = None
    accelerators: Any = None
    gpus: Any = None
    num_gpus: Any = None
    gpu_num: Any = None
    n_gpus: Any = None
    gpu_count: Any = None
    plan_gpu: Any = None
    outcome: Any = None
    status: Any = None
    state: Any = None


class _Jobs(msgspec.Struct):
    jobs: list[_Job]


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs of one file."""
    raw = bytes(data).removeprefix(b"\xef\xbb\xbf").lstrip()
    columns = _from_json(_decode(raw, label), raw) if raw[:1] in (b"{", b"[") else _from_csv(raw, label)
    if not columns["job"]:
        raise InputRefused(label, "a table of jobs without an attempt", "leave the file out")
    submit, start, end = (columns.pop(key) for key in ("submit", "start", "end"))
    (submit_ns, _), (start_ns, bare), (end_ns, _) = times(submit), times(start), times(end)
    return JobLog(
        label, table({**columns, "submit_ns": submit_ns, "start_ns": start_ns, "end_ns": end_ns}, label), zoneless=bare
    )


def _decode(raw: bytes, label: str) -> list[_Job]:
    try:
        if raw[:1] == b"[":
            return msgspec.json.decode(raw, type=list[_Job])
        try:
            return msgspec.json.decode(raw, type=_Jobs).jobs
        except msgspec.DecodeError:
            return msgspec.json.Decoder(_Job).decode_lines(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not a readable table of jobs ({str(error)[:120]})", "write it again") from None


def _get(thing: Any, spellings: tuple[str, ...]) -> Any:
    for name in spellings:
        value = getattr(thing, name, None)
        if value is not None:
            return value
    return None


def _used(raw: bytes, spellings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in spellings if b'"%s"' % name.encode() in raw)


def _from_json(jobs: list[_Job], raw: bytes) -> dict[str, list[Any]]:
    # Only spellings that the file uses are looked for; what every job has, its first megabytes have.
    head = raw[:HEAD_BYTES]
    job_is, start_is, end_is, submit_is, held_is = (_used(head, spelled) for spelled in (JOB, START, END, SUBMIT, HELD))
    state_is, reason_is, *steps_are = (_used(raw, spelled) for spelled in (STATE, REASON, *STEPS.values()))
    ones = [one for job in jobs for one in job.attempts]
    sizes = [len(job.attempts) for job in jobs]
    named = [(place, _get(job, job_is)) for place, job in enumerate(jobs, 1)]
    names = [cut(called) if isinstance(called, (str, int)) else f"job {place}" for place, called in named]
    queued = [value for job, n in zip(jobs, sizes, strict=True) if n for value in (_get(job, submit_is), *[None] * (n - 1))]
    # What a job says of its end is said of its last attempt.
    ends = [value for job, n in zip(jobs, sizes, strict=True) if n for value in (*[None] * (n - 1), _get(job, state_is))]
    states = [one if one is not None else end for one, end in zip((_get(one, state_is) for one in ones), ends, strict=True)]
    held = [value for job, n in zip(jobs, sizes, strict=True) for value in [_get(job, held_is)] * n]
    counts = [_held(one, job, held_is) for one, job in zip(ones, held, strict=True)]
    return {
        "job": [value for name, n in zip(names, sizes, strict=True) for value in [name] * n], "submit": queued,
        "start": [_get(one, start_is) for one in ones], "end": [_get(one, end_is) for one in ones],
        "outcome": [outcome(state) if isinstance(state, str) else "" for state in states],
        "accelerators": [count for count, _ in counts], "unit": [unit for _, unit in counts],
        "reason": [cut(_get(one, reason_is)) for one in ones] if reason_is else [""] * len(ones),
        **{
            key: [whole(_get(one, spelled), 2**53) for one in ones] if spelled else [NULL] * len(ones)
            for key, spelled in zip(STEPS, steps_are, strict=True)
        },
    }  # fmt: skip


def _held(one: _Attempt, of_job: Any, held_is: tuple[str, ...]) -> tuple[int, str]:
    if one.detail is not None:
        return counted(_detail(one.detail))
    return counted(_number(_get(one, held_is) if of_job is None else of_job))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and value < 2**31 else value


def _detail(detail: Any) -> int:
    """Accelerators in the list of an attempt's hosts, each with the names of its own."""
    hosts = [host.get("gpus") for host in detail if isinstance(host, dict)] if isinstance(detail, list) else []
    found = sum(len(gpus) for gpus in hosts if isinstance(gpus, list))
    return found if found else NULL


def _from_csv(raw: bytes, label: str) -> dict[str, list[Any]]:
    reader = csv.reader(io.StringIO(raw.decode("utf-8", "replace"), newline=""))
    columns = blank(_KEYS)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        keys = {
            "job": JOB, "submit": SUBMIT, "start": START, "end": END, "outcome": STATE, "held": HELD, "reason": REASON, **STEPS,
        }  # fmt: skip
        at = {key: header.index(_first(header, spelled)) for key, spelled in keys.items() if _first(header, spelled)}
        for row in reader:
            if row:
                _row(columns, {key: row[i].strip() if i < len(row) else "" for key, i in at.items()})
    except csv.Error as error:
        raise InputRefused(f"{label}:{reader.line_num}", f"not a readable CSV ({error})", "cut the file there") from None
    return columns


def _row(columns: dict[str, list[Any]], row: dict[str, str]) -> None:
    if not row.get("job"):
        return
    count, unit = counted(row.get("held", ""))
    texts = {key: row.get(key, "") for key in ("submit", "start", "end")}
    steps = {key: whole(row.get(key, ""), 2**53) for key in STEPS}
    known = {"job": cut(row["job"]), "outcome": outcome(row.get("outcome", "")), "reason": cut(row.get("reason", ""))}
    for key, value in {**texts, **steps, **known, "accelerators": count, "unit": unit}.items():
        columns[key].append(value)
