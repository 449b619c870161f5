"""Slurm's accounting as text: ``sacct`` (``-P``, ``-p`` or its plain columns) with any choice of columns.

The header may be missing (``-n``): columns are guessed where their values leave no doubt, else ``--columns`` gives them.

Also what ``jobcomp/filetxt`` and ``scontrol show job`` write: ``JobId=3 JobState=PREEMPTED StartTime=…``. One row is one
attempt: with ``sacct --duplicates`` a job that was requeued has several. Rows of job steps are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from taut.core.array_types import Ints
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.contents import JobLog
from taut.read.jobs.job_words import (
    LIST,
    PENDING,
    RUNNING,
    SLURM,
    count_or_null,
    cut,
    elapsed_ns,
    gpus_in,
    held,
    outcome,
    table,
    times,
    without_accelerators,
)
from taut.read.jobs.sacct_columns import NEVER, STATE, guess_columns

DELIMITERS = ("|", "\t", ";", ",")
TELLING = ("state", "start", "end", "elapsed", "submit", "elapsedraw")
"""A header names a job and at least one of these."""
IDS = {"jobid", "jobidraw"}
ASK = "--duplicates -P -o JobID,JobName,State,Submit,Start,End,ExitCode,AllocTRES,NodeList"
"""What to ask sacct for."""
SAMPLE = 2000
"""Rows that are looked at to guess what columns hold."""
_ID = re.compile(r"\d{1,12}(?:_\d{1,9}|_\[[\d,%-]{1,200}\]|\+\d{1,6})?(?:\.\w{1,30})?")
# Of plain columns: sacct knows about a hundred.
MOST_COLUMNS = 1000
_DASHES = re.compile(r"-+")
_SHOWN = re.compile(r"^[^\S\n]*+JobId=\d", re.MULTILINE)
_PAIR = re.compile(r"(?:^|\s)([A-Za-z:/_]+)=(\S*)")


def sniff(head: bytes) -> bool:
    """A header with a job id and a time or a state, rows of both without one, or records that begin with ``JobId=``."""
    text = head.lstrip()
    if text[:6] == b"JobId=":
        return b"JobState=" in text and b"StartTime=" in text
    line, _, rest = text.partition(b"\n")
    first = line.decode("utf-8", "replace")
    names = _header(first, rest[:4096].decode("utf-8", "replace"))
    known = bool(IDS & set(names)) and any(name in names for name in TELLING) and not {"attempt", "attempts"} & set(names)
    return known or is_row(first) or _is_queue(first)


def is_row(line: str) -> bool:
    """A row without a header: a job's id first, and a state in capitals."""
    cells = [cell.strip() for cell in _cells(line)]
    return len(cells) > 2 and _ID.fullmatch(cells[0]) is not None and any(STATE.fullmatch(cell) for cell in cells[1:])


def _is_queue(line: str) -> bool:
    words = line.split()
    return words[:1] == ["JOBID"] and "NODELIST(REASON)" in words


def _cells(line: str) -> list[str]:
    mark = next((d for d in DELIMITERS if d in line), None)
    return line.split(mark) if mark else line.split()


def load(data: bytes, label: str) -> JobLog:
    """The attempts of one file."""
    text = bytes(data).decode("utf-8", "replace").lstrip("\ufeff").lstrip()
    rows = _records(text) if text.startswith("JobId=") else _rows(_with_header(text, label), label)
    jobs = [{key: text.strip() for key, text in row.items()} for row in rows if row["job"].strip() and "." not in row["job"]]
    if not jobs:
        raise InputRefused(label, "a job list of Slurm without a job", "name more jobs or a longer time to sacct (-j, -S)")
    submit, (start, bare), end = (times([row[key] for row in jobs]) for key in ("submit", "start", "end"))
    spans = zip(jobs, submit[0].tolist(), start.tolist(), end[0].tolist(), strict=True)
    found = [_attempt(row, *span) for row, *span in spans]
    lost = _undated(jobs, (start, end[0]), label)
    without_accelerators(found, [row["gpus"] == "0" for row in jobs])
    columns = {key: [attempt[key] for attempt in found] for key in found[0]}
    return JobLog(label, table(columns, label), zoneless=bare, partial=[*lost, *_unlisted(jobs, label)], controller=SLURM)


def _with_header(text: str, label: str) -> str:
    """The text with a header: its own, or the one that its columns have without a doubt."""
    line, _, rest = text.partition("\n")
    names = _header(line, rest[:4096])
    if _is_queue(line):
        raise InputRefused(label, "what squeue prints: jobs that wait or run now", f"ask for what they did: sacct {ASK}")
    if IDS & set(names):
        if not {"start", "end", "elapsed", "elapsedraw"} & set(names):
            missing = "a job list of Slurm without times: it has no Start, End or Elapsed"
            raise InputRefused(label, missing, f"ask for them: sacct {ASK}")
        return text
    if not is_row(line):
        return text
    mark = next((d for d in DELIMITERS if d in line), " ")
    rows = [[cell.strip() for cell in _cells(one)] for one in text.splitlines()[:SAMPLE] if one.strip()]
    guessed = guess_columns([row for row in rows if "." not in row[0]])
    if guessed is None:
        raise InputRefused(
            label,
            "rows of sacct without a header (-n), of which the values do not tell Start and End",
            "say what was asked for with -o: --columns JobID,State,Start,End",
        )
    return mark.join(guessed) + "\n" + text


def with_columns(data: bytes, columns: str, label: str) -> bytes:
    """Rows without a header, behind the one that is given as for ``sacct -o``."""
    names = [name.strip().partition("%")[0] for name in columns.split(",")]
    line = bytes(data).lstrip()[:100_000].partition(b"\n")[0].decode("utf-8", "replace")
    cells = _cells(line.rstrip("|\r"))
    if len(cells) != len(names):
        raise InputRefused(label, f"{len(cells)} fields, but --columns names {len(names)}", "name what was asked for with -o")
    mark = next((d for d in DELIMITERS if d in line), " ")
    return mark.join(names).encode() + b"\n" + bytes(data).lstrip()


def _header(line: str, rest: str) -> list[str]:
    mark = next((d for d in DELIMITERS if d in line), None)
    columns = line.split() if re.match(r"[-\s]+\n", rest) or line[:1] == " " or IDS & {line.lower().split(" ", 1)[0]} else []
    names = columns if mark is None else line.strip().split(mark)
    return [name.strip().strip('"').lower() for name in names]


def _rows(text: str, label: str) -> Iterator[dict[str, str]]:
    """Rows of ``sacct``, by the lower-case names of their columns."""
    lines = text.splitlines() or [""]
    form = _form(lines, label)
    for number, line in enumerate(lines[1:], 2):
        if not line.strip() or (form.ruled and number == 2):
            continue
        cells = form.cells(line)
        if [cell.strip().lower() for cell in cells[: len(form.names)]] == form.names:
            continue  # files joined together repeat their header
        if not form.holds(cells):
            if number == len(lines):
                return  # torn while it was written
            raise form.refusal(cells, f"{label}:{number}")
        yield _named(dict(zip(form.names, cells, strict=False)))


class _Form(NamedTuple):
    """How the columns of a list stand apart: by a mark, under a rule of dashes, or by blanks."""

    names: list[str]
    mark: str | None
    ruled: bool
    spans: list[tuple[int, int]]

    def cells(self, line: str) -> list[str]:
        """The cells of a row."""
        return _cut(line, self.spans) if self.ruled else line.split(self.mark)

    def holds(self, cells: Sequence[str]) -> bool:
        """Whether a row has a cell for every name; more of them are in doubt only where blanks part them."""
        return self.ruled or len(cells) == len(self.names) or (len(cells) > len(self.names) and self.mark is not None)

    def refusal(self, cells: Sequence[str], place: str) -> InputRefused:
        """What a row is refused with that has too few or too many cells."""
        if self.mark is None:
            why = f"{len(cells)} words instead of {len(self.names)}: where its columns begin is not told"
            return InputRefused(place, why, "ask sacct for -P, which separates them by |")
        return InputRefused(place, f"{len(cells)} fields instead of {len(self.names)}", "cut the file before this line")


def _form(lines: Sequence[str], label: str) -> _Form:
    mark = next((d for d in DELIMITERS if d in lines[0]), None)
    names = _header(lines[0], lines[1] + "\n" if len(lines) > 1 else "")
    ruled = mark is None and len(lines) > 1 and not lines[1].strip(" -")
    spans = [found.span() for found in _DASHES.finditer(lines[1])] if ruled else []
    if len(spans) > MOST_COLUMNS:
        raise TooLarge(label, f"{len(spans):,} columns", f"ask sacct for fewer than {MOST_COLUMNS:,} fields")
    return _Form(names, mark, ruled, spans)


def _cut(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The cells of a row of plain columns: where the rule has them, by bytes (as sacct pads) or by characters.

    A row that does not leave the gaps blank lost or gained some: it is cut at its blanks if it has as many words as columns.
    """
    raw = line.encode()
    if all(raw[b : b + 1] in (b" ", b"") for _, b in spans):
        return [raw[a:b].decode("utf-8", "replace").strip().removesuffix("+") for a, b in spans]
    words = line.split()
    if len(words) == len(spans) and any(line[b : b + 1].strip() for _, b in spans):
        return [word.removesuffix("+") for word in words]
    return [line[a:b].strip().removesuffix("+") for a, b in spans]


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
        "gpus": str(gpus) if gpus > 0 else _gres(row) or ("0" if gpus == 0 else ""),
        "cpus": row.get("alloccpus") or row.get("ncpus") or _cpus(tres),
        "nodecount": row.get("nnodes") or row.get("allocnodes", ""),
        "nodes": row.get("nodelist", ""),
        "team": row.get("account", ""),
        "restarts": row.get("restarts", ""),
        "limit": row.get("timelimit") or _minutes(row.get("timelimitraw", "")),
    }


def _cpus(tres: str) -> str:
    found = re.search(r"(?:^|,)cpu=(\d{1,9})", tres)
    return found[1] if found else ""


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
            "gpus": str(gpus) if gpus >= 0 else "",
            "cpus": pairs.get("ProcCnt") or pairs.get("NumCPUs", ""),
            "nodecount": pairs.get("NodeCnt") or pairs.get("NumNodes", ""),
            "nodes": pairs.get("NodeList", ""),
            "team": pairs.get("Account", ""),
            "restarts": pairs.get("Restarts", ""),
            "limit": _minutes(pairs.get("TimeLimit", "")),
        }


def _array(pairs: dict[str, str]) -> str:
    task = pairs.get("ArrayTaskId", "")
    return f"{pairs.get('ArrayJobId', '')}_{task}" if task.isdecimal() and "ArrayJobId" in pairs else pairs.get("JobId", "")


def _attempt(row: dict[str, str], submit_ns: int, start_ns: int, end_ns: int) -> dict[str, str | int]:
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
        "nodes": cut(placed_nodes(row["nodes"]), LIST),
        "team": cut(row["team"]),
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


def _undated(jobs: Sequence[dict[str, str]], found: tuple[Ints, Ints], label: str) -> list[str]:
    """A note on rows whose Start or End holds something that is no date: how long they ran may not be known."""
    bad = [
        (row["job"], row[key])
        for row, *at in zip(jobs, *found, strict=True)
        for key, ns in zip(("start", "end"), at, strict=True)
        if ns < 0 and row[key] not in NEVER
    ]
    if not bad:
        return []
    rows = len(dict.fromkeys(job for job, _ in bad))
    job, text = bad[0]
    which = f"job {job}: {text[:40]!r}" + (f", and {rows - 1:,} more" if rows > 1 else "")
    return [f"{label}: Start or End that is no date ({which}): taken as not known; sacct -P writes dates whole"]


def _unlisted(jobs: Sequence[dict[str, str]], label: str) -> list[str]:
    """A note on jobs that were restarted more often than they have rows."""
    rows = Counter(row["job"] for row in jobs)
    restarts = {row["job"]: count_or_null(row["restarts"]) for row in jobs}
    fewer = [job for job, n in restarts.items() if n >= rows[job]]
    if not fewer:
        return []
    some = f"job {fewer[0]}" + (f" and {len(fewer) - 1} more" if len(fewer) > 1 else "")
    return [f"{label}: {some} had more attempts than are listed: sacct --duplicates lists all"]
