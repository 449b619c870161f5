"""What was done to a job, and what it really cost: ``truth.json``, which no reader ever opens."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from taut.core.array_types import Floats
from taut.core.errors import RunError

TRUTH = "truth.json"
TRACES = "faulted"
"""Folder inside a lab run that ``taut analyze`` gets; beside it ``healthy-0``, ``healthy-1``: the counterfactual."""
BASELINE = "healthy-0"
"""The part before, whose traces are kept as well: a healthy run of the same job."""

MODES: dict[str, str | None] = {
    "none": None,
    "skew": None,
    "contention": None,
    "slow": "straggler cascade",
    "quota": "straggler cascade",
    "stall": "straggler cascade",
    "link": "straggler cascade",
    "link-one-way": "straggler cascade",
    "latency": "straggler cascade",
    "loss": "straggler cascade",
    "moving": "straggler cascade",
    "loader": "input stall",
    "checkpoint": "checkpoint stall",
    "two": "straggler cascade",
    "drift": "silent degradation",
    "set": "straggler cascade",
    "out-of-step": "partial synchronisation loss",
    "hang": "hang",
    "kill": "hang",
    "hiccups": "structural instability",
    "long-hiccups": "structural instability",
    "both": "structural instability",
    "unequal": "work imbalance",
    "drift-all": "silent degradation",
}
"""Every fault of the lab, and the failure mode that a finding about it must name; None: no finding at all."""
HICCUPS = ("hiccups", "long-hiccups")
"""Hiccups of one law on all ranks; ``both`` has them beside one slow rank."""
NOBODY = ("unequal", "drift-all")
"""Done to all ranks, with nobody to blame: what may be found is that, and nobody's name."""
ON_ALL = (*HICCUPS, "both", *NOBODY)
"""Faults that all ranks have alike."""
CLASSES = {**dict.fromkeys((*HICCUPS, *NOBODY), "structural"), "none": "healthy"}
"""The class that a verdict on such a job must have; of ``both`` that of the larger saving, which is not known before."""
HEALTHY = tuple(fault for fault, mode in MODES.items() if mode is None)
"""Faults that are none: nothing may be found."""
FEW = 9
"""Steps since the onset below which all of them count as they are."""


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """One thing done to the job: what, where, when and how strongly."""

    fault: str
    ranks: tuple[int, ...] = ()
    """The ranks at fault; of a link slow both ways, the rank whose network interface it is."""
    links: tuple[str, ...] = ()
    """Directed links at fault, sender then receiver, ``2:1``; empty where a rank itself is slow."""
    classes: tuple[str, ...] = ()
    first_step: int
    last_step: int
    strength: dict[str, float] = {}
    """How strongly, in named units (``ms``, ``mbit``, ``loss`` …)."""

    @property
    def mode(self) -> str | None:
        """Failure mode that a finding about this must name."""
        return MODES[self.fault]


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one lab run."""

    job: str
    fault: str
    seed: int
    ranks: int
    injected: tuple[Injected, ...]
    modelled: bool = False
    from_start: bool = False
    """The fault was there from the first step on: what is analysed holds no healthy step."""
    places: str = "1"
    """How many ranks, or links, had the fault; ``host``: all ranks of one host."""
    hosts: tuple[str, ...] = ()
    """Host name of every rank; empty where it was not kept."""
    traced_steps: int | None = None
    """Steps that the profiler traced and, below, that only the flight recorder holds, after them; None where not kept."""
    untraced_steps: int = 0
    contention: dict[str, float] = {}
    """How cores were taken away from the ranks on them, in all parts: mean time between stops, shortest and longest, ms."""
    faulted_ns: tuple[int, ...]
    """Wall time of every kept step of the analysed run, ns."""
    healthy_ns: tuple[tuple[int, ...], ...] = ()
    """The same steps without the fault: once per run of the counterfactual, interleaved with the faulted one."""
    skew_ns: dict[int, float] = {}
    """Offset of each shifted rank's clock against the true one in the middle of the analysed run, ns."""
    skew_ppm: dict[int, float] = {}
    overhead: dict[str, float] = {}
    """What recording cost: step time with and without the profiler (ms), bytes written by kind."""
    device: str = "cpu"
    device_step_ns: dict[int, tuple[int, ...]] = {}
    """By rank, the device's time of every kept step of the analysed run by CUDA events at the steps' ends, ns."""
    unprofiled_step_ns: dict[int, tuple[int, ...]] = {}
    """The same steps with the same fault, without the profiler."""
    policy: str = ""
    """The policy under which the job was run again, with the same faults at the same steps: ``local-steps=4``; else empty."""
    policy_ns: tuple[int, ...] = ()
    """Wall time of every kept step under it, ns."""
    late_share: float | None = None
    """Share of the analysed run's wall by which the last to arrive was later than ranks on average; None where not measured."""

    @property
    def wanted_class(self) -> str | None:
        """The class that the verdict must have, where the job is one of those without a culprit; else None."""
        return CLASSES.get(self.fault) if self.policy else None

    @property
    def policy_saved(self) -> float | None:
        """Share of the wall that the policy really saved; None where it was not run."""
        if not self.policy_ns or len(self.policy_ns) != len(self.faulted_ns):
            return None
        return 1 - sum(self.policy_ns) / sum(self.faulted_ns)

    @property
    def onset(self) -> int:
        """Index of the first kept step in which something was done; 0 if nothing was."""
        return max(min((i.first_step for i in self.injected), default=1) - 1, 0)

    @property
    def saving_ns(self) -> tuple[float, float]:
        """(what removing the fault really saved, its standard error), ns; NaN without a counterfactual.

        Over the steps since the onset: before it nothing was done, and any difference is noise. Now and then the machine
        itself pauses, and all ranks with it: in every part the two longest steps count as the third longest.
        """
        if not self.healthy_ns or not self.faulted_ns:
            return float("nan"), float("nan")
        steps = slice(self.onset, min(len(self.faulted_ns), *(len(h) for h in self.healthy_ns)))
        faulted, *parts = (np.array(part[steps], dtype=np.float64) for part in (self.faulted_ns, *self.healthy_ns))
        if self.modelled:
            return float(faulted.sum() - np.mean([part.sum() for part in parts])), 0.0
        healthy = np.array([_without_pauses(part) for part in parts])
        saved = float(_without_pauses(faulted).sum() - healthy.sum(axis=1).mean())
        within = healthy.var(ddof=1) * healthy.shape[1] if healthy.size > 1 else float("nan")
        between = healthy.sum(axis=1).var(ddof=1) if len(healthy) > 1 else 0.0
        return saved, float(np.sqrt(max(within, between) * (1 + 1 / len(healthy))))


def _without_pauses(steps_ns: Floats) -> Floats:
    """Steps, the longest two of them as long as the third; all of them where they are few."""
    return steps_ns if len(steps_ns) < FEW else np.asarray(np.minimum(steps_ns, np.partition(steps_ns, -3)[-3]))


def save(truth: Truth, folder: Path) -> None:
    """Write ``truth.json`` into a lab run."""
    (folder / TRUTH).write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1))


def load(folder: Path) -> Truth:
    """Read a lab run's truth back; one clear line if it is none."""
    try:
        data = (folder / TRUTH).read_bytes()
        if b'"experiment"' in data:
            raise RunError(f"{folder}: a control experiment, scored by taut lab control; read its log with: taut control")
        return msgspec.json.decode(data, type=Truth)
    except FileNotFoundError:
        raise RunError(f"{folder}: not a lab run (no {TRUTH}); make one with: taut lab run -o {folder}") from None
    except msgspec.DecodeError as error:
        raise RunError(f"{folder / TRUTH}: damaged ({str(error)[:100]}); run the lab again") from None
