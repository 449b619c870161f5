"""Jobs that do not get to run, or fail again and again, where a log counts how often: what failed, since when, what it held.

Exact accounting of what the log says: no test. A job is stuck where its last attempt waits or failed, and what keeps or ended
it was reported at least twice; once for one that waits, or is in back-off: lists without counts show that once. One that was
just started again, and has not yet run as long as a start before it, is told as well, after two failed starts at least:
nothing says that this one will last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from taut.control.relation import spell
from taut.core.reporting import dated
from taut.core.tables import Table
from taut.result.types import StuckJob

STUCK = ("pending", "failed", "out of memory")
"""Outcomes of a last attempt."""
LISTED = 20
"""Jobs that are listed at most."""
MESSAGE = 140
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
    found = [_job(attempts, job, mine) for job, mine in rows.items() if _is_stuck(attempts, mine)]
    return sorted(found, key=lambda one: (-(one.held_ns or 0), -one.failures, one.job))[:LISTED]


def _is_stuck(t: Table, rows: Sequence[int]) -> bool:
    last = rows[-1]
    if t.outcome[last] == "running":  # just started again
        before = [_ran(t, i) for i in _stays(t, rows)[-1][:-1] if t.outcome[i] in STUCK]
        return bool(t.failures[last] >= 2 and len(before) >= 2 and _ran(t, last) <= max(before))
    waits = t.outcome[last] == "pending" or str(t.reason[last]).startswith("BackOff")
    return bool(t.outcome[last] in STUCK and t.failures[last] >= (1 if waits else 2))


def _ran(t: Table, i: int) -> int:
    """How long an attempt ran; -1 if that is not known."""
    end = t.last_step_ns[i] if t.last_step_ns[i] >= 0 else t.end_ns[i]
    return int(end - t.start_ns[i]) if 0 <= t.start_ns[i] <= end else -1


def _stays(t: Table, rows: Sequence[int]) -> list[list[int]]:
    """The attempts by unbroken stays on their nodes."""
    stays: list[list[int]] = []
    for i in rows:
        if stays and t.held[i] == 1:
            stays[-1].append(i)
        else:
            stays.append([i])
    return stays


def _job(t: Table, job: str, rows: Sequence[int]) -> StuckJob:
    last = rows[-1]
    waits = t.outcome[last] == "pending"
    stays = _stays(t, rows)
    # Failures go back as far as stay after stay counts some.
    first = len(stays) - 1
    while not waits and first > 0 and t.failures[stays[first - 1][-1]] > 0:
        first -= 1
    mine = stays[first:]
    spans = [(int(t.start_ns[stay[0]]), int(t.end_ns[stay[-1]])) for stay in mine]
    held = sum(end - begin for begin, end in spans if 0 <= begin <= end)
    begin, stay = spans[0][0], mine[0][0]
    failed = int(t.last_step_ns[stay]) if t.last_step_ns[stay] >= 0 else int(t.end_ns[stay])
    since = (begin if begin >= 0 else int(t.submit_ns[last])) if waits else failed
    reason = next((str(t.reason[i]) for i in reversed(mine[-1]) if t.reason[i]), "")  # of what ran last, if it runs
    one = StuckJob(
        job=job,
        attempts=sum(t.outcome[i] != "pending" for i in rows),
        failures=int(sum(t.failures[stay[-1]] for stay in mine)),
        reason=reason,
        since_ns=since if since >= 0 and t.dated[stay] else None,
        held_ns=held or None,
        nodes=str(t.nodes[last]) or None,
        remedy=next((remedy for pattern, remedy in _REMEDIES if pattern.search(reason)), None),
        text="",
    )
    return replace(one, text=_text(one, str(t.outcome[last])))


def _text(one: StuckJob, outcome: str) -> str:
    """One sentence."""
    word, _, message = one.reason.partition(": ")
    said = f" ({message[:MESSAGE].rstrip()}{'…' if len(message) > MESSAGE else ''})" if message else ""
    since = f" since {when}" if (when := dated(one.since_ns)) else ""
    times = f"{one.failures:,} × {word}{since}{said}"
    place = f" on {one.nodes}" if one.nodes else ""
    held = f", its place{place} held for {spell(one.held_ns)} all the same" if one.held_ns else ""
    if outcome == "pending":
        tries = f" after {one.attempts} attempts" if one.attempts else ""
        what = f"{one.job} does not get to run: {times}; nothing ran{tries}"
    else:
        starts = f"{one.attempts} starts" if one.attempts > 1 else "one start"
        fails = "failed again and again" if outcome == "running" else "fails again and again"
        fails = "failed and waits to be started again" if one.failures == 1 else fails
        what = f"{one.job} {fails}: {starts}, {times}"
    new = "; whether the last start lasts, the log does not tell" if outcome == "running" else ""
    return f"{what}{held}{new}" + (f"; {one.remedy}." if one.remedy else ".")
