"""Runs → what changed between them: trends, two runs side by side, non-determinism of repeats, restarts.

Every statement is a test with its null hypothesis and size beside it (``tests`` in the result).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from taut.compare.changed_work import changed
from taut.compare.compare_verdict import NULLS, verdict
from taut.compare.non_determinism import non_determinism
from taut.compare.quantities import in_order, quantities, trends, with_reruns
from taut.compare.restarts import restarts, step_time
from taut.core.errors import UsageError
from taut.diagnose.detectors import Evidence, Finding, diagnose
from taut.diagnose.repeats import repeat
from taut.graph.joined import difference, joined
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay
from taut.result.finding_result import finding_result
from taut.result.types import CompareResult, Text
from taut.stored import Run, open_run

if TYPE_CHECKING:
    from taut.render.compare_charts import ComparePlots


class Comparison(CompareResult, frozen=True, kw_only=True):
    """Runs compared: what ``taut compare --json`` prints, which shows itself in notebooks."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.runs)} runs: {self.verdict.text}>"

    def _repr_html_(self) -> str:
        from taut.render.compare_card import compare_card

        return compare_card(self)

    @property
    def plot(self) -> ComparePlots:
        """Pictures of it: ``plot.steps()``, ``plot.trend()``; they need altair."""
        from taut.render.compare_charts import ComparePlots

        return ComparePlots(self)


def compare(runs: Sequence[str | Path | Run], *, same_job: bool = False, as_given: bool = False) -> Comparison:
    """Compare two or more runs (or their folders): what ``taut compare --json`` prints.

    ``same_job`` takes all of them as runs of one job, whatever their names; ``as_given`` takes them in the order given,
    whatever their times.
    """
    _check(runs)
    rows, repeats = [], []
    for given in runs:
        run = _opened(given)  # one at a time: graphs are large
        rows.append(quantities(run))
        repeats.append(repeat(run.graph, [window.wall_ns for window in run.result.windows]))
    order, by = in_order(rows, as_given)
    repeats = [repeats[i] for i in order]
    jobs = ["" if same_job else rows[i].job for i in order]
    rows = with_reruns([rows[i] for i in order], jobs)
    last = _opened(runs[order[-1]])
    changes, tested, changed_by = changed(repeats[0], repeats[-1], last.graph)
    # Two runs are a run and its past; only more of them tell how far runs of this job differ anyway.
    found = _against_first(_opened(runs[order[0]]), last) if len(runs) == 2 else []
    result = Comparison(
        verdict=Text(text=""),
        runs=rows,
        order=by,
        trends=trends(rows),
        changed=changes,
        changed_tested=tested,
        changed_by=changed_by,
        findings=[finding_result(one, members=last.graph.members) for one in found],
        step_time=step_time(repeats[0], repeats[-1]),
        non_determinism=non_determinism(rows, repeats),
        restarts=restarts(rows, repeats, jobs),
        tests=NULLS,
    )
    return replace(result, verdict=Text(text=verdict(result, found[0] if found else None)))


def _opened(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else open_run(run)


def _check(runs: Sequence[str | Path | Run]) -> None:
    if len(runs) < 2:
        raise UsageError("one run has nothing to be compared with: give two or more run folders")
    names = [str(run.folder if isinstance(run, Run) else run).rstrip("/") for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice}: given twice; a run does not differ from itself")


__all__ = ["Comparison", "compare"]


def _against_first(before: Run, after: Run) -> list[Finding]:
    """Findings of the later run; none where the two are not the same graph."""
    graph = after.graph
    if difference(before.graph, graph) is not None:
        return []
    both, observed = joined(before.graph, graph), replay(graph)
    gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed
    return diagnose(Evidence(graph, observed, blame(graph, observed, gap_free, both), batch(graph), both))
