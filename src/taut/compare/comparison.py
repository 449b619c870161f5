"""Runs → what changed between them: trends, two runs side by side, non-determinism of repeats, restarts.

Every statement is a test with its null hypothesis and size beside it (``tests`` in the result).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taut.compare.changed_work import changed
from taut.compare.compare_verdict import NULLS, verdict
from taut.compare.non_determinism import non_determinism
from taut.compare.quantities import in_order, job_of, quantities, rerun, trends
from taut.compare.restarts import restarts
from taut.core.errors import UsageError
from taut.diagnose.repeats import repeat
from taut.run import Run, open_run


def compare(runs: Sequence[Any], *, same_job: bool = False) -> dict[str, Any]:
    """Compare two or more runs (or their folders): what ``taut compare --json`` prints.

    ``same_job`` takes all of them as runs of one job, whatever their names.
    """
    _check(runs)
    rows, repeats = [], []
    for given in runs:
        run = given if isinstance(given, Run) else open_run(given)
        rows.append(quantities(run))
        repeats.append(repeat(run.graph, [window["wall_ns"] for window in run.result["windows"]]))
    order, by = in_order(rows)
    rows, repeats = [rows[i] for i in order], [repeats[i] for i in order]
    jobs = [job_of(row, same_job) for row in rows]
    rerun(rows, jobs)
    last = runs[order[-1]]
    result: dict[str, Any] = {
        "runs": rows,
        "order": by,
        "trends": trends(rows),
        **changed(repeats[0], repeats[-1], (last if isinstance(last, Run) else open_run(last)).graph),
        "non_determinism": non_determinism(rows, repeats),
        "restarts": restarts(rows, repeats, jobs),
        "tests": NULLS,
    }
    return {"verdict": {"text": verdict(result)}, **result}


def _check(runs: Sequence[Any]) -> None:
    if len(runs) < 2:
        raise UsageError("one run has nothing to be compared with: give two or more run folders")
    names = [str(run.folder if isinstance(run, Run) else run).rstrip("/") for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice}: given twice; a run does not differ from itself")


__all__ = ["compare"]
