"""What a briefing is made from: results that other verbs print, and the few figures that only a briefing computes.

``taut.briefing`` fills these structs, ``taut.render.brief`` shows them. ``BriefResult`` is what ``taut brief --json`` prints.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import field

from taut.result.types import (
    SCHEMA,
    Amount,
    AnalysisResult,
    AuditOutcome,
    AuditRecord,
    BillResult,
    CompareResult,
    ControlResult,
    CostOverTime,
    Estimate,
    Part,
    ProjectResult,
    ReviewResult,
)

Unit: TypeAlias = Literal["share", "times", "ranks", "ms", "attempts", "money"]
"""What a number counts: shares are 0–1."""
InputKind: TypeAlias = Literal["run", "comparison", "scenario", "control log", "bill"]


class BriefInput(Part, frozen=True, kw_only=True):
    """Something that the briefing was made of."""

    name: str
    """As it was given."""
    kind: InputKind
    sha256: str | None
    """Digest of what it holds; null where only a name was given."""
    command: str
    """The command that shows the same figures again."""


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
    """Where in their step its ops begin, on average, 0–1."""


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
    """Classes that are only in the last node."""


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
    over_time: CostOverTime | None


class BriefedComparison(Part, frozen=True, kw_only=True):
    """Several runs of one job side by side."""

    source: BriefInput
    result: CompareResult


class BriefedDecision(Part, frozen=True, kw_only=True):
    """A decision of the audit log on a run of the briefing, and what became of it."""

    record: AuditRecord
    outcome: AuditOutcome | None


class BriefQuestion(Part, frozen=True, kw_only=True):
    """A question that architects and buyers ask, and the answer."""

    question: str
    answer: Estimate | None
    """Null where it was not measured."""
    unit: Unit | None
    says: str
    taken_from: str | None = field(name="from")
    """Input and key of its result; null where it was not measured."""
    command: str
    """What shows the figure, or what would measure it."""
    needs: str | None
    """What is missing; null where it is answered."""


class BriefCause(Part, frozen=True, kw_only=True):
    """A cause of loss that matters, and what to do about it."""

    what: str
    """In plain words, with its place."""
    share: Estimate | None
    """What it costs, or what doing something about it brings back, as a share of the wall or of the rate."""
    share_is: Literal["recoverable", "lost"]
    money_per_month: Estimate | None
    """The same in money, 30 days of a job that goes on like this; null without a price."""
    currency: str | None
    confidence: float | None
    """One minus the chance of such evidence without the cause, 0–1; null where it is modelled."""
    do: str
    command: str | None
    """What acts on it, or records the decision."""


class BriefCosts(Part, frozen=True, kw_only=True):
    """What the job or the system costs a month, 30 days of going on like this."""

    per_month: float
    useful_per_month: float | None
    """Of it, what useful work takes."""
    currency: str
    basis: str
    """From what: a bill, a price of an accelerator hour, a scenario."""


class Demand(Part, frozen=True, kw_only=True):
    """What to demand of a vendor, from the job's own sensitivities."""

    what: str
    """The figure that matters."""
    worth: str
    """What a change of it costs or brings, with its interval."""
    money_per_year: Amount | None
    currency: str | None
    test: str
    """Which test shows it."""
    reach: str
    """Which number to reach."""
    command: str


class BriefResult(Part, frozen=True, kw_only=True):
    """What ``taut brief --json`` prints."""

    schema: int = SCHEMA
    title: str
    verdict: str
    """Page one in a sentence."""
    inputs: list[BriefInput]
    costs: BriefCosts | None
    """Null without a price."""
    causes: list[BriefCause]
    """The three that matter most, the most money first."""
    questions: list[BriefQuestion]
    demands: list[Demand]
    audit_root: str | None
    """Root of the audit log at the records of the inputs; null where none was recorded."""


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
    causes: list[BriefCause]
    questions: list[BriefQuestion]
    demands: list[Demand]
    notes: list[str]
    """What could not be done, a line each."""
    audit_root: str | None
    audit_log: str | None
