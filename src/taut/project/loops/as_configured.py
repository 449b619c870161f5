"""The loops of a scenario as a configuration has them, so that they can be reviewed without simulating them.

Names, targets and knobs are those of the logs that a simulated run writes. Given is only what the review judges rightly: a
pool that hears of callers who hang up, or that bounds its queue, is not the one of the retry-load equation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taut.project.loops.policies import longest, slowest_restore
from taut.project.loops.scenario import Autoscaler, Client, Scenario
from taut.project.loops.trainer import TARGET
from taut.read.actions.loops_config import Loop

REPLICAS, REFUSED, ALLOCATION, SLOT = "replicas", "refused share", "allocation", "slot"
"""Knobs, as logs name them."""
MACHINES = "machines"


def as_configured(s: Scenario) -> tuple[Loop, ...]:
    """All loops of a scenario."""
    return (*_clients(s), *_sizes(s), *_gates(s), *_training(s), *_schedulers(s))


def _clients(s: Scenario) -> Iterator[Loop]:
    """Layers of callers; the outermost has the deadline of the demand, unless what lies below is told of it."""
    inner = [one.name for one in s.client[1:]]
    for k, one in enumerate(s.client):
        told = k > 0 and s.client[k - 1].passes_deadline
        yield Loop(
            one.name,
            "retry",
            target=s.pool.name,
            # What is told by when it must have ended stops then: its own patience limits nothing.
            timeout_s=None if told else one.timeout_s,
            retries=one.retries,
            back_off_s=_mean_pause(one),
            budget_share=one.budget_share,
            deadline_s=s.demand.deadline_s if k == 0 and not one.passes_deadline else None,
            calls=tuple(inner[k : k + 1]),
            per_s=s.demand.per_s if k == 0 and _serves_in_vain(s) else None,
            serves_per_s=s.most / s.pool.service_s if k == 0 and _serves_in_vain(s) else None,
        )


def _mean_pause(layer: Client) -> float:
    """The pause before each retry that makes as much of all of them together."""
    pauses = longest(layer) - (layer.retries + 1) * layer.timeout_s
    return pauses / layer.retries if layer.retries else layer.back_off_s


def _serves_in_vain(s: Scenario) -> bool:
    """Whether what nobody waits for any more is served all the same, behind a queue without end."""
    return not s.pool.cancels and not s.pool.queue


def _sizes(s: Scenario) -> Iterator[Loop]:
    """Whoever sets the size of the pool."""
    pool, start_s = s.pool.name, s.pool.start_s
    for a in s.autoscaler:
        late = None if _waits_long_enough(a, start_s) else start_s
        yield Loop(a.name, "autoscaler", REPLICAS, pool, period_s=a.period_s, look_back_s=a.look_back_s, delay_s=late)
    if s.plan.utilisation is not None:
        every = s.plan.window_s
        yield Loop(s.plan.name, "orchestrator", REPLICAS, pool, period_s=every, look_back_s=every, delay_s=start_s)


def _waits_long_enough(a: Autoscaler, start_s: float) -> bool:
    """Whether it sees what it did before it decides against it, as ``aligned-periods`` has it."""
    up = a.only == "down" or a.signal != "latency" or a.up_cooldown_s >= start_s
    down = a.only != "both" or a.down_cooldown_s >= start_s + a.look_back_s
    return up and down


def _gates(s: Scenario) -> Iterator[Loop]:
    if s.gate:
        yield Loop(s.gate.name, "policy", REFUSED, s.pool.name, period_s=s.gate.period_s, look_back_s=s.gate.look_back_s)


def _training(s: Scenario) -> Iterator[Loop]:
    """The launcher of the training job, the restore that it waits for, and who takes its accelerators for the pool."""
    t = s.trainer
    if t is None:
        return
    if s.most * s.pool.accelerators + t.accelerators > s.accelerators:
        yield Loop("priority", "scheduler", ALLOCATION, TARGET)
    yield Loop(
        "launcher",
        "orchestrator",
        ALLOCATION,
        TARGET,
        timeout_s=t.launcher_timeout_s,
        retries=t.restarts,
        back_off_s=t.retry_s,
        calls=("restore",),
    )
    yield Loop("restore", "runtime", target=TARGET, timeout_s=slowest_restore(t))


def _schedulers(s: Scenario) -> Sequence[Loop]:
    """Schedulers place on machines of their own, or all on the same."""
    return [
        Loop(one.name, "scheduler", SLOT, f"{MACHINES} of {one.name}" if s.machines.owned else MACHINES) for one in s.scheduler
    ]
