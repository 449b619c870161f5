"""The result as tables of a run folder: findings, causes, steps and ranks, for people who read Parquet and no JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Ints
from taut.ledger.charge import FATES
from taut.result.computed import Computed
from taut.result.types import AnalysisResult

if TYPE_CHECKING:
    import pyarrow as pa


IDEAL = "what the step takes with no op above its reference, gaps kept: no single fix ends before it"


def result_tables(a: Computed, result: AnalysisResult, ideal_ns: Ints) -> dict[str, pa.Table]:
    """Name → table, one row for each finding, cause, step and rank; ``ideal_ns`` is what each step takes in the ideal."""
    steps = _steps(result, ideal_ns)
    return {"findings": _findings(result), "causes": _causes(result), "steps": steps, "ranks": _ranks(a)}


def _findings(result: AnalysisResult) -> pa.Table:
    import pyarrow as pa

    rows = result.findings
    ranks, texts = pa.list_(pa.int64()), pa.list_(pa.string())
    return pa.table(
        {
            "id": pa.array([f.id for f in rows], pa.string()),
            "mode": pa.array([f.mode for f in rows], pa.string()),
            "ranks": pa.array([f.ranks for f in rows], ranks),
            "links": pa.array([f.links for f in rows], texts),
            "stages": pa.array([f.stages for f in rows], ranks),
            "classes": pa.array([f.classes for f in rows], texts),
            "first_step": pa.array([f.steps[0] for f in rows], pa.int64()),
            "last_step": pa.array([f.steps[1] for f in rows], pa.int64()),
            "lost_rank_ns": pa.array([f.lost_rank_ns for f in rows], pa.int64()),
            "recoverable_wall_ns": pa.array([f.recoverable_wall_ns for f in rows], pa.int64()),
            "confidence": pa.array([f.confidence for f in rows], pa.float64()),
            "because": pa.array([f.because for f in rows], pa.string()),
            "money": pa.array([f.money.window if f.money else None for f in rows], pa.string()),
            "currency": pa.array([f.money.currency if f.money else None for f in rows], pa.string()),
        }
    )


def _causes(result: AnalysisResult) -> pa.Table:
    import pyarrow as pa

    rows = result.blame
    return pa.table(
        {
            "rank": pa.array([b.cause.rank for b in rows], pa.int64()),
            "stage": pa.array([b.cause.stage for b in rows], pa.int64()),
            "class": pa.array([b.cause.op_class for b in rows], pa.string()),
            "link": pa.array([b.cause.link for b in rows], pa.string()),
            "controller": pa.array([b.cause.controller for b in rows], pa.string()),
            "wait_rank_ns": pa.array([b.wait_rank_ns for b in rows], pa.int64()),
            "share": pa.array([b.share for b in rows], pa.float64()),
            "recoverable_wall_ns": pa.array([b.recoverable_wall_ns for b in rows], pa.int64()),
            "first_step": pa.array([b.steps[0] for b in rows], pa.int64()),
            "last_step": pa.array([b.steps[1] for b in rows], pa.int64()),
        }
    )


def _steps(result: AnalysisResult, ideal_ns: Ints) -> pa.Table:
    import pyarrow as pa

    rows = result.windows
    told = pa.table(
        {
            "step": pa.array([w.step for w in rows], pa.int64()),
            "wall_ns": pa.array([w.wall_ns for w in rows], pa.int64()),
            "caused_rank_ns": pa.array([w.caused_rank_ns for w in rows], pa.int64()),
            "top_cause": pa.array([w.top_cause for w in rows], pa.int64()),
            "effective_throughput_ratio": pa.array([w.effective_throughput_ratio for w in rows], pa.float64()),
            "turnover": pa.array([w.turnover for w in rows], pa.float64()),
            "phase": pa.array([w.phase for w in rows], pa.string()),
        }
    )
    return told.append_column(pa.field("ideal_ns", pa.int64(), metadata={"doc": IDEAL}), pa.array(ideal_ns, pa.int64()))


def _ranks(a: Computed) -> pa.Table:
    """Who each rank is, the wait it caused, and where its own time went: a column for each fate."""
    import pyarrow as pa

    members, spent = a.graph.members, a.ledger.by_rank(a.graph.ranks)
    known = {name: pa.array(getattr(members, name), mask=getattr(members, name) < 0) for name in ("stage", "dp_rank", "gpu")}
    return pa.table(
        {
            "rank": a.graph.ranks.astype(np.int64),
            **{name: pa.array(getattr(members, name), pa.string()) for name in ("name", "role", "host", "device")},
            **known,
            "caused_rank_ns": a.blame.caused_ns,
            **{f"{fate.replace(' ', '_')}_ns": spent[:, k] for k, fate in enumerate(FATES)},
        }
    )
