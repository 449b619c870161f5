"""Logs of Ray Serve's controller: how many replicas its autoscaler wanted, and the requests it saw.

The requests are the demand: they become a series beside the actions, of the deployment and of the moments at which the
controller looked. It logs only when it acts, so the series is sampled by the actions themselves.
"""

from __future__ import annotations

import re

import numpy as np

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import Change, Settings, lines_of, moments, table
from taut.read.contents import ControlLog, Place, Series

CONTROLLER = "ray serve autoscaler"
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[,.]\d{1,6})?)")
_SCALED = re.compile(
    r"(?:Up|Down)scaling Deployment\(name='(?P<name>[^']{1,200})'(?:, app='(?P<app>[^']{0,200})')?\)"
    r" from (?P<before>\d{1,9}) to (?P<after>\d{1,9}) replicas"
)
_OLDER = re.compile(
    r"Autoscaling (?:replicas for )?deployment '?(?P<name>[^\s']{1,200})'?(?: replicas)?"
    r"(?: in application '?(?P<app>[^\s']{0,200})'?)?(?: from (?P<before>\d{1,9}))? to (?P<after>\d{1,9})"
)
_DEMAND = re.compile(r"(?:[Cc]urrent[ _])(?:num_)?ongoing[ _]requests: (\d{1,12}(?:\.\d{1,9})?)")
_RUNNING = re.compile(r"current running replicas: (\d{1,9})")
_HEAD = re.compile(rb"(?:Up|Down)scaling Deployment\(name=|Autoscaling (?:replicas for )?deployment ")


def sniff(head: bytes) -> bool:
    """Whether this is text with lines of Serve's autoscaler."""
    return b"\x00" not in head and head.lstrip()[:1] not in (b"{", b"[") and _HEAD.search(head) is not None


def load(data: bytes, label: str) -> ControlLog:
    """The decisions of one log, and the requests that each saw."""
    found, torn = [], 0
    for line in lines_of(data):
        match = _SCALED.search(line) or _OLDER.search(line)
        at = _TIME.search(line[:80])
        if match and at:
            found.append((at[1], match.groupdict(), _number(_DEMAND, line), _number(_RUNNING, line)))
        elif match or ("scaling Deployment(" in line and "replicas" not in line):
            torn += 1
    if not found:
        raise InputRefused(label, "Serve's controller never scaled", "keep the lines with Upscaling and Downscaling")
    time, _ = moments([one[0] for one in found])
    settings, rows = Settings(), list[Change]()
    samples: dict[tuple[str, str], dict[int, float]] = {}
    for at, (_, scaled, demand, running) in zip(time.tolist(), found, strict=True):
        if at == NULL:
            torn += 1
            continue
        target = f"{scaled['app']}/{scaled['name']}" if scaled["app"] else scaled["name"]
        change = settings.change(target, "replicas", scaled["after"], scaled["before"] or "")
        trigger = "ongoing requests" if demand is not None else ""
        rows.append(
            {
                "time_ns": at,
                "layer": "autoscaler",
                "controller": CONTROLLER,
                "target": target,
                "knob": "replicas",
                "trigger": trigger,
                **change,
            }
        )
        for metric, value in (("ongoing_requests", demand), ("running_replicas", running)):
            if value is not None:
                samples.setdefault((target, metric), {})[at] = value
    demands = [_series(target, metric, values) for (target, metric), values in samples.items()]
    return ControlLog(label, table(rows, label), demands, zoneless=True, torn=torn)


def _number(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    return float(match[1]) if match else None


def _series(target: str, metric: str, samples: dict[int, float]) -> Series:
    """The series of a deployment, each moment once."""
    time = np.array(sorted(samples), dtype=np.int64)
    values = np.array([samples[at] for at in time.tolist()])
    return Series(Place(target), metric, time, values, np.full(len(time), np.nan))
