"""Accounting logs of PBS, OpenPBS and TORQUE: ``06/06/2026 14:07:17;E;407.head;user=a jobname=b start=… end=… Exit_status=0``.

Times inside a record are seconds since 1970; only where a record has none, its own date counts, which names no zone.
"""

from __future__ import annotations

import re

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.contents import JobLog
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import check_attempts, count_or_null, cut, elapsed_ns, held, table_of, without_accelerators

PBS = "pbs_server"
_RECORD = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]);([^;]{1,200});(.*)")
_HEAD = re.compile(rb"\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];[^;\n]{1,200};")
_PAIR = re.compile(r"(?:^|\s)([A-Za-z_.]{1,80})=(\"[^\"]*\"|\S*)")
_JOB = re.compile(r"(\d{1,12})(?:\[(\d{1,9})\])?")
STATES = {-29: words.TIMED_OUT, -28: words.TIMED_OUT, -27: words.OUT_OF_MEMORY, -26: words.OUT_OF_MEMORY}
"""Exit status of a job that PBS ended because time or memory ran out; TORQUE ends it by a signal."""
SIGNALS = (137, 143, 265, 271)
"""Exit status of what was killed or told to end: 128 or 256 and the signal."""
LONGEST = 20_000


def sniff(head: bytes) -> bool:
    """A date as Americans write it, the letter of a record and a job, with semicolons between."""
    return _HEAD.match(head) is not None


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs; one that is not over is followed to the log's end."""
    rows: list[dict[str, Json]] = []
    none: list[bool] = []
    open_rows: dict[str, dict[str, Json]] = {}
    deleted: set[str] = set()
    queued: dict[str, Json] = {}
    last: str = ""
    for line in bytes(data).decode("utf-8", "replace").splitlines():
        found = _RECORD.match(line[:LONGEST])
        if not found:
            continue
        month, day, year, clock, kind, name, rest = found.groups()
        last, number = f"{year}-{month}-{day}T{clock}", _JOB.match(name)
        if number is None or kind in "LBUYKk":  # licences and reservations
            continue
        job = f"{number[1]}_{number[2]}" if number[2] else number[1]
        pairs = {key: value.strip('"') for key, value in _PAIR.findall(rest)}
        if kind == "Q":
            queued.setdefault(job, last)
        elif kind == "D":
            deleted.add(job)
        elif kind in "STERA":
            row = open_rows.pop(job, None)
            if kind in "ST" or row is None:
                start = pairs.get("start") or (last if kind in "ST" else "")
                row = _row(job, pairs, start, pairs.get("qtime") or queued.get(job, ""))
                rows.append(row)
                none.append(_gpus(pairs) == 0)
                check_attempts(len(rows), label)
            queued.pop(job, None)
            if kind in "ST":
                open_rows[job] = row
            else:
                row["end_ns"] = pairs.get("end") or last
                row["outcome"], row["reason"] = _ended(kind, pairs, job in deleted)
    for row in open_rows.values():
        row["end_ns"] = last
    rows += [{**_row(job, {}, "", at), "outcome": words.PENDING} for job, at in queued.items() if job not in deleted]
    if not rows:
        raise InputRefused(label, "an accounting log of PBS without a job", "give the logs of the days on which jobs ran")
    without_accelerators(rows, none + [False] * (len(rows) - len(none)))
    attempts, bare = table_of(rows, label)
    return JobLog(label, attempts, zoneless=bare, controller=PBS)


def _row(job: str, pairs: dict[str, str], start: Json, submit: Json) -> dict[str, Json]:
    gpus = _gpus(pairs)
    cpus = pairs.get("Resource_List.ncpus") or str(pairs.get("exec_host", "").count("+") + 1 if "exec_host" in pairs else "")
    count, unit = held(gpus, cpus, pairs.get("Resource_List.nodect"))
    return {
        "job": job,
        "name": cut(pairs.get("jobname", "")),
        "submit_ns": submit,
        "start_ns": start,
        "end_ns": "",
        "outcome": words.RUNNING,
        "accelerators": count,
        "unit": unit,
        "nodes": cut(pairs.get("exec_host", ""), words.LIST),
        "team": cut(pairs.get("account") or pairs.get("project", "").removeprefix("_pbs_project_default")),
        "limit_ns": elapsed_ns(pairs.get("Resource_List.walltime", "")),
        "reason": "",
        "held": 0,
    }


def _gpus(pairs: dict[str, str]) -> int:
    """Accelerators that were asked for: 0 where resources are listed without any, NULL where none are listed."""
    if "Resource_List.ngpus" in pairs:
        return count_or_null(pairs["Resource_List.ngpus"])
    asked = pairs.get("Resource_List.select") or pairs.get("Resource_List.nodes") or pairs.get("Resource_List.neednodes", "")
    total = 0
    for chunk in asked.split("+"):
        times = re.match(r"(\d{1,6})(?::|$)", chunk)
        found = re.search(r":n?gpus=(\d{1,6})", chunk)
        total += int(times[1] if times else 1) * int(found[1]) if found else 0
    return total if total or any(key.startswith("Resource_List.") for key in pairs) else NULL


def _ended(kind: str, pairs: dict[str, str], deleted: bool) -> tuple[str, str]:
    """How an attempt ended, and why."""
    text = pairs.get("Exit_status", "")
    code = int(text) if re.fullmatch(r"-?\d{1,6}", text) else 0
    why = f"exit code {code}" if code else ""
    if kind == "R":
        return words.CANCELLED, "requeued"
    if kind == "A":
        return words.FAILED, "aborted by the server"
    if code in STATES:
        return STATES[code], why
    limit, used = elapsed_ns(pairs.get("Resource_List.walltime", "")), elapsed_ns(pairs.get("resources_used.walltime", ""))
    if code in SIGNALS and 0 < limit <= used:
        return words.TIMED_OUT, why
    if deleted and code:
        return words.CANCELLED, why
    return (words.FAILED if code else words.COMPLETED if text else ""), why
