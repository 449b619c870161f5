"""Where the accelerator time goes, in parts that sum to the whole: what is useful, what is lost, and who does what about it."""

from __future__ import annotations

from collections.abc import Sequence

from taut.briefing.answers import own
from taut.briefing.loss_words import FATE_WORDS
from taut.core.reporting import LISTED_SHARE
from taut.result.brief_types import BriefedScenario, TimePart
from taut.result.types import AnalysisResult, BriefCause, Finding

LEAST = 0.005
"""Smaller parts stand together."""
REST = "everything else"
SMALL = "below 3 % nothing is looked for"
FATES: dict[str, tuple[str, ...]] = {
    "useful work": ("productive",),
    "waiting for whoever is at fault": ("fault wait",),
    "waiting for whoever happens to be late": ("jitter wait",),
    "waiting that the schedule itself makes": ("structural wait",),
    "computing slower than usual": ("slow compute",),
    "moving data while nothing else runs": ("exposed transfer", "exposed copy"),
    "communication, of which one side was traced": ("communication undivided",),
    "gaps: accelerators that wait for their host": ("gap",),
}
"""Part in plain words → the fates that it holds, useful work first."""
GROUPS = {
    "compute": "useful work",
    "interconnect": "moving data between accelerators",
    "synchronisation": "queues, waiting for others, and accelerators that idle",
    "recovery": "failures, retries and restarts",
}
"""Group of a forecast's time → the same."""


def split_of_run(result: AnalysisResult, causes: Sequence[BriefCause]) -> list[TimePart]:
    """The rank time of a run by what it went into; nothing where it has no ledger."""
    ledger = result.ledger
    if ledger is None or not ledger.total_rank_ns:
        return []
    spent = {entry.fate: entry.rank_ns / ledger.total_rank_ns for entry in ledger.entries}
    shares = {what: sum(spent.get(fate, 0.0) for fate in fates) for what, fates in FATES.items()}
    found = [
        TimePart(what=what, share=share, useful=what == "useful work", do=_answer(what, share, result, causes))
        for what, share in shares.items()
        if share >= LEAST or what == "useful work"
    ]
    return _whole([found[0], *sorted(found[1:], key=lambda one: -one.share)])


def split_of_scenario(scenario: BriefedScenario) -> list[TimePart]:
    """The time of a modelled system by what it goes into; nothing where the model does not tell."""
    groups = own(scenario).groups
    known = {name: share for name in GROUPS if (share := (groups or {}).get(name)) is not None}
    if "compute" not in known:
        return []
    return _whole([TimePart(what=GROUPS[name], share=share, useful=name == "compute") for name, share in known.items()])


def _whole(parts: list[TimePart]) -> list[TimePart]:
    """The same with what is left over as a part of its own."""
    left = 1 - sum(one.share for one in parts)
    return [*parts, TimePart(what=REST, share=left, do=SMALL)] if left >= LEAST / 10 else parts


def _answer(what: str, share: float, result: AnalysisResult, causes: Sequence[BriefCause]) -> str | None:
    """Which of the causes answers a part, else what is known to help."""
    if what == "useful work":
        return None
    named = {cause.finding: k + 1 for k, cause in enumerate(causes) if cause.finding is not None}
    mine = [f"cause {named[one.id]}" for one in result.findings if one.id in named and _explains(one, what)]
    mine += [f"cause {k + 1}" for k, cause in enumerate(causes) if cause.finding is None and cause.what in _words(what)]
    if mine:
        return f"{'partly ' if what == 'computing slower than usual' else ''}{' and '.join(mine)} below"
    helps = [FATE_WORDS[fate][1] for fate in FATES[what] if fate in FATE_WORDS]
    return SMALL if share < LISTED_SHARE or not helps else helps[0]


def _words(what: str) -> list[str]:
    return [FATE_WORDS[fate][0] for fate in FATES[what] if fate in FATE_WORDS]


def _explains(finding: Finding, what: str) -> bool:
    """Whether a finding is why time goes into a part."""
    if finding.loss_share is not None:
        return what in ("waiting for whoever happens to be late", "computing slower than usual")
    if finding.mode in ("input stall", "checkpoint stall"):
        return what.startswith("gaps")
    if finding.links or finding.mode == "fabric contention":
        return what.startswith(("moving data", "waiting for whoever is at fault"))
    return what in ("waiting for whoever is at fault", "computing slower than usual")
