"""What a collector sees, made up for tests: a job with a slow rank, and others."""

from __future__ import annotations

from taut.result.types import SCHEMA, Estimate, LiveFinding, LiveState, WatchedJob, WatchedRank

S = 1_000_000_000
AT_NS = 1_800_000_000 * S
EVIL = 'evil\x1b[2J"\\\n{x="1"} 1'
"""A name that is more than a name to whoever does not escape it."""


def finding(**about: object) -> LiveFinding:
    told: dict[str, object] = {
        "at_ns": AT_NS - 90 * S, "id": "w-0011223344", "job": "llm", "mode": "degraded component", "state": "open",
        "ranks": [3], "hosts": ["node0"], "links": [], "since_step": 1_180, "delay_steps": 12, "money_per_hour": "14.20",
        "currency": "EUR", "false_alarms_per_hour": 0.02, "cannot_see": [],
        "text": "rank 3 on node0 is slow since step 1180; look at its clock, temperature and neighbours",
    }  # fmt: skip
    return LiveFinding(**{**told, **about})  # type: ignore[arg-type]


def rank(number: int, **about: object) -> WatchedRank:
    told: dict[str, object] = {
        "rank": number, "host": f"node{number // 4}", "gpu": number % 4, "state": "heard", "late_ns": 1_000_000,
        "busy_ns": 2_000_000, "loader_ns": 0, "dropped": 0,
    }  # fmt: skip
    return WatchedRank(**{**told, **about})  # type: ignore[arg-type]


def job(**about: object) -> WatchedJob:
    ranks = [rank(3, late_ns=92_000_000, busy_ns=90_000_000), *(rank(one) for one in range(8) if one != 3)]
    told: dict[str, object] = {
        "job": "llm", "verdict": finding().text, "kind": "component", "findings": [finding()], "world": 8, "heard": 8,
        "lost": 0, "ended": 0, "ranks": ranks, "last_step": 1_234, "step_ns": 412_000_000,
        "steps_ns": [320_000_000 + 1_000_000 * (one % 7) + 90_000_000 * (one > 80) for one in range(120)], "regime": "stable",
        "reserve": Estimate(value=2.5, lo=2.0, hi=3.25), "received": 120_000, "not_received": {"dropped": 7, "faults": 1},
    }  # fmt: skip
    return WatchedJob(**{**told, **about})  # type: ignore[arg-type]


def state(*jobs: WatchedJob, **about: object) -> LiveState:
    counts = {"connections": 9, "refused": 2, "messages": 400, "bytes": 65_536, "ranks": 8}
    told: dict[str, object] = {"schema": SCHEMA, "at_ns": AT_NS, "since_ns": AT_NS - 3_600 * S, "counts": counts}
    return LiveState(jobs=list(jobs), **{**told, **about})  # type: ignore[arg-type]
