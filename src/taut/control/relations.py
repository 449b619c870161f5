"""Actions → relations: do the controllers work with each other or against each other? One file per relation."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from taut.control import amplification, conflict, feedback, metastability, oscillation, starvation, timeout
from taut.control import redundant_work as redundant
from taut.control.action_log import Log, prepare
from taut.control.control_indices import indices
from taut.control.control_regime import regime
from taut.control.relation import Relation
from taut.control.stuck_jobs import stuck
from taut.core.tables import Trace
from taut.core.trend import corrected
from taut.result.types import ControlResult

RELATIONS = (conflict, oscillation, amplification, feedback, metastability, redundant, starvation, timeout)
FALSE_DISCOVERIES = 0.05
"""Share of the listed relations of many logs that may be false."""


def control(trace: Trace, *, seed: int = 0) -> ControlResult:
    """Relations between the controllers of a log, the indices of control, and its regime; docs/control.md says how."""
    log = prepare(trace)
    found = relations(log, seed)
    numbers = indices(log)
    return ControlResult(
        actions=len(log),
        controllers=sorted(log.words["controller"]),
        relations=[one.entry() for one in found],
        indices=numbers,
        regime=regime(found, numbers, len(log), log.unjudged),
        partial=[*trace.partial, *log.notes],
        stuck=stuck(trace.attempts) or UNSET,
    )


def relations(log: Log, seed: int = 0) -> list[Relation]:
    """What stands when all that was tested is counted (Benjamini–Hochberg), and what was counted exactly."""
    tested = [one for k, kind in enumerate(RELATIONS) for one in kind.relate(log, np.random.default_rng([seed, k]))]
    q = corrected([one.p for one in tested])
    marked = [replace(one, q=value) for one, value in zip(tested, q, strict=True)]
    return [one for one in marked if one.q is None or one.q <= FALSE_DISCOVERIES]


__all__ = ["RELATIONS", "Log", "Relation", "control", "prepare", "relations"]
