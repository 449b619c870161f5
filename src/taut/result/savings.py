"""What would save wall-clock time, each replayed, and the class of verdict it stands for.

| what saves it | class |
|---|---|
| a hang ended; a located rank, link, host or set at its reference | component |
| controllers' actions removed | control |
| work reassigned, a schedule or policy changed, a ceiling lifted for all, ranks unequal for good | structural |
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.interval import share_of
from taut.core.reporting import LISTED_SHARE
from taut.diagnose.finding import Finding
from taut.diagnose.instability import Structure
from taut.replay.timeline import Change, walls
from taut.result.computed import Computed
from taut.result.types import Estimate, VerdictClass

REASSIGNED = ("work imbalance", "structural instability")
"""Modes that a place may have, and no repair of that place would mend."""


class Saving(Struct, frozen=True):
    """Time that one change would save."""

    kind: VerdictClass
    share: Estimate
    """Of the wall."""
    finding: Finding | None = None

    @property
    def least(self) -> float:
        """The lower end of its interval, which is compared; the value itself where one step has none."""
        return self.share.value if self.share.lo is None else self.share.lo

    @property
    def most(self) -> float:
        """The upper end of its interval."""
        return self.share.value if self.share.hi is None else self.share.hi


def savings(a: Computed) -> list[Saving]:
    """What findings and controllers would save, the largest first; those surely worth listing before all others."""
    found = [Saving(class_of(f, len(a.graph.ranks)), saved_share(a, f), f) for f in a.findings]
    held = _controllers(a)
    found += [] if held is None else [Saving("control", held)]
    found.sort(key=lambda s: (s.least < LISTED_SHARE, -s.share.value))
    # A repair costs no convergence: of what cannot be told apart it comes before a policy.
    repair = next((s for s in found if s.kind == "component" and s.least >= LISTED_SHARE), None)
    first = found[0].finding if found else None
    if repair is not None and first is not None and first.structure is not None and repair.most >= found[0].least:
        found.sort(key=lambda s: s is not repair)
    # What controllers did to a place shows as a finding there too: it is theirs, unless the place costs surely more.
    if held is not None and found[0].finding is not None and held.value >= found[0].least:
        found.sort(key=lambda s: s.kind != "control")
    return found


def class_of(finding: Finding, ranks: int) -> VerdictClass:
    """What mending a finding changes: a component, or how all of them work together."""
    if finding.mode == "hang":
        return "component"
    located = finding.links or (finding.ranks and len(finding.ranks) < ranks)
    return "component" if located and finding.mode not in REASSIGNED else "structural"


def saved_share(a: Computed, finding: Finding) -> Estimate:
    """What a finding saves, with the interval that its steps give."""
    if finding.structure is not None:
        return _by_policy(a, finding, finding.structure)
    saved = finding.saved_ns
    found = None if saved is None else share_of(saved, a.observed.window_ns)
    return found or Estimate(value=finding.recoverable_wall_ns / max(a.observed.wall_ns, 1), lo=None, hi=None)


def _by_policy(a: Computed, finding: Finding, structure: Structure) -> Estimate:
    """What a policy saves of the wall as it was; of what no policy was replayed on, what it costs."""
    saved = structure.saved_share
    if saved is None or structure.policy is None:
        return structure.loss_share
    part = finding.recoverable_wall_ns / max(a.observed.wall_ns, 1) / saved.value
    return Estimate(value=part * saved.value, lo=saved.lo and part * saved.lo, hi=saved.hi and part * saved.hi)


def _controllers(a: Computed) -> Estimate | None:
    """What would be saved if controllers had not acted: their pauses, their own work and what they had thrown away."""
    held = a.ledger.overhead
    if held is None or (not held.ns.any() and not held.discarded_ns.any()):
        return None
    own = held.own_ns + held.discarded_ns
    everywhere, why = np.arange(len(a.graph)), "controllers' actions removed"
    changes = [
        Change(everywhere, "gap", "add", -np.minimum(held.pause_ns, a.graph.gap_ns), why),
        Change(everywhere, "work", "add", -np.minimum(own, a.graph.work_ns), why),
    ]
    return share_of(a.observed.window_ns - walls(a.graph, changes), a.observed.window_ns)
