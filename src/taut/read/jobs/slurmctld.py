"""The log of Slurm's controller: when jobs were queued, started, preempted, requeued after a failed node, and ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.actions.slurm_actions import Decisions
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import SLURM, JobLog, blank, counted, cut, hosts, table, times

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\] (.*)")
_JOB = re.compile(r"JobId=(\d{1,12}(?:_\d{1,9})?)")
_HEAD = re.compile(rb"\s*\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_KEYS = ("job", "submit_ns", "start_ns", "end_ns", "outcome", "accelerators", "unit", "nodes", "reason")


def sniff(head: bytes) -> bool:
    """Lines that begin with a date in brackets and speak of jobs, or of the controller itself."""
    return _HEAD.match(head) is not None and (b"JobId=" in head or b"slurmctld" in head)


class _Jobs:
    """The jobs as the lines go by."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.columns = blank(_KEYS)
        self.open: dict[str, int] = {}
        """Row of the attempt that runs."""
        self.queued: dict[str, str] = {}
        """When a job was queued last."""

    def add(
        self, job: str, submit: str, start: str, end: str, outcome: str, count: int, unit: str, nodes: str, reason: str
    ) -> None:
        """One attempt more."""
        if len(self.columns["job"]) >= words.MOST_ATTEMPTS:
            raise TooLarge(self.label, f"more than {words.MOST_ATTEMPTS:,} attempts", "cut the log to the time in question")
        for key, value in zip(_KEYS, (job, submit, start, end, outcome, count, unit, cut(nodes), reason), strict=True):
            self.columns[key].append(value)

    def start(self, job: str, at: str, nodes: str) -> None:
        """A job was given its nodes."""
        self.open[job] = len(self.columns["job"])
        count, unit = counted(None, nodes=hosts(nodes))
        self.add(job, self.queued.pop(job, ""), at, "", words.RUNNING, count, unit, nodes, "")

    def end(self, job: str, at: str, outcome: str, reason: str) -> None:
        """The attempt that runs, if one does, is over."""
        row = self.open.pop(job, None)
        if row is not None:
            self.columns["end_ns"][row], self.columns["outcome"][row], self.columns["reason"][row] = at, outcome, cut(reason)

    def give_up(self, job: str, at: str, reason: str) -> None:
        """A job was cancelled, whether it ran or waited."""
        if job in self.open:
            self.end(job, at, words.CANCELLED, reason)
        elif job in self.queued:
            self.add(job, self.queued.pop(job), "", at, words.CANCELLED, NULL, "", "", cut(reason))


Told = Callable[[_Jobs, str, str, "re.Match[str]"], None]


def _submitted(jobs: _Jobs, job: str, at: str, _: re.Match[str]) -> None:
    jobs.queued[job] = at


def _started(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    jobs.end(job, at, "", "")
    jobs.start(job, at, found["nodes"])


def _ended(outcome: str, again: bool = False) -> Told:
    def told(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
        jobs.end(job, at, outcome, (found.groupdict().get("why") or "").strip())
        if again:
            jobs.queued[job] = at

    return told


def _exited(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    code = found["code"]
    jobs.end(job, at, words.COMPLETED if code == "0" else words.FAILED, "" if code == "0" else f"exit code {code}")


def _killed(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    jobs.give_up(job, at, found["why"])


TOLD: tuple[tuple[re.Pattern[str], Told], ...] = (
    (re.compile(r"_slurm_rpc_submit_batch_job: JobId="), _submitted),
    (
        re.compile(r"sched: (?:_slurm_rpc_)?[Aa]llocate(?:_resources)? JobId=\S+ NodeList=(?P<nodes>\S+)"),
        _started,
    ),
    (re.compile(r"_start_job: Started JobId=\S+ in \S+ on (?P<nodes>\S+)"), _started),
    (re.compile(r"preempted JobId=\S+ has been requeued (?P<why>.*)"), _ended(words.PREEMPTED, again=True)),
    (re.compile(r"preempted JobId=\S+ has been (?:killed|cancelled|checkpointed) (?P<why>.*)"), _ended(words.PREEMPTED)),
    (re.compile(r"requeue job JobId=\S+ due to (?P<why>failure of node.*)"), _ended(words.NODE_FAILED, again=True)),
    (re.compile(r"Killing JobId=\S+ on (?P<why>failed node.*)"), _ended(words.NODE_FAILED)),
    (re.compile(r"[Rr]equeuing JobId="), _ended(words.CANCELLED, again=True)),
    (re.compile(r"_slurm_rpc_requeue:.*(?P<why>requeued?)"), _ended(words.CANCELLED, again=True)),
    (re.compile(r"[Tt]ime limit exhausted for JobId=(?P<why>)"), _ended(words.TIMED_OUT)),
    (re.compile(r"_job_complete: JobId=\S+ OOM failure"), _ended(words.OUT_OF_MEMORY)),
    (re.compile(r"_job_complete: JobId=\S+ WEXITSTATUS (?P<code>\d+)"), _exited),
    (re.compile(r"_job_complete: JobId=\S+ WTERMSIG (?P<why>\d+)"), _ended(words.FAILED)),
    (re.compile(r"_slurm_rpc_kill_job2?: .*JobId=\S+ (?P<why>.*)"), _killed),
)
"""What a line tells, the first that fits."""


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs that the log speaks of; what still runs is followed to the log's end."""
    jobs, decisions, last = _Jobs(label), Decisions(), ""
    told: set[str] = set()
    for line in bytes(data).decode("utf-8", "replace").splitlines():
        found = _LINE.match(line[:2000])
        if not found:
            continue
        last = found[1]
        job = _JOB.search(found[2])
        if job and line in told:
            decisions.repeated += 1
        elif job:
            told.add(line)
            _tell(jobs, job[1], found[1], found[2])
            decisions.tell(job[1], found[1], found[2])
    for job_id, at in jobs.queued.items():
        jobs.add(job_id, at, "", "", words.PENDING, NULL, "", "", "")
    if not jobs.columns["job"]:
        raise InputRefused(label, "a controller's log without a job", "keep the lines that name a JobId")
    for row in jobs.open.values():
        jobs.columns["end_ns"][row] = last
    columns: dict[str, Any] = dict(jobs.columns)
    for key in ("submit_ns", "start_ns", "end_ns"):
        columns[key] = times(columns[key])[0].tolist()
    attempts = table({**columns, "held": [0] * len(columns["job"])}, label)
    return JobLog(label, attempts, zoneless=True, controller=SLURM, control=decisions.log(label))


def _tell(jobs: _Jobs, job: str, at: str, text: str) -> None:
    for pattern, told in TOLD:
        found = pattern.search(text)
        if found:
            told(jobs, job, at, found)
            return
