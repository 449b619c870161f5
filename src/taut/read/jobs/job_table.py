"""Tables of jobs and their attempts: JSON (a list of jobs, ``{"jobs": […]}`` or one job a line) and CSV (one attempt a row).

A job names itself, its accelerators and its attempts, an attempt its start and end. Spellings are listed below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from taut.core.array_types import Ints, Json, Texts
from taut.core.errors import InputRefused
from taut.core.tables import NULL, Attempt, Table, fields_of
from taut.read.columns import Codes
from taut.read.contents import JobLog
from taut.read.jobs.job_words import (
    LIST,
    TEXT,
    check_attempts,
    count_or_null,
    cut,
    held_of_table,
    outcome,
    table,
    table_of,
    times,
)
from taut.read.json_fields import Keys, decoded, list_slabs
from taut.read.table_file import csv_rows

if TYPE_CHECKING:
    Columns = dict[str, Ints | Texts]

JOB = ("job", "job_id", "jobid", "id", "job_name", "name")
START = ("start", "start_time", "started", "start_s", "start_ns", "started_at", "begin")
END = ("end", "end_time", "ended", "end_s", "end_ns", "ended_at", "finished_at", "finish_time")
SUBMIT = ("submit", "submit_time", "submitted_time", "submitted", "submitted_at", "queued_at")
HELD = ("accelerators", "gpus", "num_gpus", "gpu_num", "n_gpus", "gpu_count", "plan_gpu")
STATE = ("outcome", "status", "state")
REASON = ("reason", "error", "message")
NODES = ("nodes", "nodelist", "node_list", "hosts", "hostnames", "host", "node")
TEAM = ("team", "account", "project", "group", "vc")
STEPS = {
    "first_step": ("first_step",), "last_step": ("last_step",), "resumed_step": ("resumed_step", "resume_step"),
    "saved_step": ("saved_step", "checkpoint_step", "last_checkpoint"),
}  # fmt: skip
CSV = {
    "job": JOB, "submit": SUBMIT, "start": START, "end": END, "outcome": STATE, "held": HELD, "reason": REASON,
    "nodes": NODES, "team": TEAM, **STEPS,
}  # fmt: skip
"""Columns of a CSV, and how they may be spelled; the first that is there counts."""
_NOTHING = msgspec.Raw(b"null")
MOST_STEPS = 2**53
_ATTEMPTS = re.compile(rb'"attempts"\s*:\s*\[')


def sniff(head: bytes) -> bool:
    """Whether this is JSON whose jobs have attempts with a start, or a CSV header with job, start, end, and attempt or gpus."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        return _ATTEMPTS.search(text) is not None and any(f'"{key}"'.encode() in text for key in START)
    line = text.split(b"\n", 1)[0]
    if b"\x00" in line:
        return False
    names = [name.strip().strip('"').lower() for name in line.decode("utf-8", "replace").split(",")]
    of_jobs = "attempt" in names or _first(names, HELD) != ""
    return of_jobs and all(_first(names, spelled) != "" for spelled in (JOB, START, END))


def _first(names: Collection[str], spellings: tuple[str, ...]) -> str:
    return next((name for name in spellings if name in names), "")


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs of one file."""
    raw = bytes(data).removeprefix(b"\xef\xbb\xbf").lstrip()
    if raw[:1] in (b"{", b"["):
        columns, bare = _from_json(raw, label)
        attempts = table(columns, label)
    else:
        rows = list(_csv_rows(raw, label))
        attempts, bare = table_of(rows, label) if rows else (Table(Attempt, {}, 0), False)
    if not len(attempts):
        raise InputRefused(label, "a table of jobs without an attempt", "leave the file out")
    return JobLog(label, attempts, zoneless=bare, controller="scheduler")


OF_ATTEMPT = {
    **dict.fromkeys((*STATE, *REASON, *HELD, *START, *END, *NODES, *chain.from_iterable(STEPS.values())), (Any, None)),
    "detail": (msgspec.Raw, None),
}
OF_JOB = dict.fromkeys((*JOB, *SUBMIT, *HELD, *STATE, *NODES, *TEAM), (Any, None))


def _job_type(keys: Keys) -> type[msgspec.Struct]:
    attempt: Any = keys.struct("Attempt", OF_ATTEMPT, gc=False)
    return keys.struct("Job", OF_JOB, ("attempts", list[attempt], msgspec.field(default_factory=list)))


def _slabs(raw: bytes, keys: Keys) -> Iterator[list[msgspec.Struct]]:
    """The jobs of a list, some at a time; of an object, or of lines, all at once."""
    job: Any = _job_type(keys)
    return list_slabs(raw, msgspec.json.Decoder(list[job])) if raw[:1] == b"[" else iter([_all_jobs(raw, keys)])


def _all_jobs(raw: bytes, keys: Keys) -> list[msgspec.Struct]:
    """A list of jobs, an object with one, or one job a line."""
    job: Any = _job_type(keys)
    whole: Any = msgspec.defstruct("Jobs", [("jobs", list[job])])
    if raw[:1] == b"[":
        return list(msgspec.json.decode(raw, type=list[job]))
    try:
        return list(msgspec.json.decode(raw, type=whole).jobs)
    except msgspec.DecodeError:
        return list(msgspec.json.Decoder(job).decode_lines(raw))


def _values(things: Sequence[msgspec.Struct], spellings: tuple[str, ...]) -> list[Json] | None:
    """What each thing holds under the first of the spellings that it uses; None if none uses any."""
    columns: list[list[Json]]
    columns = [list(map(attrgetter(name), things)) for name in spellings if things and hasattr(things[0], name)]
    columns = [column for column in columns if any(column) or column.count(None) < len(column)]
    if len(columns) < 2:
        return columns[0] if columns else None
    return [next((value for value in row if value is not None), None) for row in zip(*columns, strict=True)]


def _from_json(raw: bytes, label: str) -> tuple[Columns, bool]:
    try:
        try:
            return decoded(raw, lambda keys: _together(_slabs(raw, keys), label))
        except msgspec.DecodeError:  # of a slab: the message should be about the whole
            return decoded(raw, lambda keys: _together([_all_jobs(raw, keys)], label))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not a readable table of jobs ({str(error)[:120]})", "write it again") from None


def _together(slabs: Iterable[list[Any]], label: str) -> tuple[Columns, bool]:
    """The columns of all jobs, and if a time named no zone."""
    parts: list[Columns] = []
    bare, places, rows = False, 0, 0
    for slab in slabs:
        jobs = [job for job in slab if job.attempts]
        columns, zoneless = _columns(jobs, places)
        parts.append(columns)
        bare, places, rows = bare or zoneless, places + len(jobs), rows + len(columns["job"])
        check_attempts(rows, label)
    if len(parts) == 1:
        return parts[0], bare
    unknown = {name: fields_of(Attempt)[name] for name in chain.from_iterable(parts)}
    return {
        name: np.concatenate([part[name] if name in part else [column.default] * len(part["job"]) for part in parts])
        for name, column in unknown.items()
    }, bare


def _columns(jobs: list[Any], before: int) -> tuple[Columns, bool]:
    """The columns of some jobs, behind so many others, and if a time named no zone."""
    lists = [job.attempts for job in jobs]
    attempts, sizes = list(chain.from_iterable(lists)), np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    columns: Columns = {"job": np.repeat(np.array(_names(jobs, before), dtype=object), sizes)}
    columns["accelerators"], columns["unit"] = _held(jobs, attempts, sizes)
    bare = False
    if (start := _values(attempts, START)) is not None:
        columns["start_ns"], bare = times(start)
    if (end := _values(attempts, END)) is not None:
        columns["end_ns"] = times(end)[0]
    if (submit := _values(jobs, SUBMIT)) is not None:
        columns["submit_ns"] = np.full(len(attempts), NULL, dtype=np.int64)
        columns["submit_ns"][np.cumsum(sizes) - sizes] = times(submit)[0]
    columns["outcome"] = _outcomes(jobs, attempts, sizes)
    if (reason := _values(attempts, REASON)) is not None:
        columns["reason"] = _map_distinct(cut, reason)
    if (team := _values(jobs, TEAM)) is not None:
        columns["team"] = np.repeat(_map_distinct(cut, team), sizes)
    if (nodes := _nodes(jobs, attempts, sizes)) is not None:
        columns["nodes"] = nodes
    for key, spelled in STEPS.items():
        if (steps := _values(attempts, spelled)) is not None:
            columns[key] = _steps(steps)
    return columns, bare


def _nodes(jobs: list[msgspec.Struct], attempts: list[msgspec.Struct], sizes: Ints) -> Texts | None:
    """The hosts of each attempt, as it lists them itself, else its job; None where nobody does."""
    own, of_job = _values(attempts, NODES), _values(jobs, NODES)
    if own is None:
        return None if of_job is None else np.repeat(np.array([_listed_hosts(one) for one in of_job], dtype=object), sizes)
    return np.array([_listed_hosts(one) for one in own], dtype=object)


def _listed_hosts(value: Json) -> str:
    """Hosts as one text: a list of them, or what Slurm writes; a number is how many, not which."""
    if isinstance(value, list):
        return cut(",".join(one for one in value if isinstance(one, str)), LIST)
    return cut(value, LIST) if isinstance(value, str) and not value.strip().isdecimal() else ""


def _names(jobs: list[msgspec.Struct], before: int) -> list[str]:
    """What jobs are called; one without a name by its place."""
    names = _values(jobs, JOB) or [None] * len(jobs)
    texts = [name.strip()[:TEXT] if type(name) is str else cut(name) if isinstance(name, int) else "" for name in names]
    return texts if all(texts) else [text or f"job {place}" for place, text in enumerate(texts, before + 1)]


def _steps(values: list[Json]) -> Ints:
    """Numbers of steps, NULL for what is none."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            number = np.array(values, dtype=np.int64)
            return np.where((number >= 0) & (number <= MOST_STEPS), number, NULL)
    return np.array([count_or_null(value, MOST_STEPS) for value in values], dtype=np.int64)


def _map_distinct(function: Callable[[Json], str], values: list[Json]) -> Texts:
    """What a function makes of each value, called once for each distinct one."""
    try:
        codes = Codes()
        of = codes.of(values)
        return np.array([function(value) for value in codes], dtype=np.object_)[of]
    except TypeError:  # lists and objects
        return np.array([function(value) for value in values], dtype=np.object_)


def _outcomes(jobs: list[msgspec.Struct], attempts: list[msgspec.Struct], sizes: Ints) -> Texts:
    """How each attempt ended; the state of a job is that of its last attempt."""
    own, of_job = _values(attempts, STATE), _values(jobs, STATE)
    out = np.full(len(attempts), "", dtype=object) if own is None else _map_distinct(_outcome, own)
    if of_job is not None:
        last = np.cumsum(sizes) - 1
        unknown = np.array([own is None or own[row] is None for row in last.tolist()], dtype=np.bool_)
        out[last[unknown]] = _map_distinct(_outcome, of_job)[unknown]
    return out


def _outcome(state: Json) -> str:
    return outcome(state) if isinstance(state, str) else ""


def _held(jobs: list[msgspec.Struct], attempts: list[msgspec.Struct], sizes: Ints) -> tuple[Ints, Texts]:
    """How many of what each attempt held: as its hosts list them, else as its job says, else as it says itself."""
    of_job, own, details = _values(jobs, HELD) or [None] * len(jobs), _values(attempts, HELD), _values(attempts, ("detail",))
    if own is None and details is None:
        number, unit = _counts(of_job)
        return np.repeat(number, sizes), np.repeat(unit, sizes)
    counts = list(chain.from_iterable(map(repeat, of_job, sizes.tolist())))
    if own is not None:
        counts = [mine if job is None else job for mine, job in zip(own, counts, strict=True)]
    for row, count in _details(details or ()):
        counts[row] = count
    return _counts(counts)


def _counts(values: list[Json]) -> tuple[Ints, Texts]:
    """Numbers and units; a float such as ``8.0`` is a number, too."""
    codes = Codes()
    try:
        of = codes.of(values)
    except TypeError:  # lists and objects
        codes = Codes()
        of = codes.of(value if isinstance(value, (int, float, str)) else NULL for value in values)
    found = [held_of_table(int(value) if isinstance(value, float) and value.is_integer() else value) for value in codes]
    number, unit = np.array([count for count, _ in found], dtype=np.int64), np.array([unit for _, unit in found], dtype=object)
    return number[of], unit[of]


class _Host(msgspec.Struct, gc=False):
    gpus: msgspec.Raw = _NOTHING


_HOSTS = msgspec.json.Decoder(list[list[_Host]])


def _details(details: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Rows and how many accelerators their lists of hosts name; the lists of most hosts are alike, and counted once."""
    named = [(row, one) for row, one in enumerate(details) if one is not None and (len(one) != 4 or bytes(one) != b"null")]
    rows, lists = [row for row, _ in named], [one for _, one in named]
    try:
        hosts = _HOSTS.decode(b"[" + b",".join(map(bytes, lists)) + b"]")
    except msgspec.ValidationError:
        return zip(rows, (_detail(msgspec.json.decode(one)) for one in lists), strict=True)
    texts: Codes = Codes()
    sizes = np.fromiter(map(len, hosts), dtype=np.int64, count=len(hosts))
    of = texts.of(bytes(host.gpus) for host in chain.from_iterable(hosts))
    number = np.array([_listed(msgspec.json.decode(text)) for text in texts], dtype=np.int64)[of]
    found = np.bincount(np.repeat(np.arange(len(hosts)), sizes), number, len(hosts)).astype(np.int64)
    return zip(rows, np.where(found > 0, found, NULL).tolist(), strict=True)


def _listed(gpus: Json) -> int:
    return len(gpus) if isinstance(gpus, list) else 0


def _detail(detail: Json) -> int:
    hosts = [host.get("gpus") for host in detail if isinstance(host, dict)] if isinstance(detail, list) else []
    return sum(map(_listed, hosts)) or NULL


def _csv_rows(raw: bytes, label: str) -> Iterator[dict[str, Json]]:
    """The columns of every attempt, times as they are written."""
    for _, cells in csv_rows(raw.decode("utf-8", "replace"), label):
        row = {key: cells.get(_first(cells, spelled), "").strip() for key, spelled in CSV.items()}
        if row["job"]:
            count, unit = held_of_table(row["held"])
            yield {
                "job": cut(row["job"]),
                "submit_ns": row["submit"],
                "start_ns": row["start"],
                "end_ns": row["end"],
                "outcome": outcome(row["outcome"]),
                "reason": cut(row["reason"]),
                "accelerators": count,
                "unit": unit,
                "nodes": _listed_hosts(row["nodes"]),
                "team": cut(row["team"]),
                **{key: count_or_null(row[key], MOST_STEPS) for key in STEPS},
            }
