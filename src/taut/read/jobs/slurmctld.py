"""The log of Slurm's controller: when jobs were queued, started, preempted, requeued after a failed node, and ended."""

from __future__ import annotations

import re
from collections.abc import Callable

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.slurm_actions import Decisions
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import SLURM, JobLog, check_attempts, cut, held, hosts, table_of

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\] (.*)")
_JOB = re.compile(r"JobId=(\d{1,12}(?:_\d{1,9})?)")
_HEAD = re.compile(rb"\s*\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
Attempt = dict[str, "str | int"]
BLANK: Attempt = {
    "submit_ns": "", "start_ns": "", "end_ns": "", "outcome": "", "accelerators": NULL, "unit": "", "nodes": "", "reason": "",
    "held": 0,
}  # fmt: skip
"""An attempt of which nothing is known; times are written as in the log."""


def sniff(head: bytes) -> bool:
    """Lines that begin with a date in brackets and speak of jobs, or of the controller itself."""
    return _HEAD.match(head) is not None and (b"JobId=" in head or b"slurmctld" in head)


class _Jobs:
    """The jobs as the lines go by."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.attempts: list[Attempt] = []
        self.open: dict[str, Attempt] = {}
        """The attempt of each job that runs."""
        self.queued: dict[str, str] = {}
        """When a job was queued last."""

    def add(self, job: str, outcome: str, **known: str | int) -> Attempt:
        """One attempt more."""
        attempt = {**BLANK, "job": job, "outcome": outcome, **known}
        self.attempts.append(attempt)
        check_attempts(len(self.attempts), self.label)
        return attempt

    def start(self, job: str, at: str, nodes: str) -> None:
        """A job was given its nodes."""
        self.end(job, at, "", "")
        count, unit = held(None, nodes=hosts(nodes))
        queued = self.queued.pop(job, "")
        about: Attempt = {"nodes": cut(nodes), "accelerators": count, "unit": unit}
        self.open[job] = self.add(job, words.RUNNING, submit_ns=queued, start_ns=at, **about)

    def end(self, job: str, at: str, outcome: str, reason: str) -> None:
        """The attempt that runs, if one does, is over."""
        if job in self.open:
            self.open.pop(job).update(end_ns=at, outcome=outcome, reason=cut(reason))

    def cancel(self, job: str, at: str, reason: str) -> None:
        """A job was cancelled, whether it ran or waited."""
        if job in self.open:
            self.end(job, at, words.CANCELLED, reason)
        elif job in self.queued:
            self.add(job, words.CANCELLED, submit_ns=self.queued.pop(job), end_ns=at, reason=cut(reason))


Effect = Callable[[_Jobs, str, str, "re.Match[str]"], None]


def _submitted(jobs: _Jobs, job: str, at: str, _: re.Match[str]) -> None:
    jobs.queued[job] = at


def _started(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    jobs.start(job, at, found["nodes"])


def _ended(outcome: str, again: bool = False) -> Effect:
    def end(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
        jobs.end(job, at, outcome, (found.groupdict().get("why") or "").strip())
        if again:
            jobs.queued[job] = at

    return end


def _exited(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    code = found["code"]
    jobs.end(job, at, words.COMPLETED if code == "0" else words.FAILED, "" if code == "0" else f"exit code {code}")


def _killed(jobs: _Jobs, job: str, at: str, found: re.Match[str]) -> None:
    jobs.cancel(job, at, found["why"])


EFFECTS: tuple[tuple[re.Pattern[str], Effect], ...] = (
    (re.compile(r"_slurm_rpc_submit_batch_job: JobId="), _submitted),
    (re.compile(r"sched: (?:_slurm_rpc_)?[Aa]llocate(?:_resources)? JobId=\S+ NodeList=(?P<nodes>\S+)"), _started),
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
"""What a line means for a job: the first that fits."""


def load(data: bytes, label: str) -> JobLog:
    """The attempts of all jobs in the log; what still runs is followed to the log's end."""
    jobs, decisions, last = _Jobs(label), Decisions(), ""
    seen: set[str] = set()
    for line in bytes(data).decode("utf-8", "replace").splitlines():
        found = _LINE.match(line[:2000])
        if not found:
            continue
        last, text = found.groups()
        job = _JOB.search(text)
        if job and line in seen:
            decisions.repeated += 1
        elif job:
            seen.add(line)
            _apply(jobs, job[1], last, text)
            decisions.read(job[1], last, text)
    for job_id, at in jobs.queued.items():
        jobs.add(job_id, words.PENDING, submit_ns=at)
    if not jobs.attempts:
        raise InputRefused(label, "a controller's log without a job", "keep the lines that name a JobId")
    for attempt in jobs.open.values():
        attempt["end_ns"] = last
    attempts, _ = table_of(jobs.attempts, label)
    return JobLog(label, attempts, zoneless=True, controller=SLURM, control=decisions.log(label))


def _apply(jobs: _Jobs, job: str, at: str, text: str) -> None:
    for pattern, effect in EFFECTS:
        found = pattern.search(text)
        if found:
            effect(jobs, job, at, found)
            return
