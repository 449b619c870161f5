"""A run folder as a card in the list of runs: from its ``run.json`` alone, so that hundreds of them list at once."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median

import msgspec
from msgspec.structs import replace

from taut.core.errors import RunError
from taut.core.folder import FORMAT, MOST_BYTES, RUN, read_file
from taut.result.types import BillResult, ControlResult
from taut.result.view_types import RunCard

HOUR_NS = 3_600_000_000_000
CENT = Decimal("0.01")
TREND = 50
"""Runs of one job that a trend shows at most: the last ones."""


class _Verdict(msgspec.Struct):
    text: str
    kind: str = msgspec.field(name="class")
    effective_share: float | None = None


class _Job(msgspec.Struct):
    name: str
    ranks: int
    steps: int
    wall_ns: int | None
    unit: str = "step"


class _Window(msgspec.Struct):
    wall_ns: int


class _Class(msgspec.Struct):
    kind: str | None = msgspec.field(name="class")


class _Entry(msgspec.Struct):
    rank_ns: int
    money: str | None


class _Ledger(msgspec.Struct):
    total_rank_ns: int
    currency: str | None
    entries: list[_Entry]


class _Present(msgspec.Struct):
    """Something that is there, whatever it holds."""


class _Attempts(msgspec.Struct):
    entries: list[_Entry]


class _Analysis(msgspec.Struct):
    """What a card tells of a result of ``taut analyze``; all else is skipped."""

    verdict: _Verdict
    job: _Job
    windows: list[_Window]
    recoverable_wall_ns: int | None
    regime: _Class | None
    ledger: _Ledger | None
    control: _Present | None = None
    attempts: _Attempts | None = None


class _Project(msgspec.Struct):
    """The same of ``taut project``."""

    scenario: str
    workload: str
    ranks: int
    regime: _Class | None


class _Kind(msgspec.Struct):
    """The keys that tell which verb wrote a result."""

    job: _Present | None = None
    forecasts: list[_Present] | None = None
    accrual: _Present | None = None
    controllers: list[str] | None = None


class _Stored(msgspec.Struct):
    format: int
    result: msgspec.Raw
    graph: _Present | None = None


def run_card(folder: str | Path) -> RunCard:
    """The card of a run folder of any verb; says in one line what is wrong with it if anything is."""
    root = Path(folder)
    try:
        made_ns = os.stat(root / RUN).st_mtime_ns
        data = read_file(root / RUN, MOST_BYTES)
    except OSError as error:
        why = "larger than it may be" if error.errno == errno.EFBIG else error.strerror or "not readable"
        raise RunError(f"{root}: {RUN} cannot be read ({why})") from None
    try:
        return _card(root, data, made_ns)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, ArithmeticError) as error:
        raise RunError(f"{root}: no run of this version of taut ({' '.join(str(error).split())[:100]})") from None


def _card(root: Path, data: bytes, made_ns: int) -> RunCard:
    stored = msgspec.json.decode(data, type=_Stored)
    if stored.format != FORMAT:
        raise ValueError(f"its layout is {stored.format}, not {FORMAT}")
    kind = msgspec.json.decode(stored.result, type=_Kind)
    blank = RunCard(
        id=run_id(root),
        name=root.name,
        folder=str(root),
        verb="analyze",
        views=[],
        verdict="",
        kind=None,
        regime=None,
        ranks=None,
        steps=None,
        step_ns=None,
        wall_ns=None,
        recoverable_share=None,
        effective_share=None,
        lost_per_hour=None,
        currency=None,
        made_ns=made_ns,
        trend_ns=[],
    )
    if kind.job is not None:
        return _analysis(blank, msgspec.json.decode(stored.result, type=_Analysis), stored.graph is not None)
    if kind.accrual is not None:
        return _bill(blank, msgspec.json.decode(stored.result, type=BillResult))
    if kind.controllers is not None:
        return _control(blank, msgspec.json.decode(stored.result, type=ControlResult))
    return _project(blank, msgspec.json.decode(stored.result, type=_Project))


def run_id(folder: str | Path) -> str:
    """What names a folder in addresses: the same for the same folder."""
    return hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:12]


def _analysis(blank: RunCard, found: _Analysis, traced: bool) -> RunCard:
    job, wall_ns = found.job, found.job.wall_ns
    views = ["overview", "timeline", "structure", "whatif", "scaling"] if traced else ["overview"]
    views += ["control"] * (found.control is not None) + ["bill"] * _spent(found) + ["decisions"] * traced
    share = None if found.recoverable_wall_ns is None or not wall_ns else min(found.recoverable_wall_ns / wall_ns, 1.0)
    lost, currency = _lost(found.ledger, share, job.ranks)
    return replace(
        blank,
        name=job.name,
        views=views,
        verdict=found.verdict.text,
        kind=found.verdict.kind,
        regime=None if found.regime is None else found.regime.kind,
        ranks=job.ranks if traced else None,
        steps=job.steps if traced else None,
        step_ns=float(median(one.wall_ns for one in found.windows)) if found.windows and job.unit == "step" else None,
        wall_ns=wall_ns,
        recoverable_share=share,
        effective_share=found.verdict.effective_share,
        lost_per_hour=lost,
        currency=currency,
    )


def _spent(found: _Analysis) -> bool:
    """Whether a ledger tells where the time, and at a price the money, went."""
    return found.ledger is not None or (found.attempts is not None and any(one.rank_ns for one in found.attempts.entries))


def _lost(ledger: _Ledger | None, share: float | None, ranks: int) -> tuple[str | None, str | None]:
    """Money that mending all findings would save an hour, and its currency."""
    if ledger is None or ledger.currency is None or not ledger.total_rank_ns:
        return None, None
    paid = sum((Decimal(one.money) for one in ledger.entries if one.money is not None), Decimal(0))
    if share is None:
        return None, ledger.currency
    hour = paid * HOUR_NS / ledger.total_rank_ns * ranks * Decimal(share)
    return str(hour.quantize(CENT)), ledger.currency


def _bill(blank: RunCard, found: BillResult) -> RunCard:
    return replace(blank, verb="bill", views=["bill"], verdict=found.verdict, currency=found.currency)


def _control(blank: RunCard, found: ControlResult) -> RunCard:
    from taut.render.control_screen import verdict_text

    kind, name = found.regime.kind, found.name or blank.name
    return replace(blank, verb="control", name=name, views=["control"], verdict=verdict_text(found), kind=kind, regime=kind)


def _project(blank: RunCard, found: _Project) -> RunCard:
    kind = None if found.regime is None else found.regime.kind
    return replace(
        blank,
        verb="project",
        name=found.scenario,
        views=["scaling"],
        kind=kind,
        regime=kind,
        ranks=found.ranks,
        verdict=f"Forecast of {found.workload} on {found.ranks:,} ranks{f': {kind}' if kind else ''}.",
    )


def with_trends(cards: Sequence[RunCard]) -> list[RunCard]:
    """The cards, the newest first, each with the steps of the runs of its job up to it."""
    told: dict[str, list[float]] = defaultdict(list)
    out = []
    for card in sorted(cards, key=lambda card: (card.made_ns, card.folder)):
        if card.verb == "analyze" and card.step_ns is not None:
            told[card.name].append(card.step_ns)
            card = replace(card, trend_ns=told[card.name][-TREND:])
        out.append(card)
    return out[::-1]
