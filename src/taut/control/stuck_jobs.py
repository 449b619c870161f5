"""Jobs that do not get to run, or fail again and again, where a log counts how often: what failed, since when, what it held.

Exact accounting of what the log says: no test. A job is stuck where its last attempt waits or failed, and what keeps or ended
it was reported at least twice (once for one that waits).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from taut.control.relation import spell
from taut.core.tables import Table
from taut.result.types import StuckJob

STUCK = ("pending", "failed", "out of memory")
"""Outcomes of a last attempt."""
LISTED = 20
"""Jobs that are listed at most."""
TOLD = 2
"""Jobs in the verdict; the others are counted."""
MESSAGE = 140
DATED_NS = 946_684_800 * 10**9
"""Times before this stand for ages, or dates without a year."""
REMEDIES = (
    (r"pull|ErrImage|ImagePull|InvalidImageName", "check the image's name and tag, and the pull secret"),
    (r"FailedMount|FailedAttachVolume|FailedBinding|Provisioning", "check the volume, its claim and its path on the node"),
    (r"FailedScheduling|NotTriggerScaleUp|OutOf", "free or add what the message says is missing, or ask for less"),
    (r"FailedCreatePodSandBox|NetworkNotReady", "check the node's network plugin and container runtime"),
    (r"FailedCreate\b", "check quotas and admission of the namespace"),
    (r"ConfigError", "check the config maps and secrets that the pod names"),
    (r"OOM|out of memory", "raise the memory limit, or load less"),
    (r"failed to start container|failed to create", "check the command, the mounts and the runtime class of the container"),
    (r"BackOff|Failed|terminated", "read what the container wrote before it died: kubectl logs --previous"),
)
"""What to do, by what the reason says; the first that fits."""
_REMEDIES = [(re.compile(pattern, re.IGNORECASE), remedy) for pattern, remedy in REMEDIES]


def stuck(attempts: Table) -> list[StuckJob]:
    """The stuck jobs, those that hold something longest first."""
    if not (attempts.failures > 0).any():
        return []
    rows: dict[str, list[int]] = {}
    for i, job in enumerate(attempts.job.tolist()):
        rows.setdefault(job, []).append(i)
    found = [_job(attempts, job, mine) for job, mine in rows.items() if _is_stuck(attempts, mine[-1])]
    return sorted(found, key=lambda one: (-(one.held_ns or 0), -one.failures, one.job))[:LISTED]


def _is_stuck(attempts: Table, i: int) -> bool:
    waits = attempts.outcome[i] == "pending"
    return bool(attempts.outcome[i] in STUCK and attempts.failures[i] >= (1 if waits else 2))


def _job(t: Table, job: str, rows: Sequence[int]) -> StuckJob:
    last = rows[-1]
    waits = t.outcome[last] == "pending"
    ran = [i for i in rows if t.outcome[i] != "pending"]
    # An unbroken stay on its node ends with the last attempt.
    stay = last
    for i in reversed(rows[:-1]):
        if t.held[i + 1] != 1:
            break
        stay = i
    begin = int(t.start_ns[stay])
    held = int(t.end_ns[last]) - begin if begin >= 0 and t.end_ns[last] >= begin else None
    failed = int(t.last_step_ns[stay]) if t.last_step_ns[stay] >= 0 else int(t.end_ns[stay])
    since = max(begin if begin >= 0 else int(t.submit_ns[last]), -1) if waits else failed
    reason = str(t.reason[last])
    one = StuckJob(
        job=job,
        attempts=len(ran),
        failures=int(t.failures[last]),
        reason=reason,
        since_ns=since if since >= 0 else None,
        held_ns=held,
        nodes=str(t.nodes[last]) or None,
        remedy=next((remedy for pattern, remedy in _REMEDIES if pattern.search(reason)), None),
        text="",
    )
    return replace(one, text=_text(one, waits))


def _text(one: StuckJob, waits: bool) -> str:
    """One sentence."""
    word, _, message = one.reason.partition(": ")
    said = f" ({message[:MESSAGE].rstrip()}{'…' if len(message) > MESSAGE else ''})" if message else ""
    since = f" since {_when(one.since_ns)}" if one.since_ns is not None and one.since_ns > DATED_NS else ""
    times = f"{one.failures:,} × {word}{since}{said}"
    place = f" on {one.nodes}" if one.nodes else ""
    held = f", its place{place} held for {spell(one.held_ns)} all the same" if one.held_ns else ""
    if waits:
        what = f"{one.job} does not get to run: {times}; nothing ran" + (
            f" after {one.attempts} attempts" if one.attempts else ""
        )
    else:
        again = f"{one.attempts} starts" if one.attempts > 1 else "one start"
        what = f"{one.job} fails again and again: {again}, {times}"
    return f"{what}{held}" + (f"; {one.remedy}." if one.remedy else ".")


def _when(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def stuck_text(found: Sequence[StuckJob]) -> str:
    """The first of them, and how many more there are."""
    texts = [one.text for one in found[:TOLD]]
    more = len(found) - TOLD
    if more > 0:
        texts.append(f"{more:,} more {'job is' if more == 1 else 'jobs are'} stuck.")
    return " ".join(texts)
