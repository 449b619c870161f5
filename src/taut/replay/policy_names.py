"""Policies of training jobs by name, as far as a measured graph can tell what they would save: NAME or NAME=VALUE.

Names, values and what is usual are those of scenarios (``project/training/policies.py``); a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from taut.core.errors import UsageError
from taut.replay.bounded_policies import LEAST_STEPS, backup_workers, deal_by_speed, overlap
from taut.replay.exact_policies import Measured, Outcome, local_steps, semi_synchronous

MOST = 100_000
"""Steps or replicas, at most."""


class Known(Struct, frozen=True):
    """A policy that a measured graph can be asked about."""

    kind: str
    """Exact or bounded."""
    usual: Callable[[int], float] | None
    """Its value where none is given, by the number of replicas; None where it takes none."""
    low: float
    high: float
    apply: Callable[[Measured, float], Outcome]
    staleness: Callable[[float], int] = lambda _: 0
    """Steps that a gradient may be behind, by the value."""
    whole: bool = True
    """Whether the value is a whole number."""


KNOWN = {
    "local-steps": Known("exact", lambda n: 8, 1, MOST, lambda job, v: local_steps(job, int(v)), lambda v: int(v) - 1),
    "semi-synchronous": Known("exact", lambda n: 2, 1, MOST, lambda job, v: semi_synchronous(job, int(v)), int),
    "backup-workers": Known("bounded", lambda n: max(1, round(0.04 * n)), 1, MOST, lambda job, v: backup_workers(job, int(v))),
    "overlap": Known("bounded", lambda n: 0.9, 0.0, 1.0, overlap, whole=False),
    "deal-by-speed": Known("bounded", None, 0, 0, lambda job, _: deal_by_speed(job)),
}

PLACES = "a run does not tell what it would be on other nodes or cables"
MORE_RANKS = "a run does not tell what ranks it did not have would do"
GATES = "who would wait for whom is not a change of the gates that were recorded"
TRANSFERS = "what fewer bytes, or bytes in another order, would take was not measured"
OTHER = "checkpoints and power are not in the graph of a traced window"
ELSEWHERE = {
    **dict.fromkeys(("packed", "reroute"), PLACES),
    **dict.fromkeys(("spares", "clones", "speculative"), MORE_RANKS),
    **dict.fromkeys(("hierarchical-barrier", "ring", "asynchronous"), GATES),
    **dict.fromkeys(("compression", "priority"), TRANSFERS),
    **dict.fromkeys(
        ("checkpoint-interval", "asynchronous-checkpoints", "memory-checkpoints", "power-smoothing", "power-floor"), OTHER
    ),
}  # fmt: skip
"""Policies that only a scenario can be asked about, and why."""


class Asked(Struct, frozen=True):
    """A policy and its value."""

    name: str
    value: float | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value:g}"

    @property
    def known(self) -> Known:
        """What is known of it."""
        return KNOWN[self.name]

    @property
    def staleness(self) -> int:
        """Steps that a gradient may be behind."""
        return self.known.staleness(self.value or 0.0)


def asked(text: str, units: int) -> Asked:
    """``local-steps=4`` → the policy and its value, the usual one for so many replicas where none is given."""
    name, equals, said = text.strip().partition("=")
    if "," in text:
        raise UsageError(f"--policy {text}: give --policy again for each; a run is asked about one at a time")
    if name in ELSEWHERE:
        raise UsageError(f"--policy {name}: {ELSEWHERE[name]}; a scenario can be asked: {_scenario(text)}")
    if name not in KNOWN:
        raise UsageError(f"--policy {name}: no such policy; a run can be asked about {', '.join(KNOWN)}")
    known = KNOWN[name]
    if known.usual is None:
        if equals:
            raise UsageError(f"--policy {text}: it takes no value; give {name}")
        return Asked(name)
    try:
        value = float(said) if equals else known.usual(units)
    except ValueError:
        raise UsageError(f"--policy {text}: {said!r} is no number") from None
    if not (known.low <= value <= known.high and (not known.whole or value == int(value))):
        number = "a whole number" if known.whole else "a number"
        raise UsageError(f"--policy {text}: give {number} from {known.low:g} to {known.high:g}")
    return Asked(name, value)


def outcome(job: Measured, one: Asked) -> Outcome:
    """What a policy makes of a job; refused in one line where it cannot be told."""
    why = refusal(job, one)
    if why:
        raise UsageError(f"--policy {one}: {why}")
    return one.known.apply(job, one.value or 0.0)


def refusal(job: Measured, one: Asked) -> str:
    """Why a policy cannot be told of this job, with what can; empty if it can."""
    value, steps = int(one.value or 0), len(job.window_ns)
    if job.met.refused:
        return f"{job.met.refused}; a scenario can be asked: {_scenario(str(one))}"
    if one.known.kind == "exact" and not job.consecutive:
        some = ", ".join(map(str, job.graph.steps[:3].tolist()))
        return f"steps are sampled ({some} …): record consecutive ones, or ask a scenario: {_scenario(str(one))}"
    longest = int(job.run_steps.max(initial=0))
    if one.name == "local-steps" and longest < value:
        return f"{longest} steps in a row hold no block of {value}; record more, or ask for fewer"
    if one.name == "semi-synchronous" and longest <= value:
        return f"nobody gets {value} steps ahead in {longest} steps in a row; record more, or ask for fewer"
    if one.name == "backup-workers" and value >= job.met.units:
        return f"of {job.met.units} replicas one at least must be waited for; give fewer"
    if one.name == "deal-by-speed" and steps < LEAST_STEPS:
        return f"{steps} steps tell no speeds; record at least {LEAST_STEPS}"
    return ""


def _scenario(text: str) -> str:
    return f"taut project SCENARIO --policy {text}"
