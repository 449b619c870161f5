"""What a briefing is made from: results that other verbs print, and the few figures that only a briefing computes.

``taut.briefing`` fills these structs, ``taut.render.brief`` shows them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from taut.result.types import (
    AnalysisResult,
    AuditOutcome,
    AuditRecord,
    BillResult,
    BriefCause,
    BriefCosts,
    BriefInput,
    BriefQuestion,
    CompareResult,
    ControlResult,
    CostOverTime,
    Demand,
    Estimate,
    Part,
    ProjectResult,
    ReviewResult,
)


class OperatorNode(Part, frozen=True, kw_only=True):
    """A class of ops, or of gates, of the condensed operator graph."""

    name: str
    kind: Literal["compute", "communicate", "synchronise", "coordinate"]
    gate: bool
    """Whether its ops meet at a rendezvous."""
    ops: int
    rank_share: float
    """Of all rank time, work of these ops, 0–1."""
    wait_share: float
    """Of all rank time, exposed waiting at these gates, 0–1."""
    critical_share: float | None
    """Of the wall, what lies on the critical path, 0–1."""
    place: float
    """Where it stands in the order of a step, as the critical path goes through it, 0–1."""


class OperatorEdge(Part, frozen=True, kw_only=True):
    """One class follows another, within a rank or across."""

    first: int
    """Place in the list of nodes."""
    then: int
    count: int
    critical_share: float | None
    """Of the steps, those in which the critical path takes it, 0–1."""


class OperatorView(Part, frozen=True, kw_only=True):
    """The operator graph of a run, one node a class; the classes that matter most, the others together."""

    nodes: list[OperatorNode]
    edges: list[OperatorEdge]
    left_out: int
    """Classes without a node of their own; together they are the last one, unless they take next to nothing."""


class Course(Part, frozen=True, kw_only=True):
    """A run as it went, one row a step, or a bucket of steps."""

    step: list[int]
    """The first of each bucket."""
    end_s: list[float]
    """Seconds since the first begin, at the end of each."""
    shares: dict[str, list[float]]
    """compute, slow compute, communication, waiting, gaps, other → share of the rank time of each, 0–1."""
    money: dict[str, list[float]] | None
    """The same, in money so far; null without a price."""
    currency: str | None


class RankLateness(Part, frozen=True, kw_only=True):
    """Who waited for whom, ranks in groups where there are many."""

    labels: list[str]
    cause: list[int]
    """Places in the list of labels."""
    victim: list[int]
    share: list[float]
    """Of all waiting that has a cause, 0–1."""
    first_steps: int | None = None
    """How many of the first steps it was measured on; null where on all."""


class StackedController(Part, frozen=True, kw_only=True):
    """A controller in its layer."""

    name: str
    layer: str | None
    """scheduler, orchestrator, runtime, model, policy, retry, fallback or autoscaler; null where it is not told."""
    decisions: int | None
    """Actions on record; null of a configuration that has not run."""
    turned_back: int | None
    """Of them, those that reverse its own last one on the same knob although demand did not move that way."""


class FollowedDecisions(Part, frozen=True, kw_only=True):
    """Decisions of one controller that come next after one of another on the same target."""

    first: int
    """Place in the list of controllers."""
    then: int
    coherent: int
    """Go the same way, or the way that demand moved meanwhile."""
    incoherent: int
    """Go the other way although demand did not."""


class ControlStack(Part, frozen=True, kw_only=True):
    """Controllers by layer, and how their decisions go together."""

    controllers: list[StackedController]
    pairs: list[FollowedDecisions]
    """Empty where no two controllers decide on one target, or no direction is recorded."""
    targets: list[str] = field(default_factory=list)
    """What the decisions on record are about."""


class Meets(Part, frozen=True, kw_only=True):
    """Where the ranks of a run meet."""

    largest: int
    """Ranks at the largest gate."""
    names: list[str]
    """Of such gates."""
    per_step: float
    """Gates of any size in a step."""


class Transfer(Part, frozen=True, kw_only=True):
    """The transfer that takes the most rank time of a run, as it went."""

    name: str
    size_bytes: int
    """Of each member."""
    members: int
    median_ns: float
    """Without waiting for the last to arrive."""


class BriefedRun(Part, frozen=True, kw_only=True):
    """A run folder of ``taut analyze``."""

    source: BriefInput
    result: AnalysisResult
    view: OperatorView | None
    """Null without a graph: of job logs alone."""
    course: Course | None
    lateness: RankLateness | None
    stack: ControlStack | None = None
    """Null where no controller is on record."""
    grown: ProjectResult | None = None
    """The job on more ranks (``taut project --from``); null where its graph is too large to be widened here, or cannot be."""
    meets: Meets | None = None
    transfer: Transfer | None = None
    """Null where nobody recorded bytes of transfers, or how long they took."""


class BriefedScenario(Part, frozen=True, kw_only=True):
    """A scenario, with its envelope or its advice where the workload has one."""

    source: BriefInput
    result: ProjectResult
    """At its own scale."""
    grown: ProjectResult | None
    """At other scales; null where it has none."""
    review: ReviewResult | None
    """What would fight in its loops; null of other workloads."""
    declared: dict[str, Estimate]
    """Figure → what the literature declares for such a system (``declared`` in docs/scenarios); empty where nothing does."""
    declared_with: dict[str, Estimate] = field(default_factory=dict)
    """The same with such policies as the scenario names."""
    assumes: dict[str, str] = field(default_factory=dict)
    """Knob of its elasticities → the figure that it assumes, with its unit; empty of other workloads."""
    declared_by: dict[str, str] = field(default_factory=dict)
    """Figure → who declares it."""
    control: ControlResult | None = None
    """Of loops: what a simulated run's log shows, read as a real one."""
    stack: ControlStack | None = None
    """Null where it has no control loops."""


class BriefedControl(Part, frozen=True, kw_only=True):
    """A control log."""

    source: BriefInput
    result: ControlResult
    stack: ControlStack | None = None
    """Null where no actions are on record."""


class BriefedBill(Part, frozen=True, kw_only=True):
    """A bill: given as a run folder, or made of the runs and the prices that were given."""

    source: BriefInput
    result: BillResult
    """With accelerators that stood still after a failure apart from those that nobody needed, where attempts tell it."""
    over_time: CostOverTime | None


class BriefedComparison(Part, frozen=True, kw_only=True):
    """Several runs of one job side by side."""

    source: BriefInput
    result: CompareResult


class BriefedDecision(Part, frozen=True, kw_only=True):
    """A decision of the audit log on a run of the briefing, and what became of it."""

    record: AuditRecord
    outcome: AuditOutcome | None


class TimePart(Part, frozen=True, kw_only=True):
    """A part of the accelerator time; all of them sum to the whole."""

    what: str
    """In plain words."""
    share: float
    """Of the accelerator time, 0–1."""
    useful: bool = False
    do: str | None = None
    """What is done about it; null of useful work, and where nothing is known that would help."""


class Briefing(Part, frozen=True, kw_only=True):
    """All that a briefing shows."""

    version: str
    """Of taut."""
    title: str
    verdict: str
    inputs: list[BriefInput]
    runs: list[BriefedRun]
    comparisons: list[BriefedComparison]
    scenarios: list[BriefedScenario]
    controls: list[BriefedControl]
    bills: list[BriefedBill]
    decisions: list[BriefedDecision]
    costs: BriefCosts | None
    split: list[TimePart] = field(default_factory=list)
    """Where the accelerator time goes, useful work first; empty where that is not known."""
    left_out: list[str] = field(default_factory=list)
    """What the figures of page one do not count, a sentence each."""
    causes: list[BriefCause]
    questions: list[BriefQuestion]
    demands: list[Demand]
    notes: list[str]
    """What could not be done, a line each."""
    audit_root: str | None
    audit_log: str | None
