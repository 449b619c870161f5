"""What can be projected: a workload says how its scenarios are read, scaled, played and changed.

The key of a TOML file tells which it is (``[job]`` trains, ``[serving]`` serves …). Everything above a workload (policies
compared, the threshold, the reserve, evidence) asks only what is declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from taut.core.errors import InputRefused


class Estimate(NamedTuple):
    """A number with the interval that holds it in 95 of 100 seeds; None where it is not known."""

    value: float
    lo: float | None = None
    hi: float | None = None

    def entry(self) -> dict[str, float | None]:
        """As ``--json`` says it."""
        return self._asdict()


INDICES = (
    "effective_throughput_ratio", "energy_per_useful_step", "runtime_variance_index", "sync_delay_amplification",
    "replay_probability", "straggler_cascade_rate",
)  # fmt: skip
"""The six; control scenarios have their own (``taut.control``)."""


class Answer(Protocol):
    """What a scenario gives at a scale."""

    @property
    def ranks(self) -> int:
        """How many it was asked for."""

    def entry(self) -> dict[str, Any]:
        """The forecast in the words of ``--json``."""

    def indices(self) -> Mapping[str, Estimate | None]:
        """The indices by name; None for what this workload does not have."""


@dataclass(frozen=True)
class Policy:
    """A change of a scenario, by name: ``--policy local-steps=8``."""

    name: str
    says: str
    """What it does, in a line."""
    apply: Callable[[Any, float | None], Any]
    """Scenario and the value given, if any → scenario."""
    costs: str = ""
    """What it costs convergence, or risks; empty where it has no such price."""


def _unasked(*_: Any) -> Any:
    """What a workload that has a regime of its own need not have."""
    raise NotImplementedError


@dataclass(frozen=True)
class Workload:
    """One kind of scenario. Ranks are accelerators, whatever they do."""

    name: str
    parse: Callable[[Mapping[str, Any], str, str], tuple[Any, list[str]]]
    """(table, label, text) → (scenario, keys that took their defaults); refuses with the line."""
    ranks: Callable[[Any], int]
    """How many the scenario has as it stands."""
    at: Callable[[Any, int], Any]
    """The scenario on so many ranks; UsageError where they cannot be dealt."""
    forecast: Callable[..., Answer]
    """(scenario, count=, seed=, cores=) → what it gives; as many steps as are right for it where no count is given."""
    louder: Callable[[Any, float], Any] = _unasked
    """The scenario with its jitter scaled; 0 takes it out. Not asked where a workload has a regime of its own."""
    rate: Callable[..., float] = _unasked
    """(scenario, seed) → useful work a second, failures and waiting taken off; quick: the threshold asks often. Not asked
    where a workload has a regime of its own."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    ideal: Callable[[Any], Any] | None = None
    """The scenario in which nothing strays and nothing fails; where not given, that without jitter."""
    smallest: Callable[[Any], int] | None = None
    """The fewest ranks that make sense; where not given, the least divisor of its ranks that can be dealt."""
    sketch: Callable[[Any, int], Answer] | None = None
    """(scenario, seed) → a forecast as quick as ``rate``, of mean values; where not given, a plain forecast."""
    money: Callable[[Any], tuple[float | None, float | None]] | None = None
    """(what a unit of ``rate`` is worth for a second, what the scenario costs a second); None for what is not said."""
    fits: Callable[[Any, str, str], None] | None = None
    """(scenario, label, text): refuses what the devices cannot hold."""
    given: Callable[..., dict[str, Any]] | None = None
    """(scenario, measured, label, text) → what forecast, rate and sketch must know of a run that the file only names."""
    demand: Callable[[Any], bool] | None = None
    """Whether demand is given and shared by however many ranks there are; else each brings its own."""
    seeds: int = 4
    """How often a rate is drawn for the threshold and the reserve: fewer where it takes long, with wider intervals."""
    regime: Callable[[Any, int], dict[str, Any]] | None = None
    """(scenario, seed) → its class and reserve, where accelerators and jitter are not what it is about: then nobody
    asks where the next one stops paying."""
    advice: Callable[[Any, int, Callable[[str], None]], dict[str, Any]] | None = None
    """(scenario, seed, what to call with each stage) → ``advice`` and ``sweep``, where there are loops to separate."""


def fewest(replicas: int, load: str) -> int:
    """One replica; where demand is given, a quarter of those there are: fewer serve next to none of it."""
    return -(-replicas // 4) if load == "fixed" else 1


KEYS = {"job": "training", "serving": "requests.serving", "agents": "requests.agents", "loops": "loops"}
"""Key of a file → folder of this room whose ``workload.py`` has its ``WORKLOAD``."""


def workload_of(table: Mapping[str, Any], label: str) -> Workload:
    """The workload that a scenario file describes."""
    found = [key for key in KEYS if key in table]
    if len(found) != 1:
        why = f"describes {' and '.join(found)}" if found else "describes no workload"
        raise InputRefused(label, why, f"give exactly one of the tables {', '.join(f'[{key}]' for key in KEYS)}")
    workload: Workload = import_module(f"taut.project.{KEYS[found[0]]}.workload").WORKLOAD
    return workload
