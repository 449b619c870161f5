"""A finding in plain words: what is wrong and where, what the evidence is of, and what nobody tested."""

from __future__ import annotations

from taut.core.finding_place import place_of
from taut.result.types import Finding

STAYS = "the rest stays: ranks still meet, and wait for each other when they do"
PLAIN = {
    "straggler cascade": "slower than the others, which wait for it",
    "silent degradation": "has become slower without an error",
    "fabric contention": "transfers get in each other's way",
    "work imbalance": "gets more work than others",
    "input stall": "accelerators wait for input data",
    "checkpoint stall": "accelerators wait while the job is saved",
    "partial synchronisation loss": "groups of ranks are out of step",
    "tail latency inflation": "few slow calls hold up many",
    "energy feedback loop": "heat or power slows it down",
    "hang": "stands still, and the others wait for it",
    "non-determinism": "the same work takes different times",
}
"""Mode of a finding in plain words."""
LATE = {
    "straggler cascade": "late",
    "silent degradation": "slower than before",
    "fabric contention": "slowed down by others",
    "work imbalance": "given more work than others",
}
"""Mode of a finding → what is said of its ranks or links."""


def sure_of(finding: Finding) -> str:
    """What the confidence of a finding is of: what was tested, and no more."""
    if finding.loss_share is not None:
        return "nobody causes it alone"
    said = LATE.get(finding.mode, "")
    many = len(finding.ranks) > 1 or len(finding.links) > 1
    return f"{'they are' if many else 'it is'} {said}" if said and (finding.ranks or finding.links) else "it is real"


def untested(finding: Finding) -> str | None:
    """What nobody tested, and what would."""
    if finding.links:
        return "whether cable, port or switch is the reason: swap them one by one and run again"
    if len(finding.ranks) != 1:
        return None
    rank, host = finding.ranks[0], next((host for host in finding.hosts if host), None)
    where = f"{host}, and not the work of rank {rank}, is" if host else "its accelerator or host, and not its work, is"
    return f"whether {where} the reason: run rank {rank} on another host; if it is late there too, it is its work"


def finding_words(finding: Finding) -> str:
    """What is wrong, and where, in plain words."""
    if finding.loss_share is not None:
        return "waiting for whoever happens to be late: nobody in particular"
    place, plain = place_of(finding), PLAIN.get(finding.mode)
    if place and plain:
        return f"{place}: {plain}"
    return f"{finding.mode}: {place}" if place else plain or finding.mode


def evidence(finding: Finding) -> str:
    """The first clause of a finding's evidence; operations by the last part of their names, which people know."""
    clause = finding.because.split("; ")[0]
    for name in sorted(finding.classes, key=len, reverse=True):
        last = name.rsplit(": ", 1)[-1].rsplit("::", 1)[-1]
        clause = clause.replace(name, f"the operation {last}") if last != name else clause
    return clause
