"""Non-determinism of repeats, in the words of the JSON contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from taut.core.trend import corrected
from taut.diagnose.finding import Finding
from taut.diagnose.nondeterminism import Timing, finding, sets, timing
from taut.diagnose.repeats import Repeat, unlike

ROWS = 20
"""Differences that are listed for a run, and classes for a set of repeats; all are counted."""


def non_determinism(rows: Sequence[dict[str, Any]], repeats: Sequence[Repeat]) -> dict[str, Any]:
    """How the runs differ in structure from the first, and in timing from their repeats."""
    seen = [timing(repeats, chosen) for chosen in sets(repeats) if len(chosen) > 1]
    q = corrected([one.p for one in seen])
    findings = [finding(repeats, one, value) for one, value in zip(seen, q, strict=True)]
    return {
        "structure": [_structure(rows, repeats, i) for i in range(1, len(repeats))],
        "repeats": [_timing(rows, one, value) for one, value in zip(seen, q, strict=True)],
        "findings": [_finding(one) for one in findings if one is not None],
    }


def _structure(rows: Sequence[dict[str, Any]], repeats: Sequence[Repeat], i: int) -> dict[str, Any]:
    found = unlike(repeats[0], repeats[i])
    return {
        "run": rows[i]["run"], "against": rows[0]["run"], "same_graph": not any(one.graph for one in found),
        "count": len(found),
        "differences": [
            {
                "what": u.what, "rank": u.rank, "class": u.name, "before": u.before, "after": u.after,
                "step": u.step, "steps": u.steps,
            }
            for u in sorted(found, key=lambda u: not u.graph)[:ROWS]
        ],
    }  # fmt: skip


def _timing(rows: Sequence[dict[str, Any]], seen: Timing, q: float | None) -> dict[str, Any]:
    return {
        "runs": [rows[i]["run"] for i in seen.runs], "step_ns": list(seen.step_ns), "within_share": seen.within,
        "between_share": _estimate(seen.between), "p": seen.p, "q": q, "count": len(seen.spots),
        "classes": [
            {"class": s.name, "rank": s.rank, "between_ns": _estimate(s.between_ns), "p": s.p, "q": s.q}
            for s in seen.spots[:ROWS]
        ],
    }  # fmt: skip


def _estimate(parts: tuple[float, float, float] | None) -> dict[str, float] | None:
    return None if parts is None else dict(zip(("value", "lo", "hi"), parts, strict=True))


def _finding(found: Finding) -> dict[str, Any]:
    fields = [f.name for f in dataclasses.fields(found) if f.name != "changes"]
    values = {name: getattr(found, name) for name in fields}
    return {"id": found.id, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}
