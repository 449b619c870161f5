"""What can be projected: a workload says how its scenarios are read, scaled, simulated and changed.

The key of a TOML file tells which it is (``[job]`` trains, ``[serving]`` serves …). Everything above a workload (policies
compared, the threshold, the reserve, evidence) asks only what is declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from taut.core.errors import InputRefused, UsageError
from taut.project.policy import Described, Policy, S
from taut.result import types

if TYPE_CHECKING:
    from taut.core.array_types import Floats
    from taut.project.noise import RunNoise
    from taut.read.actions.loops_config import Loop


class Estimate(NamedTuple):
    """A number with the interval that holds it in 95 of 100 seeds; None where it is not known."""

    value: float
    lo: float | None = None
    hi: float | None = None

    def as_result(self) -> types.Estimate:
        """Its part of the result."""
        return types.Estimate(value=self.value, lo=self.lo, hi=self.hi)


# The six; control scenarios have their own (``taut.control``).
INDICES = (
    "effective_throughput_ratio", "energy_per_useful_step", "runtime_variance_index", "sync_delay_amplification",
    "replay_probability", "straggler_cascade_rate",
)  # fmt: skip


@dataclass(frozen=True)
class Sampling:
    """How a forecast is drawn."""

    count: int | None = None
    """Steps, requests or tasks; as many as are right for the scenario where not given."""
    seed: int = 0
    cores: int = 1
    residuals: Floats | None = None
    """Measured work over its reference, where noise is drawn from a run."""
    seeds: int = 0
    """Draws of every rate of a threshold or reserve; 0 for as many as the workload says."""


DEFAULT = Sampling()


class Answer(Protocol):
    """What a scenario gives at a scale."""

    @property
    def ranks(self) -> int:
        """How many it was asked for."""

    def entry(self) -> types.Forecast:
        """Its part of the result."""

    def indices(self) -> Mapping[str, Estimate | None]:
        """The indices by name; None for what this workload does not have."""

    @property
    def best(self) -> float:
        """What throughput is measured by: what it would be without jitter and failures, in the workload's own measure."""

    def measured_by(self, best: float) -> Answer:
        """The same answer, its throughput measured by the best of another.

        A change that delivers more then never lowers the effective throughput ratio, which ends at 1.
        """


class Workload(Protocol[S]):
    """One kind of scenario. Ranks are accelerators, whatever they do.

    A workload either has a rate and jitter that can be scaled, from which threshold and reserve follow, or a regime of its own.
    """

    name: str
    noun: str = "rank"
    """What an accelerator is called."""
    piece: str = "step"
    """What it does again and again."""
    policies: Mapping[str, Policy[S]]
    seeds: int = 4
    """How often a rate is drawn for the threshold and the reserve: fewer where it takes long, with wider intervals."""
    long_rates: bool = False
    """Whether a rate takes so long that threads are worth their while."""
    has_advice: bool = False
    """Whether ``--advice`` applies; then policies are tried one by one only with it."""
    places_each_policy: bool = False
    """Whether regime and threshold of each policy alone are quick enough to be always sought."""

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[S, list[str]]:
        """The scenario, and the keys that took their defaults; refuses with the line."""

    def ranks(self, s: S) -> int:
        """How many the scenario has as it stands."""

    def at(self, s: S, ranks: int) -> S:
        """The scenario on so many ranks; UsageError where it cannot be spread over them."""

    def forecast(self, s: S, how: Sampling) -> Answer:
        """What it gives."""

    def scale_jitter(self, s: S, factor: float) -> S:
        """The scenario with its jitter scaled; 0 takes it out. Not called where the workload has a regime of its own."""
        raise AssertionError(f"{self.name} has a regime of its own")

    def rate(self, s: S, how: Sampling) -> float:
        """Useful work a second, failures and waiting taken off; called often. Not called where there is an own regime."""
        raise AssertionError(f"{self.name} has a regime of its own")

    def mechanisms(self, s: S) -> Mapping[str, Callable[[S, float], S]]:
        """What takes work away as a job grows, by name: the scenario with so many times of it, 0 to switch it off."""
        return {}

    def uncertain_rates(self, s: S, how: Sampling) -> Floats | None:
        """The rate with each joint draw of what the scenario gives as a range, over that with their middle values; None where
        nothing is given so."""
        return None

    def ideal(self, s: S) -> S:
        """The scenario without jitter and without failures."""
        return self.scale_jitter(s, 0.0)

    def smallest(self, s: S) -> int:
        """The fewest ranks that make sense."""
        ranks = self.ranks(s)
        return next(n for n in range(1, ranks + 1) if ranks % n == 0 and self.can_run_on(s, n))

    def can_run_on(self, s: S, ranks: int) -> bool:
        """Whether the scenario can be spread over so many ranks."""
        try:
            self.at(s, ranks)
        except UsageError:
            return False
        return True

    def sketch(self, s: S, how: Sampling) -> Answer:
        """A forecast of mean values, as fast as ``rate`` where the workload has one."""
        return self.forecast(s, how)

    def sketches_well(self, s: S) -> bool:
        """Whether a sketch says of rates, costs and energy what a forecast does, to a few thousandths."""
        return False

    def value_and_cost(self, s: S) -> tuple[float | None, float | None]:
        """What a unit of ``rate`` is worth for a second, and what the scenario costs a second; None for what is not given."""
        return None, None

    def check_memory(self, s: S, label: str, text: str) -> str | None:
        """Refuse what the devices cannot hold; a line where they may not."""
        return None

    def noise_from_run(
        self, s: S, measured: Callable[[str], RunNoise] | None, label: str, text: str
    ) -> tuple[S, Floats | None]:
        """(the scenario with the hiccups of the run that it names for its noise, read with ``measured``; residuals of it).

        None where it names none.
        """
        return s, None

    def has_fixed_demand(self, s: S) -> bool:
        """Whether however many ranks there are share a given demand; else each brings its own."""
        return False

    def regime(self, s: S, seed: int) -> types.Regime | None:
        """Its class and reserve, where these do not follow from accelerators and jitter; then it has no threshold."""
        return None

    def loops(self, s: S) -> tuple[Loop, ...]:
        """Its control loops as a configuration has them; none where it has none that could fight."""
        return ()

    def advice(self, s: S, seed: int, stage: Callable[[str], None]) -> tuple[list[types.Advice], list[types.Swept]]:
        """What separates loops, and a sweep of capacity; ``stage`` is called with what is being tried."""
        return [], []


def fewest(replicas: int, load: str) -> int:
    """One replica; where demand is given, a quarter of those there are: fewer serve next to none of it."""
    return -(-replicas // 4) if load == "fixed" else 1


# Key of a file → folder of this room whose ``workload.py`` has its ``WORKLOAD``.
KEYS = {"job": "training", "serving": "requests.serving", "agents": "requests.agents", "loops": "loops"}


def workload_of(table: Mapping[str, Any], label: str) -> Workload[Described]:
    """The workload that a scenario file describes."""
    found = [key for key in KEYS if key in table]
    if len(found) != 1:
        why = f"describes {' and '.join(found)}" if found else "describes no workload"
        raise InputRefused(label, why, f"give exactly one of the tables {', '.join(f'[{key}]' for key in KEYS)}")
    workload: Workload[Described] = import_module(f"taut.project.{KEYS[found[0]]}.workload").WORKLOAD
    return workload
