"""Separations: changes that keep loops out of each other's way. Each is small, named, and tried in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from msgspec.structs import replace

from taut.project.loops.scenario import Autoscaler, Client, Scenario, Trainer
from taut.project.policy import Policy

BUDGET = 0.1
"""Retries per first attempt (tokenRatio in the example of gRPC's proposal A6; Finagle's default budget is 0.2)."""
BAND = 0.2
"""Dead band around a target: twice the tolerance that Kubernetes' horizontal autoscaler has by default (0.1)."""
HOLD_S = 60.0
"""Assumed: a minute free is free."""
MARGIN = 0.7
"""Assumed: the share of the deadline that latency is steered to."""

Apply = Callable[[Scenario, float | None], Scenario]


def _clients(s: Scenario, **changed: float | bool) -> Scenario:
    return replace(s, client=tuple(replace(c, **changed) for c in s.client))


def retry_budget(s: Scenario, value: float | None) -> Scenario:
    """Every layer may add so many retries to its first attempts, averaged."""
    return _clients(s, budget_share=BUDGET if value is None else min(max(value, 0.0), 1.0))


def deadline_propagation(s: Scenario, value: float | None) -> Scenario:
    """Everything below a caller knows by when the answer is wanted, and begins nothing that would be late."""
    return _clients(s, passes_deadline=True)


def one_retry_layer(s: Scenario, value: float | None) -> Scenario:
    """Only the innermost layer tries again: it knows why it failed; layers above it ask once."""
    return replace(s, client=(*(replace(c, retries=0) for c in s.client[:-1]), *s.client[-1:]))


def longer_timeout(s: Scenario, value: float | None) -> Scenario:
    """Every layer waits for all that the layer below it may try, and the deadline is that of the outermost."""
    layers = list(s.client)
    for k in range(len(layers) - 2, -1, -1):
        layers[k] = replace(layers[k], timeout_s=max(layers[k].timeout_s, longest(layers[k + 1])))
    return replace(s, client=tuple(layers))


def longest(layer: Client) -> float:
    """How long a layer may take until it gives up: all attempts, and the pauses between them."""
    pauses = [layer.back_off_s * layer.back_off_times**k for k in range(layer.retries)]
    return float((layer.retries + 1) * layer.timeout_s + sum(pauses))


def work_ids(s: Scenario, value: float | None) -> Scenario:
    """Retries carry the identity of the work they are for."""
    return _clients(s, tags=True)


def one_owner(s: Scenario, value: float | None) -> Scenario:
    """One controller decides on replicas, the first listed; others may only tell it."""
    return replace(s, autoscaler=s.autoscaler[:1])


def hysteresis(s: Scenario, value: float | None) -> Scenario:
    """Nothing is changed within a band around the target; what was closed opens only well below where it closes."""
    band = BAND if value is None else min(max(value, 0.0), 0.9)
    gate = s.gate and replace(s.gate, open_at=min(s.gate.open_at, s.gate.close_at * (1 - band)))
    scalers = tuple(replace(a, hysteresis=max(a.hysteresis, band)) for a in s.autoscaler)
    return replace(s, autoscaler=scalers, gate=gate)


def aligned_periods(s: Scenario, value: float | None) -> Scenario:
    """No loop decides against its last decision before it can see what that did: the start of a replica, and a look-back."""
    wait = s.pool.start_s * (1.0 if value is None else max(value, 0.0))
    return replace(s, autoscaler=tuple(_patient(a, wait) for a in s.autoscaler))


def _patient(a: Autoscaler, wait: float) -> Autoscaler:
    # Latency does not tell what is under way, so that further steps up wait as well; counts of requests do.
    up = max(a.up_cooldown_s, wait) if a.signal == "latency" else a.up_cooldown_s
    return replace(a, up_cooldown_s=up, down_cooldown_s=max(a.down_cooldown_s, wait + a.look_back_s))


def margin(s: Scenario, value: float | None) -> Scenario:
    """Autoscalers that watch latency steer it to this share of the deadline."""
    share = MARGIN if value is None else max(value, 0.01)
    scalers = tuple(replace(a, target=min(a.target, share)) if a.signal == "latency" else a for a in s.autoscaler)
    return replace(s, autoscaler=scalers)


def own_machines(s: Scenario, value: float | None) -> Scenario:
    """Machines are divided among the schedulers."""
    return replace(s, machines=replace(s.machines, owned=True))


def hold(s: Scenario, value: float | None) -> Scenario:
    """The job takes accelerators back only when they have been free for a while."""
    return replace(s, trainer=s.trainer and replace(s.trainer, hold_s=HOLD_S if value is None else max(value, 0.0)))


def own_accelerators(s: Scenario, value: float | None) -> Scenario:
    """The job has accelerators of its own: the pool may grow only into the rest."""
    t = s.trainer
    if t is None:
        return s
    most = max((s.accelerators - t.accelerators) // s.pool.accelerators, s.pool.least)
    pool = replace(s.pool, most=min(s.most, most), replicas=min(s.pool.replicas, most))
    return replace(s, pool=pool, loops=replace(s.loops, accelerators=s.accelerators))


def launcher_timeout(s: Scenario, value: float | None) -> Scenario:
    """The launcher waits for as long as restores take: their mean and four standard deviations."""
    t = s.trainer
    if t is None:
        return s
    wait = slowest_restore(t) if value is None else max(value, 1e-3)
    return replace(s, trainer=replace(t, launcher_timeout_s=max(t.launcher_timeout_s, wait)))


def slowest_restore(t: Trainer) -> float:
    """What restores take: their mean and four standard deviations."""
    return t.restore_s * (1 + 4 * t.spread)


def checkpoint_interval(s: Scenario, value: float | None) -> Scenario:
    """The job saves as often as Young's formula says: √(2 × time to save × time between losses), one loss a wave of demand."""
    t = s.trainer
    if t is None:
        return s
    every = sqrt(2 * t.checkpoint_s * s.demand.period_s) if value is None else max(value, t.step_s)
    return replace(s, trainer=replace(t, checkpoint_every_s=max(every, t.step_s)))


def plan_on_works(s: Scenario, value: float | None) -> Scenario:
    """Plans count each request once, however often it was tried."""
    return replace(s, plan=replace(s.plan, counts="works"))


_SEPARATIONS: tuple[tuple[Apply, str], ...] = (
    (retry_budget, "requests that a retry would have saved fail, where failures come together"),
    (deadline_propagation, "what would have been answered late is not answered at all"),
    (one_retry_layer, "failures of the layer between are not tried again"),
    (longer_timeout, "callers wait longer before they hear of a failure"),
    (work_ids, ""),
    (one_owner, "what the others saw must reach the owner another way"),
    (hysteresis, "the pool stays away from its target by as much as the band"),
    (aligned_periods, "less demand is answered later"),
    (margin, "more replicas for the same demand"),
    (own_machines, "a full part cannot use the free slots of another"),
    (hold, "accelerators stay free for so long before they train"),
    (own_accelerators, "demand at its peak finds fewer replicas"),
    (launcher_timeout, "a launch that hangs is noticed later"),
    (checkpoint_interval, "more time goes into checkpoints"),
    (plan_on_works, ""),
)
"""What is done, and what it costs."""

POLICIES = {
    name: Policy(name, (apply.__doc__ or "").split("\n")[0].rstrip("."), apply, costs)
    for apply, costs in _SEPARATIONS
    for name in [apply.__name__.replace("_", "-")]
}
