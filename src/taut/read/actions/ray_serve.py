"""Logs of Ray Serve's controller: how many replicas its autoscaler wanted, and the requests it saw.

The requests are the demand: they become a series beside the actions, of the deployment and of the moments at which the
controller looked. It logs only when it acts, so the series is sampled by the actions themselves.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import ControlLog, Settings, lines_of, moments, table
from taut.read.metrics.series import Place, Series

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
    """Text in which Serve's autoscaler speaks."""
    return b"\x00" not in head and head.lstrip()[:1] not in (b"{", b"[") and _HEAD.search(head) is not None


def load(data: bytes, label: str) -> ControlLog:
    """The decisions of one log, and the requests that each saw."""
    found, torn = [], 0
    for line in lines_of(data):
        scaled = _SCALED.search(line) or _OLDER.search(line)
        at = _TIME.search(line[:80])
        if scaled and at:
            found.append((at[1], scaled.groupdict(), _number(_DEMAND, line), _number(_RUNNING, line)))
        elif scaled or ("scaling Deployment(" in line and "replicas" not in line):
            torn += 1
    if not found:
        raise InputRefused(label, "Serve's controller never scaled", "keep the lines that tell of Upscaling and Downscaling")
    time, _ = moments([one[0] for one in found])
    settings, rows, seen = Settings(), [], []
    for at, (_, told, demand, running) in zip(time.tolist(), found, strict=True):
        if at == NULL:
            torn += 1
            continue
        target = f"{told['app']}/{told['name']}" if told["app"] else told["name"]
        change = settings.change(target, "replicas", told["after"], told["before"] or "")
        trigger = "ongoing requests" if demand is not None else ""
        rows.append(
            {"time_ns": at, "layer": "autoscaler", "controller": CONTROLLER, "target": target, "knob": "replicas",
             "trigger": trigger, **change}
        )  # fmt: skip
        seen += [(target, metric, at, value) for metric, value in _series(demand, running)]
    return ControlLog(label, table(rows, label), _demand(seen), zoneless=True, torn=torn)


def _number(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    return float(match[1]) if match else None


def _series(demand: float | None, running: float | None) -> list[tuple[str, float]]:
    both = (("ongoing_requests", demand), ("running_replicas", running))
    return [(name, value) for name, value in both if value is not None]


def _demand(seen: list[tuple[str, str, int, float]]) -> list[Series]:
    """One series per deployment and metric, each moment once."""
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for target, metric, at, value in seen:
        groups.setdefault((target, metric), {})[at] = value
    out: list[Series] = []
    for (target, metric), samples in groups.items():
        time: Any = np.array(sorted(samples), dtype=np.int64)
        values: Any = np.array([samples[at] for at in time.tolist()])
        out.append(Series(Place(target), metric, time, values, np.full(len(time), np.nan)))
    return out
