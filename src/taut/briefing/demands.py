"""What to demand of a vendor: derived from what this job is sensitive to, never from a list of good practice.

Money is per year of 8,760 hours at the job's own price: a share of the wall, or of the rate, of what the job costs in a year.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from taut.briefing.answers import units_per_s
from taut.core.prices import HOURS_PER_YEAR
from taut.result.brief_types import BriefedRun, BriefedScenario
from taut.result.types import AnalysisResult, BriefCosts, Demand, Estimate, Forecast, Origins, Recovery

LEAST_SHARE = 0.005
"""What is worth less of a job is no demand."""
WORSE, LEAST_OF_KNOB = 0.10, 0.001
"""A knob of a scenario is asked about ten per cent to the worse, and is a demand from a thousandth of the cost on."""
BETTER_IF_MORE = ("bandwidth", "peak", "efficiency")
PAUSES = "pauses of single accelerators or hosts"
EQUAL_LINKS, EQUAL_PARTS = "links that are equally fast", "accelerators that are equally fast, and stay so"
EQUALLY_FAST = "no accelerator more than 3 % above the median step of all; replaced within the agreed time otherwise"
NO_BYTES = "half of today's time; how many bytes the job moves is not recorded, so the vendor has to measure both"
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


class _Asked(Struct, frozen=True):
    """What a measured job is sensitive to."""

    what: str
    share: Estimate
    """Of the wall, what it costs."""
    test: str
    reach: str
    finding: str | None = None


def _of_run(run: BriefedRun, cost: BriefCosts | None, saved: Mapping[str, Recovery]) -> Iterator[tuple[float, Demand]]:
    a_year = None if cost is None else cost.per_month * DAYS_A_YEAR / DAYS_A_MONTH
    for one in _sensitivities(run, saved):
        if one.share.value >= LEAST_SHARE:
            yield one.share.value, Demand(
                what=one.what, worth=f"{_interval(one.share)} of this job's time today; better parts bring back at most that",
                money_per_year=None if a_year is None else str(round(a_year * one.share.value)),
                currency=None if cost is None else cost.currency, test=one.test, reach=one.reach, command=run.source.command,
                finding=one.finding,
            )  # fmt: skip


def _sensitivities(run: BriefedRun, saved: Mapping[str, Recovery]) -> Iterator[_Asked]:
    """What a measured job loses to parts that a vendor answers for."""
    result, tool = run.result, _tool(run)
    for finding in result.findings:
        known = saved[finding.id].saved_share if finding.id in saved else finding.recoverable_share
        if finding.loss_share is not None and finding.origins is not None:
            yield _Asked(PAUSES, finding.loss_share, *_hiccups(finding.origins), finding.id)
        elif known is not None and finding.links:
            test = f"all-reduce bandwidth of every pair of neighbours ({tool}), each link by itself"
            yield _Asked(EQUAL_LINKS, known, test, "no link more than 5 % below the median of all", finding.id)
        elif known is not None and finding.ranks:
            test = "the job's own step on every accelerator for an hour, before acceptance and each month"
            yield _Asked(EQUAL_PARTS, known, test, EQUALLY_FAST, finding.id)
    transfer = _share(result, "exposed transfer", "communication undivided")
    if transfer is not None:
        yield _Asked("bandwidth between accelerators", Estimate(value=transfer), *_bandwidth(run, transfer, tool))


def _tool(run: BriefedRun) -> str:
    """The test of the library that the job communicates by."""
    names = " ".join([*(run.meets.names if run.meets else ()), *(one.op_class for one in run.result.collectives)]).lower()
    known = {"gloo": "the benchmark of gloo", "rccl": "rccl-tests", "nccl": "nccl-tests", "mpi": "the OSU benchmarks of MPI"}
    return next((tool for word, tool in known.items() if word in names), "the test of the library that the job uses")


def _bandwidth(run: BriefedRun, share: float, tool: str) -> tuple[str, str]:
    """(test, number to reach): today's transfer that takes most, and half of its time."""
    found = run.transfer
    if found is None or not found.median_ns:
        size = max((gate.size_bytes or 0 for gate in run.result.collectives), default=0)
        named = f" at {size:,} bytes" if size else " at the job's message sizes"
        return f"all-reduce bandwidth of the whole job{named} ({tool}), every node at once", NO_BYTES
    today = found.median_ns / 1e6
    test = f"{found.name} of {found.size_bytes / 1e6:,.3g} MB over {found.members:,} ranks ({tool}), every node at once"
    return test, (
        f"at most {today / 2:,.3g} ms in the median of the repetitions (today {today:,.3g} ms, without waiting): "
        f"that gives back up to half, {50 * share:.1f} %"
    )


def _hiccups(origins: Origins) -> tuple[str, str]:
    """(test, number to reach) of pauses."""
    who, often = origins.units.removesuffix("s"), 1000 * origins.rate_per_step
    return "a fixed piece of work on every accelerator for an hour, each repetition timed; no job beside it", (
        f"a tenth of today's pauses: at most {often / 10:.1f} in 1,000 steps of a {who} (today {often:.0f}, half of them "
        f"{origins.duration_ns / 1e6:,.0f} ms or longer)"
    )


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
        what=KNOBS.get(knob, knob),
        worth=f"10 % {direction} of it makes a unit of work dearer by {_interval(worse)}",
        money_per_year=None if money is None else str(round(money * Decimal(worse.value))),
        currency=forecast.currency or None,
        test=test,
        reach=reach,
        command=scenario.source.command,
    )


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
