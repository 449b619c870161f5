"""Tables of jobs and their attempts: JSON (a list of jobs, ``{"jobs": […]}`` or one job a line) and CSV (one attempt a row).

A job names itself, its accelerators and its attempts, an attempt its start and end. Spellings are listed below.
"""

from __future__ import annotations

import csv
import io
import re
from operator import attrgetter
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
END_BYTES = 1 << 20
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


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs of one file."""
    raw = bytes(data).removeprefix(b"\xef\xbb\xbf").lstrip()
    columns = _from_json(_decode(raw, label)) if raw[:1] in (b"{", b"[") else _from_csv(raw, label)
    if not columns["job"]:
        raise InputRefused(label, "a table of jobs without an attempt", "leave the file out")
    submit, start, end = (columns.pop(key) for key in ("submit", "start", "end"))
    (submit_ns, _), (start_ns, bare), (end_ns, _) = times(submit), times(start), times(end)
    return JobLog(
        label, table({**columns, "submit_ns": submit_ns, "start_ns": start_ns, "end_ns": end_ns}, label), zoneless=bare,
        controller="scheduler",
    )  # fmt: skip


def _used(raw: bytes, spellings: tuple[str, ...]) -> tuple[str, ...]:
    """Those spellings that a file uses; of a large one its two ends tell."""
    ends = raw if len(raw) <= 2 * END_BYTES else raw[:END_BYTES] + raw[-END_BYTES:]
    return tuple(name for name in spellings if b'"%s"' % name.encode() in ends)


def _decode(raw: bytes, label: str) -> list[Any]:
    """The jobs, with the fields that the file uses."""
    told = dict.fromkeys(
        (*STATE, *REASON, *HELD, *START, *END, *(name for names in STEPS.values() for name in names), "detail")
    )
    attempt = msgspec.defstruct("Attempt", [(name, Any, None) for name in _used(raw, tuple(told))], gc=False)
    told = dict.fromkeys((*JOB, *SUBMIT, *HELD, *STATE))
    fields = [(name, Any, None) for name in _used(raw, tuple(told))]
    job: Any = msgspec.defstruct("Job", [*fields, ("attempts", list[attempt], msgspec.field(default_factory=list))])  # type: ignore[valid-type]
    many: Any = msgspec.defstruct("Jobs", [("jobs", list[job])])
    try:
        if raw[:1] == b"[":
            return list(msgspec.json.decode(raw, type=list[job]))
        try:
            return list(msgspec.json.decode(raw, type=many).jobs)
        except msgspec.DecodeError:
            return list(msgspec.json.Decoder(job).decode_lines(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not a readable table of jobs ({str(error)[:120]})", "write it again") from None


def _all(things: list[Any], spellings: tuple[str, ...]) -> list[Any]:
    """What each thing says under the first of the spellings that it uses; None if under none."""
    used = [name for name in spellings if things and hasattr(things[0], name)]
    if len(used) < 2:
        return list(map(attrgetter(used[0]), things)) if used else [None] * len(things)
    columns = [list(map(attrgetter(name), things)) for name in used]
    return [next((value for value in row if value is not None), None) for row in zip(*columns, strict=True)]


def _from_json(jobs: list[Any]) -> dict[str, list[Any]]:
    jobs = [job for job in jobs if job.attempts]
    ones, sizes = [one for job in jobs for one in job.attempts], [len(job.attempts) for job in jobs]
    called = enumerate(_all(jobs, JOB), 1)
    names = [cut(name) if isinstance(name, (str, int)) else f"job {place}" for place, name in called]
    first = [value for job, n in zip(_all(jobs, SUBMIT), sizes, strict=True) for value in (job, *[None] * (n - 1))]
    # What a job says of its end is said of its last attempt, what it held of all.
    last = [value for job, n in zip(_all(jobs, STATE), sizes, strict=True) for value in (*[None] * (n - 1), job)]
    states = [own if own is not None else end for own, end in zip(_all(ones, STATE), last, strict=True)]
    of_job = _spread(_all(jobs, HELD), sizes)
    held = [own if job is None else job for own, job in zip(_all(ones, HELD), of_job, strict=True)]
    held = [own if detail is None else _detail(detail) for own, detail in zip(held, _all(ones, ("detail",)), strict=True)]
    held = [value if isinstance(value, (int, float, str)) else NULL for value in held]
    counts = {value: counted(_number(value)) for value in set(held)}
    steps = {key: _all(ones, spelled) for key, spelled in STEPS.items()}
    return {
        "job": _spread(names, sizes), "submit": first, "start": _all(ones, START), "end": _all(ones, END),
        "outcome": [outcome(state) if isinstance(state, str) else "" for state in states],
        "accelerators": [counts[value][0] for value in held], "unit": [counts[value][1] for value in held],
        "reason": ["" if reason is None else cut(reason) for reason in _all(ones, REASON)],
        **{key: [NULL if value is None else whole(value, 2**53) for value in values] for key, values in steps.items()},
    }  # fmt: skip


def _spread(values: list[Any], sizes: list[int]) -> list[Any]:
    """One value a job → one an attempt."""
    return [value for value, n in zip(values, sizes, strict=True) for value in (value,) * n]


def _number(value: Any) -> int:
    """A count, NULL if it is none; ``8.0`` is eight."""
    return int(value) if isinstance(value, float) and value.is_integer() and 0 <= value < 2**31 else whole(value)


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
