"""Scenarios and finished runs → forecasts: reads what is named, and asks ``project`` about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from msgspec.structs import asdict

from taut.core.errors import UsageError
from taut.core.executors import On, cores, executor_at
from taut.project.gpu_hour import with_gpu_hour, with_prices
from taut.project.projection import Asked, Outside, project_table
from taut.project.side_by_side import refuse_two_kinds, side_by_side
from taut.project.workload import Sampling, workload_of
from taut.read.scenario_file import load
from taut.result.types import ProjectResult, TwoScenarios

if TYPE_CHECKING:
    from taut.core.prices import Prices
    from taut.project.noise import RunNoise
    from taut.render.forecast_charts import ForecastPlots


class Question(TypedDict, total=False):
    """What ``project`` is asked beside scenarios."""

    ranks: Sequence[int]
    policies: Sequence[str] | None
    steps: int | None
    seed: int
    envelope: bool
    advice: bool
    gpu_hour: tuple[str, str] | None
    prices: Prices | None
    tokens: float | None
    progress: Callable[[str], None] | None
    on: On


class Projection(ProjectResult, frozen=True, kw_only=True):
    """A scenario or a run projected: what ``taut project --json`` prints, which shows itself in notebooks."""

    def __repr__(self) -> str:
        scales = ", ".join(f"{one.ranks:,}" for one in self.forecasts)
        return f"<{type(self).__name__} {self.scenario}: on {scales} ranks>"

    def _repr_html_(self) -> str:
        from taut.render.forecast_card import forecast_card

        return forecast_card(self)

    @property
    def plot(self) -> ForecastPlots:
        """Pictures of it: ``plot.growth()``, ``plot.policies()``; they need altair."""
        from taut.render.forecast_charts import ForecastPlots

        return ForecastPlots(self)


class TwoProjections(TwoScenarios, frozen=True, kw_only=True):
    """Two scenarios side by side, which show themselves in notebooks."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' and '.join(one.scenario for one in self.scenarios)}>"

    def _repr_html_(self) -> str:
        from taut.render.forecast_card import two_card

        return two_card(self)

    @property
    def plot(self) -> ForecastPlots:
        """Pictures of both: ``plot.growth()``; they need altair."""
        from taut.render.forecast_charts import ForecastPlots

        return ForecastPlots(*self.scenarios)


@overload
def project(scenario: str | Path, **question: Unpack[Question]) -> Projection: ...


@overload
def project(scenario: str | Path, other: str | Path, **question: Unpack[Question]) -> TwoProjections: ...


def project(
    scenario: str | Path,
    other: str | Path | None = None,
    *,
    ranks: Sequence[int] = (),
    policies: Sequence[str] | None = None,
    steps: int | None = None,
    seed: int = 0,
    envelope: bool = False,
    advice: bool = False,
    gpu_hour: tuple[str, str] | None = None,
    prices: Prices | None = None,
    tokens: float | None = None,
    progress: Callable[[str], None] | None = None,
    on: On = None,
) -> Projection | TwoProjections:
    """What ``taut project SCENARIO --json`` prints: a TOML file, or the name of a scenario that ships with taut.

    ``ranks`` are other scales than the scenario's own; ``policies`` are ``NAME``, ``NAME=VALUE`` or several with commas, which
    are taken together (None: those that the scenario names); ``steps`` are drawn at each scale, or as many as its size allows.
    ``envelope`` adds what lies around a training job, ``advice`` what separates control loops; ``gpu_hour`` is the price of an
    accelerator hour and its currency, in place of the scenario's, ``prices`` all that it has a key for;
    ``tokens`` adds what a training run over so many takes.
    ``on`` says where scales are forecast: ``local``, ``dask://HOST:PORT`` or a ``concurrent.futures.Executor``.
    With a second scenario: both, asked the same, and the ratios of their figures; policies only where some are named.
    """
    if on is not None and not isinstance(on, Executor):
        with executor_at(on, cores()) as pool:
            return project(
                scenario,
                *([] if other is None else [other]),
                ranks=ranks,
                policies=policies,
                steps=steps,
                seed=seed,
                envelope=envelope,
                advice=advice,
                gpu_hour=gpu_hour,
                prices=prices,
                tokens=tokens,
                progress=progress,
                on=pool,
            )
    asked = Asked(ranks, policies, envelope, advice, tokens)
    how = Sampling(steps, seed, os.cpu_count() or 1)

    def one(named: str | Path, asked: Asked) -> Projection:
        table, text = load(named)
        if prices is not None:
            table = with_prices(table, prices)
        if gpu_hour is not None:
            table = with_gpu_hour(table, *gpu_hour)
        told = project_table(table, str(named), text, asked, how, Outside(_noise, progress, on))
        return Projection(**asdict(told))

    if other is None:
        return one(scenario, asked)
    if envelope or advice:
        raise UsageError("--envelope and --advice are of one SCENARIO: ask for them without the other")
    first, second = (workload_of(load(named)[0], str(named)).name for named in (scenario, other))
    refuse_two_kinds((str(scenario), str(other)), (first, second))
    asked = replace(asked, policies=policies or ())
    return TwoProjections(**asdict(side_by_side(one(scenario, asked), one(other, asked))))


def project_run(run: str | Path, *, ranks: Sequence[int] = (), same_hosts: bool = False, seed: int = 0) -> Projection:
    """What ``taut project --from RUN --json`` prints: the job of a finished run at other scales."""
    # What reads a run takes longer to import than a scenario takes to project.
    from taut.project.measured.from_run import from_run
    from taut.project.measured.scaled_run import learn
    from taut.stored import open_run, refusing_runs

    with refusing_runs(run):
        opened = open_run(run)
        scales = list(ranks) or [k * len(opened.graph.ranks) for k in (1, 2, 4)]
        indices = asdict(opened.result.indices) if opened.result.indices else {}
        found = from_run(learn(opened.graph), indices, opened.result.regime, scales, same_hosts=same_hosts, seed=seed)
        return Projection(**asdict(found))


def _noise(run: str) -> RunNoise:
    """How the work of a finished run strays from its reference, and its hiccups."""
    from taut.core.tables import Kind
    from taut.project.measured.scaled_run import noise_of
    from taut.project.noise import residuals
    from taut.stored import open_run

    opened = open_run(run)
    ratios = residuals(opened.graph.work_ns, opened.reference_ns, opened.graph.ops.kind == Kind.COMPUTE)
    return noise_of(opened.graph, ratios)
