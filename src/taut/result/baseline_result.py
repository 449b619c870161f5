"""What a result says of its baseline: how long a step took there, and its own indices, so that old stands beside new."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Ints
from taut.core.differences import TRIMMED, ratio
from taut.diagnose.against_baseline import WHOLE_RUNS
from taut.ledger import Prices
from taut.ledger.charge import AVOIDABLE, CATEGORIES
from taut.result.types import AnalysisResult, Baseline, BeforeAfter, Estimate, Indices, LedgerEntry


def baseline_result(past: AnalysisResult, step_ns: Ints, prices: Prices, run: str, digest: str) -> Baseline:
    """The baseline beside a run whose steps took ``step_ns``; energy at this run's watts."""
    before = [window.wall_ns for window in past.windows]
    return Baseline(
        run=run,
        digest=digest,
        step_ns=BeforeAfter(before=float(np.median(before)), after=float(np.median(step_ns))),
        step_ratio=step_ratio(before, step_ns),
        indices=_indices(past, prices),
        turnover=past.coupling.turnover.value if past.coupling else None,
        nominal_share=past.verdict.nominal_share,
        effective_share=past.verdict.effective_share,
    )


def step_ratio(before: Sequence[int], after: Ints, trimmed: float = TRIMMED) -> Estimate | None:
    """Step time after over before; a healthy job as a whole is assumed to vary by WHOLE_RUNS from run to run."""
    found = ratio(np.array(before, dtype=np.float64), after.astype(np.float64), trimmed)
    if found is None:
        return None
    from scipy.special import stdtrit

    reach = float(stdtrit(found.freedom, 0.975)) * float(np.sqrt(found.error + WHOLE_RUNS**2))
    value, lo, hi = (float(np.exp(found.log + side * reach)) for side in (0, -1, 1))
    return Estimate(value=value, lo=lo, hi=hi)


def _indices(past: AnalysisResult, prices: Prices) -> Indices | None:
    found = past.indices
    if found is None or prices.watts is None or past.ledger is None:
        return found
    return replace(found, energy_per_useful_step=_energy(past, past.ledger.entries, prices.watts))


def _energy(past: AnalysisResult, entries: Sequence[LedgerEntry], watts: dict[str, float]) -> Estimate | None:
    """Energy per useful step of a stored run, whose steps are not kept one by one: without an interval."""
    power = {one.fate: watts[one.power] for one in CATEGORIES}
    spent = {entry.fate: entry.rank_ns * power[entry.fate] for entry in entries if entry.fate in power}
    whole, avoidable = sum(spent.values()), sum(spent.get(fate, 0.0) for fate in AVOIDABLE)
    log = past.progress
    kept = log.kept_steps / log.executed_steps if log and log.executed_steps else 1.0
    if whole <= avoidable or kept <= 0:
        return None
    return Estimate(value=whole / (whole - avoidable) / kept)
