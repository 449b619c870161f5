"""Scenario → modelled job → forecast: the same max-plus system as a measured graph's, without its edges in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType, structs

from taut.core.errors import InputRefused, UsageError
from taut.project.noise import RunNoise
from taut.project.policy import S
from taut.project.policy_gains import policy_gains
from taut.project.projected_answers import questions
from taut.project.token_budget import token_budget
from taut.project.training.sensitivity import sensitivity
from taut.project.with_policies import Assessment, Standing, compare, forecasts
from taut.project.workload import DEFAULT, Sampling, Workload, workload_of
from taut.result.types import Forecast, ProjectResult, Turn

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Asked:
    """What is asked about a scenario."""

    ranks: Sequence[int] = ()
    """Other scales than its own; the order does not matter to what is said of them."""
    policies: Sequence[str] | None = None
    """``NAME``, ``NAME=VALUE`` or several with commas, which are taken together; None takes those that the scenario names."""
    envelope: bool = False
    """Also what lies around a training job."""
    advice: bool = False
    """Also what separates control loops."""
    tokens: float | None = None
    """Also what a training run over so many tokens takes."""


NOTHING_ELSE = Asked()


@dataclass(frozen=True)
class Outside:
    """What a projection may use of the world outside."""

    measured: Callable[[str], RunNoise] | None = None
    """Reads the noise of a run folder, for scenarios whose noise was measured."""
    stage: Callable[[str], None] | None = None
    """Is called with what is being computed."""
    pool: Executor | None = None
    """Forecasts scales side by side."""


NOTHING_OUTSIDE = Outside()


def project_table(
    table: Mapping[str, Any],
    label: str,
    text: str = "",
    asked: Asked = NOTHING_ELSE,
    how: Sampling = DEFAULT,
    outside: Outside = NOTHING_OUTSIDE,
) -> ProjectResult:
    """What ``taut project`` prints: a scenario at its own scale or at others, and beside itself with policies."""
    kind = workload_of(table, label)
    _check_question(asked, kind, label)
    s, defaults = kind.parse(table, label, text)
    s, residuals = kind.noise_from_run(s, outside.measured, label, text)
    how = replace(how, residuals=residuals)
    placed, warned = _held(kind, [kind.at(s, n) for n in asked.ranks or [kind.ranks(s)]], label, text)
    scales = [kind.ranks(one) for one in placed]
    standing = Standing(kind, s, how, max(scales), explain=True)
    assessed, told, lost = _with_forecast(
        [standing.assess(*one) for one in zip(placed, forecasts(kind, placed, how, outside.pool), strict=True)], asked.tokens
    )
    scales, warned = [one.answer.ranks for one in assessed], warned + lost
    # Whatever the order in which scales were asked for: what is said of one of them is said of the largest.
    own = assessed[scales.index(max(scales))]
    indices = own.indices()
    say = outside.stage or (lambda what: None)
    advice, sweep = kind.advice(own.scenario, how.seed, say) if asked.advice else (UNSET, UNSET)
    known = {one.answer.ranks: one.regime for one in assessed}
    compared = _compared(asked, s.about.policies)
    policies = [found for one in compared for found in compare(kind, assessed, one, how, outside.pool)]
    return ProjectResult(
        scenario=s.name,
        workload=kind.name,
        defaults=defaults,
        forecasts=told,
        ranks=max(scales),
        indices=indices,
        regime=own.regime,
        threshold=own.threshold,
        policies=policies,
        gains=policy_gains(kind, own, policies, how, one_by_one=asked.advice or not kind.has_advice) if policies else UNSET,
        turns=turns(told),
        questions=questions(told, scales.index(max(scales)), own.threshold, kind.piece),
        envelope=sensitivity(own.scenario, how, known, own.threshold) if asked.envelope else UNSET,
        advice=advice,
        sweep=sweep,
        assumed=warned or UNSET,
    )


def _check_question(asked: Asked, kind: Workload[S], label: str) -> None:
    """Refuse what cannot be asked about a scenario of this kind."""
    if asked.advice and not kind.has_advice:
        raise UsageError("--advice separates control loops; this scenario has none")
    if asked.tokens is not None and kind.name != "training":
        raise UsageError(f"--tokens is the length of a training run; {label} is a scenario of {kind.name}")


def _compared(asked: Asked, own: Sequence[str]) -> Sequence[str]:
    """The policies that are compared, one by one: those asked for, else the scenario's own, taken together."""
    if asked.policies is not None:
        return asked.policies
    return [",".join(own)] if own else []


def _with_budget(found: Forecast, tokens: float | None) -> Forecast:
    return found if tokens is None else structs.replace(found, budget=token_budget(found, tokens))


def turns(forecasts: Sequence[Forecast]) -> list[Turn] | UnsetType:
    """Where the group that dominates changes, from the smallest scale to the largest."""
    if any(one.bound is UNSET for one in forecasts):
        return UNSET
    scales = sorted({one.ranks: str(one.bound) for one in forecasts}.items())
    return [
        Turn(ranks=ranks, last_ranks=last, before=before, after=after)
        for (last, before), (ranks, after) in pairwise(scales)
        if before != after
    ]


def _with_forecast(
    assessed: Sequence[Assessment[S]], tokens: float | None
) -> tuple[list[Assessment[S]], list[Forecast], list[str]]:
    """What has a forecast, these forecasts, and a line for each scale at which nothing is kept; refused where that is all."""
    answers = _each(assessed, lambda one: _with_budget(one.entry(), tokens))
    told = [(one, said) for one, said in zip(assessed, answers, strict=True) if not isinstance(said, InputRefused)]
    lost = [f"left out: {said}" for said in answers if isinstance(said, InputRefused)]
    return [one for one, _ in told], [said for _, said in told], lost


def _held(kind: Workload[S], asked: Sequence[S], label: str, text: str) -> tuple[list[S], list[str]]:
    """The scales that the devices hold, and a line for each that they may not or do not; refused where they hold none."""
    answers = _each(asked, lambda one: kind.check_memory(one, label, text))
    held = [one for one, said in zip(asked, answers, strict=True) if not isinstance(said, InputRefused)]
    return held, [f"left out: {said}" if isinstance(said, InputRefused) else said for said in answers if said]


def _each(asked: Sequence[T], answer: Callable[[T], R]) -> list[R | InputRefused]:
    """An answer or its refusal for each; refused where there is no answer."""
    found: list[R | InputRefused] = []
    for one in asked:
        try:
            found.append(answer(one))
        except InputRefused as refusal:
            found.append(refusal)
    if all(isinstance(one, InputRefused) for one in found):
        raise next(one for one in found if isinstance(one, InputRefused))
    return found
