"""What to demand of a vendor: derived from what this job is sensitive to, never from a list of good practice.

Money is per year of 8,760 hours at the job's own price: a share of the wall, or of the rate, of what the job costs in a year.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from taut.briefing.answers import units_per_s
from taut.core.prices import HOURS_PER_YEAR
from taut.result.brief_types import BriefedRun, BriefedScenario
from taut.result.types import AnalysisResult, BriefCosts, Demand, Estimate, Finding, Forecast, Recovery

LEAST_SHARE = 0.005
"""What is worth less of a job is no demand."""
WORSE, LEAST_OF_KNOB = 0.10, 0.001
"""A knob of a scenario is asked about ten per cent to the worse, and is a demand from a thousandth of the cost on."""
BETTER_IF_MORE = ("bandwidth", "peak", "efficiency")
DAYS_A_YEAR, DAYS_A_MONTH = 365, 30
SECONDS_PER_YEAR = HOURS_PER_YEAR * 3600
KNOBS = {"peak": "the peak FLOP/s of the accelerators", "jitter": "variation between steps", "failure rates": "interruptions"}
TESTS = {
    "memory bandwidth": "a copy of memory on every accelerator, for an hour",
    "bandwidth": "all-reduce bandwidth over this tier (nccl-tests), all nodes at once, with the job's message sizes",
    "latency": "small all-reduce latency over this tier (nccl-tests, 8 B to 4 kB)",
    "jitter": "a fixed piece of work on every accelerator for an hour, each repetition timed",
    "failure": "the vendor's own record of interruptions, and a penalty beyond it",
    "peak": "the job's own matrix sizes for an hour, at the site's temperature and power limit",
    "checkpoint": "a whole checkpoint written by all nodes at once, to the site's storage",
}
"""Word in a knob's name → the test that shows it."""


def demands(
    runs: Sequence[BriefedRun], cost: BriefCosts | None, saved: Mapping[str, Recovery], scenarios: Sequence[BriefedScenario]
) -> list[Demand]:
    """What this job's own figures ask of a vendor, the most money first, then the largest share."""
    found = [one for run in runs for one in _of_run(run, cost, saved)]
    found += [one for scenario in scenarios for one in _of_scenario(scenario)]
    found.sort(key=lambda pair: (-float(pair[1].money_per_year or 0), -pair[0]))
    return [demand for _, demand in found]


def _of_run(run: BriefedRun, cost: BriefCosts | None, saved: Mapping[str, Recovery]) -> Iterator[tuple[float, Demand]]:
    a_year = None if cost is None else cost.per_month * DAYS_A_YEAR / DAYS_A_MONTH
    for what, share, test, reach in _sensitivities(run.result, saved):
        if share.value >= LEAST_SHARE:
            yield share.value, Demand(
                what=what, worth=f"costs {_interval(share)} of this job's time today",
                money_per_year=None if a_year is None else str(round(a_year * share.value)),
                currency=None if cost is None else cost.currency, test=test, reach=reach, command=run.source.command,
            )  # fmt: skip


def _sensitivities(result: AnalysisResult, saved: Mapping[str, Recovery]) -> Iterator[tuple[str, Estimate, str, str]]:
    """(figure, share of the wall that it costs, test, number to reach) of a measured job."""
    for finding in result.findings:
        known = saved[finding.id].saved_share if finding.id in saved else finding.recoverable_share
        if finding.loss_share is not None and finding.origins is not None:
            yield "hiccups of single accelerators or hosts", finding.loss_share, *_hiccups(finding)
        elif known is not None and finding.links:
            yield (
                "links that are equally fast", known,
                "all-reduce bandwidth of every pair of neighbours (nccl-tests), each link by itself",
                "no link more than 5 % below the median of all",
            )  # fmt: skip
        elif known is not None and finding.ranks:
            yield (
                "accelerators that are equally fast, and stay so", known,
                "the job's own step on every accelerator for an hour, before acceptance and each month",
                "no accelerator more than 3 % above the median step of all; replaced within the agreed time otherwise",
            )  # fmt: skip
    transfer = _share(result, "exposed transfer", "communication undivided")
    if transfer is not None:
        size = max((gate.size_bytes or 0 for gate in result.collectives), default=0)
        named = f" at {size:,} bytes" if size else " at the job's message sizes"
        yield (
            "bandwidth between accelerators", Estimate(value=transfer),
            f"all-reduce bandwidth of the whole job{named} (nccl-tests), every node at once",
            "bytes a second that the vendor guarantees in 99 of 100 repetitions; half the bandwidth doubles this cost",
        )  # fmt: skip


def _hiccups(finding: Finding) -> tuple[str, str]:
    origins = finding.origins
    test = "a fixed piece of work on every accelerator for an hour, each repetition timed; no job beside it"
    if origins is None:
        return test, "fewer and shorter pauses than this job has"
    every = 1 / origins.rate_per_step if origins.rate_per_step else 0
    reach = (
        f"a tenth of today's pauses: each of the {origins.units} pauses for {origins.duration_ns / 1e6:,.0f} ms or longer at "
        f"most once in {every * 10:,.0f} steps (today once in {every:,.0f})"
    )
    return test, reach


def _share(result: AnalysisResult, *fates: str) -> float | None:
    if result.ledger is None or not result.ledger.total_rank_ns:
        return None
    spent = sum(one.rank_ns for one in result.ledger.entries if one.fate in fates)
    return spent / result.ledger.total_rank_ns


def _of_scenario(scenario: BriefedScenario) -> Iterator[tuple[float, Demand]]:
    around, forecast = scenario.result.envelope, next(iter(scenario.result.forecasts), None)
    if not around or forecast is None:
        return
    for one in around.elasticities:
        # Elasticities are for a per cent to the better: what it saves is what a per cent to the worse costs.
        worse = _scaled(one.cost_per_unit, -WORSE) if one.cost_per_unit else _scaled(one.rate, WORSE)
        if one.per == "percent" and worse.value >= LEAST_OF_KNOB:
            yield worse.value, _knob(scenario, forecast, one.knob, worse)


def _knob(scenario: BriefedScenario, forecast: Forecast, knob: str, worse: Estimate) -> Demand:
    test = next((said for word, said in TESTS.items() if word in knob), "the vendor's figure for it, all nodes at once")
    direction = "less" if any(word in knob for word in BETTER_IF_MORE) else "more"
    figure, money, daily = scenario.assumes.get(knob), _a_year(forecast), forecast.interruptions_per_day
    figure = f"at most {daily:.1f} a day" if knob == "failure rates" and daily else figure
    reach = f"{figure}, as the scenario assumes" if figure else "what the scenario assumes"
    return Demand(
        what=KNOBS.get(knob, knob), worth=f"10 % {direction} of it makes a unit of work dearer by {_interval(worse)}",
        money_per_year=None if money is None else str(round(money * Decimal(worse.value))),
        currency=forecast.currency or None, test=test, reach=reach,
        command=scenario.source.command,
    )  # fmt: skip


def _a_year(forecast: Forecast) -> Decimal | None:
    """What the job costs in a year at its own rate."""
    rate = units_per_s(forecast)
    return None if forecast.cost_per_unit is None or rate is None else Decimal(forecast.cost_per_unit * rate * SECONDS_PER_YEAR)


def _scaled(one: Estimate, times: float) -> Estimate:
    ends = sorted(end * times for end in (one.lo, one.hi) if end is not None)
    lo, hi = (ends[0], ends[1]) if len(ends) == 2 else (None, None)
    return Estimate(value=one.value * times, lo=lo, hi=hi)


def _interval(share: Estimate) -> str:
    value, lo, hi = (None if end is None else f"{100 * end:.1f}" for end in (share.value, share.lo, share.hi))
    return f"{value} %" if lo is None or hi is None or lo == value == hi else f"{value} % ({lo}–{hi})"
