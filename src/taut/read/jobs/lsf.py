"""Accounting of LSF, ``lsb.acct``: one record a line, ``"JOB_FINISH" "10.1" 1767229200 407 …``, each an attempt."""

from __future__ import annotations

import re

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.contents import JobLog
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import check_attempts, count_or_null, cut, held, table_of

LSF = "mbatchd"
_FIELD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
FINISHED, FAILED = 64, 32
"""Status of a job that is done, and of one that is not."""
ASKED = 22
"""Place of the number of hosts that were asked for; the first list begins behind it."""
USAGE = 19
"""Fields of resource usage."""
WHY = {
    1: words.PREEMPTED, 5: words.TIMED_OUT, 6: words.TIMED_OUT, 8: words.CANCELLED, 9: words.CANCELLED, 10: words.CANCELLED,
    11: words.CANCELLED, 12: words.TIMED_OUT, 14: words.CANCELLED, 15: words.CANCELLED, 16: words.OUT_OF_MEMORY,
    19: words.NODE_FAILED, 20: words.OUT_OF_MEMORY,
}  # fmt: skip
"""Why LSF ended a job (TERM_PREEMPT, TERM_RUNLIMIT, TERM_MEMLIMIT, …)."""
MOST_HOSTS = 1_000_000


def sniff(head: bytes) -> bool:
    """A record of a finished job."""
    return re.match(rb'\s*"(?:JOB_FINISH|EVENT_ADRSV_FINISH|JOB_RESIZE)" "\d', head) is not None


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs."""
    rows = []
    for line in bytes(data).decode("utf-8", "replace").splitlines():
        if not line.startswith('"JOB_FINISH"'):
            continue
        fields = [quoted.replace('""', '"') if quoted or not bare else bare for quoted, bare in _FIELD.findall(line)]
        row = _row(fields)
        if row is not None:
            rows.append(row)
            check_attempts(len(rows), label)
    if not rows:
        raise InputRefused(label, "an accounting file of LSF without a finished job", "give a longer lsb.acct")
    return JobLog(label, table_of(rows, label)[0], controller=LSF)


def _row(fields: list[str]) -> dict[str, Json] | None:
    """One attempt; None where the record breaks off."""
    if len(fields) <= ASKED or count_or_null(fields[3], 2**40) <= 0:
        return None
    began = ASKED + 1 + max(count_or_null(fields[ASKED], MOST_HOSTS), 0)
    hosts = max(count_or_null(fields[began] if began < len(fields) else "", MOST_HOSTS), 0)
    rest = fields[began + 1 + hosts :]  # status, factor, name, command, usage, and more
    if len(rest) < 4:
        return None
    more = rest[4 + USAGE :]
    status, code = count_or_null(rest[0]), count_or_null(more[2]) if len(more) > 2 else NULL
    why, index = (count_or_null(more[k]) if len(more) > k else NULL for k in (15, 6))
    count, unit = held(None, fields[6])
    return {
        "job": f"{fields[3]}_{index}" if index > 0 else fields[3],
        "name": cut(rest[2]),
        "submit_ns": fields[7],
        "start_ns": "" if fields[10] == "0" else fields[10],
        "end_ns": fields[2],
        "outcome": words.COMPLETED if status == FINISHED else WHY.get(why, words.FAILED) if status == FAILED else "",
        "accelerators": count,
        "unit": unit,
        "nodes": cut(",".join(fields[began + 1 : began + 1 + hosts]), words.LIST),
        "reason": f"exit code {code >> 8 or code}" if code > 0 else "",
        "held": 0,
    }
