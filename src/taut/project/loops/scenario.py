"""A scenario of control loops: demand, a pool of replicas, and the controllers that act on them.

Only what is given exists: a scenario without ``[[client]]`` has requests that are tried once and wait for ever, one without
``[trainer]`` no training job beside the service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from taut.core import strict_toml as strict
from taut.core.strict_toml import Contradiction, Count, NotNegative, Positive, Share, Some, Strict, Times
from taut.project.about import About

WILDEST = 10.0
"""Largest spread: beyond it nearly all draws are nothing, and the rest is one event."""
Spread = Annotated[float, Meta(ge=0, le=WILDEST)]


class Loops(Strict, frozen=True):
    """How long the system is watched, and how often its metrics are written."""

    horizon_s: Annotated[float, Meta(gt=0, le=86400)] = 900.0
    """How long the system is watched."""
    sample_s: Positive = 5.0
    """Time between two samples of its metrics."""
    accelerators: Some = 0
    """Accelerators that the pool and the trainer share; 0 for as many as both could want."""


class Demand(Strict, frozen=True):
    """Requests that arrive, whatever the system does with them."""

    per_s: Positive
    """Requests a second; of a square wave: in the first half of a period."""
    shape: Literal["constant", "square", "steps"] = "constant"
    """How the rate changes."""
    peak_per_s: Positive | None = None
    """Rate in the second half of every period of a square wave."""
    period_s: Positive = 120.0
    """Period of a square wave, or how long each of the steps lasts."""
    steps_per_s: tuple[NotNegative, ...] = ()
    """Rates of ``steps``, as a recorded trace has them, each for ``period_s``; they begin anew at the end."""
    growth_per_hour: float = 0.0
    """What the rates grow by in an hour, as a share of them."""
    spread: Spread = 1.0
    """Standard deviation of the time between two arrivals over its mean: 1 is Poisson, 0 a clock."""
    deadline_s: Positive | None = None
    """By when a request is wanted."""


class Stall(Strict, frozen=True):
    """A time in which the pool begins nothing."""

    at_s: NotNegative
    """When it begins …"""
    for_s: Positive
    """… and how long it lasts."""


class Pool(Strict, frozen=True):
    """Replicas that serve one request at a time, from one queue."""

    service_s: Positive
    """Mean time that a request is served for."""
    spread: Spread = 1.0
    """Standard deviation of the service time over its mean: 1 is exponential, 0 a constant."""
    replicas: Count = 1
    """Replicas at the beginning."""
    least: Count = 1
    """Fewest replicas."""
    most: Some = 0
    """Most replicas; 0 for as many as at the beginning."""
    accelerators: Count = 1
    """Accelerators of a replica."""
    start_s: NotNegative = 0.0
    """Time a new replica takes until it serves; it is paid for from the beginning."""
    queue: Some = 0
    """Requests that may wait before others are refused; 0 for any number."""
    cancels: bool = False
    """Whether an attempt stops when its caller hangs up, waiting or served; else it is served in vain."""
    error_share: Share = 0.0
    """Share of the attempts that are served and come to nothing."""
    name: str = "pool"
    """What the pool is called in logs."""


class Client(Strict, frozen=True):
    """One layer of callers that try again; the first given is the outermost, and calls the next."""

    name: str
    """What the layer is called in logs."""
    timeout_s: Positive
    """Time after which an attempt is given up."""
    retries: Annotated[int, Meta(ge=0, le=20)] = 0
    """Attempts after the first one."""
    back_off_s: NotNegative = 0.0
    """Pause before the first retry."""
    back_off_times: Times = 1.0
    """What every further back-off is longer by."""
    budget_share: Share | None = None
    """Retries that may be spent for a first attempt, averaged; none where no budget is given."""
    passes_deadline: bool = False
    """Whether what lies below is told by when the answer is wanted, and stops then."""
    tags: bool = True
    """Whether its retries carry the identity of the work they are for to where costs are attributed."""


class Autoscaler(Strict, frozen=True):
    """A loop that sets the number of replicas from what it saw."""

    name: str
    """What the loop is called in logs."""
    signal: Literal["concurrency", "utilisation", "latency"] = "concurrency"
    """What it looks at: requests in the pool, busy replicas, or latency."""
    target: Positive = 1.0
    """Requests a replica should have in the pool; share of busy replicas; or latency as a share of the deadline."""
    period_s: Positive = 15.0
    """Time between two of its decisions."""
    look_back_s: Positive = 15.0
    """Time over which it averages the signal."""
    hysteresis: Share = 0.0
    """Nothing is done while the signal is within this share of the target."""
    up_cooldown_s: NotNegative = 0.0
    """Least time since the last change before another upwards …"""
    down_cooldown_s: NotNegative = 0.0
    """… and downwards."""
    phase_s: NotNegative = 0.0
    """When its first period ends, beyond a period."""
    only: Literal["both", "up", "down"] = "both"
    """Whether it adds replicas, takes them, or both."""
    step: Some = 0
    """Most replicas that it adds or takes at a time; 0 for any number."""


class Gate(Strict, frozen=True):
    """A policy that refuses new requests while latency is too near the deadline."""

    name: str = "admission"
    """What the policy is called in logs."""
    period_s: Positive = 10.0
    """Time between two of its decisions."""
    look_back_s: Positive = 10.0
    """Time over which it averages latency."""
    close_at: Positive = 0.9
    """Latency over the deadline at which it closes …"""
    open_at: Positive = 0.9
    """… and below which it opens again."""
    refuses: Share = 0.5
    """Share of the requests refused while it is closed."""


class Trainer(Strict, frozen=True):
    """A training job of lower priority on the same accelerators, and the launcher that restarts it."""

    accelerators: Count
    """Accelerators of the job."""
    step_s: Positive = 1.0
    """Time of a step."""
    checkpoint_every_s: Positive = 120.0
    """From one checkpoint to the next."""
    checkpoint_s: NotNegative = 2.0
    """Writing a checkpoint."""
    restore_s: Positive = 10.0
    """Mean time to restore one."""
    spread: Spread = 0.3
    """Standard deviation of the time to restore over its mean."""
    launcher_timeout_s: Positive = 60.0
    """How long the launcher waits for the job to come up before it kills and starts it again."""
    restarts: Some = 3
    """Launches that may fail one after the other before the job is given up for ``pause_s``."""
    pause_s: NotNegative = 60.0
    """How long a job that was given up stays so."""
    retry_s: NotNegative = 1.0
    """Time from a failed launch to the next."""
    mtbf_s: Positive | None = None
    """Mean time between failures of its own."""
    hold_s: NotNegative = 0.0
    """Accelerators must have been free for so long before it takes them back."""


class Scheduler(Strict, frozen=True):
    """One of several schedulers that place tasks on shared machines, each from its own picture of them."""

    name: str
    """What the scheduler is called in logs."""
    tasks_per_s: Positive
    """Tasks that it is given a second."""
    decision_s: Positive
    """Time between looking at the machines and committing a task."""
    task_s: Positive = 20.0
    """Mean time that a task holds its slot."""


class Machines(Strict, frozen=True):
    """What the schedulers share."""

    count: Annotated[int, Meta(ge=1, le=10_000)] = 16
    """Machines that are shared."""
    slots: Count = 4
    """Tasks that a machine holds."""
    owned: bool = False
    """Whether the machines are divided among the schedulers, rather than any of them placing anywhere."""


class Plan(Strict, frozen=True):
    """A planner that says before every window how much will be asked for."""

    window_s: Positive = 60.0
    """Time that each plan is for."""
    counts: Literal["attempts", "works"] = "attempts"
    """What it counts in the window before: everything that reached the pool, or each request once."""
    utilisation: Share | None = None
    """If given, the pool is made as large as the plan asks for at this utilisation."""
    name: str = "planner"
    """What the planner is called in logs."""


class Price(Strict, frozen=True):
    """What an accelerator takes."""

    currency: str = ""
    """Of all prices."""
    per_hour: NotNegative | None = None
    """Money for an hour of an accelerator; none: unpriced."""
    load_w: NotNegative | None = None
    """Power of an accelerator that serves or trains; none: no energy is told."""
    stall_w: NotNegative | None = None
    """Power of one that is held and does neither; none: as under load."""
    host_w: NotNegative = 350.0
    """Power of a node without its accelerators, for each of them. Default: as of training scenarios."""
    pue: Annotated[float, Meta(ge=1, le=100)] = 1.56
    """Energy of the site over energy of what computes. Default: mean of the industry (Uptime Institute, survey of 2024)."""


class Scenario(Strict, frozen=True):
    """One file."""

    name: str
    """What the scenario is called."""
    loops: Loops
    demand: Demand
    pool: Pool
    client: tuple[Client, ...] = ()
    autoscaler: tuple[Autoscaler, ...] = ()
    gate: Gate | None = None
    trainer: Trainer | None = None
    scheduler: tuple[Scheduler, ...] = ()
    machines: Machines = Machines()
    plan: Plan = Plan()
    stall: tuple[Stall, ...] = ()
    price: Price = Price()
    about: About = About()

    @property
    def most(self) -> int:
        """Most replicas that the pool may have."""
        return self.pool.most or self.pool.replicas

    @property
    def accelerators(self) -> int:
        """Accelerators of the whole system."""
        beside = self.trainer.accelerators if self.trainer else 0
        return self.loops.accelerators or self.most * self.pool.accelerators + beside


MOST_ATTEMPTS, MOST_TICKS = 2_000_000, 100_000
"""Attempts that a run may hold, and decisions that one loop may take: every one is an event or three."""


def attempts_most(s: Scenario) -> int:
    """Attempts that one request may become: layers multiply."""
    most = 1
    for layer in s.client:
        most *= layer.retries + 1
    return most


def _contradictions(s: Scenario) -> Sequence[Contradiction]:
    d, p = s.demand, s.pool
    peak = max(d.per_s, d.peak_per_s or 0, *d.steps_per_s, 0)
    needs = [a.name for a in s.autoscaler if a.signal == "latency"] + ([s.gate.name] if s.gate else [])
    names = [*(c.name for c in s.client), *(a.name for a in s.autoscaler), *(x.name for x in s.scheduler)]
    first = p.replicas * p.accelerators + (s.trainer.accelerators if s.trainer else 0)
    return (
        (d.shape == "square" and d.peak_per_s is None, "demand.peak_per_s", "a square wave needs its peak", "give it"),
        (d.shape == "steps" and not d.steps_per_s, "demand.steps_per_s", "there are none", "give the rates"),
        (not p.least <= p.replicas <= s.most, "pool.replicas", "not between least and most", "correct one of them"),
        (bool(needs) and d.deadline_s is None, "demand.deadline_s", f"{', '.join(needs)} looks at it", "give a deadline"),
        (len(set(names)) < len(names), "name", "two controllers have the same", "name them apart"),
        (first > s.accelerators, "loops.accelerators", f"the scenario begins with {first}", "give at least as many"),
        (
            peak * s.loops.horizon_s * attempts_most(s) > MOST_ATTEMPTS, "loops.horizon_s",
            "too many attempts to simulate", "shorten it, or lower the demand or the retries",
        ),
        *((s.loops.horizon_s / every > MOST_TICKS, key, "too often to simulate", "lengthen it") for key, every in _ticks(s)),
    )  # fmt: skip


def _ticks(s: Scenario) -> Iterator[tuple[str, float]]:
    """How often everything that recurs does so, with its key."""
    yield from (
        ("loops.sample_s", s.loops.sample_s),
        ("plan.window_s", s.plan.window_s),
        ("demand.period_s", s.demand.period_s),
    )
    for a in s.autoscaler:
        yield "autoscaler.period_s", a.period_s
    for x in s.scheduler:
        yield from (("scheduler.decision_s", x.decision_s), ("scheduler.tasks_per_s", 1 / x.tasks_per_s))
    if s.gate:
        yield "gate.period_s", s.gate.period_s
    if s.trainer:
        yield from (("trainer.step_s", s.trainer.step_s), ("trainer.launcher_timeout_s", s.trainer.launcher_timeout_s))


def parse(table: Mapping[str, Any], label: str, text: str = "") -> tuple[Scenario, list[str]]:
    """The scenario in a TOML table, and the keys that took their defaults."""
    return strict.parse(Scenario, _contradictions, table, label, text)
