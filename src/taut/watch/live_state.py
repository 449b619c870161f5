"""What a collector sees now, as one struct: what ``taut watch top``, the exporter and the live page show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Floats
from taut.core.rank_words import listed
from taut.core.reporting import LISTED_SHARE
from taut.result.types import Estimate, LiveFinding, VerdictClass, WatchedJob, WatchedRank
from taut.watch.sequential import FIRST, SKIPPED
from taut.watch.step_series import BUSY, LATE, LOADER, STEP
from taut.watch.stopped import PATIENCE_S, PATIENCE_STEPS

if TYPE_CHECKING:
    from taut.watch.live_findings import Live
    from taut.watch.window import Member, Window

MOST_RANKS = 64
"""Ranks of a job that are told, the latest first."""
WAIT_STEPS = 48
"""Last steps of which waits for a core are told."""
ALWAYS_LATE = 0.1
"""Share of a step by which a rank that comes late in the median step is said to; ranks of healthy jobs differ by some 4 %."""
GATES_WITHOUT_STEPS = 64
"""Calls after which a job that made no step is said to need ``taut.watch.step()``."""


def job_state(window: Window, live: Live | None) -> WatchedJob:
    """A job as it is now; without a watcher only what was heard."""
    members, totals = list(window.ranks.values()), window.totals()
    findings = [one.told for one in live.open.values()] if live is not None else []
    regime, steps = live.regime if live is not None else None, _recent(live, STEP)[:, -1:].ravel()
    lost, ended = sum(one.lost for one in members), sum(one.ended for one in members)
    return WatchedJob(
        job=window.job,
        verdict=_verdict(window, live, findings),
        kind=_class(window, live, findings),
        findings=findings,
        world=window.world if window.world >= 0 else None,
        heard=len(members) - lost - ended,
        lost=lost,
        ended=ended,
        ranks=_ranks(members, live),
        last_step=live.series.done if live is not None and live.series is not None and live.series.done >= 0 else None,
        step_ns=_ns(float(np.median(steps))) if len(steps) else None,
        steps_ns=_step_times(live),
        regime=regime.kind if regime is not None else None,
        reserve=regime.reserve if regime is not None and isinstance(regime.reserve, Estimate) else None,
        received=totals.pop("received"),
        not_received={name: count for name, count in totals.items() if count},
    )


def _verdict(window: Window, live: Live | None, findings: list[LiveFinding]) -> str:
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        return f"{_headline(findings[0], _heard(window) < window.world)}{more}"
    members, seen = window.ranks.values(), len(window.steps)
    lost = sorted(one.rank for one in members if one.lost)
    if lost:
        return f"nothing is heard of {len(lost)} of {len(members)} ranks, rank {lost[0]} among them"
    if not seen and len(window.gates) >= GATES_WITHOUT_STEPS:
        return "calls are seen and no step: where no optimizer of torch ends it, call taut.watch.step()"
    if not _known(live) and not _is_over(window):
        return f"too few steps yet: {FIRST + SKIPPED} are needed, of two ranks at least"
    return _open_question(window, live) or "nothing found"


def _open_question(window: Window, live: Live | None) -> str:
    """Why it is not known whether a job without findings is healthy; empty where nothing speaks against it."""
    if _is_over(window):
        return "the job has ended"
    heard, ranks = _heard(window), max(window.world, len(window.ranks))
    if heard < ranks:
        return f"nothing found, but only {heard} of {ranks} ranks are heard: start taut.watch in the others too"
    return "" if live is None else _unsure(window, live)


def _unsure(window: Window, live: Live) -> str:
    """What a watcher that hears all ranks has seen and does not tell as a finding, or has not looked at yet."""
    still_s = (live.looked_ns - max(live.last.done.values(), default=live.looked_ns)) / 1e9
    if live.panel is not None and still_s > max(PATIENCE_S, PATIENCE_STEPS * live.panel.step_s):
        return f"nothing was done for {still_s:.0f} s, and nobody is known to have stopped: an evaluation, or a hang"
    if live.doubts:
        named = sorted({rank for one in live.doubts for rank in one.ranks})
        who = f" (rank {listed([str(rank) for rank in named])})" if named else ""
        return f"nothing is sure yet: {live.doubts[0].mode}{who} was seen, and is told if the next looks see it too"
    if live.tries:
        return "nothing is sure yet: something takes longer than it did, and is being looked into"
    waited = _core_waits(live)
    if waited is not None and waited[0] >= LISTED_SHARE:
        host = window.ranks[waited[1]].hello.host if waited[1] in window.ranks else ""
        at = f" on {host}" if host else ""
        return f"nothing found, but ranks wait for a core by up to {100 * waited[0]:.0f} % of a step, rank {waited[1]}{at} most"
    if live.regime is None:
        return "nothing found yet: the first analysis comes within minutes"
    return _always_late(live)


def _always_late(live: Live) -> str:
    """Who comes late to gates step after step without a finding of it: others wait, and nobody knows it otherwise."""
    late, steps = _by_rank(live, LATE), _recent(live, STEP)
    rank = max(late, key=lambda one: late[one], default=None)
    if rank is None or not len(steps):
        return ""
    share = late[rank] / max(float(np.median(steps)), 1e-9)
    if share < ALWAYS_LATE:
        return ""
    behind = f"rank {rank} comes {100 * share:.0f} % of a step behind the middle rank"
    return f"nothing found, but {behind}: its share of the work, or a fault from the start"


def _core_waits(live: Live) -> tuple[float, int] | None:
    """(share of a step that the rank waits for a core that waits longest, who does most) in the last steps; None if unknown."""
    if live.series is None or not live.waits or not live.step_times:
        return None
    waits, steps = np.array(live.waits)[-WAIT_STEPS:], list(live.step_times)[-WAIT_STEPS:]
    return float(waits.max(axis=1).mean() / max(np.mean(steps), 1e-9)), int(live.series.ranks[waits.sum(axis=0).argmax()])


def _is_over(window: Window) -> bool:
    """Whether all ranks said goodbye."""
    return bool(window.ranks) and all(one.ended for one in window.ranks.values())


def _heard(window: Window) -> int:
    """Ranks that are not lost; those that said goodbye are among them."""
    return sum(not one.lost for one in window.ranks.values())


def _headline(finding: LiveFinding, some: bool) -> str:
    """Who, of all ranks or of those that are heard, what, since when and what it costs; the rest is in the finding's text."""
    who = f"link {listed(finding.links)}" if finding.links else "all ranks that are heard" if some else "all ranks"
    if finding.ranks and not finding.links:
        who = f"rank {listed([str(rank) for rank in finding.ranks])}"
    hosts = sorted({host for host in finding.hosts if host})
    at = f" on {listed(hosts)}" if hosts else ""
    since = "" if finding.since_step is None else f" since step {finding.since_step}"
    cost = "" if finding.money_per_hour is None else f", {finding.money_per_hour} {finding.currency} an hour"
    return f"{who}{at}: {finding.mode}{since}{cost}"


def _class(window: Window, live: Live | None, findings: list[LiveFinding]) -> VerdictClass:
    """As a recorded run's; without a finding healthy only where an analysis of the last steps says so."""
    if findings:
        return "structural" if findings[0].mode == "structural instability" else "component"
    regime = live.regime if live is not None else None
    sure = _known(live) and regime is not None and regime.kind == "stable" and not _open_question(window, live)
    return "healthy" if sure else "unknown"


def _known(live: Live | None) -> bool:
    return live is not None and live.panel is not None and live.panel.learned


def _ranks(members: list[Member], live: Live | None) -> list[WatchedRank]:
    """Those that are told: the latest first, those that nothing is known of last."""
    late, busy, loader = ({} if live is None else _by_rank(live, kind) for kind in (LATE, BUSY, LOADER))
    some = sorted(members, key=lambda one: (-late.get(one.rank, -np.inf), one.rank))[:MOST_RANKS]
    return [
        WatchedRank(
            rank=one.rank,
            host=one.hello.host or None,
            gpu=one.hello.gpu if one.hello.gpu >= 0 else None,
            state="ended" if one.ended else "lost" if one.lost else "heard",
            late_ns=_ns(late.get(one.rank)),
            busy_ns=_ns(busy.get(one.rank)),
            loader_ns=_ns(loader.get(one.rank)),
            dropped=one.dropped,
        )
        for one in some
    ]


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
