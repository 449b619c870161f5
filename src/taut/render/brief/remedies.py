"""What to do about findings, in the same words and the same order wherever a briefing says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, TypeVar

from taut.core.finding_place import place_of
from taut.result.types import Estimate, Finding

TESTS = {
    "straggler cascade": "test and replace {place}; until then take it out of the job",
    "silent degradation": "find out what changed on {place} then, and undo it",
    "fabric contention": "keep transfers apart that share {place}, or give them more bandwidth",
    "work imbalance": "deal the work evenly: batches by length, experts by load, stages by time",
    "input stall": "load data ahead: more loader workers, prefetch, or faster storage",
    "checkpoint stall": "save checkpoints asynchronously, or less often",
    "partial synchronisation loss": "bring the groups back into step, or take the meeting away that keeps failing",
    "tail latency inflation": "hedge or cap the slowest calls, or fan out less",
    "energy feedback loop": "cap power below where it throttles, and stagger steps",
    "hang": "restart without {place}, and look at what the flight recorder holds",
    "structural instability": "let ranks meet less often: taut whatif RUN --advice says what that would save",
    "non-determinism": "pin what may differ between runs: kernels, order of reductions, input order",
}
"""Mode → what to do where the finding itself says nothing better."""
GENERIC = "look at the evidence in the run, then decide"

Kind: TypeAlias = Literal["repair", "policy", "other"]
_Row = TypeVar("_Row")


def what_to_do(finding: Finding | None, otherwise: str = GENERIC) -> str:
    """What to do about a finding: its own remedy, its policy, else what helps against its mode."""
    if finding is None:
        return otherwise
    if finding.remedy is not None:
        hosts = {host for host in finding.hosts if host}
        return f"{finding.remedy.do}; then mend or replace {'it' if len(hosts) <= 1 else 'them'}"
    if finding.policy is not None:
        return _policy_words(finding.policy.name)
    return TESTS.get(finding.mode, otherwise).replace("{place}", place_of(finding) or "it")


def _policy_words(name: str) -> str:
    """A policy in plain words, and what it may cost."""
    kind, _, value = name.partition("=")
    how = f"let ranks meet every {value} steps only" if kind == "local-steps" and value else "change how ranks meet"
    return f"{how} (policy {name}); first check that the model still converges"


def kind_of(finding: Finding | None) -> Kind:
    """Whether mending a finding repairs a part, or changes how ranks work together; of no finding, neither."""
    return "other" if finding is None else "repair" if finding.policy is None else "policy"


def by_money(worth: Estimate | None) -> tuple[bool, float]:
    """The most first; behind all others what may bring nothing: a bound is no expectation."""
    if worth is None:
        return True, 0.0
    return worth.lo is not None and worth.lo <= 0, -float(worth.value)


def repair_first(found: Sequence[_Row], told: Callable[[_Row], tuple[Kind, Estimate | None]]) -> tuple[list[_Row], bool]:
    """(the same, with a repair before all where the first is a policy and money does not tell them apart; whether it is so).

    ``told`` says of a row what it is, and what it is worth.
    """
    rows = list(found)
    kind, first = told(rows[0]) if rows else ("other", None)
    repair = next((one for one in rows if told(one)[0] == "repair" and told(one)[1] is not None), None)
    if repair is None or kind != "policy" or first is None or _end(told(repair)[1], high=True) < _end(first, high=False):
        return rows, False
    return [repair, *(one for one in rows if one is not repair)], True


def _end(worth: Estimate | None, high: bool) -> float:
    """An end of an estimate; its value where it has none."""
    if worth is None:
        return 0.0
    end = worth.hi if high else worth.lo
    return float(worth.value if end is None else end)
