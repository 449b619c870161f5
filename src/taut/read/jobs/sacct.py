"""Slurm's accounting as text: ``sacct`` (``-P``, ``-p`` or its plain columns) with a header and any choice of columns.

Also what ``jobcomp/filetxt`` and ``scontrol show job`` write: ``JobId=3 JobState=PREEMPTED StartTime=…``. One row is one
attempt: with ``sacct --duplicates`` a job that was requeued has several. Rows of job steps are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.jobs.job_words import (
    PENDING,
    RUNNING,
    SLURM,
    JobLog,
    Row,
    count_or_null,
    cut,
    elapsed_ns,
    gpus_in,
    held,
    outcome,
    table,
    times,
)

DELIMITERS = ("|", "\t", ";", ",")
TELLING = ("state", "start", "end", "elapsed", "submit", "elapsedraw")
"""A header names a job and at least two of these."""
# Of plain columns: sacct knows about a hundred.
MOST_COLUMNS = 1000
_DASHES = re.compile(r"-+")
_SHOWN = re.compile(r"^[^\S\n]*+JobId=\d", re.MULTILINE)
_PAIR = re.compile(r"(?:^|\s)([A-Za-z:/_]+)=(\S*)")


def sniff(head: bytes) -> bool:
    """A header with a job id and times or states, or records that begin with ``JobId=`` and have a state."""
    text = head.lstrip()
    if text[:6] == b"JobId=":
        return b"JobState=" in text and b"StartTime=" in text
    line, _, rest = text.partition(b"\n")
    names = _header(line.decode("utf-8", "replace"), rest[:4096].decode("utf-8", "replace"))
    return bool({"jobid", "jobidraw"} & set(names)) and sum(name in names for name in TELLING) >= 2


def load(data: bytes, label: str) -> JobLog:
    """The attempts of one file."""
    text = bytes(data).decode("utf-8", "replace").lstrip("\ufeff").lstrip()
    rows = _records(text) if text.startswith("JobId=") else _rows(text, label)
    jobs = [{key: text.strip() for key, text in row.items()} for row in rows if row["job"].strip() and "." not in row["job"]]
    if not jobs:
        raise InputRefused(label, "a job list of Slurm without a job", "name more jobs or a longer time to sacct (-j, -S)")
    submit, (start, bare), end = (times([row[key] for row in jobs]) for key in ("submit", "start", "end"))
    spans = zip(jobs, submit[0].tolist(), start.tolist(), end[0].tolist(), strict=True)
    found = [_attempt(row, *span) for row, *span in spans]
    columns = {key: [attempt[key] for attempt in found] for key in found[0]}
    return JobLog(label, table(columns, label), zoneless=bare, partial=_unlisted(jobs, label), controller=SLURM)


def _header(line: str, rest: str) -> list[str]:
    mark = next((d for d in DELIMITERS if d in line), None)
    columns = line.split() if re.match(r"[-\s]+\n", rest) else []
    names = columns if mark is None else line.strip().split(mark)
    return [name.strip().strip('"').lower() for name in names]


def _rows(text: str, label: str) -> Iterator[dict[str, str]]:
    """Rows of ``sacct``, by the lower-case names of their columns."""
    lines = text.splitlines() or [""]
    mark = next((d for d in DELIMITERS if d in lines[0]), None)
    names = _header(lines[0], lines[1] + "\n" if len(lines) > 1 else "")
    spans = [found.span() for found in _DASHES.finditer(lines[1])] if mark is None and len(lines) > 1 else []
    if len(spans) > MOST_COLUMNS:
        raise TooLarge(label, f"{len(spans):,} columns", f"ask sacct for fewer than {MOST_COLUMNS:,} fields")
    for number, line in enumerate(lines[1:], 2):
        if not line.strip() or (mark is None and number == 2):
            continue
        cells = line.split(mark) if mark else [line[a:b].strip().removesuffix("+") for a, b in spans]
        if [cell.strip().lower() for cell in cells[: len(names)]] == names:
            continue  # files joined together repeat their header
        if len(cells) < len(names) and mark:
            if number == len(lines):
                return  # torn while it was written
            raise InputRefused(
                f"{label}:{number}", f"{len(cells)} fields instead of {len(names)}", "cut the file before this line"
            )
        yield _named(dict(zip(names, cells, strict=False)))


def _named(row: dict[str, str]) -> dict[str, str]:
    """A row of sacct in the words of jobcomp."""
    tres = row.get("alloctres") or row.get("reqtres", "")
    gpus = gpus_in(tres)
    return {
        "job": row.get("jobid") or row.get("jobidraw", ""),
        "name": row.get("jobname", ""),
        "submit": row.get("submit", ""),
        "start": row.get("start", ""),
        "end": row.get("end", ""),
        "state": row.get("state", ""),
        "elapsed": row.get("elapsedraw") or row.get("elapsed", ""),
        "reason": row.get("reason", ""),
        "exit": row.get("exitcode", ""),
        "gpus": str(gpus) if gpus > 0 else _gres(row),
        "cpus": row.get("alloccpus") or row.get("ncpus", ""),
        "nodecount": row.get("nnodes") or row.get("allocnodes", ""),
        "nodes": row.get("nodelist", ""),
        "restarts": row.get("restarts", ""),
        "limit": row.get("timelimit") or _minutes(row.get("timelimitraw", "")),
    }


def _gres(row: dict[str, str]) -> str:
    """Accelerators as older versions write them: so many a node."""
    found = re.search(r"gpu(?::[^:,()]+)?:(\d{1,6})", row.get("allocgres") or row.get("reqgres", ""))
    return str(int(found[1]) * max(count_or_null(row.get("nnodes") or row.get("allocnodes") or ""), 1)) if found else ""


def _minutes(text: str) -> str:
    """A limit as jobcomp writes it, in minutes, as it is written elsewhere."""
    return f"{int(text)}:00" if text.isdecimal() and len(text) < 6 else text


def _records(text: str) -> Iterator[dict[str, str]]:
    """Records of jobcomp (one a line) or of scontrol (over several lines)."""
    begins = [found.start() for found in _SHOWN.finditer(text)]
    for a, b in pairwise([*begins, len(text)]):
        pairs = dict(_PAIR.findall(text[a:b]))
        # While a job runs, EndTime is its time limit.
        ended = pairs.get("EndTime", "") if outcome(pairs.get("JobState", "")) not in (RUNNING, PENDING) else ""
        gpus = gpus_in(pairs.get("Tres") or pairs.get("TRES") or pairs.get("AllocTRES", ""))
        yield {
            "job": _array(pairs),
            "name": pairs.get("Name") or pairs.get("JobName", ""),
            "submit": pairs.get("SubmitTime", ""),
            "end": ended,
            "start": pairs.get("StartTime", "") if pairs.get("NodeList") != "(null)" else "",
            "state": pairs.get("JobState", ""),
            "elapsed": pairs.get("RunTime", ""),
            "reason": pairs.get("Reason", ""),
            "exit": pairs.get("ExitCode", ""),
            "gpus": str(gpus) if gpus > 0 else "",
            "cpus": pairs.get("ProcCnt") or pairs.get("NumCPUs", ""),
            "nodecount": pairs.get("NodeCnt") or pairs.get("NumNodes", ""),
            "nodes": pairs.get("NodeList", ""),
            "restarts": pairs.get("Restarts", ""),
            "limit": _minutes(pairs.get("TimeLimit", "")),
        }


def _array(pairs: dict[str, str]) -> str:
    task = pairs.get("ArrayTaskId", "")
    return f"{pairs.get('ArrayJobId', '')}_{task}" if task.isdecimal() and "ArrayJobId" in pairs else pairs.get("JobId", "")


def _attempt(row: dict[str, str], submit_ns: int, start_ns: int, end_ns: int) -> Row:
    """The columns of one attempt."""
    word = outcome(row["state"])
    start_ns, end_ns = _span(start_ns, end_ns, elapsed_ns(row["elapsed"]), word)
    count, unit = held(row["gpus"], row["cpus"], row["nodecount"])
    return {
        "job": row["job"][:64],
        "name": cut(row["name"]),
        "submit_ns": submit_ns,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "outcome": word,
        "accelerators": count,
        "unit": unit,
        "nodes": cut(placed_nodes(row["nodes"])),
        "limit_ns": elapsed_ns(row["limit"]),
        "reason": _reason(row["state"], row["reason"], row["exit"]),
        "held": 0,
    }


def placed_nodes(text: str) -> str:
    """The hosts of a job; none where Slurm has words for none."""
    return "" if text in ("None assigned", "(null)") else text


def _span(start: int, end: int, took: int, word: str) -> tuple[int, int]:
    """When it ran, from what is there; one that runs is followed for as long as it took so far."""
    if word == PENDING:
        return NULL, NULL
    if start < 0 and end >= 0 and took > 0:
        start = end - took
    if start >= 0 and end < start:
        end = start + took if took >= 0 else NULL
    return start, end


def _reason(state: str, reason: str, code: str) -> str:
    words = [state.lower()] if " by " in state else []
    words += [f"exit code {code}"] if code and code not in ("0:0", "0") else []
    return cut(", ".join(words + telling_reason(reason)))


def telling_reason(reason: str) -> list[str]:
    """The reason that Slurm gives, if it says more than that a job waits."""
    return [reason] if reason and reason.lower() not in ("none", "begintime", "priority", "resources") else []


def _unlisted(jobs: Sequence[dict[str, str]], label: str) -> list[str]:
    """A note on jobs that were restarted more often than they have rows."""
    rows = Counter(row["job"] for row in jobs)
    restarts = {row["job"]: count_or_null(row["restarts"]) for row in jobs}
    fewer = [job for job, n in restarts.items() if n >= rows[job]]
    if not fewer:
        return []
    some = f"job {fewer[0]}" + (f" and {len(fewer) - 1} more" if len(fewer) > 1 else "")
    return [f"{label}: {some} had more attempts than are listed: sacct --duplicates lists all"]
