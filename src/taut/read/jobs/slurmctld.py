"""Logs of Slurm's controller, or of the daemon on a node: when jobs were queued, started, preempted, requeued, and ended.

Lines of all versions since 14.11, with the date in brackets or behind what syslog, journald or a container put before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.slurm_actions import Decisions, J
from taut.read.contents import JobLog
from taut.read.jobs import job_words as words
from taut.read.jobs.daemon_lines import NAMED, DaemonLines
from taut.read.jobs.job_words import SLURM, check_attempts, cut, held, hosts, table_of

_JOB = re.compile(r"\b(?:Job(?:Id|ID)=|[Jj]ob(?:_id|Id)?[ =])(\d{1,12}(?:_\d{1,9}|\+\d{1,6})?)")
_OF_NODE = re.compile(r"\[(\d{1,12})\.batch\] ")
_OWN = re.compile(rb"^\[(?:\d{4}-\d\d-\d\dT|[A-Z][a-z]{2} [ \d]\d )\d\d:\d\d:\d\d", re.MULTILINE)
_SAYS = (b"_slurm_rpc_", b"job_complete:", b"sched: Allocate", b"_start_job: Started", b"Launching batch job")
"""What only Slurm's daemons say."""
# A start that is told again within this time, on the same nodes, is the same.
TOLD_TWICE_S = 5.0
Attempt = dict[str, "str | int"]
BLANK: Attempt = {
    "submit_ns": "", "start_ns": "", "end_ns": "", "outcome": "", "accelerators": NULL, "unit": "", "nodes": "", "reason": "",
    "held": 0,
}  # fmt: skip
"""An attempt of which nothing is known; times are written as in the log."""


def sniff(head: bytes) -> bool:
    """Dated lines that speak of jobs as Slurm's daemons do, or of the controller itself, behind whatever prefix."""
    begin = head.lstrip()
    if begin[:1] == b"{":  # journalctl -o json
        return b'"__REALTIME_TIMESTAMP"' in head and re.search(rb'"slurm(?:ctld|d)"', head) is not None
    if _OWN.match(begin):
        return b"JobId=" in head or b"slurmctld" in head or any(word in head for word in _SAYS)
    return NAMED.search(head) is not None or (
        any(word in head for word in _SAYS) and re.search(rb"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", head) is not None
    )


class _Jobs:
    """The jobs as the lines go by."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.attempts: list[Attempt] = []
        self.open: dict[str, Attempt] = {}
        """The attempt of each job that runs."""
        self.queued: dict[str, str] = {}
        """When a job was queued last."""
        self.started: set[str] = set()
        self.arrays: set[str] = set()
        """Arrays of which a task was started, and heterogeneous jobs of which a component was."""

    def add(self, job: str, outcome: str, **known: str | int) -> Attempt:
        """One attempt more."""
        attempt = {**BLANK, "job": job, "outcome": outcome, **known}
        self.attempts.append(attempt)
        check_attempts(len(self.attempts), self.label)
        return attempt

    def queue(self, job: str, at: str) -> None:
        """A job waits, unless it runs already."""
        if job not in self.open:
            self.queued.setdefault(job, at)

    def start(self, job: str, at: str, nodes: str) -> None:
        """A job was given its nodes, or has to wait for them."""
        if nodes in ("", "(null)"):
            self.queue(job, at)
            return
        if job in self.open and nodes == self.open[job]["nodes"] and _near(str(self.open[job]["start_ns"]), at):
            return
        self.end(job, at, "", "")
        count, unit = held(None, nodes=hosts(nodes))
        array = re.split(r"[_+]", job)[0]
        queued = self.queued.pop(job, "")
        if array != job:
            self.arrays.add(array)
            queued = queued or ("" if job in self.started else self.queued.get(array, ""))
        self.started.add(job)
        about: Attempt = {"nodes": cut(nodes, words.LIST), "accelerators": count, "unit": unit}
        self.open[job] = self.add(job, words.RUNNING, submit_ns=queued, start_ns=at, **about)

    def waiting(self) -> dict[str, str]:
        """What was never started; an array of which some tasks were told apart is no job itself."""
        return {job: at for job, at in self.queued.items() if job not in self.arrays}

    def end(self, job: str, at: str, outcome: str, reason: str) -> None:
        """The attempt that runs, if one does, is over."""
        if job in self.open:
            self.open.pop(job).update(end_ns=at, outcome=outcome, reason=cut(reason))

    def cancel(self, job: str, at: str, reason: str) -> None:
        """A job was cancelled, whether it ran or waited."""
        running = [one for one in self.open if one.startswith(f"{job}+")] if job in self.arrays else []
        running += [job] if job in self.open else []
        for one in running:
            self.end(one, at, words.CANCELLED, reason)
        if not running and job in self.queued and job not in self.arrays:
            self.add(job, words.CANCELLED, submit_ns=self.queued.pop(job), end_ns=at, reason=cut(reason))


def _near(one: str, other: str) -> bool:
    try:
        gap = datetime.fromisoformat(other) - datetime.fromisoformat(one)
    except (ValueError, TypeError):
        return False
    return abs(gap.total_seconds()) <= TOLD_TWICE_S


Effect = Callable[[_Jobs, str, str, "re.Match[str]"], None]


def _submitted(jobs: _Jobs, job: str, at: str, _: re.Match[str]) -> None:
    jobs.queue(job, at)


def _started(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    jobs.start(job, at, found["nodes"])


def _launched(jobs: _Jobs, job: str, at: str, _: re.Match[str]) -> None:
    if job not in jobs.open:
        jobs.start(job, at, "its node")


def _ended(outcome: str, again: bool = False) -> Effect:
    def end(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
        jobs.end(job, at, outcome, (found.groupdict().get("why") or "").strip())
        if again:
            jobs.queued[job] = at

    return end


def _exited(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    code = found["code"]
    jobs.end(job, at, words.COMPLETED if code == "0" else words.FAILED, "" if code == "0" else f"exit code {code}")


def _waited(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    """The status as the node's daemon has it: the exit code above a byte, the signal in it."""
    code, by = divmod(int(found["status"]), 256)
    why = f"exit code {code}" if code else f"signal {by & 127}" if by else ""
    jobs.end(job, at, words.FAILED if why else words.COMPLETED, why)


def _killed(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    jobs.cancel(job, at, found["why"])


def _signalled(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    if (found["state"] == "running") == (job in jobs.open):
        jobs.cancel(job, at, "")


EFFECTS: tuple[tuple[str, re.Pattern[str], Effect], ...] = (
    ("submit_batch", re.compile(rf"_slurm_rpc_submit_batch_(?:pack_|het_)?job:? {J}"), _submitted),
    ("llocate", re.compile(rf"(?:sched: )?(?:_slurm_rpc_)?[Aa]llocate(?:_resources)?:? {J} NodeList=(?P<nodes>\S*)"), _started),
    ("Started", re.compile(rf"(?:_start_job|backfill): Started {J} in \S+ on (?P<nodes>\S+)"), _started),
    ("Launching", re.compile(rf"Launching batch {J} for UID"), _launched),
    ("preempted", re.compile(rf"preempted {J} has been requeued(?P<why>.*)"), _ended(words.PREEMPTED, again=True)),
    (
        "preempted",
        re.compile(rf"preempted {J} has been (?:killed|cancell?ed|checkpointed)(?P<why>.*)"),
        _ended(words.PREEMPTED),
    ),
    (
        "requeue",
        re.compile(rf"requeue (?:job )?{J} due to (?P<why>(?:failure of node|node failure).*)"),
        _ended(words.NODE_FAILED, True),
    ),
    ("missing", re.compile(rf"{J} missing from (?P<why>batch node.*), Requeuing"), _ended(words.NODE_FAILED, again=True)),
    ("missing", re.compile(rf"{J} missing from (?P<why>batch node.*)"), _ended(words.NODE_FAILED)),
    ("Killing", re.compile(rf"Killing {J} on (?P<why>failed node.*)"), _ended(words.NODE_FAILED)),
    ("job_complete", re.compile(rf"job_complete: (?P<why>requeue) {J}"), _ended(words.CANCELLED, again=True)),
    ("equeuing", re.compile(rf"[Rr]equeuing {J}"), _ended(words.CANCELLED, again=True)),
    ("rpc_requeue", re.compile(r"_slurm_rpc_requeue:.*(?P<why>requeued?)"), _ended(words.CANCELLED, again=True)),
    ("ime limit", re.compile(rf"[Tt]ime limit exhausted for {J}(?P<why>)"), _ended(words.TIMED_OUT)),
    ("CANCELLED AT", re.compile(r"CANCELLED AT \S+ DUE TO TIME LIMIT(?P<why>)"), _ended(words.TIMED_OUT)),
    ("CANCELLED AT", re.compile(r"CANCELLED AT \S+ DUE TO PREEMPTION(?P<why>)"), _ended(words.PREEMPTED)),
    ("job_complete", re.compile(rf"job_complete: {J}.* OOM failure"), _ended(words.OUT_OF_MEMORY)),
    ("job_complete", re.compile(rf"job_complete: {J}.* WEXITSTATUS (?P<code>\d+)"), _exited),
    ("job_complete", re.compile(rf"job_complete: {J}.* WTERMSIG (?P<why>\d+)"), _ended(words.FAILED)),
    ("job_complete", re.compile(rf"job_complete: {J}.* (?P<why>cancelled by node failure)"), _ended(words.NODE_FAILED)),
    ("job_complete", re.compile(rf"job_complete: {J}.* (?P<why>cancelled by interactive user)"), _ended(words.CANCELLED)),
    (
        "REQUEST_COMPLETE",
        re.compile(r"sending REQUEST_COMPLETE_BATCH_SCRIPT, error:\s*\d+,? status:?\s*(?P<status>\d{1,6})"),
        _waited,
    ),
    ("CANCELLED AT", re.compile(r"CANCELLED AT \S+ (?P<why>)"), _killed),
    ("kill_job", re.compile(rf"_slurm_rpc_kill_jobs?2?: .*{J} (?P<why>.*)"), _killed),
    ("job_signal", re.compile(rf"job_signal: 9 of (?P<state>running|pending) {J} successful"), _signalled),
)
"""A word of a line, the line, and what it means for a job: the first that fits."""
_WORD = re.compile("|".join(dict.fromkeys(word for word, *_ in EFFECTS)))
_BY_WORD = {word: tuple(one for one in EFFECTS if one[0] in word) for word, *_ in EFFECTS}
"""What may fit where a line has this word alone."""


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs in the log; what still runs is followed to the log's end."""
    jobs, decisions, lines = _Jobs(label), Decisions(), DaemonLines(bytes(data))
    seen: set[tuple[str, str]] = set()
    for at, text in lines:
        found = _JOB.search(text) or _OF_NODE.search(text)
        if not found:
            continue
        if (at, text) in seen:
            decisions.repeated += 1
            continue
        seen.add((at, text))
        job = found[1]
        _apply(jobs, job, at, text)
        decisions.read(job, at, text)
    for job, at in jobs.waiting().items():
        jobs.add(job, words.PENDING, submit_ns=at)
    if not jobs.attempts:
        raise InputRefused(label, "a log of Slurm's daemons without a job", "keep the lines that name a JobId")
    for attempt in jobs.open.values():
        attempt["end_ns"] = lines.last
    attempts, bare = table_of(jobs.attempts, label)
    return JobLog(
        label,
        attempts,
        zoneless=bare,
        yearless=lines.yearless,
        controller=SLURM,
        control=decisions.log(label),
    )


def _apply(jobs: _Jobs, job: str, at: str, text: str) -> None:
    has = set(_WORD.findall(text))
    if not has:
        return
    for word, pattern, effect in _BY_WORD[has.pop()] if len(has) == 1 else EFFECTS:
        found = pattern.search(text) if word in text else None
        if found:
            effect(jobs, job, at, found)
            return
