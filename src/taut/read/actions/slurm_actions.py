"""Lines of Slurm's controller → decisions: preemptions, requeues, cancellations, limits, and what users changed of a job.

Starts are known from the attempts. Who asked for a change stands in the line that completes it, by user id; where a log of
the asking controller lies beside, ``gather_actions`` keeps that one's.
"""

from __future__ import annotations

import re

from taut.core.tables import NULL
from taut.read.actions.attempt_actions import USER
from taut.read.actions.control_log import Change, Settings, moments, start_direction, table
from taut.read.contents import ControlLog
from taut.read.jobs.job_words import SLURM, cut

J = r"(?:Job(?:Id|ID)=|[Jj]ob(?:_id|Id)?[ =])\S+"
"""A job as versions write it: ``JobId=7``, ``JobID=7``, ``job 7``, ``job_id 7``."""
_DECIDED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(rf"preempted {J} has been \w+ (?:to reclaim resources for|for|by) Job(?:Id|ID)=(\d{{1,12}})"),
        "preempted for job",
    ),
    (re.compile(rf"preempted {J} has been ()"), "preempted"),
    (re.compile(rf"requeue (?:job )?{J} due to (?:failure of node|node failure) ?(\S*)"), "failed node"),
    (re.compile(rf"Killing {J} on failed node ?(\S*)"), "failed node"),
    (re.compile(rf"[Tt]ime limit exhausted for {J}()"), "time limit"),
    (re.compile(rf"[Rr]equeuing {J}()"), "requeued"),
    (re.compile(r"_slurm_rpc_requeue:.*requeue()"), "requeued"),
)
"""Lines by which the scheduler itself takes a job's allocation away, and why."""
_TAKES = re.compile(r"preempted|[Rr]equeu|Killing|ime limit")
"""What each of them has."""
_SUBMITTED = re.compile(rf"_slurm_rpc_submit_batch_job:? {J} InitPrio=(\d{{1,12}})")
_KILLED = re.compile(r"_slurm_rpc_kill_job2?: .*?JobId=\S+.*?uid[ =](\d{1,10})")
_SUSPENDED = re.compile(r"_slurm_rpc_suspend\((suspend|resume)\)")
_SET = re.compile(r"_?update_job: setting (\w{1,40}) to (\S{1,100}) for ")
_BY = re.compile(r"_slurm_rpc_update_job: complete JobId=\S+ uid=(\d{1,10})")


class Decisions:
    """The decisions as the lines go by."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str | int]] = []
        self.times: list[str] = []
        self.settings = Settings()
        self.repeated = 0
        """Lines that came again."""
        self.unsigned: dict[str, list[int]] = {}
        """Rows of changes of a job whose author is not known yet."""
        self.ended: set[str] = set()
        """Jobs with a decision against them that is not carried out yet."""

    def read(self, job: str, at: str, text: str) -> None:
        """One line about a job."""
        if "_slurm_rpc_" not in text and "update_job" not in text:
            self._decided(job, at, text)
        elif found := _SUBMITTED.search(text):
            self.settings.observe(job, "priority", found[1])
            self._add(job, at, USER, knob="submission")
        elif found := _SET.search(text):
            self.unsigned.setdefault(job, []).append(len(self.rows))
            self._add(job, at, "", **self._changed(job, at, found[1], found[2]))
        elif found := _BY.search(text):
            for row in self.unsigned.pop(job, ()):
                self.rows[row]["controller"] = f"uid {found[1]}"
        elif found := _KILLED.search(text):
            self._add(job, at, f"uid {found[1]}", knob="allocation", direction=-1, trigger="cancelled")
        elif found := _SUSPENDED.search(text):
            way = -1 if found[1] == "suspend" else 1
            self._add(job, at, USER, knob="allocation", direction=way, trigger=found[1])
        else:
            self._decided(job, at, text)

    def _changed(self, job: str, at: str, knob: str, value: str) -> Change:
        if knob in ("begin", "start_time"):
            begin, now = moments([value, at])[0].tolist()
            return {"knob": "allocation", "after": f"begin={value}", "direction": start_direction(begin, now)}
        return {"knob": knob, **self.settings.change(job, knob, value)}

    def _decided(self, job: str, at: str, text: str) -> None:
        for pattern, why in _DECIDED if _TAKES.search(text) else ():
            found = pattern.search(text)
            if found:
                if why == "requeued" and job in self.ended:  # carries out the decision before it
                    self.ended.remove(job)
                else:
                    self._add(job, at, SLURM, knob="allocation", direction=-1, trigger=cut(f"{why} {found[1]}"))
                    self.ended.add(job)
                return
        if "job_complete" in text or "llocate Job" in text or "Started Job" in text:
            self.ended.discard(job)

    def _add(self, job: str, at: str, controller: str, **change: str | int) -> None:
        layer = "scheduler" if controller == SLURM else ""
        self.times.append(at)
        self.rows.append({"layer": layer, "controller": controller, "target": job, "work": job, **change})

    def log(self, label: str) -> ControlLog:
        """All decisions; times are without a zone."""
        time = moments(self.times)[0].tolist() if self.times else []
        rows: list[Change] = [{"time_ns": at, **row} for at, row in zip(time, self.rows, strict=True) if at != NULL]
        return ControlLog(label, table(rows, label), torn=len(self.rows) - len(rows), repeated=self.repeated)
