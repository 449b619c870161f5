"""Keys of ``[failure]`` that are not known exactly: ``[low, mode, high]`` is a triangle, ``[low, high]`` log-uniform.

The scenario itself has the mode, or the geometric mean, in their place. Keys that were not given have a default range around
their default value. All are drawn together, as points of one Latin hypercube: each key's range is cut into as many parts of
equal chance as there are draws, and every part is met once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log, sqrt
from typing import Any

import numpy as np

from taut.core.array_types import Floats
from taut.core.errors import InputRefused
from taut.core.strict_toml import place

DRAWS = 32
# Keys that may be ranges: how often things fail, how long it takes to come back, what a save costs.
KEYS = (
    "device_per_1000_node_days", "node_per_1000_node_days", "software_per_1000_node_days", "rack_per_1000_rack_days",
    "switch_per_1000_switch_days", "pod_per_1000_pod_days", "detect_s", "repair_hours", "outage_hours", "reschedule_s",
    "restore_s", "checkpoint_s", "checkpoint_overlap", "warmup_share", "warmup_steps", "heat_share", "heat_steps",
)  # fmt: skip
# Key → (range if it was not given, source). The middle of each, in logarithms, is the key's default.
DEFAULTS: Mapping[str, tuple[tuple[float, float], str]] = {
    "detect_s": ((24.0, 600.0), "a heartbeat, to the ten minutes after which torch.distributed gives up; MegaScale "
                 "(arXiv:2402.15627) takes less than ten minutes to detect and diagnose"),
    "reschedule_s": ((36.0, 900.0), "standby nodes, to a quarter of an hour: MegaScale catches up within 15 minutes, Kokolis "
                     "et al. (arXiv:2410.21680) assume 5 minutes from failure to start"),
    "restore_s": ((30.0, 480.0), "an assumption: a factor of four either way"),
    "repair_hours": ((2.0, 72.0), "health checks of about two hours before a node is given back (SageMaker HyperPod), to a "
                     "part that is sent for: an assumption"),
    "outage_hours": ((1.0, 16.0), "an assumption: a factor of four either way"),
}  # fmt: skip

# A key and its range.
Spread = tuple[str, tuple[float, ...]]


def taken(table: Mapping[str, Any], label: str, text: str) -> tuple[dict[str, Any], list[Spread]]:
    """The table with one number for every key, and the ranges that stood there."""
    given = table.get("failure")
    if not isinstance(given, Mapping):
        return dict(table), []
    if "ranges" in given:
        known = "a range is given in place of a key's number, [low, mode, high] or [low, high]"
        raise InputRefused(place(label, text, "failure.ranges"), "no such key: failure.ranges", known)
    ranges = [
        (key, _checked(key, value, place(label, text, f"failure.{key}")))
        for key, value in given.items()
        if isinstance(value, (list, tuple))
    ]
    return {**table, "failure": {**given, **{key: middle(ends) for key, ends in ranges}}}, ranges


def _checked(key: str, value: Sequence[Any], where: str) -> tuple[float, ...]:
    """A range that can be drawn from."""
    if key not in KEYS:
        raise InputRefused(where, f"failure.{key}: takes one number", f"ranges may be given for {', '.join(KEYS)}")
    if len(value) not in (2, 3) or not all(type(x) in (int, float) and isfinite(x) for x in value):
        raise InputRefused(where, f"failure.{key}: {list(value)!r} is no range", "give [low, mode, high] or [low, high]")
    ends = tuple(float(x) for x in value)
    if list(ends) != sorted(ends) or ends[0] < 0 or (len(ends) == 2 and ends[0] == 0):
        least = "above 0" if len(ends) == 2 else "0 or more"
        raise InputRefused(where, f"failure.{key}: {list(value)!r} is no range", f"give them from low to high, {least}")
    return ends


def middle(ends: Sequence[float]) -> float:
    """What stands for a range where one number is needed: the mode, or the geometric mean."""
    return ends[1] if len(ends) == 3 else sqrt(ends[0] * ends[1])


def at_end(table: Mapping[str, Any], ranges: Sequence[Spread], end: int) -> dict[str, Any]:
    """The table with every range at one of its ends."""
    return {**table, "failure": {**table["failure"], **{key: ends[end] for key, ends in ranges}}} if ranges else dict(table)


def with_defaults(ranges: Sequence[Spread], defaults: Sequence[str]) -> tuple[Spread, ...]:
    """The ranges that were given, and those of keys that were not."""
    return (*ranges, *((key, ends) for key, (ends, _) in DEFAULTS.items() if f"failure.{key}" in defaults))


def draws(ranges: Sequence[Spread], seed: int, count: int = DRAWS) -> list[dict[str, float]]:
    """Values of all uncertain keys, so many times."""
    rng = np.random.default_rng((seed, 21))
    columns = {key: _quantiles(ends, (rng.permutation(count) + 0.5) / count) for key, ends in ranges}
    return [{key: float(column[i]) for key, column in columns.items()} for i in range(count)] if columns else []


def _quantiles(ends: Sequence[float], chance: Floats) -> Floats:
    low, high = ends[0], ends[-1]
    if len(ends) == 2:
        return np.exp(log(low) + chance * (log(high) - log(low)))
    width, left = high - low, ends[1] - low
    if width == 0:
        return np.full_like(chance, low)
    # Of a triangle, the chance to lie below x is (x - low)² / (width · left), up to the mode; mirrored above it.
    below = low + np.sqrt(chance * width * left)
    return np.where(chance * width < left, below, high - np.sqrt((1 - chance) * width * (width - left)))
