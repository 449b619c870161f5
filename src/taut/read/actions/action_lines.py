"""Plain logs of controllers, a decision a line: ``TIME controller knob=value target``, with further ``key=value`` behind.

A word such as ``requeue`` or ``hold`` may stand alone in the place of ``knob=value``.

What a job's scheduler is asked for (``StartTime=now``, ``hold=1``) turns one knob, the job's allocation, whatever the
word. A value is compared with the one before of the same knob and target.
"""

from __future__ import annotations

import re

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import ALLOCATION, Change, Settings, layer_of, lines_of, moments, start_direction, table
from taut.read.contents import ControlLog
from taut.read.jobs.job_words import cut

_TIME = r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\]?"
_ASKS = "|".join(ALLOCATION)
_LINE = re.compile(
    rf"\s*{_TIME}\s+(?:(?:DEBUG|INFO|WARN(?:ING)?|ERROR)\s+)?([\w./:@-]{{1,80}})\s+(?:([A-Za-z][\w./-]{{0,60}})=(\S{{1,200}})|({_ASKS}))"
    r"\s+([^\s=]{1,200})(?:\s+(.*))?$"
)
_PAIR = re.compile(r"([A-Za-z]\w{0,30})=(\S{1,200})")
_STEP = re.compile(r"(.+?)(?:->|→)(.+)")
# Lines looked at; half of them must be decisions.
SNIFFED = 50
BESIDE = {"trigger": "trigger", "reason": "trigger", "work": "work", "outcome": "outcome", "layer": "layer"}
"""Keys behind the target that are columns."""
KNOBS = {"priority": "priority", "timelimit": "time_limit", "nice": "nice"}
"""What is asked of Slurm, in the words of its controller's log."""


def sniff(head: bytes) -> bool:
    """Text whose first line is a decision, and most of those after it."""
    if b"\x00" in head or not head[:40].strip() or b"=" not in head:
        return False
    lines = head[: 32 << 10].decode("utf-8", "replace").splitlines()
    if len(head) > 32 << 10:
        lines = lines[:-1]
    fits = [_LINE.match(line[:2000]) is not None for line in lines if line.strip()][:SNIFFED]
    return bool(fits) and fits[0] and sum(fits) >= 0.5 * len(fits)


def load(data: bytes, label: str) -> ControlLog:
    """The decisions of one log."""
    found, torn = [], 0
    for line in lines_of(data):
        match = _LINE.match(line)
        torn += match is None
        if match is not None:
            found.append(match.groups())
    if not found:
        raise InputRefused(label, "no line holds a decision", "write lines such as: TIME controller knob=value target")
    time, bare = moments([parts[0] for parts in found])
    settings = Settings()
    rows: list[Change] = []
    for at, (_, controller, knob, value, word, target, rest) in zip(time.tolist(), found, strict=True):
        if at == NULL:
            torn += 1
            continue
        knob = KNOBS.get((knob or word).lower(), knob or word)
        change = _requested(at, knob, value or "") or {"knob": knob, **_changed(settings, target, knob, value)}
        beside = {BESIDE[key.lower()]: cut(text) for key, text in _PAIR.findall(rest or "") if key.lower() in BESIDE}
        rows.append(
            {"time_ns": at, "layer": layer_of(controller), "controller": controller, "target": target, **change, **beside}
        )
    return ControlLog(label, table(rows, label), zoneless=bare, torn=torn)


def _changed(settings: Settings, target: str, knob: str, value: str) -> Change:
    step = _STEP.fullmatch(value)
    return settings.change(target, knob, step[2], step[1]) if step else settings.change(target, knob, value)


def _requested(at: int, knob: str, value: str) -> Change | None:
    """What a job's scheduler was asked for, as a turn of the job's allocation; None for any other knob."""
    word = knob.lower()
    if word == "starttime":
        begin = at if value.lower() in ("now", "asap") else int(moments([value])[0][0])
        way = start_direction(begin, at)
    elif word in ALLOCATION:
        way = ALLOCATION[word] * (-1 if value.lower() in ("0", "no", "false", "off") else 1)
    else:
        return None
    return {"knob": "allocation", "after": cut(f"{knob}={value}" if value else knob), "direction": way}
