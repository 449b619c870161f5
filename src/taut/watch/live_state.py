"""What a collector sees now, as one struct: what ``taut watch top``, the exporter and the live page show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Floats
from taut.core.rank_words import listed
from taut.result.types import Estimate, LiveFinding, VerdictClass, WatchedJob, WatchedRank
from taut.watch.sequential import FIRST, SKIPPED
from taut.watch.step_series import BUSY, LATE, LOADER, STEP

if TYPE_CHECKING:
    from taut.watch.live_findings import Live
    from taut.watch.window import Member, Window

MOST_RANKS = 64
"""Ranks of a job that are told, the latest first."""


def job_state(window: Window, live: Live | None) -> WatchedJob:
    """A job as it is now; without a watcher only what was heard."""
    members, totals = list(window.ranks.values()), window.totals()
    findings = [one.told for one in live.open.values()] if live is not None else []
    regime, steps = live.regime if live is not None else None, _recent(live, STEP)[:, -1:].ravel()
    lost, ended = sum(one.lost for one in members), sum(one.ended for one in members)
    return WatchedJob(
        job=window.job, verdict=_verdict(window, live, findings), kind=_class(live, findings), findings=findings,
        world=max((one.hello.world for one in members if one.hello.world >= 0), default=None),
        heard=len(members) - lost - ended, lost=lost, ended=ended, ranks=_ranks(members, live),
        last_step=live.series.done if live is not None and live.series is not None and live.series.done >= 0 else None,
        step_ns=_ns(float(np.median(steps))) if len(steps) else None, steps_ns=_step_times(live),
        regime=regime.kind if regime is not None else None,
        reserve=regime.reserve if regime is not None and isinstance(regime.reserve, Estimate) else None,
        received=totals.pop("received"), not_received={name: count for name, count in totals.items() if count},
    )  # fmt: skip


def _verdict(window: Window, live: Live | None, findings: list[LiveFinding]) -> str:
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        return f"{_headline(findings[0])}{more}"
    if window.ranks and all(one.ended for one in window.ranks.values()):
        return "the job has ended"
    if not _known(live):
        return f"too few steps yet: {FIRST + SKIPPED} are needed, of two ranks at least"
    lost = sorted(one.rank for one in window.ranks.values() if one.lost)
    if lost:
        return f"nothing is heard of {len(lost)} of {len(window.ranks)} ranks, rank {lost[0]} among them"
    return "nothing found"


def _headline(finding: LiveFinding) -> str:
    """Who, what, since when and what it costs; why and what to do are in the finding's own text."""
    who = f"link {listed(finding.links)}" if finding.links else "all ranks"
    if finding.ranks and not finding.links:
        who = f"rank {listed([str(rank) for rank in finding.ranks])}"
    hosts = sorted({host for host in finding.hosts if host})
    at = f" on {listed(hosts)}" if hosts else ""
    since = "" if finding.since_step is None else f" since step {finding.since_step}"
    cost = "" if finding.money_per_hour is None else f", {finding.money_per_hour} {finding.currency} an hour"
    return f"{who}{at}: {finding.mode}{since}{cost}"


def _class(live: Live | None, findings: list[LiveFinding]) -> VerdictClass:
    """As a recorded run's; without a finding healthy only where an analysis of the last steps says so."""
    if findings:
        return "structural" if findings[0].mode == "structural instability" else "component"
    regime = live.regime if live is not None else None
    return "healthy" if _known(live) and regime is not None and regime.kind == "stable" else "unknown"


def _known(live: Live | None) -> bool:
    return live is not None and live.panel is not None and live.panel.learned


def _ranks(members: list[Member], live: Live | None) -> list[WatchedRank]:
    """Those that are told: the latest first, those that nothing is known of last."""
    late, busy, loader = ({} if live is None else _by_rank(live, kind) for kind in (LATE, BUSY, LOADER))
    some = sorted(members, key=lambda one: (-late.get(one.rank, -np.inf), one.rank))[:MOST_RANKS]
    return [
        WatchedRank(
            rank=one.rank, host=one.hello.host or None, gpu=one.hello.gpu if one.hello.gpu >= 0 else None,
            state="ended" if one.ended else "lost" if one.lost else "heard",
            late_ns=_ns(late.get(one.rank)), busy_ns=_ns(busy.get(one.rank)), loader_ns=_ns(loader.get(one.rank)),
            dropped=one.dropped,
        )
        for one in some
    ]  # fmt: skip


def _by_rank(live: Live, kind: int) -> dict[int, float]:
    """Median of a series of every rank over the last steps, s; ranks without a value are left out."""
    rows = _recent(live, kind)
    if live.series is None or not len(rows):
        return {}
    some = ~np.isnan(rows).all(axis=0)
    median = np.nanmedian(rows[:, some], axis=0)
    return dict(zip(live.series.ranks[some].tolist(), median.tolist(), strict=True))


def _recent(live: Live | None, kind: int) -> Floats:
    """The last steps of the series of a kind, steps × series, s."""
    if live is None or live.panel is None or live.series is None or not live.panel.recent:
        return np.zeros((0, 1))
    return np.array(live.panel.recent)[:, live.series.kind == kind]


def _step_times(live: Live | None) -> list[int]:
    return [] if live is None else [int(one * 1e9) for one in live.step_times]


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None or np.isnan(seconds) else round(seconds * 1e9)
