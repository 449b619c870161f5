"""Scenario → modelled job → forecast: the same max-plus system as a measured graph's, without its edges in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taut.core.array_types import Floats
from taut.core.errors import UsageError
from taut.project.questions import questions
from taut.project.training.forecast import SEED
from taut.project.training.scenario import Scenario, parse
from taut.project.training.sensitivity import around
from taut.project.with_policies import assess, compare
from taut.project.workload import Sampling, workload_of

__all__ = ["Scenario", "parse", "project_table"]


def project_table(
    table: Mapping[str, Any],
    label: str,
    text: str = "",
    *,
    ranks: Sequence[int] = (),
    policies: Sequence[str] | None = None,
    count: int | None = None,
    seed: int = SEED,
    cores: int = 1,
    envelope: bool = False,
    advice: bool = False,
    measured: Callable[[str], Floats] | None = None,
    stage: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """What ``taut project`` prints: a scenario at its own scale or at these, and beside itself with policies.

    ``envelope`` adds what lies around a training job, ``advice`` what separates control loops. ``count`` steps are drawn, or
    as many as the size of the job allows.
    ``policies`` are ``NAME``, ``NAME=VALUE`` or several of them with commas, which are taken together; None takes those that
    the scenario names. ``measured`` gives the strays of a run folder, for scenarios whose noise was measured. ``stage`` is
    called with what is at work.
    """
    kind = workload_of(table, label)
    if advice and not kind.has_advice:
        raise UsageError("--advice separates control loops; this scenario has none")
    s, defaults = kind.parse(table, label, text)
    how = Sampling(count, seed, cores, kind.noise_from_run(s, measured, label, text))
    placed = [kind.at(s, n) for n in ranks or [kind.ranks(s)]]
    for one in placed:
        kind.check_memory(one, label, text)
    made = [kind.forecast(one, how) for one in placed]
    own = assess(kind, placed[0], how, made[0])
    compared = [",".join(s.about.policies)] if policies is None and s.about.policies else policies or []
    result = {
        "scenario": s.name, "workload": kind.name, "defaults": defaults, "forecasts": [one.entry() for one in made],
        "indices": own.indices(), "regime": own.regime, "threshold": own.threshold,
        "policies": [compare(kind, own, one, how) for one in compared],
    }  # fmt: skip
    if envelope:
        result["envelope"] = around(placed[0], how)
    if advice:
        result |= kind.advice(placed[0], seed, stage or (lambda what: None))
    return {**result, "questions": questions(result)}
