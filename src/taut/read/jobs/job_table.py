"""Tables of jobs and their attempts: JSON (a list of jobs, ``{"jobs": […]}`` or one job a line) and CSV (one attempt a row).

A job names itself, its accelerators and its attempts, an attempt its start and end. Spellings are listed below.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from taut.core.errors import InputRefused
from taut.core.tables import NULL, Attempt
from taut.read.columns import Codes
from taut.read.jobs.job_words import TEXT, JobLog, blank, counted, cut, few, outcome, table, times, whole
from taut.read.json_fields import Keys, decoded, list_slabs
from taut.read.table_file import few as few_columns

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
_NOTHING = msgspec.Raw(b"null")
MOST_STEPS = 2**53
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
    columns, bare = _from_json(raw, label) if raw[:1] in (b"{", b"[") else _from_csv(raw, label)
    if not len(columns["job"]):
        raise InputRefused(label, "a table of jobs without an attempt", "leave the file out")
    return JobLog(label, table(columns, label), zoneless=bare, controller="scheduler")


OF_ATTEMPT = {
    **dict.fromkeys((*STATE, *REASON, *HELD, *START, *END, *chain.from_iterable(STEPS.values())), (Any, None)),
    "detail": (msgspec.Raw, None),
}
OF_JOB = dict.fromkeys((*JOB, *SUBMIT, *HELD, *STATE), (Any, None))


def _types(keys: Keys) -> tuple[Any, Any]:
    """A job, and an object that lists some."""
    attempt: Any = keys.struct("Attempt", OF_ATTEMPT, gc=False)
    job: Any = keys.struct("Job", OF_JOB, ("attempts", list[attempt], msgspec.field(default_factory=list)))
    return job, msgspec.defstruct("Jobs", [("jobs", list[job])])


def _jobs(raw: bytes, keys: Keys) -> Iterator[list[Any]]:
    """The jobs of a list, or of lines, some at a time; of an object all at once."""
    job: Any = _types(keys)[0]
    if raw[:1] == b"[":
        return list_slabs(raw, msgspec.json.Decoder(list[job]))
    return iter([_all_jobs(raw, keys)])


def _all_jobs(raw: bytes, keys: Keys) -> list[Any]:
    """A list of jobs, an object with one, or one job a line."""
    job: Any
    job, whole = _types(keys)
    if raw[:1] == b"[":
        return list(msgspec.json.decode(raw, type=list[job]))
    try:
        return list(msgspec.json.decode(raw, type=whole).jobs)
    except msgspec.DecodeError:
        return list(msgspec.json.Decoder(job).decode_lines(raw))


def _all(things: list[Any], spellings: tuple[str, ...]) -> list[Any] | None:
    """What each thing says under the first of the spellings that it uses; None if none uses any."""
    columns = [list(map(attrgetter(name), things)) for name in spellings if things and hasattr(things[0], name)]
    columns = [column for column in columns if any(column) or column.count(None) < len(column)]
    if len(columns) < 2:
        return columns[0] if columns else None
    return [next((value for value in row if value is not None), None) for row in zip(*columns, strict=True)]


def _from_json(raw: bytes, label: str) -> tuple[dict[str, Any], bool]:
    try:
        try:
            return decoded(raw, lambda keys: _together(_jobs(raw, keys), label))
        except msgspec.DecodeError:  # of a slab: what is wrong with the whole is told of the whole
            return decoded(raw, lambda keys: _together([_all_jobs(raw, keys)], label))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not a readable table of jobs ({str(error)[:120]})", "write it again") from None


def _together(slabs: Iterable[list[Any]], label: str) -> tuple[dict[str, Any], bool]:
    """The columns of all jobs, and if a time named no zone."""
    parts: list[dict[str, Any]] = []
    bare, places, rows = False, 0, 0
    for slab in slabs:
        jobs = [job for job in slab if job.attempts]
        columns, zoneless = _columns(jobs, places)
        parts.append(columns)
        bare, places, rows = bare or zoneless, places + len(jobs), rows + len(columns["job"])
        few(rows, label)
    if len(parts) == 1:
        return parts[0], bare
    unknown = {name: Attempt.__dataclass_fields__[name] for name in chain.from_iterable(parts)}
    return {
        name: np.concatenate([part[name] if name in part else [field.default] * len(part["job"]) for part in parts])
        for name, field in unknown.items()
    }, bare


def _columns(jobs: list[Any], before: int) -> tuple[dict[str, Any], bool]:
    """The columns of some jobs, behind so many others, and if a time named no zone."""
    lists = [job.attempts for job in jobs]
    ones, sizes = list(chain.from_iterable(lists)), np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    columns: dict[str, Any] = {"job": np.repeat(np.array(_names(jobs, before), dtype=object), sizes)}
    columns["accelerators"], columns["unit"] = _held(jobs, ones, sizes)
    bare = False
    if (told := _all(ones, START)) is not None:
        columns["start_ns"], bare = times(told)
    if (told := _all(ones, END)) is not None:
        columns["end_ns"] = times(told)[0]
    if (told := _all(jobs, SUBMIT)) is not None:
        columns["submit_ns"] = np.full(len(ones), NULL, dtype=np.int64)
        columns["submit_ns"][np.cumsum(sizes) - sizes] = times(told)[0]
    columns["outcome"] = _outcomes(jobs, ones, sizes)
    if (told := _all(ones, REASON)) is not None:
        columns["reason"] = _each(told, lambda reason: "" if reason is None else cut(reason))
    for key, spelled in STEPS.items():
        if (told := _all(ones, spelled)) is not None:
            columns[key] = _steps(told)
    return columns, bare


def _names(jobs: list[Any], before: int) -> list[str]:
    """What jobs are called; one without a name by its place."""
    called = _all(jobs, JOB) or [None] * len(jobs)
    if set(map(type, called)) == {str} and all(names := [name[:TEXT] for name in map(str.strip, called)]):
        return names
    told = [cut(name) if isinstance(name, (str, int)) else "" for name in called]
    return [name or f"job {place}" for place, name in enumerate(told, before + 1)]


def _steps(values: list[Any]) -> Any:
    """Numbers of steps, NULL for what is none."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            number = np.array(values, dtype=np.int64)
            return np.where((number >= 0) & (number <= MOST_STEPS), number, NULL)
    return np.array([whole(value, MOST_STEPS) for value in values], dtype=np.int64)


def _each(values: list[Any], said: Callable[[Any], Any]) -> Any:
    """What a function says of each value, asked once for each distinct one."""
    try:
        codes = Codes()
        of = codes.of(values)
        return np.array([said(value) for value in codes], dtype=object)[of]
    except TypeError:  # lists and objects
        return np.array([said(value) for value in values], dtype=object)


def _outcomes(jobs: list[Any], ones: list[Any], sizes: Any) -> Any:
    """How each attempt ended; what a job says of its end is said of its last."""
    own, of_job = _all(ones, STATE), _all(jobs, STATE)
    out = np.full(len(ones), "", dtype=object) if own is None else _each(own, _outcome)
    if of_job is not None:
        last = np.cumsum(sizes) - 1
        silent = np.array([own is None or own[row] is None for row in last.tolist()], dtype=np.bool_)
        out[last[silent]] = _each(of_job, _outcome)[silent]
    return out


def _outcome(state: Any) -> str:
    return outcome(state) if isinstance(state, str) else ""


def _held(jobs: list[Any], ones: list[Any], sizes: Any) -> tuple[Any, Any]:
    """How many of what each attempt held: as its hosts list them, else as its job says, else as it says itself."""
    of_job, own, details = _all(jobs, HELD) or [None] * len(jobs), _all(ones, HELD), _all(ones, ("detail",))
    if own is None and details is None:
        number, unit = _counts(of_job)
        return np.repeat(number, sizes), np.repeat(unit, sizes)
    held = list(chain.from_iterable(map(repeat, of_job, sizes.tolist())))
    if own is not None:
        held = [mine if job is None else job for mine, job in zip(own, held, strict=True)]
    for row, number in _details(details or ()):
        held[row] = number
    return _counts(held)


def _counts(held: list[Any]) -> tuple[Any, Any]:
    try:
        codes = Codes()
        of = codes.of(held)
    except TypeError:  # lists and objects
        codes = Codes()
        of = codes.of(value if isinstance(value, (int, float, str)) else NULL for value in held)
    found = [counted(_number(value)) for value in codes]
    number, unit = np.array([count for count, _ in found], dtype=np.int64), np.array([unit for _, unit in found], dtype=object)
    return number[of], unit[of]


def _number(value: Any) -> int:
    """A count, NULL if it is none; ``8.0`` is eight."""
    return int(value) if isinstance(value, float) and value.is_integer() and 0 <= value < 2**31 else whole(value)


class _Host(msgspec.Struct, gc=False):
    gpus: msgspec.Raw = _NOTHING


_HOSTS = msgspec.json.Decoder(list[list[_Host]])


def _details(details: Sequence[msgspec.Raw | None]) -> Iterator[tuple[int, int]]:
    """Attempts and how many accelerators their lists of hosts name, each host with its own; hosts name them much alike."""
    given = [(row, one) for row, one in enumerate(details) if one is not None and (len(one) != 4 or bytes(one) != b"null")]
    rows, lists = [row for row, _ in given], [one for _, one in given]
    try:
        hosts = _HOSTS.decode(b"[" + b",".join(map(bytes, lists)) + b"]")
    except msgspec.ValidationError:
        return zip(rows, (_detail(msgspec.json.decode(one)) for one in lists), strict=True)
    texts: Any = Codes()
    sizes = np.fromiter(map(len, hosts), dtype=np.int64, count=len(hosts))
    of = texts.of(bytes(host.gpus) for host in chain.from_iterable(hosts))
    number = np.array([_listed(msgspec.json.decode(text)) for text in texts], dtype=np.int64)[of]
    found = np.bincount(np.repeat(np.arange(len(hosts)), sizes), number, len(hosts)).astype(np.int64)
    return zip(rows, np.where(found > 0, found, NULL).tolist(), strict=True)


def _listed(gpus: Any) -> int:
    return len(gpus) if isinstance(gpus, list) else 0


def _detail(detail: Any) -> int:
    hosts = [host.get("gpus") for host in detail if isinstance(host, dict)] if isinstance(detail, list) else []
    return sum(map(_listed, hosts)) or NULL


def _from_csv(raw: bytes, label: str) -> tuple[dict[str, Any], bool]:
    reader = csv.reader(io.StringIO(raw.decode("utf-8", "replace"), newline=""))
    columns = blank(_KEYS)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        few_columns(len(header), label)
        keys = {
            "job": JOB, "submit": SUBMIT, "start": START, "end": END, "outcome": STATE, "held": HELD, "reason": REASON, **STEPS,
        }  # fmt: skip
        at = {key: header.index(_first(header, spelled)) for key, spelled in keys.items() if _first(header, spelled)}
        for row in reader:
            if row:
                _row(columns, {key: row[i].strip() if i < len(row) else "" for key, i in at.items()})
    except csv.Error as error:
        raise InputRefused(f"{label}:{reader.line_num}", f"not a readable CSV ({error})", "cut the file there") from None
    (start_ns, bare), (end_ns, _), (submit_ns, _) = (times(columns.pop(key)) for key in ("start", "end", "submit"))
    return {**columns, "start_ns": start_ns, "end_ns": end_ns, "submit_ns": submit_ns}, bare


def _row(columns: dict[str, list[Any]], row: dict[str, str]) -> None:
    if not row.get("job"):
        return
    count, unit = counted(row.get("held", ""))
    texts = {key: row.get(key, "") for key in ("submit", "start", "end")}
    steps = {key: whole(row.get(key, ""), MOST_STEPS) for key in STEPS}
    known = {"job": cut(row["job"]), "outcome": outcome(row.get("outcome", "")), "reason": cut(row.get("reason", ""))}
    for key, value in {**texts, **steps, **known, "accelerators": count, "unit": unit}.items():
        columns[key].append(value)
