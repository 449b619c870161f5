"""Lines of Slurm's controller → decisions: preemptions, requeues, cancellations, limits, and what users changed of a job.

Starts are told by the attempts. Who asked for a change stands in the line that completes it, by user id; where a log of
the asking controller lies beside, ``control_gather`` keeps that one's.
"""

from __future__ import annotations

import re
from typing import Any

from taut.core.tables import NULL
from taut.read.actions.attempt_actions import USER
from taut.read.actions.control_log import ControlLog, Settings, moments, table
from taut.read.jobs.job_words import SLURM, cut

_DECIDED: tuple[tuple[re.Pattern[str], int, str], ...] = (
    (
        re.compile(r"preempted JobId=\S+ has been \w+ (?:to reclaim resources for|for|by) JobId=(\d{1,12})"),
        -1,
        "preempted for job",
    ),
    (re.compile(r"preempted JobId=\S+ has been ()"), -1, "preempted"),
    (re.compile(r"requeue job JobId=\S+ due to failure of node ?(\S*)"), -1, "failed node"),
    (re.compile(r"Killing JobId=\S+ on failed node ?(\S*)"), -1, "failed node"),
    (re.compile(r"[Tt]ime limit exhausted for JobId=()"), -1, "time limit"),
    (re.compile(r"[Rr]equeuing JobId=()"), -1, "requeued"),
    (re.compile(r"_slurm_rpc_requeue:.*requeue()"), -1, "requeued"),
)
"""What the scheduler itself does to a job's allocation, and why."""
_SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=\S+ InitPrio=(\d{1,12})")
_KILLED = re.compile(r"_slurm_rpc_kill_job2?: .*?JobId=\S+.*?uid[ =](\d{1,10})")
_SUSPENDED = re.compile(r"_slurm_rpc_suspend\((suspend|resume)\)")
_SET = re.compile(r"_?update_job: setting (\w{1,40}) to (\S{1,100}) for ")
_BY = re.compile(r"_slurm_rpc_update_job: complete JobId=\S+ uid=(\d{1,10})")


class Decisions:
    """The decisions as the lines go by."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.times: list[str] = []
        self.settings = Settings()
        self.repeated = 0
        """Lines that came again."""
        self.unsigned: dict[str, list[int]] = {}
        """Changes of a job of which it is not yet told who asked for them."""
        self.ended: dict[str, int] = {}
        """Row of the last decision against a job, until it is carried out."""

    def tell(self, job: str, at: str, text: str) -> None:
        """One line about a job."""
        if found := _SUBMITTED.search(text):
            self.settings.saw(job, "priority", found[1])
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

    def _changed(self, job: str, at: str, knob: str, value: str) -> dict[str, Any]:
        if knob in ("begin", "start_time"):
            begin, now = moments([value, at])[0].tolist()
            way = 0 if begin == NULL else 1 if begin <= now + 1_000_000_000 else -1
            return {"knob": "allocation", "after": f"begin={value}", "direction": way}
        return {"knob": knob, **self.settings.change(job, knob, value)}

    def _decided(self, job: str, at: str, text: str) -> None:
        for pattern, way, why in _DECIDED:
            found = pattern.search(text)
            if found:
                carried_out = why == "requeued" and job in self.ended
                if carried_out:
                    self.ended.pop(job)
                else:
                    self._add(job, at, SLURM, knob="allocation", direction=way, trigger=cut(f"{why} {found[1]}"))
                    self.ended[job] = len(self.rows) - 1
                return
        if "_job_complete" in text or "llocate JobId=" in text or "Started JobId=" in text:
            self.ended.pop(job, None)

    def _add(self, job: str, at: str, controller: str, **told: Any) -> None:
        layer = "scheduler" if controller == SLURM else ""
        self.times.append(at)
        self.rows.append({"layer": layer, "controller": controller, "target": job, "work": job, **told})

    def log(self, label: str) -> ControlLog:
        """What was told; times are without a zone."""
        time = moments(self.times)[0].tolist() if self.times else []
        rows = [{"time_ns": at, **row} for at, row in zip(time, self.rows, strict=True) if at != NULL]
        return ControlLog(label, table(rows, label), torn=len(self.rows) - len(rows), repeated=self.repeated)
