"""What is followed from run to run, and its trends."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from taut.core.trend import corrected, trend
from taut.run import Run

QUANTITIES = (
    "step_ns", "runtime_variance_index", "effective_throughput_ratio", "waiting_share", "recoverable_share", "rerun_share",
    "energy_per_kept_step_j", "cost_per_kept_step",
)  # fmt: skip
"""Each is a key of a run's row and has one trend test."""
EPOCH_NS = 10**18
"""Times before this (the year 2001) are no dates: such traces count from zero or from the start of the machine."""


def quantities(run: Run) -> dict[str, Any]:
    """One run as a row; what was not measured is None. Re-runs are told by the other runs (``rerun``)."""
    result, job = run.result, run.result["job"]
    indices, total = result["indices"], result["ledger"]["total_rank_ns"]
    return {
        "run": str(run.folder), "job": job["name"], "time_ns": _time(run), "ranks": job["ranks"],
        "steps": job["steps"], "first_step": job["first_step"], "last_step": job["last_step"],
        "step_ns": float(np.median([window["wall_ns"] for window in result["windows"]])),
        "runtime_variance_index": indices["runtime_variance_index"],
        "effective_throughput_ratio": indices["effective_throughput_ratio"],
        "waiting_share": result["waits"]["exposed_rank_ns"] / total if total else None,
        "recoverable_share": result["recoverable_wall_ns"] / job["wall_ns"] if job["wall_ns"] else None,
        "rerun_share": None, "kept_steps": job["steps"],
        "energy_j": _sum(result, "joules"), "cost": _sum(result, "money"), "currency": result["ledger"]["currency"],
        "energy_per_kept_step_j": None, "cost_per_kept_step": None,
    }  # fmt: skip


def _time(run: Run) -> int | None:
    """When the run began, ns since 1970, if its clock tells."""
    graph = run.graph
    begin = int(np.min(graph.origin_ns)) if len(graph.origin_ns) and not graph.trace.relative else 0
    return begin if begin >= EPOCH_NS else None


def _sum(result: dict[str, Any], key: str) -> Any:
    """Joules or money of the whole ledger; money stays a decimal string."""
    found = [entry[key] for entry in result["ledger"]["entries"] if entry[key] is not None]
    if not found:
        return None
    return str(sum(map(Decimal, found), Decimal(0))) if key == "money" else float(sum(found))


def in_order(rows: Sequence[dict[str, Any]]) -> tuple[list[int], str]:
    """The order of the runs, by their time if all have one, else as given; and which of the two."""
    times = [row["time_ns"] for row in rows]
    if None in times or len(set(times)) < len(times):
        return list(range(len(rows))), "given"
    return sorted(range(len(rows)), key=lambda i: times[i]), "time"


def job_of(row: dict[str, Any], same_job: bool) -> str:
    """Whose run it is: the name of the job, or one for all."""
    return "" if same_job else row["job"]


def rerun(rows: list[dict[str, Any]], jobs: Sequence[str]) -> None:
    """Fill in which share of its steps a later run of the job executes again, and what each kept step took.

    Runs of exactly the same steps are repeats of an experiment: both are kept. The last run of a job is not judged yet.
    """
    for i, row in enumerate(rows):
        later = [other for other, job in zip(rows[i + 1 :], jobs[i + 1 :], strict=True) if job == jobs[i]]
        share = _steps_again(row, later) / (row["last_step"] - row["first_step"] + 1)
        kept = row["steps"] * (1 - share)
        row["rerun_share"] = share if later else None
        row["kept_steps"] = kept
        if kept > 0:
            row["energy_per_kept_step_j"] = None if row["energy_j"] is None else row["energy_j"] / kept
            row["cost_per_kept_step"] = None if row["cost"] is None else str(Decimal(row["cost"]) / Decimal(kept))


def _steps_again(row: dict[str, Any], later: Sequence[dict[str, Any]]) -> int:
    """How many steps of a run's range lie in that of a later run that is no repeat of it."""
    first, last = row["first_step"], row["last_step"]
    ranges = {(other["first_step"], other["last_step"]) for other in later} - {(first, last)}
    count, counted_to = 0, first - 1
    for begin, end in sorted(ranges):
        end = min(end, last)
        count += max(end - max(begin - 1, counted_to), 0)
        counted_to = max(counted_to, end)
    return count


def trends(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trend of every quantity over the runs that have it, corrected over all quantities."""
    found = []
    for quantity in QUANTITIES:
        values = [_value(row[quantity]) for row in rows]
        if quantity == "cost_per_kept_step" and len({row["currency"] for row in rows} - {None}) > 1:
            values = []
        known = [value for value in values if value is not None]
        found.append((quantity, len(known), trend(known)))
    q = corrected([None if t is None else t.p for *_, t in found])
    return [
        {
            "quantity": quantity, "runs": count, "p": None if t is None else t.p, "q": q[i],
            "slope": None if t is None else {"value": t.slope, "lo": t.lo, "hi": t.hi},
        }
        for i, (quantity, count, t) in enumerate(found)
    ]  # fmt: skip


def _value(value: Any) -> float | None:
    if isinstance(value, dict):
        value = value["value"]
    return None if value is None else float(value)
