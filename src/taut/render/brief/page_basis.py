"""What the figures of page one rest on: how much was measured, how far a month may be from it, how far to trust a replay."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.document import Block, Text
from taut.render.brief.written import percent, share, worth
from taut.render.text import count, duration
from taut.result.brief_types import BriefedRun, Briefing
from taut.result.types import AnalysisResult

CLOCK = (
    "Costs and gains are shares of the time on the clock, and were replayed; the bar has shares of accelerator time: “Where "
    "the accelerator time goes” has both."
)
WORTH = "Worth: accelerator time at its price; cash only where the hours are released, or used for other work."
LEVEL = "Intervals, in parentheses, hold the value in 95 of 100 repetitions"


def basis(briefing: Briefing) -> list[Block]:
    """How much was measured, and that a month is made of it: in the type of the text, for it decides what money means."""
    said = [_measured(run.result) for run in briefing.runs[:2]]
    said += [f"{one.source.name}, a model of {count(one.result.ranks, 'accelerator')}" for one in briefing.scenarios[:2]]
    cost = briefing.costs
    month = "" if cost is None else f" A month is 30 days of going on like this{_begun(briefing)}; money: {cost.basis}."
    beyond = ", as steps vary in what was measured, not other days" if briefing.runs else ""
    told = f"What this rests on: {'; '.join(said)}." if said else ""
    return [Text(f"{told}{month} {LEVEL}{beyond}.".strip())] if said or cost else []


def _measured(result: AnalysisResult) -> str:
    """How much of a job was measured."""
    job = result.job
    if job.wall_ns is None:
        return f"job logs of {job.name} alone"
    return f"{duration(job.wall_ns)} of one run of {job.name} ({count(job.ranks, 'rank')}, {count(job.steps, job.unit)})"


def _begun(briefing: Briefing) -> str:
    """That steps before a cause began are in its share, and what it is worth without them."""
    found = briefing.since_begun
    if found is None:
        return ""
    currency = briefing.causes[found.cause - 1].currency
    money = "" if found.money_per_month is None else f", {worth(found.money_per_month, currency)}"
    return (
        f", the {count(found.steps_before, briefing.runs[0].result.job.unit)} before cause {found.cause} began included (if "
        f"it stays as it was since, mending it gives back {share(found.share)}{money} a month)"
    )


def together(briefing: Briefing) -> list[Block]:
    """What a share is of, what the causes of a run bring back together, and what stays."""
    measured = [one for one in briefing.causes if one.costs is not None and briefing.runs]
    said = [CLOCK] if measured else []
    said += [WORTH] if any(one.money_per_month is not None for one in briefing.causes) else []
    said += [*_sum(briefing), *(f"Cause {k}: {one.stays}." for k, one in enumerate(briefing.causes, 1) if one.stays)]
    return [Text(" ".join(said), "note")] if said else []


def _sum(briefing: Briefing) -> Iterator[str]:
    for run in briefing.runs[:1]:
        result, mine = run.result, {finding.id for finding in run.result.findings}
        named = [k for k, one in enumerate(briefing.causes, 1) if one.finding in mine and one.share_is == "recoverable"]
        if len(named) < 2 or len(named) != len(mine) or not result.recoverable_wall_ns or not result.job.wall_ns:
            continue
        saved = percent(result.recoverable_wall_ns / result.job.wall_ns)
        who = " and ".join(map(str, named))
        rest = [str(k) for k in range(1, len(briefing.causes) + 1) if k not in named]
        yield (
            f"Causes {who} together, the one replayed after the other, give back {saved}"
            f"{f'; cause {rest[0]} is not in it' if rest else ''}."
        )


def trusted(briefing: Briefing) -> list[Block]:
    """How far the replay that savings come from can be trusted, in plain words."""
    said = [_replayed(run) for run in briefing.runs[:1] if run.result.fidelity is not None and briefing.causes]
    return [Text(said[0], "note")] if said and said[0] else []


def _replayed(run: BriefedRun) -> str:
    found = run.result.fidelity
    if found is None:
        return ""
    way = "longer" if found.gapfree_error > 0 else "shorter"
    return (
        f"How far to trust savings: they come from a replay of what was recorded. {percent(found.explained_share)} of all "
        "operations begin when another recorded one ends; the others keep the pause that they had. A replay without these "
        f"pauses comes out {percent(abs(found.gapfree_error))} {way} than what was measured."
    )
