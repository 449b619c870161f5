"""What each policy of a comparison gives alone, and what all of them give together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from taut.core.errors import InputRefused, UsageError
from taut.project.policy import S
from taut.project.with_policies import Assessment, Standing, apply_policies, policies_of
from taut.project.workload import Sampling, Workload
from taut.result.types import Forecast, PolicyComparison, PolicyGain


def policy_gains(
    kind: Workload[S], own: Assessment[S], compared: Sequence[PolicyComparison], how: Sampling, *, one_by_one: bool = True
) -> list[PolicyGain]:
    """For each comparison at the scale of ``own``: its policies one by one, if so asked, then together; each once."""
    found: dict[str, PolicyGain] = {}
    sketched = cache(lambda: kind.sketch(own.scenario, how).entry())
    for one in compared:
        if one.ranks != own.answer.ranks:
            continue
        parts = [part.strip() for part in one.name.split(",")]
        for part in parts if one_by_one and len(parts) > 1 else ():
            if part not in found:
                found[part] = _alone(kind, own, part, how, sketched)
        sides = one.forecast.without, one.forecast.with_
        far = one.threshold.with_
        found[one.name] = _gain(one.name, sides, one.regime.with_, (far.ranks, far.tried) if far else (None, None))
    return list(found.values())


def _alone(kind: Workload[S], own: Assessment[S], name: str, how: Sampling, sketched: Callable[[], Forecast]) -> PolicyGain:
    """One policy; both sides are sketched where that says the same, the one without it by ``sketched``."""
    ranks = own.answer.ranks
    try:
        changed = apply_policies(own.scenario, policies_of(kind, name))
        if kind.sketches_well(own.scenario) and kind.sketches_well(changed):
            sides = sketched(), kind.sketch(changed, how).entry()
        else:
            sides = own.entry(), kind.forecast(changed, how).entry()
        if not kind.places_each_policy:
            return _gain(name, sides, None, (None, None))
        standing = Standing(kind, changed, how, ranks)
        return _gain(name, sides, standing.regime_class(ranks), standing.place())
    except (InputRefused, UsageError) as refused:
        return PolicyGain(
            name=name,
            together=False,
            ranks=ranks,
            rate_change=None,
            cost_per_unit_change=None,
            energy_per_unit_change=None,
            regime=None,
            threshold=None,
            tried=None,
            refused=str(refused),
        )


def _gain(name: str, sides: tuple[Forecast, Forecast], regime: str | None, far: tuple[int | None, int | None]) -> PolicyGain:
    before, after = sides
    return PolicyGain(
        name=name,
        together="," in name,
        ranks=before.ranks,
        rate_change=_change(delivered_per_s(before), delivered_per_s(after)),
        cost_per_unit_change=_change(before.cost_per_unit, after.cost_per_unit),
        energy_per_unit_change=_change(before.energy_per_unit_j, after.energy_per_unit_j),
        regime=regime,
        threshold=far[0],
        tried=far[1],
    )


def delivered_per_s(found: Forecast) -> float | None:
    """Work a second that counts: requests or tasks as promised, tokens of training, requests of control loops."""
    for rate in (found.goodput_per_s, found.tokens_per_s, found.requests_per_s):
        if isinstance(rate, (int, float)):
            return rate
    return None


def _change(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or before == 0 else after / before - 1
