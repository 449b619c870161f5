"""Everything that ``--json`` prints, as types: every key with its unit in its name and its meaning below it.

A result is built of these structs in one place and rendered from them everywhere. They read like their JSON too
(``result["verdict"]["text"]``), because scripts and notebooks take them for it. Conventions are in docs/contract.md.

The JSON Schema (``schema.json`` beside this file) and docs/result.md are made from this module by docs/generate.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

if TYPE_CHECKING:
    from taut.core.array_types import Json
else:
    Json = Any  # as there: whatever it holds

SCHEMA = 2
"""Version of the keys: raised when one is renamed, removed or changes its meaning, not when one is added."""

Small: TypeAlias = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""A number that arrays hold: results are opened again, and what is beyond this would wrap there."""
Number: TypeAlias = Small | float
Span: TypeAlias = tuple[Small, Small]
"""First and last."""
Link: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,9}:[0-9]{1,9}$")]
"""``sender:receiver``."""
Amount: TypeAlias = Annotated[str, Meta(pattern=r"^-?[0-9]{1,80}(\.[0-9]{1,80})?(E[-+]?[0-9]{1,3})?$")]
"""Money: a decimal string."""
VerdictClass: TypeAlias = Literal["healthy", "component", "structural", "control", "unknown"]
Phase: TypeAlias = Literal["prefill", "decode", "mixed"]
Bound: TypeAlias = Literal["compute", "communication", "synchronisation", "host", "input", "copy"]
Setting: TypeAlias = bool | int | float | str | list[str | float] | None
"""A value of a key in a scenario or a configuration."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object of the result."""

    def __getitem__(self, key: str) -> object:
        if key not in self:
            raise KeyError(key)
        return getattr(self, self.__struct_fields__[self.__struct_encode_fields__.index(key)])

    def __contains__(self, key: object) -> bool:
        names = self.__struct_encode_fields__
        return key in names and getattr(self, self.__struct_fields__[names.index(str(key))]) is not UNSET

    def __iter__(self) -> Iterator[str]:
        return (key for key in self.__struct_encode_fields__ if key in self)

    def get(self, key: str, default: object = None) -> object:
        """What is at a key, or something else where the object does not have it."""
        if key not in self:
            return default
        return self[key]

    def keys(self) -> list[str]:
        """The keys that its JSON object has."""
        return list(self)


class IntervalParts(Part, frozen=True, kw_only=True):
    """What makes an interval as wide as it is: shares of the sum of squared half-widths, 0–1."""

    model: float
    """How far modelled values lie from published ones."""
    parameters: float
    """What is given as a range."""
    noise: float
    """Variation from step to step, of a step or of their mean."""


class Estimate(Part, frozen=True, kw_only=True):
    """A number with the interval that holds it in 95 of 100 repetitions, unless its key says how many."""

    value: Number
    lo: Number | None = None
    """None where one step, or one draw, tells no interval."""
    hi: Number | None = None
    """None where it is not bounded, or no interval can be told."""
    parts: IntervalParts | UnsetType = UNSET
    """What makes it as wide, of forecasts."""


class Range(Part, frozen=True, kw_only=True):
    """The ends of an interval without a middle."""

    lo: float
    hi: float


class Quantiles(Part, frozen=True, kw_only=True):
    """Quantiles of a drawn or forecast quantity."""

    p10: float | None
    p50: float | None
    p90: float | None
    p99: float | UnsetType | None = UNSET


# ---------------------------------------------------------------------------------------------------------------------
# taut analyze


class Verdict(Part, frozen=True, kw_only=True):
    """The answer in a sentence or two."""

    text: str
    kind: VerdictClass = field(name="class")
    """What kind of thing is to blame: a component, the structure itself, controllers, nothing, or not known."""
    bound: Bound | None
    """What most of the rank time is spent on."""
    components: str | None
    """What the component view says beside it; None without metrics."""
    nominal_share: float | None = None
    """Utilisation as a dashboard shows it, 0–1; null where neither metrics nor ops tell."""
    nominal_is: Literal["measured", "derived from kernels", "derived from ops"] | None = None
    """Where it comes from: utilisation metrics, time under any kernel, or time inside any op, waiting included."""
    effective_share: float | None = None
    """Productive share of the observed rank time, 0–1; null where the accelerator's side is not recorded."""


class Job(Part, frozen=True, kw_only=True):
    """What was read."""

    name: str
    ranks: int
    """Ranks that were traced."""
    world_size: int | None
    """Ranks that the job has, where the traces tell."""
    steps: int
    unit: Literal["step", "window"] = "step"
    """What ``steps`` counts: a trace without steps is one window."""
    names: dict[str, str]
    """Rank → name, where ranks have names (services, agents)."""
    first_step: int | None
    last_step: int | None
    ops: int
    edges: int
    gates: int
    wall_ns: int | None
    """Sum of the observed step windows, ns."""
    partial: list[str]
    """What is missing, a line each, and what that does to the answer."""
    counts: dict[str, int]
    """Further counts of what was read, by what is counted."""


class Clock(Part, frozen=True, kw_only=True):
    """How the clocks of the ranks stand to each other."""

    offset_ns: dict[str, Estimate]
    """Rank → its clock minus that of the first rank, ns."""
    drift_ppm: dict[str, float | None]
    """Rank → drift, parts per million; None where it is not known well."""
    residual_ns: int | None
    """What is left of the differences at gates once offsets are taken out, ns."""


class Fidelity(Part, frozen=True, kw_only=True):
    """How well the graph explains the traces."""

    replay_error: float
    """Share of times that an unchanged replay does not reproduce: 0 by law."""
    gapfree_error: float
    """Wall time of the replay without gaps over the observed one, minus 1."""
    explained_share: float
    """Share of starts that an edge explains, 0–1."""
    dropped_edges: int
    """Edges that the traces violate."""
    clock: Clock


class Explained(Part, frozen=True, kw_only=True):
    """How much of the slowdown few of them explain."""

    worst_ranks: float | None
    """Share that the slowest 3 % of the ranks explain, 0–1."""
    last_stage: float | None
    """Share that the last pipeline stage explains, 0–1."""


class WhatIf(Part, frozen=True, kw_only=True):
    """The gap-free decomposition, with references across roles."""

    actual_wall_ns: int
    ideal_wall_ns: int
    """Everything at its reference, ns."""
    slowdown: float
    """Actual over ideal."""
    by: dict[str, dict[str, float]]
    """Dimension (rank, stage, dp_rank, class, link, gate) → key → slowdown if only this key stays as observed."""
    explained: Explained


class Cause(Part, frozen=True, kw_only=True):
    """What caused a wait."""

    rank: int
    host: str | None = None
    """Its host, where the trace tells."""
    gpu: int | None = None
    """Index of its accelerator on its host."""
    stage: int | None
    op_class: str = field(name="class")
    """Class of the ops, or ``gap before`` a class."""
    link: str | None
    """``sender:receiver``, where it is a link."""
    group: str | None
    controller: str | None
    """Whose action it was, where one is known."""


class Blame(Part, frozen=True, kw_only=True):
    """One root cause and the waiting it caused."""

    cause: Cause
    wait_rank_ns: int
    """Wait caused, summed over ranks, ns."""
    share: float
    """Of the observed wait, 0–1."""
    recoverable_wall_ns: int
    """What the wall clock gains with it at its reference, ns."""
    steps: Span
    """First and last step."""
    gates: Span | None
    """First and last gate."""


class Waits(Part, frozen=True, kw_only=True):
    """All waiting at gates: fault, jitter, structural, gap and unexplained sum to the observed wait."""

    observed_rank_ns: int
    exposed_rank_ns: int
    """Not hidden under other work, rank-ns."""
    fault_rank_ns: int
    jitter_rank_ns: int
    structural_rank_ns: int
    gap_rank_ns: int
    unexplained_rank_ns: int


class Felt(Part, frozen=True, kw_only=True):
    """Waiting that one rank caused another."""

    cause: int
    victim: int
    rank_ns: int
    hops: int | None
    """Distance in the topology; None without one."""


class Absorber(Part, frozen=True, kw_only=True):
    """Where a delay ends."""

    rank: int
    op_class: str = field(name="class")
    share: float
    """Of all that was absorbed, 0–1."""


class Response(Part, frozen=True, kw_only=True):
    """What becomes of a delay that is put on a rank."""

    rank: int
    delay_ns: int
    probes: int
    """Delays that were tried."""
    speed_ranks_per_step: Estimate | None
    decay: Estimate | None
    """Share of the delay that is lost per step, until it is no longer felt."""
    left_by_step: list[float]
    """Share that is left after 0, 1, … steps."""
    left_by_gate: list[float]
    """Share that is left after 0, 1, … gates."""
    reached_ranks: int
    within_steps: int | None
    absorbed_by: list[Absorber]
    median_rank: Response | UnsetType | None = UNSET
    """The same for the rank in the middle of all; only beside the worst one."""


class Turnover(Part, frozen=True, kw_only=True):
    """How much of the critical path changes from step to step."""

    value: float | None
    p: float | None
    """Chance of such a turnover if the same ranks were late in a random order."""
    windows: int
    tested_windows: int
    expected: float | None


class Coupling(Part, frozen=True, kw_only=True):
    """Who is felt by whom."""

    reach_ranks: int | None
    reach_gates: int | None
    reach_hops: int | None
    amplification: float | None
    """Wait that faults caused, per ns of excess of the ops that caused it."""
    matrix: list[Felt]
    response: Response | None
    turnover: Turnover


class Window(Part, frozen=True, kw_only=True):
    """One step."""

    step: int
    wall_ns: int
    caused_rank_ns: int
    """Wait that faults and gaps caused in it, rank-ns."""
    top_cause: int | None
    """The rank that caused most of it."""
    effective_throughput_ratio: float
    turnover: float | None
    phase: Phase | None = None
    """What a server did in it, where its marks tell: prefill, decode or both; null where unknown."""


class GateRow(Part, frozen=True, kw_only=True):
    """One rendezvous."""

    gate: int
    op_class: str = field(name="class")
    step: int
    members: int
    last_rank: int
    late_ns: int
    """Last arrival after the first, ns."""


class Collective(Part, frozen=True, kw_only=True):
    """A class of collectives whose other members were not traced."""

    op_class: str = field(name="class")
    size_bytes: int | None = field(name="bytes")
    count: int
    rank_ns: int
    floor_ns: int
    """What the fastest of them, or its bytes over the best bandwidth seen, would take, ns."""
    wait_upper_bound_rank_ns: int


class Money(Part, frozen=True, kw_only=True):
    """What a finding costs: decimal strings beside their currency."""

    window: Amount
    """In the time that was traced."""
    per_hour: Amount
    """Of a job that goes on like this."""
    per_day: Amount
    currency: str


class Finding(Part, frozen=True, kw_only=True):
    """A diagnosed failure mode."""

    id: str
    """The same for the same input."""
    mode: str
    """One of the modes of docs/contract.md."""
    ranks: list[Small]
    hosts: list[str | None] = field(default_factory=list)
    """Host of each of ``ranks``, in their order; null where the trace does not tell, empty where it tells none."""
    gpus: list[int | None] = field(default_factory=list)
    """Index on its host of the accelerator of each of ``ranks``, likewise."""
    where: str | None = None
    """What several ``ranks``, and no others, have in common: a host, a stage, a device model, a group; null where nothing."""
    links: list[Link]
    """``sender:receiver``."""
    stages: list[Small]
    classes: list[str]
    steps: Span
    """First and last step."""
    lost_rank_ns: int
    recoverable_wall_ns: int
    """What the wall clock gains once it is mended, ns."""
    recoverable_share: Estimate | None = None
    """The same as a share of the wall, with the interval that its steps give; null where it was not replayed step by step."""
    confidence: float
    """One minus the chance of such evidence without the failure, 0–1."""
    because: str
    alternatives: list[str]
    """Other modes that the evidence does not exclude."""
    reference: Literal["past", "baseline", "peers", "fabric"] | None = None
    """What it was compared with: the same rank or link at other times, a healthy run, others; null where with nothing."""
    money: Money | None
    """What it costs at the price of an accelerator hour; None without a price, or where nothing is recoverable."""
    loss_share: Estimate | None = None
    """Of a structural instability, as all that follows: the share of the wall that waiting for whoever is late costs."""
    amplification: float | None = None
    """What the job loses for each rank-second that its ranks are late by on average."""
    growth: list[Grown] | None = None
    """The loss with more ranks; null where too few episodes were seen."""
    origins: Origins | None = None
    policy: StructuralPolicy | None = None
    """Null where no policy can be replayed exactly on this run."""
    remedy: Remedy | None = None
    """What to do about the hosts it names; null where none is known, or no host can be the cause."""


class Remedy(Part, frozen=True, kw_only=True):
    """What to do about a finding on known hosts."""

    do: str
    """In a sentence, for whoever is on call."""
    drain: Drain | None
    """Null where the trace's name of a host could mean more than one host to a scheduler."""
    ticket: str
    """Lines for a ticket: what, where, since when, how sure, why, at what cost."""


class Drain(Part, frozen=True, kw_only=True):
    """Shell commands after which no new job starts on the hosts; those that run go on."""

    slurm: str
    """The nodes by the first part of their names."""
    kubernetes: str
    """The nodes by their names as the trace has them."""


class Grown(Part, frozen=True, kw_only=True):
    """What waiting for whoever is late would cost with some number of ranks."""

    ranks: int
    loss_share: Estimate
    """Share of the wall; the interval is that of another run of as many steps, and covers 90 %."""


class Origins(Part, frozen=True, kw_only=True):
    """What the episodes look like that nobody in particular causes."""

    episodes: int
    """Consecutive steps in which one unit delays the others are one."""
    rate_per_step: float
    """Of one unit."""
    duration_ns: float
    """What an episode makes its unit late by, ns; the median."""
    shape: str
    """Whether they last, come periodically or together within hosts, and how unlike they are."""
    units: Literal["ranks", "hosts"]
    """Hosts where their ranks are late together."""


class StructuralPolicy(Part, frozen=True, kw_only=True):
    """The policy that would recover it, replayed with all other findings mended."""

    name: str
    saved_wall_ns: int


class BeforeAfter(Part, frozen=True, kw_only=True):
    """Median step of the baseline and of this run, ns."""

    before: float
    after: float


class Baseline(Part, frozen=True, kw_only=True):
    """The healthy run of the same job that ``--baseline`` names."""

    run: str
    """Its folder, as it was given."""
    digest: str
    """SHA-256 of what it was made of."""
    step_ns: BeforeAfter
    step_ratio: Estimate | None = None
    """Step time after over before, its trimmed mean; the interval allows for what healthy runs differ by."""
    indices: Indices | None = None
    """Its own indices; energy at this run's watts where it was analysed without."""
    turnover: float | None = None
    """Of its critical path, 0–1."""
    nominal_share: float | None = None
    """Its utilisation as a dashboard shows it, 0–1."""
    effective_share: float | None = None
    """Its productive share, 0–1."""


class EarlyWarning(Part, frozen=True, kw_only=True):
    """A series that recovers ever more slowly from its disturbances: evidence of what may come."""

    rank: int | None
    """None for the whole job."""
    steps: Span
    autocorrelation: list[float]
    """At the beginning and at the end."""
    variance_ratio: float
    autocorrelation_tau: float
    """Kendall's tau of the rise."""
    variance_tau: float
    confidence: float
    because: str


class Component(Part, frozen=True, kw_only=True):
    """A metric of a component against its limit."""

    component: str
    rank: int | None
    metric: str
    value: float
    value_is: str
    """What of the series was held against the limit: its median, a percentile, a share of samples."""
    limit: float | None
    limit_is: Literal["at least", "at most"] | None
    limit_source: str | None
    """Who says that this is the limit."""
    inside: bool | None
    samples: int


class Indices(Part, frozen=True, kw_only=True):
    """Dimensionless numbers of a job (docs/indices.md)."""

    effective_throughput_ratio: Estimate | None
    energy_per_useful_step: Estimate | None
    runtime_variance_index: Estimate | None
    sync_delay_amplification: Estimate | None
    replay_probability: Estimate | None
    straggler_cascade_rate: Estimate | None


class Regime(Part, frozen=True, kw_only=True):
    """How much jitter may still grow before one more accelerator stops paying."""

    kind: str | None = field(name="class")
    """stable, marginal or unstable; of control loops coherent, oscillating, amplifying or incoherent."""
    reserve: Estimate | UnsetType | None = UNSET
    """Factor by which jitter may grow."""
    marginal_return: Estimate | UnsetType | None = UNSET
    """What one more accelerator adds, over what one without jitter would."""
    pays: float | UnsetType = UNSET
    """The share from which one more accelerator pays, 0–1."""
    word: str | UnsetType = UNSET
    """The reserve of a scenario in a word: depleted, thin or adequate."""
    rule: str | UnsetType = UNSET
    """What *pays* means here."""


class EnvelopePoint(Part, frozen=True, kw_only=True):
    """Where the job sits."""

    ranks: Estimate
    heterogeneity: Estimate
    intensity: Estimate
    """Of synchronisation."""


class EnvelopeCell(Part, frozen=True, kw_only=True):
    """What dominates at another scale, heterogeneity and intensity."""

    ranks: int
    heterogeneity: float
    intensity: float
    dominates: str | None
    """None where nothing is lost."""
    loss_share: float
    """0–1"""
    modes: list[str] = field(default_factory=list)
    """Failure modes that dominate, the largest first; several where they overlap, none below 3 % of the wall."""
    losses: dict[str, Estimate] = field(default_factory=dict)
    """Failure mode → share of the wall that it takes."""


class Envelope(Part, frozen=True, kw_only=True):
    """The failure envelope around a measured job."""

    point: EnvelopePoint
    map: list[EnvelopeCell]


RiskQuestion: TypeAlias = Literal[
    "longer without errors",
    "re-runs without a reproducible bug",
    "utilisation falls though allocated",
    "energy out of proportion",
]


class RiskAnswer(Part, frozen=True, kw_only=True):
    """One sign of the class of failures that no component reports."""

    question: RiskQuestion
    answer: Literal["yes", "no"] | None
    """None where it was not measured, or the measurement does not decide."""
    says: str
    """What was measured."""
    evidence: list[str]
    """Keys of the result that it rests on."""
    needs: str | None
    """What would measure or decide it; None where it is answered."""


class Risk(Part, frozen=True, kw_only=True):
    """Whether the deployment belongs to the class of systems that lose without a failing part."""

    kind: Literal["soft degradation", "hard failure", "both"] | None = field(name="class")
    """Slower without errors; a hang, a kill, failed spans or restarts after failures; None where neither shows."""
    says: str
    """The same in a sentence."""
    answers: list[RiskAnswer]


class DiscardedCalls(Part, frozen=True, kw_only=True):
    """Calls of one class with one end whose result nobody used."""

    op_class: str = field(name="class")
    outcome: str
    calls: int
    busy_ns: int
    tokens_in: int | None
    tokens_out: int | None


class Redundant(Part, frozen=True, kw_only=True):
    """Calls whose result was thrown away."""

    calls: int
    of_calls: int
    busy_ns: int
    share: float
    """Of the time of all calls, 0–1."""
    tokens_in: int | None
    tokens_out: int | None
    of_tokens_in: int | None
    of_tokens_out: int | None
    unmetered_calls: int
    by: list[DiscardedCalls]
    money: Amount | None
    """Price of the tokens."""
    currency: str | None


class Tail(Part, frozen=True, kw_only=True):
    """Fan-outs of one class and width: how long their tail is."""

    op_class: str = field(name="class")
    fan_out: int
    gates: int
    quantile: float
    p50_ns: int
    high_ns: int
    """At that quantile, ns."""
    ratio: float
    independent_ratio: float | None
    """The ratio that independent calls would give."""
    chance: float | None
    """Chance of such a ratio if they were independent."""


class LossEnds(Part, frozen=True, kw_only=True):
    """Loss of the model at both ends of the log."""

    first: float | None
    last: float | None


class Progress(Part, frozen=True, kw_only=True):
    """What the job's own log says of its steps."""

    executed_steps: int
    kept_steps: int
    discarded_steps: int
    rank_hours: float | None
    timed_by: Literal["log", "trace"]
    kept_steps_per_rank_hour: Estimate | None
    tokens_per_rank_hour: Estimate | None
    loss: LossEnds
    loss_change_per_rank_hour: Estimate | None


class LedgerEntry(Part, frozen=True, kw_only=True):
    """One fate: what rank time was spent on."""

    fate: str
    rank_ns: int
    joules: float | None
    money: Amount | None
    """Decimal string in the currency of the ledger."""
    kg_co2e: float | None


class StateWatts(Part, frozen=True, kw_only=True):
    """Watts by which measured joules were divided among fates: their ratios count, and sums stay as measured."""

    load: Estimate
    stall: Estimate
    idle: Estimate
    """Intervals of 95 % where they were fitted; where stall and idle are not told apart, their ratio is the given one, else
    the default."""
    blocks: int | None = None
    """Blocks of steps of one rank that they were fitted on; null where they are given or default: nobody measured, or the time
    in each state varies too little to tell watts to a tenth."""


class LedgerEnergy(Part, frozen=True, kw_only=True):
    """Who tells the joules of the ledger."""

    joules: Estimate | None
    """Of all ranks; the interval is that of sources that disagree. Null where some time is neither measured nor modelled."""
    source: str | None
    """The best that is there: ``counter``, ``samples`` of power, both of a whole ``node`` (host included, unless its watts
    are given), or ``states`` (watts that were given × time)."""
    coverage: float
    """Share of the rank time that was measured."""
    sources: list[EnergySource]
    """All that are there, side by side."""
    divided_by: Literal["measured", "given", "default"]
    """Watts by whose ratios a step's measured joules were divided among its fates: fitted to what was measured, those that
    were given, or the default of an H200."""
    watts: StateWatts | None = None
    """Those watts; null in runs of before they were told."""


class LedgerResult(Part, frozen=True, kw_only=True):
    """Where every rank-nanosecond went: entries sum exactly to ranks × wall."""

    total_rank_ns: int
    entries: list[LedgerEntry]
    currency: str | None
    closes: bool
    hidden_wait_rank_ns: int
    """Waiting that lies under other work, and is in no entry."""
    energy: LedgerEnergy | None = None
    """Who tells the joules; null where nobody does."""


class AttemptEntry(Part, frozen=True, kw_only=True):
    """One fate of the time of attempts."""

    fate: str
    rank_ns: int
    held: bool
    """Whether accelerators were held meanwhile."""
    held_rank_ns: int
    money: Amount | None


class AttemptSteps(Part, frozen=True, kw_only=True):
    """Steps over all attempts."""

    executed: int
    discarded: int
    replay_probability: Estimate | None
    resumed_by_guess: int
    """Attempts that do not tell the step they resumed from."""


class DecidedCost(Part, frozen=True, kw_only=True):
    """What a controller cost by ending attempts."""

    discarded_rank_ns: int
    control_overhead_rank_ns: int


class RestartedJob(Part, frozen=True, kw_only=True):
    """A job that was restarted."""

    job: str
    name: str | None
    attempts: int
    held: int | None
    """Accelerators (or nodes, or CPUs) it held."""
    outcome: str | None
    held_rank_ns: int
    discarded_rank_ns: int
    at_most: bool
    """Whether what was discarded is an upper bound."""
    down_ns: int
    outcomes: dict[str, int]


class AttemptRow(Part, frozen=True, kw_only=True):
    """One attempt."""

    job: str
    attempt: int
    outcome: str | None
    reason: str | None
    submit_ns: int | None
    start_ns: int | None
    end_ns: int | None
    ran_ns: int | None
    """From start to end, also where no date is known."""
    first_step: int | None
    last_step: int | None
    resumed_step: int | None
    saved_step: int | None
    restarts_left: int | None
    fates: dict[str, int] | None
    """Fate → rank-ns."""
    failures: int | None = None
    """How often what ended it, or keeps it from running, was reported."""


class StuckJob(Part, frozen=True, kw_only=True):
    """A job that does not get to run, or fails again and again."""

    job: str
    attempts: int
    """How often it was started."""
    failures: int
    """How often what keeps it from running, or ended it, was reported."""
    reason: str
    since_ns: int | None
    """When that began."""
    held_ns: int | None
    """How long it has held its place all the same; null if it has none, or that is not known."""
    nodes: str | None
    """Where its place is."""
    remedy: str | None
    """What to do."""
    text: str
    """All of it in one sentence."""


class AttemptsResult(Part, frozen=True, kw_only=True):
    """What job logs say."""

    jobs: int
    restarted_jobs: int
    attempts: int
    unit: str | None
    """What is counted: accelerator, node or cpu."""
    uncounted_jobs: int
    """Jobs that do not tell theirs, and are left out of the sums."""
    cpu_jobs: int
    """Jobs that are known to have held no accelerator, where others held some: they are not in the sums of rank time."""
    outcomes: dict[str, int]
    wall_ns: int | None
    total_rank_ns: int | None
    held_rank_ns: int | None
    entries: list[AttemptEntry]
    currency: str | None
    closes: bool | None
    queue_ns: int | None
    """Waiting before the first start, of all jobs that tell it."""
    cpu_queue_ns: int | None
    """Of it, that of jobs without accelerators."""
    down_ns: int | None
    discarded_by: dict[str, int] | None
    """How an attempt ended → rank-ns discarded, at most."""
    steps: AttemptSteps | None
    decided_by: dict[str, DecidedCost] | None
    """Controller → what it cost."""
    out_of_restarts: list[str]
    worst: list[RestartedJob]
    rows: list[AttemptRow] = field(name="list")
    """The attempts: of a single job the last ones, of several jobs all or, if there are too many, none."""
    traced_attempt: int | None
    stuck: list[StuckJob] | None = None
    """Jobs that do not get to run, or fail again and again, those that hold something longest first."""


# ---------------------------------------------------------------------------------------------------------------------
# taut control


class Zone(Part, frozen=True, kw_only=True):
    """The part of the graph where a relation lies."""

    ranks: list[Small]
    steps: Span | None
    ops: int
    first_ns: int
    last_ns: int
    rank_ns: int
    """What it took of the ranks."""


class RelationCost(Part, frozen=True, kw_only=True):
    """What a relation cost."""

    rank_ns: int | None
    tokens: int | None
    money: Amount | UnsetType | None = UNSET
    currency: str | UnsetType | None = UNSET
    token_money: Amount | UnsetType | None = UNSET
    token_currency: str | UnsetType | None = UNSET
    joules: float | UnsetType | None = UNSET
    """Of that rank time; None without the power of a rank."""


class ChangedKey(Part, frozen=True, kw_only=True):
    """A key of a scenario that a separation sets."""

    key: str
    before: Setting
    after: Setting


class Brought(Part, frozen=True, kw_only=True):
    """A relation that only a separation shows."""

    kind: str
    target: str | None


class Effect(Part, frozen=True, kw_only=True):
    """An index without and with a separation."""

    before: float | None
    after: float | None
    change: Estimate | None


class Advice(Part, frozen=True, kw_only=True):
    """The smallest separation that removes a relation in the simulator."""

    kind: str
    target: str | None
    runs: int
    """Runs that were simulated."""
    shows: int
    """Runs that show the relation as things are."""
    tried: int
    separation: str | None
    """None where none of those tried removes it."""
    value: float | None
    says: str | None
    costs: str | None
    sets: list[ChangedKey]
    brings: list[Brought]
    """Relations that come with it."""
    effect: dict[str, Effect]
    from_log: dict[str, Setting | dict[str, float]] | UnsetType = UNSET
    """What the log told of the system that is simulated."""
    default: dict[str, Setting | dict[str, float]] | UnsetType = UNSET
    """What it did not tell, and the value that was taken."""


class RelationResult(Part, frozen=True, kw_only=True):
    """A relation between controllers."""

    kind: str
    controllers: list[str]
    target: str | None
    knob: str | None
    count: int
    statistic: float | None
    """What it is says docs/control.md for each kind."""
    p: float | None
    q: float | None
    """The chance after correction for all that was tested."""
    cost: RelationCost
    because: str
    zone: Zone | None
    advice: Advice | None


class ControlRegime(Part, frozen=True, kw_only=True):
    """Whether controllers work together."""

    kind: str | None = field(name="class")
    """coherent, oscillating, amplifying or incoherent; None without decisions, and where what they did could not be judged."""
    because: str | None = None
    """Why it is not known, where decisions are; None otherwise."""


class FateBy(Part, frozen=True, kw_only=True):
    """One fate of the ledger, and by controller."""

    rank_ns: int
    joules: float | None
    money: Amount | None
    kg_co2e: float | None
    by: dict[str, int]
    """Controller → rank-ns."""


class ControlResult(Part, frozen=True, kw_only=True):
    """What ``taut control --json`` prints; beside traces it also has zones, prices and fates."""

    schema: int = SCHEMA
    name: str | UnsetType = UNSET
    """Of the log; absent inside an analysis."""
    counts: dict[str, int] | UnsetType = UNSET
    """Further counts of what was read, by what is counted; absent inside an analysis."""
    actions: int
    controllers: list[str]
    relations: list[RelationResult]
    indices: dict[str, Estimate | None]
    """By name (docs/control.md)."""
    regime: ControlRegime
    partial: list[str]
    stuck: list[StuckJob] | UnsetType = UNSET
    """Jobs that do not get to run, or fail again and again; absent inside an analysis, and where there are none."""
    overhead: FateBy | UnsetType = UNSET
    discarded: FateBy | UnsetType = UNSET


class ReviewChange(Part, frozen=True, kw_only=True):
    """A key of a loop that a change of the configuration sets."""

    name: str
    key: str
    before: Setting
    after: Setting


class ReviewRelation(Part, frozen=True, kw_only=True):
    """What would fight in a configuration."""

    kind: str
    controllers: list[str]
    target: str | None
    knob: str | None
    statistic: float | None
    new: bool
    because: str
    remedy: str


class ReviewResult(Part, frozen=True, kw_only=True):
    """What ``taut control review OLD NEW --json`` prints."""

    schema: int = SCHEMA
    added: list[str]
    removed: list[str]
    changed: list[ReviewChange]
    relations: list[ReviewRelation]
    resolved: list[ReviewRelation]


class DeviceWindow(Part, frozen=True, kw_only=True):
    """One kept step of one rank on its device: from the end of the step before to the end of its own work there."""

    rank: int
    step: int
    start_ns: int
    """On the clock of the raw file, ns."""
    end_ns: int
    """On the clock of the raw file, ns."""


class DeviceRank(Part, frozen=True, kw_only=True):
    """What one rank's accelerator did inside its windows; shares of their length, 0–1."""

    host: str | None
    """Host name, where the trace tells."""
    gpu: int | None
    """Index of the accelerator on its host."""
    step_ns: float
    """The device's period: from the end of one step's work to the end of the next one's, on average, ns."""
    busy_share: float
    """Under a kernel or a copy."""
    compute_share: float
    """Under a kernel that does not communicate."""
    communication_share: float
    """Under a kernel that communicates."""
    hidden_share: float
    """Communication under compute or copies."""
    exposed_share: float
    """Communication under neither."""
    copy_share: float
    """Copies and sets of memory."""
    exposed_copy_share: float
    """Copies under neither compute nor communication."""
    idle_share: float
    """Under nothing."""


class DeviceClass(Part, frozen=True, kw_only=True):
    """A class of kernels or copies, over all ranks and windows."""

    name: str
    kind: Literal["compute", "communication", "copy"]
    count: int
    rank_ns: int
    """Their durations, summed."""
    share: float
    """Of the durations of all kernels and copies, 0–1."""
    median_ns: float
    """Duration of the median one, ns."""
    moved_bytes: int | None = None
    """Of copies, bytes together; null where the trace does not tell."""
    gb_per_s: float | None = None
    """Of copies, bytes over their durations, 10^9 bytes a second."""


class DeviceIdle(Part, frozen=True, kw_only=True):
    """Time in which an accelerator did nothing, by what its host did meanwhile; all of them sum to the idle time."""

    cause: str
    """``launch``, ``synchronisation``, ``input: …``, ``checkpoint``, an op or a range that has a name; ``launched, not begun``
    (the next work was waiting in its stream); ``host between calls`` (in none of these); ``unknown`` where no launch tells."""
    rank_ns: int
    share: float
    """Of the time of all windows, 0–1."""


class DeviceCollective(Part, frozen=True, kw_only=True):
    """Collectives of one class, of sizes within a factor of two, in groups of one size: how fast they were."""

    op_class: str = field(name="class")
    verb: str
    """``all-reduce``, ``all-gather``, …"""
    size_bytes: int | None = field(name="bytes")
    """Of the larger message of a member, the median, bytes; null where the trace does not tell."""
    members: int | None
    """Ranks of the group; null where the trace does not tell."""
    count: int
    rank_ns: int
    """Their durations, waiting included, summed over ranks."""
    median_ns: float
    """Median time of one, without waiting where ``waiting_included`` is false, ns."""
    gb_per_s: float | None
    """Bytes over the time of all of them, 10^9 bytes a second (algorithm bandwidth); null without bytes."""
    bus_gb_per_s: float | None
    """The same times the factor of nccl-tests for the verb: comparable with the speed of links; null without members."""
    waiting_included: bool
    """Whether members that were not matched may have waited: the bandwidths are then lower bounds."""


class Mfu(Part, frozen=True, kw_only=True):
    """FLOPs that shapes of operators account for, over what the accelerator could do in the same time."""

    value: float | None
    """Share of the peak, 0–1; null where FLOPs or peak are not known."""
    flops: int | None
    """Of matrix products, convolutions and attention launched in the windows, recomputation counted, of all ranks."""
    tflops_per_s: float | None
    """FLOPs over the time of the windows, 10^12 a second and accelerator."""
    peak_tflops: float | None
    """Dense peak of the accelerator for the type that most FLOPs have, 10^12 a second."""
    dtype: str | None
    """That type."""
    device: str | None
    """The accelerator, as the trace names it."""
    lower_bound: bool
    """Whether kernels that look like products, but have no shapes, took more than a twentieth of the time of all."""
    why: str
    """Where the peak comes from, or why the share is not known."""


class Device(Part, frozen=True, kw_only=True):
    """What the accelerators did, on the clocks of the raw files, so that anybody can check it."""

    windows: list[DeviceWindow]
    ranks: dict[str, DeviceRank]
    mean: DeviceRank | None = None
    """Shares of the windows of all ranks together, and the mean of their periods."""
    classes: list[DeviceClass] = field(default_factory=list)
    """Classes of kernels and copies, the longest first."""
    idle: list[DeviceIdle] = field(default_factory=list)
    """The longest first."""
    collectives: list[DeviceCollective] = field(default_factory=list)
    """Those that take most time first."""
    mfu: Mfu | None = None


class RankRow(Part, frozen=True, kw_only=True):
    """One rank: where it is, what its time went to (shares of its wall time that sum to 1), and how late it comes."""

    rank: int
    label: str
    """``rank 137 (gpu-17, GPU 1)``."""
    host: str | None
    """Host name, where the trace tells."""
    gpu: int | None
    """Index of its accelerator on its host."""
    compute_share: float
    """Computing."""
    communication_share: float
    """Communication that nothing hides, without waiting where it was matched."""
    copy_share: float
    """Copies that nothing hides."""
    wait_share: float
    """Waiting at gates that nothing hides, for a fault, for jitter or by the schedule; waits for gaps of others, and those that
    nothing explains, are in ``gap_share``."""
    gap_share: float
    """Host, input, launch, waits for such gaps of others, and whatever else is left, such as what nothing explains."""
    late_ns: float | None
    """By how much it comes behind the median arrival at the gate where it is latest, in the median step, ns; null without
    gates."""
    caused_rank_ns: int
    """Waiting that its faults and gaps caused, rank-ns."""


class FailedClass(Part, frozen=True, kw_only=True):
    """Spans of one class in which errors began."""

    op_class: str = field(name="class")
    failed: int
    """Those in which an error began."""
    spans: int
    """Spans of this class, failed or not."""
    error: str | None
    """What most of them say."""
    first_ns: int
    last_ns: int
    busy_ns: int
    """What they took, ns."""
    tokens: int | None
    remedy: str | None = None
    """What to do."""


class FailedSpans(Part, frozen=True, kw_only=True):
    """Spans that ended in an error."""

    failed: int
    """How many."""
    spans: int
    """How many there are."""
    began: int
    """Those of the failed in which an error began; the others passed one on."""
    requests: int
    """Requests, or turns of agents."""
    touched_requests: int
    """Requests with a failed span …"""
    failed_requests: int
    """… and those whose outermost span failed."""
    first_ns: int
    last_ns: int
    busy_ns: int
    """What those took in which errors began, ns."""
    by: list[FailedClass]
    """The most frequent first."""


class AnalysisResult(Part, frozen=True, kw_only=True):
    """What ``taut analyze --json`` prints. Where there are only job logs, what only traces tell is null."""

    schema: int = SCHEMA
    verdict: Verdict
    job: Job
    fidelity: Fidelity | None
    whatif: WhatIf | None
    blame: list[Blame]
    waits: Waits | None
    coupling: Coupling | None
    windows: list[Window]
    gates: list[GateRow]
    collectives: list[Collective]
    findings: list[Finding]
    """The most recoverable first."""
    early_warning: list[EarlyWarning] | None
    components: list[Component]
    recoverable_wall_ns: int | None
    """What mending all findings together saves, ns."""
    indices: Indices | None
    regime: Regime | None
    envelope: Envelope | None
    redundant: Redundant | None
    tails: list[Tail] | None
    progress: Progress | None
    ledger: LedgerResult | None
    attempts: AttemptsResult | None
    control: ControlResult | None
    ranks: list[RankRow] | None = None
    """Ranks, those of findings first, then those that others waited for most."""
    device: Device | None = None
    """None without an accelerator."""
    failed: FailedSpans | None = None
    """Spans that ended in an error; null where none did, or the trace has no spans."""
    baseline: Baseline | None = None
    """None without ``--baseline``."""
    index_needs: dict[str, str] = field(default_factory=dict)
    """Index that is null → what it needs, or why it has no value, in a few words."""
    risk: Risk | None = None
    """Signs of failures that no component reports."""


# ---------------------------------------------------------------------------------------------------------------------
# taut whatif, taut compare


class StalenessBudget(Part, frozen=True, kw_only=True):
    """How stale the policies of ``taut whatif --advice`` may be."""

    steps: int
    """Steps that a gradient may be behind."""
    default: bool
    """Whether nobody gave it."""


class WhatIfResult(Part, frozen=True, kw_only=True):
    """What ``taut whatif --json`` prints."""

    schema: int = SCHEMA
    actual_wall_ns: int
    changed_wall_ns: int
    saved_wall_ns: int
    saved_share: float
    """Of the actual wall time, 0–1."""
    error: Range | None
    """How far such predictions were from what really happened, where the lab has measured it."""
    changes: list[str]
    policies: list[MeasuredPolicy] | UnsetType = UNSET
    """Policies of ``--policy``, and those of ``--advice`` by staleness."""
    replicas: str | UnsetType = UNSET
    """What was taken for a replica and for a data-parallel reduction, in words."""
    staleness: StalenessBudget | UnsetType = UNSET


class ComparedRun(Part, frozen=True, kw_only=True):
    """One run as a row."""

    run: str
    job: str
    time_ns: int | None
    """When it began, ns since 1970."""
    ranks: int
    steps: int
    first_step: int
    last_step: int
    step_ns: float
    """Median step, ns."""
    runtime_variance_index: Estimate | None
    effective_throughput_ratio: Estimate | None
    waiting_share: float | None
    """0–1"""
    recoverable_share: float | None
    """0–1"""
    rerun_share: float | None
    """Of its steps that a later run did again, 0–1."""
    kept_steps: float
    energy_j: float | None
    cost: Amount | None
    currency: str | None
    energy_per_kept_step_j: float | None
    cost_per_kept_step: Amount | None


class Trend(Part, frozen=True, kw_only=True):
    """Whether a quantity rises or falls from run to run."""

    quantity: str
    runs: int
    p: float | None
    q: float | None
    slope: Estimate | None
    """Per run."""


class ChangedWork(Part, frozen=True, kw_only=True):
    """Work of a class on a rank that changed."""

    op_class: str = field(name="class")
    rank: int
    before_ns: float
    after_ns: float
    p: float
    q: float
    effect_wall_ns: int | None
    """What it costs on the wall, ns; None where it was not replayed."""


class ChangedBy(Part, frozen=True, kw_only=True):
    """What the changed work costs on the wall, ns."""

    op_class: dict[str, int] = field(name="class")
    rank: dict[str, int]
    all_wall_ns: int | None


class Difference(Part, frozen=True, kw_only=True):
    """A difference of structure."""

    what: str
    rank: int | None
    op_class: str | None = field(name="class")
    before: Setting
    after: Setting
    step: int | None
    steps: int | None


class Structure(Part, frozen=True, kw_only=True):
    """How the graph of a run differs from that of the first."""

    run: str
    against: str
    same_graph: bool
    count: int
    differences: list[Difference]


class RepeatedClass(Part, frozen=True, kw_only=True):
    """A class on a rank whose work differs between repeats."""

    op_class: str = field(name="class")
    rank: int
    between_ns: Estimate | None
    p: float | None
    q: float | None


class Repeats(Part, frozen=True, kw_only=True):
    """Runs of one graph, and how far their step times differ."""

    runs: list[str]
    step_ns: list[float]
    within_share: float | None
    """Spread inside runs over the step time, 0–1."""
    between_share: Estimate | None
    p: float | None
    q: float | None
    count: int
    classes: list[RepeatedClass]


class NonDeterminism(Part, frozen=True, kw_only=True):
    """How runs differ in structure from the first, and in timing from their repeats."""

    structure: list[Structure]
    repeats: list[Repeats]
    findings: list[Finding]


class Change(Part, frozen=True, kw_only=True):
    """A ratio after over before."""

    ratio: Estimate
    p: float
    q: float | UnsetType | None = UNSET


class Restart(Part, frozen=True, kw_only=True):
    """A run that goes on from another."""

    job: str
    before: str
    after: str
    step: int
    rerun_steps: int
    before_ns: float
    """Median step before it, ns."""
    after_ns: float
    """Median step after it, ns."""
    step_time: Change | None
    spread: Change | None


class Restarts(Part, frozen=True, kw_only=True):
    """What restarts do to step time and its spread."""

    at: list[Restart]
    step_time: Change | None
    spread: Change | None
    effect: Literal["reset", "amplify", "none shown"] | None


class NullTest(Part, frozen=True, kw_only=True):
    """What a test holds for true until shown otherwise, and how often it errs then."""

    null: str
    test: str
    size: float
    correction: str


class Text(Part, frozen=True, kw_only=True):
    """An answer in a few sentences."""

    text: str


class CompareResult(Part, frozen=True, kw_only=True):
    """What ``taut compare --json`` prints."""

    schema: int = SCHEMA
    verdict: Text
    runs: list[ComparedRun]
    order: Literal["time", "given"]
    trends: list[Trend]
    changed: list[ChangedWork]
    changed_tested: int
    """Classes on ranks that were tested."""
    changed_by: ChangedBy
    findings: list[Finding] = field(default_factory=list)
    """Of two runs of one graph: what the later one shows with the earlier one as its baseline, the most recoverable first."""
    step_time: Change | None = None
    """Time of a step, last run over first, by the jitter within the two; null where too few steps tell."""
    non_determinism: NonDeterminism
    restarts: Restarts
    tests: dict[str, NullTest]


# ---------------------------------------------------------------------------------------------------------------------
# taut project


class PowerAtLoad(Part, frozen=True, kw_only=True):
    """What a site must supply while every accelerator works."""

    devices_w: float
    """Of the accelerators."""
    hosts_w: float
    """Processors, memory, cards and fans of the nodes: ``price.host_w`` for each accelerator."""
    network_w: float | None
    """None where no port says what it draws; then it is not in the total."""
    cooling_w: float
    """Cooling and conversion: what ``price.pue`` adds to the others."""
    total_w: float
    """All of these."""


class TokenBudget(Part, frozen=True, kw_only=True):
    """A training run over so many tokens (``--tokens``); intervals are those of ``tokens_per_s``."""

    tokens: float
    """As asked for."""
    days: Estimate
    """Failures, checkpoints and restarts included."""
    accelerator_hours: Estimate
    """Of those that are paid for: working, copying and spare."""
    cost: Estimate | None
    """Of the accelerator hours; None without a price."""
    currency: str | None
    energy_mwh: Estimate | None
    """Hosts, network and cooling included."""
    energy_cost: Estimate | None
    """None without a tariff; a rented accelerator hour often includes it."""
    network_cost: Estimate | None
    """Of the network paid off over the days; None where ports have no price."""
    t_co2e: Estimate | None
    """Tonnes of CO2 equivalent; None without the carbon of a kWh."""
    interruptions: float | None
    """None where nothing is said to fail."""


class ModelError(Part, frozen=True, kw_only=True):
    """How far modelled step times of a class of jobs lie from published ones that no number was fitted on."""

    kind: str = field(name="class")
    papers: int
    """Publications of that class."""
    prior: bool
    """Whether fewer than three tell, so that the interval is a prior and not measured."""
    centre: float
    """Mean over papers of the logarithm of modelled over published."""
    half_width: float
    """Of the 80 % interval of another paper, in logarithms."""


class LoopLoss(Part, frozen=True, kw_only=True):
    """Accelerators that control loops held for nothing that anybody kept, in an hour of the system."""

    term: str
    """What they were held for: served in vain, starting, idle, trained in vain, restarting, checkpoints."""
    accelerators: float
    """How many, on average."""
    money_per_hour: Amount | None
    """None without ``price.per_hour``."""
    currency: str | None
    joules_per_hour: float | None
    """Hosts and cooling included; None without ``price.load_w``."""


class Forecast(Part, frozen=True, kw_only=True):
    """What a scenario, or a measured run, gives at a scale. Keys that only some workloads have are absent in the others.

    A unit of delivered work is a million tokens of training or serving, a task of agents, a thousand requests of control loops.
    """

    ranks: int
    step_ns: Quantiles
    """Of a step, a request or a task, ns: p10 to p90 is the interval in which a measured one should lie."""
    mean_step_ns: Estimate | None
    """Of a scenario with the 80 % interval in which a measured mean should lie."""
    model_error: ModelError | UnsetType = UNSET
    """Of training scenarios: what widens both."""
    tflops_per_device: float | None
    mfu: float | None
    """Model FLOPs over the peak of the devices, 0–1."""
    effective_throughput_ratio: Estimate | float | None
    """Useful work over what an ideal system of this size would do, 0–1."""
    cost_per_unit: float | None
    currency: str | UnsetType | None = UNSET
    energy_per_unit_j: float | None
    terms: dict[str, float] | UnsetType = UNSET
    """Where a mean step goes, shares of it."""
    terms_ns: dict[str, float] | UnsetType = UNSET
    """The same of a measured run, ns."""
    dominant: str | None
    """The largest loss, or computing where that is larger than all losses."""
    in_range: bool
    """Whether the fabric, or the measurement, is known at this scale."""
    beyond: list[str] | UnsetType = UNSET
    """Why it is a guess."""
    losses: list[LoopLoss] | UnsetType = UNSET
    """Of control loops: what they lose an hour, the largest first."""
    availability: Estimate | UnsetType | None = UNSET
    """Share of its time that failures, checkpoints and restarts leave, 0–1."""
    network_cost_per_unit: float | UnsetType | None = UNSET
    network_w: float | UnsetType | None = UNSET
    movement_energy_per_unit_j: float | UnsetType | None = UNSET
    """Of the bytes that a unit moves (``pj_per_bit``), inside the power of devices and hosts."""
    network_energy_per_unit_j: float | UnsetType | None = UNSET
    """Ports and bytes moved, cooling included; None where either is not known."""
    movement_share: float | UnsetType | None = UNSET
    """The same as a share of ``energy_per_unit_j``: the tax on moving data, 0–1."""
    energy_cost_per_unit: float | UnsetType | None = UNSET
    kg_co2e_per_unit: float | UnsetType | None = UNSET
    late_share: float | UnsetType | None = UNSET
    """Steps, requests or tasks later than promised, 0–1."""
    penalty_per_unit: float | UnsetType | None = UNSET
    tokens_per_s: float | None = None
    """Tokens a second that count; None where there are none, or nobody measured them."""
    tokens_per_s_interval: Estimate | UnsetType = UNSET
    """The same with its 80 % interval."""
    cost_per_unit_interval: Estimate | UnsetType | None = UNSET
    """``cost_per_unit`` with its 80 % interval, at given prices."""
    effective_batch_share: float | UnsetType = UNSET
    """Gradients that count, 0–1."""
    staleness_updates: float | UnsetType = UNSET
    extra_work_share: float | UnsetType = UNSET
    """Work of copies over all work, 0–1."""
    power_swing_w: float | UnsetType | None = UNSET
    ttft_ms: Quantiles | UnsetType = UNSET
    """Time to the first token."""
    tpot_ms: Quantiles | UnsetType = UNSET
    """Time for each further token."""
    latency_ms: Quantiles | UnsetType = UNSET
    requests_per_s: float | UnsetType = UNSET
    tasks_per_s: float | UnsetType = UNSET
    goodput_per_s: float | UnsetType = UNSET
    """Requests or tasks that end as promised."""
    sla_attainment: float | UnsetType = UNSET
    """0–1"""
    utilisation: float | UnsetType = UNSET
    """0–1"""
    batch: float | UnsetType = UNSET
    """Requests in a mean iteration."""
    saturated: bool | UnsetType = UNSET
    copies_per_request: float | UnsetType | None = UNSET
    hedge_ms: float | UnsetType | None = UNSET
    requests_cut: bool | UnsetType = UNSET
    """Whether recorded requests were cut to a window."""
    token_cost_per_unit: float | UnsetType | None = UNSET
    calls_per_unit: float | UnsetType | None = UNSET
    tool_calls_per_unit: float | UnsetType | None = UNSET
    tokens_per_unit: float | UnsetType | None = UNSET
    attempt_multiplier: float | UnsetType | None = UNSET
    attempts_at_most: int | UnsetType = UNSET
    expected_attempts: float | UnsetType = UNSET
    metastable: bool | UnsetType | None = UNSET
    outcomes: dict[str, float] | UnsetType = UNSET
    """How tasks end → share, 0–1."""
    groups: dict[str, float | None] | UnsetType = UNSET
    """Where all time goes: compute, interconnect, synchronisation, recovery; shares that sum to 1, None where not known."""
    bound: str | UnsetType = UNSET
    """Which of these groups: compute while that takes half of the time or more, else the largest of the others."""
    interruptions_per_day: float | UnsetType | None = UNSET
    """None where nothing is said to fail."""
    mtbf_h: float | UnsetType | None = UNSET
    """Mean hours between two interruptions; None where nothing is said to fail."""
    paid_ranks: float | UnsetType = UNSET
    """Accelerators that are paid for: those that work, those that copies take, and spares."""
    power_at_load: PowerAtLoad | UnsetType = UNSET
    budget: TokenBudget | UnsetType = UNSET
    indices: dict[str, Estimate | None] = field(default_factory=dict)
    """At this scale, by name (docs/indices.md; of control loops docs/control.md)."""
    regime: Regime | None = None
    """At this scale; None where it was not measured there."""


class Side(Part, frozen=True, kw_only=True):
    """What dominates on one side of a threshold."""

    ranks: int
    dominant: str | None
    terms: dict[str, float] | None


class CurvePoint(Part, frozen=True, kw_only=True):
    """What one more accelerator adds at a scale."""

    ranks: float
    marginal_return: float


class Threshold(Part, frozen=True, kw_only=True):
    """The scale beyond which one more accelerator stops paying."""

    ranks: int | None
    """None where it pays at every scale tried: no limit was found up to ``tried``."""
    lo: int | None
    """Ends of the interval that holds it in 80 of 100: of other seeds, and of other values of what is given as a range."""
    hi: int | None
    """None where it is not bounded up to the largest scale tried."""
    parts: IntervalParts | UnsetType = UNSET
    """What makes the interval as wide."""
    rule: str
    tried: int
    """The largest scale tried."""
    in_range: bool | None
    before: Side | UnsetType | None = UNSET
    """At the scale asked that is nearest to half of it."""
    after: Side | UnsetType | None = UNSET
    """At the one nearest to twice of it."""
    curve: list[CurvePoint] | UnsetType = UNSET
    without: dict[str, int | None] | UnsetType = UNSET
    """Mechanism → where it lies with that switched off; None where no limit is found then up to ``tried``."""
    elasticity: dict[str, Estimate | None] | UnsetType = UNSET
    """Mechanism → percent that it moves for each percent more of that; None where there is no threshold to move."""
    made_by: str | UnsetType | None = UNSET
    """The mechanism whose absence moves it furthest; None where none moves it much."""


class AppliedPolicy(Part, frozen=True, kw_only=True):
    """A policy as it was applied."""

    name: str
    value: float | None
    says: str
    costs: str | None


class Question(Part, frozen=True, kw_only=True):
    """What architects and buyers ask, and the answer."""

    question: str
    answer: Estimate | None
    says: str
    taken_from: str = field(name="from")
    """Keys of the result."""


class IndexSets(Part, frozen=True, kw_only=True):
    """Indices without and with policies, and with over without."""

    without: dict[str, Estimate | None]
    with_: dict[str, Estimate | None] = field(name="with")
    ratio: dict[str, float | None]


class Regimes(Part, frozen=True, kw_only=True):
    """The class of the regime without and with policies."""

    without: str | None
    with_: str | None = field(name="with")


class Reserves(Part, frozen=True, kw_only=True):
    """The reserve without and with policies."""

    without: Estimate | None
    with_: Estimate | None = field(name="with")


class Thresholds(Part, frozen=True, kw_only=True):
    """The threshold without and with policies."""

    without: Threshold | None
    with_: Threshold | None = field(name="with")


class Forecasts(Part, frozen=True, kw_only=True):
    """The forecast without and with policies."""

    without: Forecast
    with_: Forecast = field(name="with")


class MeasuredPolicy(Part, frozen=True, kw_only=True):
    """What a policy would have saved of a measured run, after the other changes of the question."""

    name: str
    """With its value, as ``--policy`` takes it."""
    kind: str
    """exact: replayed, given unchanged work; bounded: a range, of which ``value`` is the end that saves less."""
    saved_share: Estimate
    """Of the wall time, 0–1, for as many steps; where samples are dropped, for as many samples. Below 0 it costs time."""
    staleness_steps: int
    """Steps that a gradient may be behind the parameters it is applied to, or a replica behind another."""
    regime: Regimes
    reserve: Reserves
    more_steps_share: float | None
    """Steps that the policy needs more of to converge, as a share, as it was given; None if it was not."""
    net_saved_share: Estimate | None
    """What is saved after these; None where they are not known."""
    break_even_steps_share: float | None
    """The share of steps more at which nothing is saved; None where nothing is saved."""
    costs: str
    """What it costs convergence, or risks."""
    on_frontier: bool | UnsetType = UNSET
    """Of ``--advice``: whether it saves more than all exact policies that are no staler."""


class PolicyComparison(Part, frozen=True, kw_only=True):
    """A scenario beside itself with policies."""

    name: str
    ranks: int
    """The scale at which both are compared."""
    policies: list[AppliedPolicy]
    indices: IndexSets
    regime: Regimes
    reserve: Reserves
    threshold: Thresholds
    forecast: Forecasts


class PolicyGain(Part, frozen=True, kw_only=True):
    """What a policy alone, or several together, give at the largest scale, beside the scenario as it stands."""

    name: str
    """As ``--policy`` takes it."""
    together: bool
    """Whether these are several policies at once."""
    ranks: int
    rate_change: float | None
    """Delivered work a second, with over without, less 1."""
    cost_per_unit_change: float | None
    """With over without, less 1; None without a price."""
    energy_per_unit_change: float | None
    """With over without, less 1."""
    regime: str | None
    """With it; None where it was not sought: of serving and agents only for those compared."""
    threshold: int | None
    """With it, ranks; None where no limit was found up to ``tried``, or none was sought."""
    tried: int | None
    """The largest scale tried; None where no threshold was sought."""
    refused: str | None = None
    """Why it cannot be taken alone."""


class Turn(Part, frozen=True, kw_only=True):
    """Between two neighbouring scales of the forecasts another group takes most of the time."""

    ranks: int
    """The smallest scale that is bound by ``after``."""
    last_ranks: int
    """The largest scale below it, bound by ``before``."""
    before: str
    """What smaller scales are bound by."""
    after: str
    """What larger scales are bound by."""


class LossRegion(Part, frozen=True, kw_only=True):
    """What dominates at another scale, heterogeneity and intensity, and whether one more accelerator pays there."""

    ranks: int
    heterogeneity: float
    intensity: float
    dominates: str | None
    """None where nothing is lost."""
    loss_share: float
    """0–1"""
    kind: str = field(name="class")
    marginal_return: float


class Elasticity(Part, frozen=True, kw_only=True):
    """What a knob is worth: per cent of throughput and of cost for a per cent of it."""

    knob: str
    per: str
    rate: Estimate
    cost_per_unit: Estimate | None


class MechanismLoss(Part, frozen=True, kw_only=True):
    """What is lost at a scale, dealt to the mechanisms that lose it."""

    ranks: int
    mechanism: str
    """``all`` for the whole loss, which the others sum to."""
    loss_share: Estimate
    """Of the rate that the same ranks would have with all mechanisms switched off, 0–1: of one mechanism its Shapley value over
    all sets of them, below 0 where it hides others."""


class SpareCapacity(Part, frozen=True, kw_only=True):
    """Capacity in excess that hides a loss."""

    what: str
    extra_ranks: int
    extra_share: float
    """Over the ranks there are: above 1 where more are added than there were."""
    target_share: float
    """0–1"""
    met: bool
    cost_per_unit_change: float | None
    hides_share: float | None
    """0–1"""


class FabricCost(Part, frozen=True, kw_only=True):
    """A job on another fabric, and what that costs."""

    topology: str
    oversubscription: float
    latency_times: float
    ranks: int
    step_ns: float
    units_per_s: float
    device_cost_per_unit: float | None
    network_price: float | None
    network_w: float | None
    network_cost_per_unit: float | None
    cost_per_unit: float | None


class Growth(Part, frozen=True, kw_only=True):
    """The fabric grown to a scale."""

    ranks: int
    step_ns: float
    units_per_s: float
    device_cost_per_unit: float | None
    network_price: float | None
    network_w: float | None
    network_cost_per_unit: float | None
    cost_per_unit: float | None
    tiers: list[str]
    new_tiers: list[str]
    added_price: float | None
    scaling: float | None
    """Throughput added over accelerators added, relative to the scale before."""
    in_range: bool


class Traffic(Part, frozen=True, kw_only=True):
    """What a step moves over a tier."""

    kind: str
    tier: str
    bytes_per_step: float
    joules_per_step: float | None


class NextGeneration(Part, frozen=True, kw_only=True):
    """Faster devices on the network of today."""

    ranks: int
    generation: float
    """Times as fast."""
    exposed_today: float
    """Share of a step that transfers take, 0–1."""
    exposed_on_todays_network: float
    step_ns_today: float
    step_ns: float
    bandwidth_times: float | None
    """Times the bandwidth that keeps the share as it is; None where latency alone takes more."""
    gb_per_s_per_tflops_today: float
    gb_per_s_per_tflops: float | None


class Surroundings(Part, frozen=True, kw_only=True):
    """What lies around a training scenario (``--envelope``)."""

    regimes: list[LossRegion]
    elasticities: list[Elasticity]
    losses: list[MechanismLoss]
    """On the scenario's own ranks, on half of the threshold, at it and at twice it."""
    spare_capacity: list[SpareCapacity]
    fabrics: list[FabricCost]
    growth: list[Growth]
    traffic: list[Traffic]
    next_generation: list[NextGeneration]


class MeasuredJob(Part, frozen=True, kw_only=True):
    """The run that a projection starts from."""

    ranks: int
    steps: int


class Swept(Part, frozen=True, kw_only=True):
    """Control loops with another number of accelerators."""

    ranks: int
    worse: list[str]
    """Indices that more accelerators made worse."""
    indices: dict[str, float | None]


class ProjectResult(Part, frozen=True, kw_only=True):
    """What ``taut project --json`` prints."""

    schema: int = SCHEMA
    scenario: str
    workload: str
    """training, serving, agents, loops or measured."""
    defaults: list[str]
    """Keys of the scenario that took their defaults."""
    forecasts: list[Forecast]
    """At the scenario's own scale, or at those asked for, in that order."""
    ranks: int
    """The scale that ``indices``, ``regime``, ``questions`` and ``envelope`` speak of: the largest of the forecasts."""
    indices: dict[str, Estimate | None]
    """By name (docs/indices.md; of control loops docs/control.md)."""
    regime: Regime | None
    threshold: Threshold | None
    policies: list[PolicyComparison]
    """Each at every scale of the forecasts, in their order."""
    gains: list[PolicyGain] | UnsetType = UNSET
    """Each policy alone (of control loops with ``--advice``), and each comparison's together, at the largest scale; absent
    where none is compared."""
    turns: list[Turn] | UnsetType = UNSET
    """Where the group that dominates changes from one scale of the forecasts to the next; absent where groups are not known."""
    questions: list[Question]
    envelope: Surroundings | UnsetType = UNSET
    advice: list[Advice] | UnsetType = UNSET
    sweep: list[Swept] | UnsetType = UNSET
    measured: MeasuredJob | UnsetType = UNSET
    assumed: list[str] | UnsetType = UNSET
    """What a projection from a run rests on; of a scenario, memory near what its devices hold, and scales left out for it."""


class FigureRatio(Part, frozen=True, kw_only=True):
    """One figure of two scenarios."""

    figure: str
    """Its key in the forecast, or what its unit says."""
    values: tuple[float | str | None, float | str | None]
    """Of the first and of the second scenario; None where it is not known."""
    ratio: float | None
    """Second over first; None where either is not known, or they are in different currencies."""


class ScalePair(Part, frozen=True, kw_only=True):
    """Two scenarios at a scale each."""

    ranks: tuple[int | None, int | None]
    """None where a scenario does not fit that scale."""
    figures: list[FigureRatio]


class TwoScenarios(Part, frozen=True, kw_only=True):
    """What ``taut project A B --json`` prints."""

    schema: int = SCHEMA
    scenarios: tuple[ProjectResult, ProjectResult]
    """Each as ``taut project`` prints it alone, policies only where they were asked for."""
    ratios: list[ScalePair]
    """At each scale asked of both; where none was asked for, at the own scale of each."""
    thresholds: FigureRatio
    """Where one more accelerator stops paying."""


class ListedScenario(Part, frozen=True, kw_only=True):
    """A scenario that ships with taut."""

    name: str
    pattern: str
    """How one recognises it."""
    computes: str
    decision: str
    """What it helps to decide."""


class ScenariosResult(Part, frozen=True, kw_only=True):
    """What ``taut project --list --json`` prints."""

    schema: int = SCHEMA
    scenarios: list[ListedScenario]


# ---------------------------------------------------------------------------------------------------------------------
# taut bill


class BillPeriod(Part, frozen=True, kw_only=True):
    """What the bill is of."""

    start: str | None
    """First moment, UTC, ISO 8601; null where logs tell lengths only."""
    end: str | None
    """Moment behind the last."""
    open: bool
    """Whether charges may still come: the period is not over in the bill, or its charges are not final."""


class Accrual(Part, frozen=True, kw_only=True):
    """What was used against what the bill says it cost."""

    ledger: Amount | None
    """Sum of all lines."""
    effective: Amount | None
    """Effective cost of all charges of the period; null without a bill."""
    residual: Amount | None
    """Effective less ledger: charged and not used above 0 (a row that stands twice), used and not charged below."""
    closes: bool | None
    """Whether nothing is left; null without a bill."""
    explained: Amount | None = None
    """Of the residual, what defects took out, less what was used without a charge: both are named; null without a bill."""
    not_charged_yet: Amount | None = None
    """Of the residual, what was used behind the last charge of a period that is still open: no defect; null without a bill."""


class Invoice(Part, frozen=True, kw_only=True):
    """One invoice against what its charges were allocated to."""

    id: str | None
    """Null for charges that name none."""
    billed: Amount
    """What it says."""
    allocated: Amount
    """Of it, what lines hold."""
    residual: Amount
    """Billed less allocated."""
    explained: Amount | None = None
    """Of it, what defects take out."""
    closes: bool
    """Whether nothing is left."""


class BillLine(Part, frozen=True, kw_only=True):
    """Money, joules and carbon of one item, fate and cause; sums over all lines count each of them once."""

    category: str
    """One of the six that decision makers know, useful work, or what belongs to none of them."""
    kind: Literal["direct", "hidden", "useful"]
    item: str
    """What is paid for: accelerator time, electricity, cooling, unused commitment, storage …"""
    fate: str | None
    """Fate of the ledger; null for lines outside its cells."""
    cause: str | None
    """Finding, controller or end of an attempt to which it is traced."""
    rank_ns: int | None
    """Accelerator time of the cells; null for lines outside them. Lines of electricity and cooling repeat none."""
    money: Amount | None
    """Null where it has no price of its own; ``from`` says why."""
    billed: Amount | None = None
    """The same on invoices."""
    joules: float | None
    """Only on lines of energy, so that none counts twice."""
    kg_co2e: float | None
    source: Literal["measured", "modelled", "given"]
    """How sure it is: told by logs, traces and counters, computed from a model, or an input."""
    origin: str = field(name="from")
    """From what: a log, a run, a bill, a counter, a key of the prices, a default."""


class BillShare(Part, frozen=True, kw_only=True):
    """One row of a drill-down: all lines of one category, cause, rank, host, job, team or day."""

    name: str | None
    money: Amount | None
    share: float | None
    """Of the money of all lines."""
    rank_ns: int | None
    joules: float | None
    kg_co2e: float | None
    lost: Amount | None
    """Of the money, what is neither useful work nor services."""


class Unmatched(Part, frozen=True, kw_only=True):
    """Charges for accelerators that meet no host of the logs."""

    resource: str | None
    """As the bill calls it."""
    money: Amount
    """Effective cost."""
    rows: int
    """Charges."""
    remedy: str
    """What would match it."""


class Defect(Part, frozen=True, kw_only=True):
    """Something wrong with the bill."""

    kind: str
    """What is wrong, in a few words that stay the same."""
    rows: int
    """Charges concerned."""
    places: list[str]
    """The first of them, ``file:row``."""
    money: Amount | None
    """What it moves; above 0: charged too much; null where nobody can tell."""
    currency: str | None
    """Of the money: that of the bill, or for charges in another currency theirs."""
    because: str
    """What shows it."""


class BrokenRule(Part, frozen=True, kw_only=True):
    """A rule of its own specification that a bill breaks."""

    rule: str
    """Id of the rule, as FOCUS publishes it for 1.2; ours where it has none."""
    because: str
    """What is wrong."""
    rows: int
    """Charges concerned; 0 where a column is at fault."""
    places: list[str]
    """The first of them, ``file:row``."""
    validator: str | None
    """What focus-validator 1.0.0 calls it, where it reports the same."""
    disputed: bool
    """Whether that validator reports it beyond what the specification says."""


class EnergySource(Part, frozen=True, kw_only=True):
    """What one source of energy says of the same accelerators and time."""

    name: str
    """counter, samples, node counter, node samples (hosts included), states (a model), or a key of the prices."""
    joules: float
    coverage: float
    """Share of the accelerator time of which it tells."""


class BillEnergy(Part, frozen=True, kw_only=True):
    """Joules of the accelerators, and who says so."""

    joules: Estimate | None
    """The interval is that of sources that disagree."""
    source: str | None
    """The one that lines use: the best that is there."""
    sources: list[EnergySource]
    stall_joules: float | None
    """Drawn while nothing useful was done."""
    intrinsic_bloat_joules: float | None
    """Of it, by waits that the job's structure makes (imbalance, jitter): slower clocks off the critical path save it."""
    extrinsic_bloat_joules: float | None
    """Of it, by waits for somebody at fault."""
    network_joules: float | None
    """Of ports and of bytes moved."""
    data_movement_share: float | None
    """Energy of moving data over energy of everything: accelerators, hosts, cooling, network."""
    moved_bytes: float | None = None
    """Bytes that traced jobs moved between ranks, time beyond the traced one at the same pace; null where nobody tells, or the
    prices do not say what a bit takes."""
    sci_kg_co2e: float | None = None
    """Software carbon intensity: carbon of running and of making, for each ``sci_unit``; null where one is not given."""
    sci_unit: str | None = None
    """``step``, or ``accelerator hour`` where no log counts steps."""


class Recovery(Part, frozen=True, kw_only=True):
    """Money that a repair, a policy, another fabric or a spare host would bring back."""

    cause: str
    """Finding, or what time is lost to."""
    remedy: str
    saved_share: Estimate
    """Of the wall."""
    per_hour: Estimate | None
    per_day: Estimate | None
    per_month: Estimate | None
    """In the currency of the bill, of a job that goes on like this; 30 days."""
    payback_days: Estimate | None
    """Until what it costs (given with the prices) is earned; null where that is not known, and where it never is."""
    cost: Amount | None = None
    """Once, in the currency of the bill; null where it is not given."""
    cost_per_month: Amount | None = None
    """And every month of 30 days."""
    no_payback: str | None = None
    """Why there is no payback: what is missing, or that it never pays."""


class Budget(Part, frozen=True, kw_only=True):
    """Budget and forecast against actual."""

    budget: Amount | None
    """For the period, as the prices give it."""
    actual: Amount | None
    """Effective cost, or the ledger without a bill."""
    forecast: Amount | None
    """At the end of the period, if it goes on like this; the actual where the period is over."""
    left: Amount | None
    """Budget less forecast."""


class BillResult(Part, frozen=True, kw_only=True):
    """``taut bill --json``."""

    schema: int = SCHEMA
    currency: str | None
    money_units: int = 1_000_000_000
    """Units of money in one of the currency, in the tables of the run folder: billionths, or coarser ones where the sums of a
    vast bill would not fit 64 bits."""
    unit: str = "accelerator"
    """What ``rank_ns`` counts: accelerators, or nodes, cpus, tasks or jobs where logs tell no better; those have no price."""
    period: BillPeriod
    verdict: str
    """The answer in a sentence or two."""
    accrual: Accrual
    invoices: list[Invoice]
    categories: list[BillShare]
    lines: list[BillLine]
    by: dict[str, list[BillShare]]
    """Drill-down: ``cause``, ``rank``, ``host``, ``job``, ``team``, ``day``; the largest first, days in order."""
    unmatched: list[Unmatched]
    defects: list[Defect]
    rules: list[BrokenRule] = field(default_factory=list)
    """Rules of FOCUS that the bill breaks; its charges count all the same."""
    energy: BillEnergy
    recoverable: list[Recovery]
    budget: Budget | None
    causes: dict[str, str] = field(default_factory=dict)
    """Id of a finding that lines are traced to → what it is, and where."""
    missing: list[str]
    """What was not given and what that leaves unknown, one line each."""
    defaults: list[str]
    """Prices and powers that are defaults of taut, with their source."""
    notes: list[str]
    """What was decided on the way."""
    inputs: list[str]
    """What was read, with the begin of its SHA-256."""


RESULTS: dict[str, type[Part]] = {
    "analyze": AnalysisResult,
    "whatif": WhatIfResult,
    "compare": CompareResult,
    "control": ControlResult,
    "control review": ReviewResult,
    "project": ProjectResult,
    "project A B": TwoScenarios,
    "project --list": ScenariosResult,
    "bill": BillResult,
}
"""Verb → what its ``--json`` prints."""


class CostOverTime(Part, frozen=True, kw_only=True):
    """What a bill had cost by when, for a picture of it."""

    time_ns: list[int]
    """Moments, ns since 1970, UTC."""
    money: dict[str, list[float]]
    """Kind of cost → so far at each moment, in the currency of the bill."""
    undated: float
    """Cost that has no time: no part of the above."""


# ---------------------------------------------------------------------------------------------------------------------
# taut audit


class AuditVerification(Part, frozen=True, kw_only=True):
    """Whether an audit log, and the run it was asked of, are what was recorded."""

    ok: bool
    """Nothing was changed, dropped or reordered, as far as the log itself and what was given can tell."""
    anchored: bool
    """It agrees with something that its keeper cannot change. Without, it is only consistent in itself."""
    anchor: Literal["key", "checkpoint", "witness"] | None
    """What it agrees with; the strongest of those given."""
    records: int
    """Records that the log says it has."""
    root: str | None
    """Root of the records that are kept, base64 as in checkpoints; null where none is."""
    first_bad: int | None
    """Index of the first record that is not as it was written; null where all are."""
    kept: int
    """Records before it, which are as they were written."""
    anchored_records: int = 0
    """Records, from the first on, that the anchor holds."""
    log: str | None = None
    """Name of the log, as its first record tells it."""
    redacted: int = 0
    """Texts that were taken out, and recorded as such."""
    pruned: int = 0
    """Records whose time was over: their hashes are kept."""
    run: str | None = None
    """The run folder whose files and proof were checked too."""
    alone: int | None = None
    """Index of the one record that was checked, by its proof, away from its log; null where the whole log was."""
    says: str | None = None
    """What is wrong; null where nothing is."""


class AuditSigner(Part, frozen=True, kw_only=True):
    """A key that signed an audit log."""

    key: str
    """Its id, as signatures name it."""
    own: bool
    """Whether it is the key of this user, who made that signature."""
    records: int
    """The largest number of records that it signed."""


class AuditKnownLog(Part, frozen=True, kw_only=True):
    """An audit log that this user may append to and sign."""

    log: str
    """Its name, from its first record."""
    path: str | None
    """Where it was last used; null where an earlier version signed it."""
    since: Literal["begun", "adopted", "signed"]
    """How it became known: begun here, adopted, or signed by an earlier version of taut."""
    records: int | None = None
    """Records that it has; null in the list of all logs."""
    signers: list[AuditSigner] | None = None
    """Keys that signed it so far, the one that signed most records first; null in the list of all logs."""


class AuditAdoptResult(Part, frozen=True, kw_only=True):
    """What ``taut audit adopt`` prints: the log that was adopted, or all logs that this user may append to."""

    logs: list[AuditKnownLog]


class AuditRecord(Part, frozen=True, kw_only=True):
    """A record of the audit trail, with its texts where they are still kept."""

    index: int
    """Its place in the log, from 0 on."""
    kind: str | None
    """begin, verb, decision, outcome, redaction or prune; null once its time was over."""
    at: str | None
    """When, by the clock of the machine that wrote it, UTC."""
    version: str | None
    """Of taut."""
    details: dict[str, Json]
    """What was recorded, by kind (docs/audit.md); a text that was taken out is null."""
    redacted: list[str] = field(default_factory=list)
    """Places of texts that were taken out."""
    sha256: str
    """Hash of the leaf, hex."""


class AuditLogResult(Part, frozen=True, kw_only=True):
    """What ``taut audit log --json`` prints."""

    schema: int = SCHEMA
    log: str
    """Name of the log."""
    size: int
    """Records in it."""
    root: str
    """Root of all of them, base64."""
    records: list[AuditRecord]
    """Those asked for, oldest first."""


class AuditLink(Part, frozen=True, kw_only=True):
    """A record on the way from an outcome down to what was read."""

    depth: int
    """Steps from where the question began."""
    record: AuditRecord


class AuditWhyResult(Part, frozen=True, kw_only=True):
    """What ``taut audit why --json`` prints."""

    schema: int = SCHEMA
    log: str
    """Name of the log."""
    chain: list[AuditLink]
    """What was asked about first, then what it rests on."""
    again: AuditAgain | None = None
    """With ``--again``: whether the command gives the same bytes."""


class AuditAgain(Part, frozen=True, kw_only=True):
    """A recorded command, run again."""

    record: int
    """Its number in the log."""
    same: bool
    """Whether all that was compared has the recorded bytes."""
    compared: list[str]
    """Files that it wrote, and standard output where that was one JSON object."""
    differs: list[str]
    """Those of them that have other bytes now, or are not there."""


class AuditOutcome(Part, frozen=True, kw_only=True):
    """What ``taut audit outcome --json`` prints: what a decision was expected to bring, and what it brought."""

    schema: int = SCHEMA
    record: int
    """Its own record."""
    decision: int
    """Record of the decision."""
    expected_saving: Estimate | None
    """Share of the step time, 0–1; null where the decision says none."""
    expected_from: Literal["given", "finding"] | None
    """Who expected it: the decision itself, or the finding that it answers."""
    measured_saving: Estimate | None
    """Share of the mean step time, 0–1, negative where steps took longer; null where steps are too few to tell."""
    runs_before: int
    """Runs from before the decision that were measured."""
    runs_after: int
    """Runs from after it."""
    run_spread: float | None
    """By how much runs of the job were taken to differ, as a share of the mean step time; part of the interval above."""
    run_spread_from: Literal["assumed", "runs"] | None
    """Where that is from: assumed with one run before and one after, otherwise corrected by the runs themselves."""
    says: Literal["kept", "missed", "unclear"]
    """Missed: surely less than was expected, by the 95 % interval of the difference. Kept: not missed, and surely more
    than nothing. Else unclear."""


# ---------------------------------------------------------------------------------------------------------------------
# taut brief

Unit: TypeAlias = Literal["share", "times", "ranks", "ms", "attempts", "controllers", "money"]
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


class BriefQuestion(Part, frozen=True, kw_only=True):
    """A question that architects and buyers ask, and the answer."""

    question: str
    answer: Estimate | None
    """Null where it was not measured."""
    unit: Unit | None
    """What the answer counts; null where there is none."""
    of_100: int = 95
    """Of 100 repetitions, those whose value the interval holds."""
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
    costs: Estimate | None = None
    """What it costs today, of the wall or of the rate; null where only what comes back is known."""
    stays: str | None = None
    """Why not all that it costs comes back; null where all of it does, or nobody knows."""
    share_is: Literal["recoverable", "lost"]
    """Whether doing something would bring the share back, or it is only known to be lost."""
    money_per_month: Estimate | None
    """The same in money, 30 days of a job that goes on like this; null without a price."""
    currency: str | None
    source: Literal["measured", "modelled"]
    """Whether it was seen in a run, a log or a bill, or computed from a scenario."""
    confidence: float | None
    """One minus the chance of such evidence without the cause, 0–1; null where nothing was tested."""
    sure_of: str | None = None
    """What the confidence is of, in a clause."""
    untested: str | None = None
    """What it is not of."""
    test: str | None = None
    """What would test that, and what it would show."""
    because: str | None = None
    """The evidence in a sentence."""
    evidence: str | None = None
    """The same in a clause, operations by their short names."""
    finding: str | None = None
    """The finding of the run that it is; null for others."""
    steps: list[int] | None = None
    """First and last step in which it was seen."""
    do: str
    """What to do, in plain words."""
    repair: bool = False
    """Whether a part is to be mended, and not the way in which parts work together."""
    command: str | None
    """What acts on it, or records the decision."""


class BriefCosts(Part, frozen=True, kw_only=True):
    """What the job or the system costs a month, 30 days of going on like this."""

    per_month: float
    """All of it, in the currency."""
    useful_per_month: float | None
    """Of it, what useful work takes."""
    currency: str
    basis: str
    """From what: a bill, a price of an accelerator hour, a scenario."""
    accelerators: int | None = None
    """How many are paid for; null where the bill alone tells the sum."""
    per_accelerator_hour: float | None = None
    """What an hour of one of them costs; null where that is not told."""


class Demand(Part, frozen=True, kw_only=True):
    """What to demand of a vendor, from the job's own sensitivities."""

    what: str
    """The figure that matters."""
    worth: str
    """What a change of it costs or brings, with its interval."""
    money_per_year: Amount | None
    """What it is worth in 365 days of going on like this; null without a price."""
    currency: str | None
    test: str
    """Which test shows it."""
    reach: str
    """Which number to reach."""
    command: str
    """What shows the figures again."""
    finding: str | None = None
    """The finding of the run that it answers; null for others."""


class BriefResult(Part, frozen=True, kw_only=True):
    """What ``taut brief --json`` prints."""

    schema: int = SCHEMA
    title: str
    """What the briefing is about."""
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


RESULTS.update(
    {
        "audit adopt": AuditAdoptResult,
        "audit log": AuditLogResult,
        "audit why": AuditWhyResult,
        "audit verify": AuditVerification,
        "audit outcome": AuditOutcome,
        "brief": BriefResult,
    }
)


# ---------------------------------------------------------------------------------------------------------------------
# taut watch


class LiveFinding(Part, frozen=True, kw_only=True):
    """A finding while the job runs: a line when it opens, when it changes and when it closes."""

    at_ns: int
    """When this was told, ns since 1970, UTC."""
    id: str
    """The same from open to closed."""
    job: str
    """The job, as its ranks name it."""
    mode: str
    """One of the modes of docs/contract.md."""
    state: Literal["open", "closed"]
    """Whether it goes on."""
    ranks: list[Small]
    hosts: list[str | None]
    """Host of each of ``ranks``, in their order; null where it is not known."""
    links: list[Link]
    """``sender:receiver``."""
    since_step: Small | None
    """Step in which it began; null where steps are not seen, or it was there before the first that was analysed."""
    delay_steps: Small | None
    """Steps from then to when it was first told."""
    money_per_hour: Amount | None
    """What it costs while it lasts; null without a price."""
    currency: str | None = None
    false_alarms_per_hour: float
    """How often such a finding is told of a healthy job, at most."""
    cannot_see: list[str]
    """What this way of watching does not show, and might change the answer."""
    text: str = ""
    """For people: who, where, what to do."""


class WatchedRank(Part, frozen=True, kw_only=True):
    """A rank of a job that runs."""

    rank: Small
    host: str | None
    """Where it runs; null where it does not say."""
    gpu: Small | None
    """Number of its accelerator on the host."""
    state: Literal["heard", "lost", "ended"]
    """Whether it is heard, has been silent for too long, or said goodbye."""
    late_ns: Small | None
    """How late it comes to its gates behind the middle member, in the median of the last steps; null where not seen."""
    busy_ns: Small | None
    """How much longer than the middle rank it is busy in a step, outside of calls that wait."""
    loader_ns: Small | None
    """How much longer than the middle rank it is in its loader in a step."""
    dropped: Small
    """Events that its process could not send."""


class WatchedJob(Part, frozen=True, kw_only=True):
    """A job that runs, as the collector sees it."""

    job: str
    verdict: str
    """For people: the worst that is open, or what is not known yet."""
    kind: VerdictClass = field(name="class")
    """Unknown until enough steps were seen."""
    findings: list[LiveFinding]
    """Those that are open, the first told first."""
    world: Small | None
    """Ranks that it says it has."""
    heard: Small
    """Ranks that are heard now."""
    lost: Small
    """Ranks that have been silent for too long."""
    ended: Small
    """Ranks that said goodbye."""
    ranks: list[WatchedRank]
    """The latest first; of a large job not all of them."""
    last_step: Small | None
    step_ns: Small | None
    """Time of a step, the median of the last ones."""
    steps_ns: list[Small]
    """Times of the last steps, the newest last."""
    regime: str | None
    """Stable, marginal or unstable, by the last analysis."""
    reserve: Estimate | None
    """Factor by which jitter may still grow."""
    received: Small
    """Events of all ranks so far."""
    not_received: dict[str, Small]
    """Events that were not, by why; those that are 0 are left out."""


class LiveState(Part, frozen=True, kw_only=True):
    """What a collector sees now."""

    schema: Small
    at_ns: Small
    """When this was seen, ns since 1970, UTC."""
    since_ns: Small
    """When the collector began."""
    jobs: list[WatchedJob]
    """The one last heard of first."""
    counts: dict[str, Small]
    """Connections, messages, bytes and ranks so far, and what was refused."""


RESULTS["watch collect"] = LiveFinding
RESULTS["watch top"] = LiveState
