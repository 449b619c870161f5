"""Two scenarios side by side: the same figures of both at each scale, and the second over the first."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from taut.core.errors import UsageError
from taut.project.policy_gains import delivered_per_s
from taut.result.types import Estimate, FigureRatio, Forecast, ProjectResult, ScalePair, TokenBudget, TwoScenarios

RATES = {"training": "tokens_per_s", "loops": "requests_per_s"}
"""Workload → key of what it delivers a second; of serving and agents that is ``goodput_per_s``."""


def side_by_side(one: ProjectResult, other: ProjectResult) -> TwoScenarios:
    """Both results, of one kind of workload, with the ratios of their figures."""
    far = [result.threshold.ranks if result.threshold else None for result in (one, other)]
    return TwoScenarios(
        scenarios=(one, other),
        ratios=[_pair(sides, one.workload) for sides in _scales(one, other)],
        thresholds=_figure("threshold", (far[0], far[1])),
    )


def refuse_two_kinds(names: tuple[str, str], kinds: tuple[str, str]) -> None:
    """Refuse scenarios that have no figures in common; ``kinds`` are the names of their workloads."""
    if kinds[0] != kinds[1]:
        what = f"{names[0]} is a scenario of {kinds[0]}, {names[1]} of {kinds[1]}"
        raise UsageError(f"{what}: two of one kind can be set side by side")


def _scales(one: ProjectResult, other: ProjectResult) -> Iterator[tuple[Forecast | None, Forecast | None]]:
    """Forecasts of the same scale; where there is one of each, these."""
    if len(one.forecasts) == len(other.forecasts) == 1:
        yield one.forecasts[0], other.forecasts[0]
        return
    sides = [{found.ranks: found for found in result.forecasts} for result in (one, other)]
    for ranks in dict.fromkeys([*sides[0], *sides[1]]):
        yield sides[0].get(ranks), sides[1].get(ranks)


Sides = tuple[Forecast | None, Forecast | None]
Value = float | str | None


def _pair(sides: Sides, workload: str) -> ScalePair:
    currencies = {side.currency for side in sides if side and side.currency}
    rows = [_figures(side, workload) if side else {} for side in sides]
    figures = []
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        found = _figure(name, (rows[0].get(name), rows[1].get(name)))
        money = "cost" in name and len(currencies) > 1
        figures.append(FigureRatio(figure=name, values=found.values, ratio=None) if money else found)
    return ScalePair(ranks=(sides[0].ranks if sides[0] else None, sides[1].ranks if sides[1] else None), figures=figures)


def _figure(name: str, values: tuple[Value, Value]) -> FigureRatio:
    one, other = values
    ratio = other / one if isinstance(one, (int, float)) and isinstance(other, (int, float)) and one else None
    return FigureRatio(figure=name, values=values, ratio=ratio)


def _figures(found: Forecast, workload: str) -> dict[str, Value]:
    """The figures by which two scenarios are chosen between, by the key that has them."""
    ratio, power = found.effective_throughput_ratio, found.power_at_load
    out: dict[str, Value] = {
        RATES.get(workload, "goodput_per_s"): delivered_per_s(found),
        "step_ns": found.step_ns.p50,
        "mfu": found.mfu,
        "effective_throughput_ratio": ratio.value if isinstance(ratio, Estimate) else ratio,
        "bound": found.bound or None,
        **{f"{group}_share": share for group, share in (found.groups or {}).items()},
        "regime": found.regime.kind if found.regime else None,
        "currency": found.currency or None,
        "cost_per_unit": found.cost_per_unit,
        "energy_per_unit_j": found.energy_per_unit_j,
        "kg_co2e_per_unit": found.kg_co2e_per_unit or None,
        "total_w": power.total_w if power is not UNSET else None,
    }
    if workload == "training":
        out["interruptions_per_day"], out["mtbf_h"] = found.interruptions_per_day or None, found.mtbf_h or None
    if found.budget is not UNSET:
        out.update(_budget(found.budget))
    return out


def _budget(found: TokenBudget) -> dict[str, Value]:
    amounts = {"days": found.days, "cost": found.cost, "energy_mwh": found.energy_mwh, "t_co2e": found.t_co2e}
    return {name: None if amount is None else amount.value for name, amount in amounts.items()}
