"""The first page of a run: what was found, what it costs, who is late when, and what the answer rests on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.graph import Graph
from taut.replay.timeline import completion, window_times
from taut.result.rank_rows import lateness_by_step
from taut.result.types import AnalysisResult
from taut.result.view_types import FateShare, LatenessMap, Overview, RunCard, StepTimes, TrustSign
from taut.stored import Run, decoded_result, open_run, read_stored
from taut.views.headlines import headlines, in_order, stopped
from taut.views.ideal import ideal_step_ns
from taut.views.lateness import lateness_of
from taut.views.rank_blocks import rank_blocks
from taut.views.run_card import run_card
from taut.views.run_course import ledger_rate

COLUMNS = 120
"""Of the map of lateness, at most."""
FEW_STEPS = 10
"""Fewer tell spreads badly."""
EXPLAINED = 0.9
"""Share of starts that edges should explain."""
PARTIAL = 3
"""Lines on what is missing that are shown; the others are counted."""
BLAMED_OPS = 250_000
"""Ops of which the map tells who waited for whom: of larger runs the first steps, and the page says so."""
LATEST_NS = 1_000_000
"""Clocks that differ by less than this at gates are well set."""
Group = Literal["useful", "slow", "discarded", "unfinished", "communication", "copy", "waiting", "idle", "other"]
GROUPS: dict[Group, tuple[str, ...]] = {
    "useful": ("productive", "kept"),
    "slow": ("slow compute",),
    "discarded": ("discarded", "discarded at most"),
    "unfinished": ("unfinished",),
    "communication": ("exposed transfer", "communication undivided"),
    "copy": ("exposed copy",),
    "waiting": ("fault wait", "jitter wait", "structural wait"),
    "idle": ("gap", "idle", "unallocated", "down"),
}
"""Groups of fates; all others are ``other``."""


def with_decided(found: Overview, decided: Mapping[str, int]) -> Overview:
    """An overview whose findings tell which record decided on them."""
    told = [replace(one, decided=decided.get(one.id or "")) for one in found.headlines]
    return replace(found, headlines=told)


def overview_of(folder: str | Path) -> Overview:
    """The overview of a run folder of ``taut analyze``, of job logs alone too."""
    root = Path(folder)
    stored = read_stored(root)
    if stored.graph is not None:
        return overview(open_run(root))
    return _without_graph(run_card(root), decoded_result(root, stored.result))


def overview(run: Run, card: RunCard | None = None) -> Overview:
    """The overview of an opened run; ``card`` where it is known already."""
    card = run_card(run.folder) if card is None else card
    found = _without_graph(card, run.result)
    return replace(found, lateness=lateness_map(run.graph), step_times=step_times(run), waits=lateness_of(run, BLAMED_OPS))


def _without_graph(card: RunCard, result: AnalysisResult) -> Overview:
    """All that the result itself tells."""
    rate = ledger_rate(result)
    verdict = result.verdict
    return Overview(
        run=card,
        headlines=headlines(result, card.folder),
        nominal_share=verdict.nominal_share,
        nominal_is=verdict.nominal_is,
        effective_share=verdict.effective_share,
        fates=fates(result),
        currency=_currency(result),
        rank_hour=None if rate is None else str(rate[0].quantize(Decimal("0.0001"))),
        lateness=None,
        step_times=None,
        waits=None,
        ranks=result.ranks or [],
        stopped=stopped(result),
        jobs=result.attempts.worst if result.ledger is None and result.attempts is not None else [],
        trust=trust(result),
        commands=_commands(card, result),
    )


def fates(result: AnalysisResult) -> list[FateShare]:
    """All fates that took time, in the order of the ledger; of job logs alone those of attempts."""
    ledger, attempts = result.ledger, result.attempts
    rows = (
        [(one.fate, one.rank_ns, one.money) for one in ledger.entries]
        if ledger is not None
        else [(one.fate, one.rank_ns, one.money) for one in (attempts.entries if attempts is not None else ())]
    )
    total = max(sum(ns for _, ns, _ in rows), 1)
    return [
        FateShare(fate=fate, group=_group(fate), share=ns / total, rank_ns=ns, money=money) for fate, ns, money in rows if ns
    ]


def _currency(result: AnalysisResult) -> str | None:
    """Of the amounts of the fates."""
    if result.ledger is not None:
        return result.ledger.currency
    return None if result.attempts is None else result.attempts.currency


def _group(fate: str) -> Group:
    return next((group for group, some in GROUPS.items() if fate in some), "other")


def lateness_map(graph: Graph) -> LatenessMap | None:
    """How late ranks come, step by step; None without gates. Blocks of neighbours take the largest."""
    late = lateness_by_step(graph)
    if not np.isfinite(late).any():
        return None
    blocks, wide = rank_blocks(graph), max(-(-late.shape[1] // COLUMNS), 1)
    begins = np.arange(0, late.shape[1], wide)
    filled = np.where(np.isnan(late), -np.inf, late)
    cells = np.maximum.reduceat(np.maximum.reduceat(filled, blocks.starts, axis=0), begins, axis=1)
    most = filled.max(axis=1)
    latest = [int(first + np.argmax(most[first : first + blocks.tall])) for first in blocks.starts]
    return LatenessMap(
        labels=blocks.labels,
        ranks=[int(graph.ranks[one]) for one in latest],
        steps=[int(graph.steps[begin]) for begin in begins],
        late_ns=[_finite(row) for row in cells],
    )


def _finite(row: Floats) -> list[float | None]:
    return [float(one) if np.isfinite(one) else None for one in row]


def step_times(run: Run) -> StepTimes:
    """Steps as observed, and in the ideal replay of ``views/ideal.py``."""
    graph, before = run.graph, run.result.baseline
    return StepTimes(
        step=[int(one) for one in graph.steps],
        observed_ns=[int(one) for one in window_times(graph, completion(graph, graph.ops.end_ns))],
        ideal_ns=[int(one) for one in ideal_step_ns(run)],
        baseline_ns=None if before is None else before.step_ns.before,
    )


# ---------------------------------------------------------------------------------------------------------------------
# What it rests on


def trust(result: AnalysisResult) -> list[TrustSign]:
    """What the answer rests on, and what is missing."""
    job, fidelity = result.job, result.fidelity
    signs = [] if fidelity is None else [_traced(result), _few(result)]
    if fidelity is not None:
        signs += _clocks(result)
        explained = fidelity.explained_share
        signs.append(TrustSign(good=explained >= EXPLAINED, text=f"{100 * explained:.0f} % of starts explained"))
        dropped = fidelity.dropped_edges
        if dropped:
            signs.append(
                TrustSign(good=False, text=f"{dropped:,} edge{'' if dropped == 1 else 's'} dropped: the traces break them")
            )
    signs += [TrustSign(good=None, text=line) for line in job.partial[:PARTIAL]]
    if len(job.partial) > PARTIAL:
        signs.append(TrustSign(good=None, text=f"{len(job.partial) - PARTIAL} more notes on what is missing, in run.json"))
    return signs


def _traced(result: AnalysisResult) -> TrustSign:
    job = result.job
    if job.world_size is None:
        return TrustSign(good=None, text=f"{job.ranks:,} rank{'' if job.ranks == 1 else 's'}, of how many is not told")
    return TrustSign(good=job.ranks >= job.world_size, text=f"{job.ranks:,}/{job.world_size:,} ranks")


def _few(result: AnalysisResult) -> TrustSign:
    job = result.job
    many = job.steps >= FEW_STEPS
    said = f"{job.steps:,} {job.unit}{'' if job.steps == 1 else 's'}"
    return TrustSign(good=many, text=said if many else f"{said}: few to tell a spread")


def _clocks(result: AnalysisResult) -> list[TrustSign]:
    """Whether the clocks of the ranks agree, where there are several and times are those of clocks."""
    fidelity = result.fidelity
    if fidelity is None or result.job.ranks < 2:
        return []
    residual = fidelity.clock.residual_ns
    if residual is None:
        return [TrustSign(good=None, text="clocks not compared")]
    good = residual <= LATEST_NS
    return [TrustSign(good=good, text="clocks ok" if good else f"clocks {residual / 1e6:.1f} ms apart at gates")]


def _commands(card: RunCard, result: AnalysisResult) -> dict[str, str]:
    """What each part comes from, or leads to."""
    run = shlex.quote(card.folder)
    out = {"analyze": f"taut analyze TRACES -o {run}", "brief": f"taut brief {run} -o brief.pdf"}
    if result.ledger is None:
        return out
    out |= {"perfetto": f"taut export {run} --to perfetto", "html": f"taut export {run} --to html"}
    asked = next((one.whatif for one in headlines(result, card.folder) if one.whatif), None)
    out |= {} if asked is None else {"whatif": asked}
    first = next(iter(in_order(result)), None)
    if first is not None:
        out["decide"] = f"taut audit decide {run} --finding {shlex.quote(first.id)} --do … --by NAME"
    return out
