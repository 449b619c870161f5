"""A training run over so many tokens: days, money, energy, carbon and interruptions, from the forecast of a scale."""

from __future__ import annotations

from taut.project.figures import times
from taut.project.training.checkpoints import DAY_S
from taut.project.training.forecast import UNIT_TOKENS
from taut.result.types import Estimate, Forecast, TokenBudget

MWH_J = 3.6e9


def token_budget(found: Forecast, tokens: float) -> TokenBudget:
    """What these tokens take at the scale of a training forecast; it has tokens a second."""
    assert found.tokens_per_s, "only training is asked for tokens"
    units, days = tokens / UNIT_TOKENS, tokens / found.tokens_per_s / DAY_S
    paid = found.paid_ranks or found.ranks
    per_day = found.interruptions_per_day or None

    wide = _relative(found)

    def of(amount: float | None) -> Estimate | None:
        return None if amount is None else _with(amount, wide)

    return TokenBudget(
        tokens=tokens,
        days=_with(days, wide),
        accelerator_hours=_with(days * 24 * paid, wide),
        cost=of(times(found.cost_per_unit, units)),
        currency=found.currency or None,
        energy_mwh=of(times(found.energy_per_unit_j, units, 1 / MWH_J)),
        energy_cost=of(times(found.energy_cost_per_unit or None, units)),
        network_cost=of(times(found.network_cost_per_unit or None, units)),
        t_co2e=of(times(found.kg_co2e_per_unit or None, units, 1e-3)),
        interruptions=times(per_day, days),
    )


def _relative(found: Forecast) -> tuple[float, float] | None:
    """Ends of the interval of a token's time, over its value; None where it has none."""
    rate = found.tokens_per_s_interval
    if not isinstance(rate, Estimate) or not rate.lo or not rate.hi:
        return None
    return rate.value / rate.hi, rate.value / rate.lo


def _with(amount: float, wide: tuple[float, float] | None) -> Estimate:
    """An amount that grows with the time of a token, with its interval."""
    return Estimate(value=amount) if wide is None else Estimate(value=amount, lo=amount * wide[0], hi=amount * wide[1])
