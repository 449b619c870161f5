"""What an analysis computes of one job, before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from taut.diagnose.detectors import Finding
from taut.diagnose.early_warning import EarlyWarning
from taut.diagnose.instability import Undecided
from taut.diagnose.job_regime import PAYS
from taut.diagnose.slowdowns import Slowdowns
from taut.graph import Graph
from taut.ledger import Ledger
from taut.ledger.attempt_ledger import Attempts
from taut.replay.blame import Blame
from taut.replay.coupled_ranks import Coupling, couple
from taut.replay.own_time import OwnTime, own_time
from taut.replay.timeline import Batch, Timeline, walls
from taut.replay.whatif import WhatIf
from taut.result.types import Baseline

if TYPE_CHECKING:
    from taut.read.rank_topology import Topology


@dataclass(frozen=True, repr=False, eq=False)
class Computed:
    """Graph, timelines, blame, findings and ledger of one job."""

    graph: Graph
    observed: Timeline
    gap_free: Timeline
    blame: Blame
    batch: Batch
    whatif: WhatIf
    findings: list[Finding]
    early: list[EarlyWarning] | None
    """Series that recover ever more slowly: what may come; None where the run is too short to tell."""
    ledger: Ledger
    digest: str
    pays: float = PAYS
    """Share of its own throughput that the next accelerator must bring to pay."""
    ask_envelope: bool = False
    """Whether the result maps what dominates at other scales."""
    topology: Topology | None = None
    attempts: Attempts | None = None
    """The ledger of the job's attempts, where job logs lie beside the traces."""
    baseline: Baseline | None = None
    """The healthy run that it was compared with."""
    undecided: Undecided | None = None
    """Loss that may be nobody's, of which the run is too short to tell."""
    known_slowdowns: Slowdowns | None = None
    """What became slower during the run, as findings were told from it."""

    @cached_property
    def own_time(self) -> OwnTime:
        """Own time of each rank in each step."""
        return own_time(self.graph, self.observed)

    @cached_property
    def slowdowns(self) -> Slowdowns:
        """What became slower during the run."""
        return Slowdowns(self.graph) if self.known_slowdowns is None else self.known_slowdowns

    @cached_property
    def coupling(self) -> Coupling:
        """How the ranks hold on to each other: reach, response to a delay, turnover of the critical path."""
        hops = self.topology.hops if self.topology is not None else None
        return couple(self.graph, self.blame, self.observed, self.gap_free, hops)

    @cached_property
    def recoverable_wall_ns(self) -> int:
        """What mending all findings together would save: less than their sum where they hide each other.

        What a policy recovers comes on top: it was computed with all others mended.
        """
        changes = [change for finding in self.findings for change in finding.changes]
        by_policy = sum(finding.recoverable_wall_ns for finding in self.findings if finding.structure is not None)
        return by_policy + (self.observed.wall_ns - int(walls(self.graph, changes).sum()) if changes else 0)
