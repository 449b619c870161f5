"""A training run over so many tokens: days, money, energy, carbon and interruptions, from the forecast of a scale."""

from __future__ import annotations

from taut.project.figures import times
from taut.result.types import Estimate, Forecast, TokenBudget

UNIT_TOKENS = 1e6
DAY_S = 86400.0
KWH_J, MWH_J = 3.6e6, 3.6e9


def token_budget(found: Forecast, tokens: float) -> TokenBudget:
    """What these tokens take at the scale of a training forecast; it has tokens a second."""
    assert found.tokens_per_s, "only training is asked for tokens"
    units, days = tokens / UNIT_TOKENS, tokens / found.tokens_per_s / DAY_S
    paid = found.paid_ranks or found.ranks
    per_day = found.interruptions_per_day or None

    def of(amount: float | None) -> Estimate | None:
        return None if amount is None else _with_interval(amount, found.mean_step_ns)

    return TokenBudget(
        tokens=tokens,
        days=_with_interval(days, found.mean_step_ns),
        accelerator_hours=_with_interval(days * 24 * paid, found.mean_step_ns),
        cost=of(times(found.cost_per_unit, units)),
        currency=found.currency or None,
        energy_mwh=of(times(found.energy_per_unit_j, units, 1 / MWH_J)),
        energy_cost=of(times(found.energy_cost_per_unit or None, units)),
        network_cost=of(times(found.network_cost_per_unit or None, units)),
        t_co2e=of(times(found.kg_co2e_per_unit or None, units, 1e-3)),
        interruptions=times(per_day, days),
    )


def _with_interval(amount: float, mean: Estimate | None) -> Estimate:
    """An amount that grows as the mean step does, with its interval."""
    if mean is None or mean.lo is None or mean.hi is None or not mean.value:
        return Estimate(value=amount)
    return Estimate(value=amount, lo=amount * mean.lo / mean.value, hi=amount * mean.hi / mean.value)
