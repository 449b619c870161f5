"""Small logs of controllers, written row by row."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.core.tables import Action, Attempt, Member, Metric, Op, Table, Trace, fields_of

SECOND = 1_000_000_000


def table(row: type, rows: list[dict[str, Any]]) -> Table:
    """A table of rows that name only what they know."""
    columns = {}
    for name, field in fields_of(row).items():
        if any(name in one for one in rows):
            kind = object if isinstance(field.default, str) else None
            columns[name] = np.array([one.get(name, field.default) for one in rows], dtype=kind)
    return Table(row, columns, len(rows))


def trace(
    actions: list[dict[str, Any]], demand: Any = None, attempts: Sequence[dict[str, Any]] = (), metrics: Any = (), **more: Any
) -> Trace:
    """A trace of actions; ``demand`` is (seconds, values); metrics are (component, name, seconds, values)."""
    series = [*metrics, *([("all", "demand", *demand)] if demand is not None else [])]
    samples = [
        {"time_ns": int(t * SECOND), "component": component, "metric": name, "value": float(v)}
        for component, name, times, values in series
        for t, v in zip(times, values, strict=True)
    ]
    return Trace(
        ops=Table(Op, {}, 0), names=[], lanes=[], groups=[], members=Table(Member, {}, 0), actions=table(Action, actions),
        attempts=table(Attempt, list(attempts)), metrics=table(Metric, samples), **more,
    )  # fmt: skip


def act(t: float, controller: str, way: int, target: str = "pool", knob: str = "replicas", **more: Any) -> dict[str, Any]:
    """One decision at a second."""
    return {"time_ns": int(t * SECOND), "controller": controller, "direction": way, "target": target, "knob": knob, **more}


def attempt(t: float, number: int, work: str, took_s: float = 1.0, outcome: str = "kept", **more: Any) -> dict[str, Any]:
    """One attempt at a work."""
    row = {"time_ns": int(t * SECOND), "controller": "client", "target": "call", "knob": "attempt", "layer": "retry"}
    return {**row, "attempt": number, "work": work, "busy_ns": int(took_s * SECOND), "outcome": outcome, **more}


def poisson(rng: np.random.Generator, rate: Any) -> Any:
    """Seconds of events, one rate for each second."""
    count = rng.poisson(rate)
    return np.sort(np.repeat(np.arange(len(count)), count) + rng.random(int(count.sum())))


def queue(
    rng: np.random.Generator, arrivals: float, service: float, timeout: float, retries: int, span: float, stall: Any,
    *, delay: float = 0.0, servers: int = 1, spread: float = 1.0, budget: float | None = None,
):  # fmt: skip
    """Attempts at servers that serve one after the other, late ones too, and stand still in a span of time.

    ``delay`` is spent on the way, ``spread`` is that of the service (1 exponential, 0 constant), ``budget`` is of retries.
    """
    events = [(float(t), 0, f"w{k}") for k, t in enumerate(np.cumsum(rng.exponential(1 / arrivals, int(arrivals * span))))]
    heapq.heapify(events)
    free, saved, rows = [0.0] * servers, 10.0, []
    while events:
        at, number, work = heapq.heappop(events)
        if budget is not None:
            saved = min(saved + budget, 10.0) if number == 0 else saved - 1
            if saved < 0:
                saved += 1
                continue
        begin = max(at + delay / 2, heapq.heappop(free))
        begin = stall[1] if stall[0] <= begin < stall[1] else begin
        end = begin + (float(rng.gamma(spread**-2, spread**2)) if spread else 1.0) / service
        heapq.heappush(free, end)
        took = end + delay / 2 - at
        late = took > timeout
        rows.append(attempt(at, number, work, timeout if late else took, "failed" if late else "kept"))
        if late and number < retries and at + timeout < span:
            heapq.heappush(events, (at + timeout, number + 1, work))
    return rows
