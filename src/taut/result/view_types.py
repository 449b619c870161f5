"""What the pages of the web app and of an exported file are drawn from, and what the app's API answers.

``taut.views`` fills these structs, ``taut.serve`` sends them, the scripts of ``taut.render.page`` draw them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from taut.result.brief_types import ControlStack, OperatorView, RankLateness
from taut.result.types import (
    Amount,
    AuditOutcome,
    AuditRecord,
    BillResult,
    Component,
    ControlResult,
    CostOverTime,
    Envelope,
    Estimate,
    LiveFinding,
    Money,
    Part,
    ProjectResult,
    RankRow,
    Regimes,
    RestartedJob,
    WatchedJob,
    WhatIfResult,
)

Severity = Literal["fault", "structure", "control", "unknown", "healthy"]
"""What kind of thing a page opens with."""
VIEWS = ("overview", "timeline", "structure", "whatif", "scaling", "control", "bill", "decisions")
"""Pages of one run, in the order of their tabs; the list of runs comes before them."""
STATES = (
    "compute", "slow compute", "communication", "copy", "fault wait", "jitter wait", "structural wait", "gap wait",
    "unexplained wait", "host", "idle",
)  # fmt: skip
"""What a rank or a lane does at a moment of the timeline, in the order of their codes: 0 is compute."""

# ---------------------------------------------------------------------------------------------------------------------
# Runs


class RunCard(Part, frozen=True, kw_only=True):
    """A run folder in the list of runs."""

    id: str
    """Names it in addresses: the same for the same folder."""
    name: str
    """Of the job or scenario."""
    folder: str
    """As commands take it."""
    verb: Literal["analyze", "project", "control", "bill"]
    """Which verb wrote it."""
    views: list[str]
    """Of ``VIEWS``, those that have something to show."""
    verdict: str
    kind: str | None = field(name="class")
    """Of the verdict or, of control loops, of the regime; null where there is none."""
    regime: str | None
    ranks: int | None
    steps: int | None
    step_ns: float | None
    """Median step, ns; the terminal's is the mean."""
    wall_ns: int | None
    recoverable_share: float | None
    """What mending all findings saves, of the wall, 0–1."""
    effective_share: float | None
    """Productive, of the rank time, 0–1."""
    lost_per_hour: Amount | None
    """Money that mending all findings would save an hour; null without a price. What a bill calls lost is all that is not
    useful, and more."""
    currency: str | None
    made_ns: int
    """When its folder was written, ns since 1970."""
    trend_ns: list[float]
    """Median steps of the runs of the same job up to this one, by when they were written, ns."""


class RunList(Part, frozen=True, kw_only=True):
    """The runs of the folders that are served, the newest first."""

    version: str
    """Changes when a run appears, changes or goes."""
    runs: list[RunCard]
    refused: list[str]
    """Folders that look like runs and cannot be read: one line each."""
    live: bool = False
    """Whether a collector keeps what it sees in one of these folders."""


# ---------------------------------------------------------------------------------------------------------------------
# Jobs that run


class LiveJob(Part, frozen=True, kw_only=True):
    """A job that runs, beside its runs in the list."""

    watched: WatchedJob
    runs: list[RunCard]
    """Runs of the same name, the newest first; not all of them."""


class LiveFolder(Part, frozen=True, kw_only=True):
    """What a collector keeps in a folder."""

    folder: str
    """As commands take it."""
    at_ns: int | None
    """When the collector last wrote what it sees, ns since 1970; null where that cannot be read."""
    since_ns: int | None
    """When the collector began."""
    old: bool
    """Whether nothing has been written for so long that it is not what is seen now."""
    jobs: list[LiveJob]
    """Those with open findings first, then by name."""
    closed: list[LiveFinding]
    """Findings that were closed in the last day, the newest first."""
    more_closed: bool
    """Whether there are more than are told."""
    counts: dict[str, int]
    """Connections, messages, bytes and ranks so far, and what was refused."""


class LiveView(Part, frozen=True, kw_only=True):
    """Jobs that run."""

    now_ns: int
    """When this was answered, ns since 1970, by the clock of the server."""
    folders: list[LiveFolder]
    """Empty where no collector keeps anything in the folders that are served."""


# ---------------------------------------------------------------------------------------------------------------------
# Overview


class Headline(Part, frozen=True, kw_only=True):
    """A finding, or that there is none, in the words of the first screen."""

    id: str | None
    """Of the finding; null where there is none."""
    severity: Severity
    title: str
    """``Rank 137 (gpu-17, GPU 1) is slow: Sleepy +42 ms a step``."""
    saving: str
    """``A fix saves 28.9 % ≈ 185 EUR/h (4,400 a day), likely 24–46 %``; empty where nothing is saved."""
    because: str
    do: str
    """What to do, in a sentence; empty where nothing is to be done."""
    steps: list[int]
    """First and last."""
    ranks: list[int]
    recoverable_share: float | None
    money: Money | None
    fix: list[str]
    """What ``taut whatif`` takes to replay it mended: ``rank=137``, …; empty where a policy or nothing mends it."""
    policy: str | None
    """The policy that recovers it, where none mends it."""
    whatif: str | None
    """The command that says the same; null where none does."""
    ticket: str | None
    decided: int | None = None
    """Record of the last decision on it; null where nobody has decided, or no log was asked."""


class FateShare(Part, frozen=True, kw_only=True):
    """A fate of rank time."""

    fate: str
    group: Literal["useful", "slow", "discarded", "unfinished", "communication", "copy", "waiting", "idle", "other"]
    share: float
    """Of all rank time, 0–1."""
    rank_ns: int
    money: Amount | None


class LatenessMap(Part, frozen=True, kw_only=True):
    """How late ranks come at gates, ranks × steps; in blocks where there are many."""

    labels: list[str]
    """One a row."""
    ranks: list[int]
    """The latest rank of each row: where a click leads."""
    steps: list[int]
    """The first of each column."""
    late_ns: list[list[float | None]]
    """Row by row: behind the median arrival at the gate where it is latest, ns; of a block the largest; null without gates."""


class StepTimes(Part, frozen=True, kw_only=True):
    """Step times."""

    step: list[int]
    observed_ns: list[int]
    ideal_ns: list[int]
    """No op above its reference (that of fixes: its peers, itself left out; what a finding names, as its fix leaves it), gaps
    kept: no single fix ends before it."""
    baseline_ns: float | None
    """Median step of the baseline; null without one."""


class TrustSign(Part, frozen=True, kw_only=True):
    """One thing that an answer rests on."""

    good: bool | None
    """Null where it is not known."""
    text: str
    """``256/256 ranks``, ``clocks ok``, ``97 % explained``, or what is missing."""


class Overview(Part, frozen=True, kw_only=True):
    """The first page of a run."""

    run: RunCard
    headlines: list[Headline]
    """Findings, the most recoverable first; at least one, which says so where there is none."""
    nominal_share: float | None
    """Utilisation as a dashboard shows it, 0–1."""
    nominal_is: str | None
    effective_share: float | None
    fates: list[FateShare]
    """All that took time, in the order of the ledger."""
    currency: str | None
    rank_hour: Amount | None
    """Price of an hour of one rank; null without one."""
    lateness: LatenessMap | None
    step_times: StepTimes | None
    waits: RankLateness | None
    """Who waited for whom."""
    ranks: list[RankRow]
    stopped: list[int]
    """Ranks that hang: the others wait for them without an end, which no other part of the page can show."""
    jobs: list[RestartedJob]
    """Of job logs alone, the restarted jobs that discarded most, in place of ranks."""
    trust: list[TrustSign]
    commands: dict[str, str]
    """What each part comes from, or leads to: ``analyze``, ``whatif``, ``perfetto``, ``decide``, ``brief``."""


# ---------------------------------------------------------------------------------------------------------------------
# Timeline


class TimelineRow(Part, frozen=True, kw_only=True):
    """A rank, or a block of ranks, as a row of the timeline."""

    rank: int
    """The rank, or the first of its block."""
    label: str
    lanes: list[str]
    """Lanes of its ops, from the top; of a block none."""


class TimelineStep(Part, frozen=True, kw_only=True):
    """Where a step lies on the axis."""

    step: int
    begin_ns: int
    end_ns: int


class TimelineAxis(Part, frozen=True, kw_only=True):
    """All that can be asked for."""

    wall_ns: int
    """The axis goes from 0 to this; steps without a time in common follow each other."""
    zero_ns: int | None
    """What the clock of the traces showed at 0, ns, as Perfetto's axis counts; null where steps have no time in common."""
    rows: list[TimelineRow]
    """One a rank."""
    steps: list[TimelineStep]
    ops: int
    states: list[str]
    """Names of the codes of states."""
    named: list[int] = field(default_factory=list)
    """Ranks that findings name."""


class TimelineOps(Part, frozen=True, kw_only=True):
    """Ops in a frame, as columns."""

    op: list[int]
    row: list[int]
    """Place in the rows of the axis."""
    lane: list[int]
    """Place in the lanes of its row."""
    begin_ns: list[int]
    """Arrival, on the axis."""
    opening_ns: list[int]
    """When its gate opened; its arrival where it waits at none. Before it the op waits, in ``wait``, after it it works."""
    end_ns: list[int]
    state: list[int]
    """Code of what it does when it works."""
    wait: list[int]
    """Code of what its wait is, mostly; -1 where it has none."""
    name: list[int]
    """Place in ``names`` of the frame."""


class TimelineGates(Part, frozen=True, kw_only=True):
    """Gates in a frame, as columns."""

    gate: list[int]
    name: list[int]
    first_ns: list[int]
    """First arrival."""
    opens_ns: list[int]
    """Last arrival."""
    rows: list[list[int]]
    """Rows of those of its members that the frame shows, at most 64 of them, spread evenly."""
    last_row: list[int]
    """Row of whoever came last."""


class TimelineFrame(Part, frozen=True, kw_only=True):
    """A part of the timeline, drawn as finely as it can be shown."""

    begin_ns: int
    end_ns: int
    first_row: int
    """Rows of the axis that it shows: from here on …"""
    rows: int
    """… so many of them; several share a line of ``cells`` where there are more rows than lines."""
    columns: int
    lines: int
    cells: bytes | None
    """Lines × columns codes of states, one byte each, 255 where nothing is: the state that holds most of the time. Null where
    ``ops`` shows everything."""
    ops: TimelineOps | None
    """Null where there are too many to draw one by one."""
    gates: TimelineGates
    """Those that most is waited at, where there are too many."""
    left_out_gates: int
    names: list[str]


class PackedSection(Part, frozen=True, kw_only=True):
    """A deflated array of a packed timeline."""

    begin: int
    """First byte, from the end of the header."""
    bytes: int
    """Deflated."""
    kind: Literal["u8", "u16", "u32", "u64", "json"]
    """Little-endian; of u64 the lower halves come first, then the upper ones, u32 each. JSON is text."""
    count: int
    """Numbers that it holds, or bytes of its text."""


class PackedLevel(Part, frozen=True, kw_only=True):
    """The whole timeline in lines × columns cells."""

    columns: int
    lines: int
    cells: PackedSection


class PackedBlock(Part, frozen=True, kw_only=True):
    """All ops of a row that lie, with some part at least, in a step."""

    row: int
    step: int
    """Place in the steps of the axis."""
    first: int
    """Place of its first op in the columns of ops …"""
    count: int
    """… and how many follow it."""


class PackedTimeline(Part, frozen=True, kw_only=True):
    """Header of a packed timeline: what a file shows of it without a server (``views/packed_timeline.py`` says how)."""

    format: int
    wall_ns: int
    rows: int
    levels: list[PackedLevel]
    """The coarsest first."""
    blocks: PackedSection
    """``PackedBlock``, a list by row and step in JSON."""
    ops: dict[str, PackedSection]
    """Columns of all blocks: op, lane, begin_ns, wait_ns, work_ns, state, wait (255 for none), name."""
    gates: PackedSection
    """``TimelineGates`` of the whole timeline as JSON."""
    left_out_gates: int
    details: PackedSection
    """``OpDetail`` of the longest waits of the blocks, then of the longest of all others, as a list in JSON."""
    names: list[str]


class PathOp(Part, frozen=True, kw_only=True):
    """An op on the way back to a root cause."""

    op: int
    rank: int
    label: str
    """Of its rank."""
    name: str
    """Of its class."""
    row: int
    begin_ns: int
    opening_ns: int
    end_ns: int
    because: Literal["asked", "last at the gate", "before it on its rank", "before it in its chain"]
    """How the one before it on this list hangs on it."""
    excess_ns: int
    """Work above its reference, ns."""
    gap_ns: int
    """Time before it that nothing explains, ns."""


class WaitParts(Part, frozen=True, kw_only=True):
    """What a wait is made of, ns."""

    wait_ns: int
    fault_ns: int
    jitter_ns: int
    structural_ns: int
    gap_ns: int
    unexplained_ns: int


class OpDetail(Part, frozen=True, kw_only=True):
    """One op, and the path that it hangs on."""

    op: int
    rank: int
    label: str
    lane: str
    name: str
    kind: str
    step: int
    begin_ns: int
    opening_ns: int
    end_ns: int
    work_ns: int
    reference_ns: float | None
    size_bytes: int | None
    gate: int | None
    members: int | None
    """Ranks at its gate."""
    last_label: str | None
    """Who came last at its gate, where it waited."""
    wait: WaitParts | None
    """Null where it did not wait."""
    slack_ns: int
    """How much later it may end before the last of the steps that share its time axis ends later."""
    critical: bool
    path: list[PathOp]
    """From the op itself back to the root cause: where the branch of whoever came last leaves the one of this op, or the
    beginning of the step; a wait's root cause is the op with the largest excess or gap on it."""
    root: int | None
    """Place in ``path`` of the root cause; null where the op did not wait."""


# ---------------------------------------------------------------------------------------------------------------------
# Structure


class StructurePart(Part, frozen=True, kw_only=True):
    """A part as a component dashboard shows it: a host, or an accelerator."""

    label: str
    ranks: list[int]
    busy_share: float | None
    """Of the wall, time under any kernel, copy or op, 0–1: what a dashboard calls utilisation."""
    productive_share: float
    """Of its rank time, 0–1."""
    metrics: list[Component]
    inside: bool | None
    """Whether all its metrics are inside their limits; null where none was measured."""
    stopped: bool
    """Whether a rank of it hangs."""


class Structure(Part, frozen=True, kw_only=True):
    """The same job, two answers: its parts, and its operator graph."""

    parts: list[StructurePart]
    """Those that hang first, then the worst; the rest together where there are many."""
    view: OperatorView
    waits: RankLateness | None
    ranks: list[str]
    """Labels of the ranks, in their order."""
    steps: list[int]
    stopped: list[int]
    """Ranks that hang: the others wait for them without an end, which ``waits`` cannot show."""
    delayed_rank: int
    """Where a delay is put at first: the rank of the first finding, else the one that waits least, of those that have ops …"""
    delayed_step: int
    """… in this step."""


class DelayWave(Part, frozen=True, kw_only=True):
    """A delay on its way over the graph, gate by gate."""

    command: str
    """``taut whatif RUN --delay …``: says the same."""
    actual_wall_ns: int
    changed_wall_ns: int
    saved_wall_ns: int
    """Negative: what the delay costs."""
    delay_ns: int
    rank: int
    step: int
    op: int
    """The op that was delayed."""
    name: str
    gates: list[int]
    """Gates that it reaches, in the order in which they open, at most 200 of them."""
    gate_names: list[str]
    gate_steps: list[int]
    labels: list[str]
    """Rows: ranks, or blocks of ranks."""
    late_ns: list[list[int | None]]
    """Row by row, gate by gate: how much later it leaves the gate than observed; of a block the largest; null where it is
    not a member."""
    reached_ranks: int
    left_ns: list[int]
    """After each gate, the largest delay of any of its members."""
    absorbed: list[AbsorbedDelay]
    """Where slack took it in, the most first, along the branch that carries it to where the wall is lost or, where nothing is,
    furthest: they sum to the delay less what the wall loses."""


class AbsorbedDelay(Part, frozen=True, kw_only=True):
    """Where slack took a delay in."""

    label: str
    name: str
    """Class of the op that waited anyway."""
    ns: int


# ---------------------------------------------------------------------------------------------------------------------
# What-if


class Choice(Part, frozen=True, kw_only=True):
    """Something that can be set to its reference."""

    fix: str
    """As ``--fix`` takes it: ``rank=3``."""
    fixes: list[str]
    """All that are set together: of a finding with several ranks or links one each, else ``fix`` alone."""
    label: str
    saved_share: float | None
    """Alone, of the wall, 0–1; null where it was not replayed."""


class PolicyChoice(Part, frozen=True, kw_only=True):
    """A policy of synchronisation that can be tried."""

    name: str
    meaning: str
    values: list[str]
    """As ``--policy`` takes them behind the ``=``; empty where it takes none."""


class Questions(Part, frozen=True, kw_only=True):
    """What can be asked of a run."""

    choices: dict[str, list[Choice]]
    """finding, rank, stage, link, class, gate → what of it can be mended, the most saving first, at most 50 of each."""
    policies: list[PolicyChoice]
    scales: dict[str, list[float]]
    """work, bandwidth, gaps → least and most of its slider."""
    actual_wall_ns: int
    rank_hour: Amount | None
    currency: str | None
    ranks: int


class Answer(Part, frozen=True, kw_only=True):
    """What a change gives."""

    command: str
    """``taut whatif RUN …``: says the same."""
    result: WhatIfResult
    saved_per_hour: Amount | None
    """Money that an hour of such a job saves; null without a price."""
    saved_per_day: Amount | None
    currency: str | None
    note: str | None
    """Why a finding's own figure is another than this, where exactly its fix is asked for; null where they agree."""
    regime: Regimes
    """Without and with it: of a policy its own; of what mends findings the same, because it is told with all of them mended;
    null where it is not known."""
    effective_throughput_ratio: float | None
    """After the change: ideal over actual time, as ``indices.effective_throughput_ratio`` has it, which it is where nothing is
    changed: every op at what its class takes over all ranks, over the changed replay, both without gaps. Null where the ideal
    itself changed, and where the change beats it: slow parts are among what its classes take."""


class PackedAnswers(Part, frozen=True, kw_only=True):
    """What can be asked of a run in a file, where nothing is replayed: its questions, and answers that were computed before."""

    questions: Questions
    answers: dict[str, Answer]
    """Question → answer. The question is the parameters of its address without escapes: fixes in the order of their text, then
    policies, then work, bandwidth and gaps, factors of 1 left out (``fix=rank=3&work=0.9``); nothing asked is empty."""
    work: list[float]
    """Factors of work, and …"""
    bandwidth: list[float]
    """… of bandwidth: all pairs of them have an answer, unless they were left out."""
    left_out: int
    """Answers that were refused, or had no room."""


# ---------------------------------------------------------------------------------------------------------------------
# Scaling, control, bill, decisions


class Scaling(Part, frozen=True, kw_only=True):
    """What more ranks bring."""

    project: ProjectResult | None
    """Of a scenario; of a run, of the run on more ranks (``taut project --from``). Null where it cannot be told."""
    envelope: Envelope | None
    needs: str | None
    """What would tell; null where all is there."""
    command: str


class ControlView(Part, frozen=True, kw_only=True):
    """Controllers and what they do to each other."""

    result: ControlResult
    stack: ControlStack | None
    actions: list[ControlAction]
    """At most 2,000, spread evenly."""
    step_times: StepTimes | None
    """On the same time axis, where the run was traced."""
    step_begin_ns: list[int]
    """When each step began, ns since 1970; empty where the traces do not tell."""
    zones: list[int]
    """Of each relation, how many ops it hit; 0 where it lies on no graph."""


class ControlAction(Part, frozen=True, kw_only=True):
    """A decision of a controller."""

    time_ns: int
    layer: str
    controller: str
    target: str
    knob: str
    before: str
    after: str
    direction: int
    """1 up, -1 down, 0 not told."""
    rank: int | None


class BillView(Part, frozen=True, kw_only=True):
    """A bill."""

    result: BillResult
    over_time: CostOverTime | None


class DecisionRow(Part, frozen=True, kw_only=True):
    """A decision and what became of it."""

    record: AuditRecord
    expected: Estimate | None
    """What it was expected to save of the step time when it was decided."""
    outcome: AuditOutcome | None


class Decisions(Part, frozen=True, kw_only=True):
    """The loop of a run: findings, decisions, outcomes, and whether the log proves them."""

    open: list[Headline]
    """Findings on which nobody has decided."""
    decisions: list[DecisionRow]
    log: str | None
    """The audit log; null where there is none."""
    verified: bool | None
    """Null without a log."""
    verified_is: str
    """What was verified, or why not, in a sentence."""
    commands: dict[str, str]


class NewDecision(Part, frozen=True, kw_only=True):
    """What is sent to decide on a finding."""

    finding: str
    do: str
    by: str


class Refusal(Part, frozen=True, kw_only=True):
    """What every refusal answers: the terminal's one line."""

    error: str


ANSWERS: dict[str, type[Part]] = {
    "runs": RunList, "overview": Overview, "axis": TimelineAxis, "frame": TimelineFrame, "op": OpDetail, "structure": Structure,
    "delay": DelayWave, "questions": Questions, "whatif": Answer, "scaling": Scaling, "control": ControlView, "bill": BillView,
    "decisions": Decisions, "live": LiveView,
}  # fmt: skip
"""What each address of the API answers."""
