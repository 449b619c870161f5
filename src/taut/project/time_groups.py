"""What an accelerator's time goes to in four groups, and which of them a scale is bound by.

Terms are finer and differ between workloads; the groups are the same for all, so that scales and scenarios can be set side by
side. **Compute** is the work itself with the host's gaps. **Interconnect** is every transfer that nothing hides: inside a
stage, between stages, of gradients and parameters, of keys and values. **Synchronisation** is waiting for others: jitter,
pipeline bubbles, queues, others in a batch, the slowest part, tools; of control loops, accelerators that start or are idle.
**Recovery** is what failures cost: checkpoints, lost work, restarts and repairs; of requests and tasks, attempts in vain.
"""

from __future__ import annotations

from collections.abc import Mapping

COMPUTE, INTERCONNECT, SYNCHRONISATION, RECOVERY = GROUPS = ("compute", "interconnect", "synchronisation", "recovery")
# A scale is bound by compute while at least this share of its time computes.
MOSTLY = 0.5
# Words in the names of terms; the first group that has one takes the term, compute what nobody takes.
_WORDS = {
    INTERCONNECT: ("transfer", "hops", "synchronisation", "all-to-all", "gather", "exchange"),
    RECOVERY: ("attempts", "in vain", "failures", "restart", "checkpoint"),
    SYNCHRONISATION: ("jitter", "bubble", "wait", "queue", "sharing", "slowest", "leaves", "tools", "idle", "starting"),
}


def group_of(term: str) -> str:
    """The group that a term belongs to."""
    return next((group for group, words in _WORDS.items() if any(word in term for word in words)), COMPUTE)


def grouped(terms: Mapping[str, float], kept: float | None = None) -> dict[str, float | None]:
    """Shares of all time by group, 0–1; they sum to 1. None is a group of which no term says anything.

    ``kept`` is the share of its time that recovery leaves the job, where terms are of the rest.
    """
    total = sum(terms.values()) or 1.0
    sums = dict.fromkeys(GROUPS, 0.0)
    for name, part in terms.items():
        sums[group_of(name)] += part / total * (1.0 if kept is None else kept)
    # Hops that hide under computing leave less than no bubble: they are not all exposed.
    hidden = min(sums[SYNCHRONISATION], 0.0)
    sums[INTERCONNECT], sums[SYNCHRONISATION] = max(sums[INTERCONNECT] + hidden, 0.0), sums[SYNCHRONISATION] - hidden
    told = {group_of(name) for name in terms}
    found = {group: share if group in told else None for group, share in sums.items()}
    return found if kept is None else {**found, RECOVERY: 1.0 - kept}


def bound_by(groups: Mapping[str, float | None]) -> str:
    """Compute while that takes half of the time or more, else the largest of the other groups."""
    if (groups[COMPUTE] or 0.0) >= MOSTLY:
        return COMPUTE
    return max((name for name in GROUPS if name != COMPUTE), key=lambda name: groups[name] or 0.0)


def largest_term(terms: Mapping[str, float], groups: Mapping[str, float | None]) -> str:
    """The largest term of the group that a scale is bound by; *failures* where no term says what recovery consists of."""
    bound = bound_by(groups)
    of = [name for name in terms if group_of(name) == bound]
    return max(of, key=lambda name: terms[name]) if of else "failures" if bound == RECOVERY else bound
