"""Non-determinism of repeats, in the words of the JSON contract."""

from __future__ import annotations

from collections.abc import Sequence

from taut.core.trend import corrected
from taut.diagnose.nondeterminism import Timing, same_graph_sets, timing, timing_finding
from taut.diagnose.repeats import Repeat, structure_differences
from taut.result.finding_result import finding_result
from taut.result.types import ComparedRun, Difference, Estimate, NonDeterminism, RepeatedClass, Repeats, Structure

ROWS = 20
"""Differences that are listed for a run, and classes for a set of repeats; all are counted."""


def non_determinism(rows: Sequence[ComparedRun], repeats: Sequence[Repeat]) -> NonDeterminism:
    """How the runs differ in structure from the first, and in timing from their repeats."""
    seen = [timing(repeats, chosen) for chosen in same_graph_sets(repeats) if len(chosen) > 1]
    q = corrected([one.p for one in seen])
    # Two runs cannot tell runs that differ anyway from a job that became slower: that is ``against_first.py``'s.
    enough = len(repeats) > 2
    findings = [timing_finding(repeats, one, value) for one, value in zip(seen, q, strict=True) if enough]
    return NonDeterminism(
        structure=[_structure(rows, repeats, i) for i in range(1, len(repeats))],
        repeats=[_timing(rows, one, value) for one, value in zip(seen, q, strict=True)],
        findings=[finding_result(one) for one in findings if one is not None],
    )


def _structure(rows: Sequence[ComparedRun], repeats: Sequence[Repeat], i: int) -> Structure:
    found = structure_differences(repeats[0], repeats[i])
    return Structure(
        run=rows[i].run,
        against=rows[0].run,
        same_graph=not any(one.graph for one in found),
        count=len(found),
        differences=[
            Difference(what=u.what, rank=u.rank, op_class=u.name, before=u.before, after=u.after, step=u.step, steps=u.steps)
            for u in sorted(found, key=lambda u: not u.graph)[:ROWS]
        ],
    )


def _timing(rows: Sequence[ComparedRun], seen: Timing, q: float | None) -> Repeats:
    return Repeats(
        runs=[rows[i].run for i in seen.runs],
        step_ns=list(seen.step_ns),
        within_share=seen.within,
        between_share=_estimate(seen.between),
        p=seen.p,
        q=q,
        count=len(seen.spots),
        classes=[
            RepeatedClass(op_class=s.name, rank=s.rank, between_ns=_estimate(s.between_ns), p=s.p, q=s.q)
            for s in seen.spots[:ROWS]
        ],
    )


def _estimate(parts: tuple[float, float, float] | None) -> Estimate | None:
    return None if parts is None else Estimate(value=parts[0], lo=parts[1], hi=parts[2])
