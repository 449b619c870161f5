"""The attempts of one job in the words of whoever is on call: what failed, how often, since when, what is left, what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from taut.core.reporting import dated
from taut.result.types import AttemptRow

WELL = ("completed", "running", "pending", None)
# Reasons are compared without numbers, and cut here.
REASON = 120
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
_COLLECTIVE = re.compile(r"(?i)tim(?:e|ed) ?out|watchdog")
_DEVICE = re.compile(r"(?i)illegal memory access|xid|ecc|uncorrectable|cuda error|nvlink|device-side")
_REMOTE = re.compile(r"(?i)nccl|gloo|remote process|connection (?:closed|reset)|socket|peer")
REMEDIES = {
    "timed out": "ask for a longer limit, or save a checkpoint before it",
    "out of memory": "use a smaller batch or shard more: a restart meets the same limit",
    "preempted": "save more often than it is preempted, or ask for a queue without preemption",
    "node failed": "have the node drained and tested before the job returns to it",
}
"""What to do about an outcome that names its cause."""


def advice(rows: Sequence[AttemptRow]) -> str:
    """Sentences on the attempts that did not go well; empty if all did."""
    bad = [row for row in rows if row.outcome not in WELL]
    if not bad:
        return ""
    return " ".join(filter(None, (_why(bad, len(rows)), _where(rows), _todo(bad))))


def _why(bad: Sequence[AttemptRow], attempts: int) -> str:
    """The reason that most of them give, how often, and since when."""
    reasons = Counter(_alike(row.reason) for row in bad if row.reason)
    if not reasons:
        return ""
    most, times = reasons.most_common(1)[0]
    named = [row for row in bad if row.reason and _alike(row.reason) == most]
    text = (named[0].reason or "")[:REASON].strip()
    since = dated(named[0].end_ns)
    if attempts == 1:
        return f"It ended{f' at {since}' if since else ''}: {text}."
    often = "Every attempt" if times == attempts else f"{times} of {attempts} attempts"
    return f"{often} ended so{f', since {since}' if since else ''}: {text}."


def _alike(reason: str | None) -> str:
    return _DIGITS.sub("#", (reason or "").lower())[:REASON]


def _where(rows: Sequence[AttemptRow]) -> str:
    """How far it came, and what of that is saved."""
    last = rows[-1]
    if last.outcome in WELL or last.last_step is None:
        return ""
    saved = max((row.saved_step for row in rows if row.saved_step is not None), default=None)
    if saved is None:
        return f"It had come to step {last.last_step:,}, and its log shows no checkpoint."
    return f"It had come to step {last.last_step:,}; the last checkpoint is of step {saved:,}."


def _todo(bad: Sequence[AttemptRow]) -> str:
    """What to do, by the last attempt that did not go well."""
    last, ends = bad[-1], {row.last_step for row in bad}
    reason = last.reason or ""
    if last.outcome in REMEDIES:
        todo = REMEDIES[last.outcome]
    elif len(bad) > 2 and len(ends) == 1 and last.last_step is not None:
        todo = f"all end after step {last.last_step:,}: look at the data and the code of the next step, not at nodes"
    elif _DEVICE.search(reason):
        todo = "look for Xid or ECC errors of that device in the kernel's log, and leave its node out"
    elif _COLLECTIVE.search(reason):
        todo = "find the rank that did not come to the collective (flight-recorder dumps, py-spy) before raising the timeout"
    elif _REMOTE.search(reason):
        todo = "another process ended first: look at the log of the rank that is named, or of the first to fail"
    else:
        return ""
    return f"{todo[0].upper()}{todo[1:]}."
