"""Own times as series that are compared: the logarithm of each over the median of its peers in the same step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.replay.own_time import median_of_others

FLOOR = 0.1
"""Of the median own time: added before logarithms, so that idle ranks make no noise (theory.md, *One model*: c)."""


class Place(Struct, frozen=True):
    """Ranks, as rows of own times, that share what could be at fault."""

    kind: str
    name: str
    rows: tuple[int, ...]


class Series(Struct, frozen=True):
    """Own times of all ranks, and who is compared with whom."""

    own_ns: Floats
    role: Ints
    floor_ns: float

    @classmethod
    def of(cls, own_ns: Floats, role: Ints) -> Series:
        """Series of own times; ranks without peers of their role are compared with all ranks, without their habits."""
        return cls(own_ns, role, FLOOR * float(np.nanmedian(own_ns)) if np.isfinite(own_ns).any() else 1.0)

    @property
    def has_peers(self) -> Mask:
        """Whether another rank has the role of each rank."""
        found: Mask = np.bincount(self.role)[self.role] > 1
        return found

    def logs(self, own_ns: Floats) -> Floats:
        """Logarithms of own times; NaN where a rank did nothing."""
        found: Floats = np.log(np.maximum(own_ns, 0) + self.floor_ns)
        return found

    def excess(self, own_ns: Floats) -> Floats:
        """Of each rank and step: the logarithm of own time less that of its peers; its median where a rank did nothing."""
        logs, alone = self.logs(own_ns), ~self.has_peers
        if alone.any():
            logs = np.where(alone[:, None], logs - np.nanmedian(logs, axis=1)[:, None], logs)
        reference = median_of_others(logs, self.role)
        if alone.any():
            reference[alone] = median_of_others(logs - np.nanmedian(logs, axis=1)[:, None], np.zeros_like(self.role))[alone]
        return filled(logs - reference)

    def excess_of(self, own_ns: Floats, rows: Sequence[int]) -> Floats:
        """The same of a place: of several ranks their median, less that of the other ranks of their roles."""
        if len(rows) == 1:
            row: Floats = self.excess(own_ns)[rows[0]]
            return row
        logs, inside = self.logs(own_ns), list(rows)
        roles = np.unique(self.role[inside])
        others = np.setdiff1d(np.flatnonzero(np.isin(self.role, roles)), inside)
        if len(roles) > 1:  # roles differ in length: each against its own level elsewhere
            for role in roles:
                members = np.flatnonzero(self.role == role)
                outside = np.setdiff1d(members, inside)
                logs[members] -= np.nanmedian(logs[outside if len(outside) else members])
        apart: Floats = np.nanmedian(logs[inside], axis=0) - np.nanmedian(logs[others], axis=0)
        found: Floats = filled(apart[None])[0]
        return found


def filled(series: Floats) -> Floats:
    """Series with their own median where they have no value; zero where they have none at all."""
    missing = np.isnan(series)
    if not missing.any():
        return series
    some, level = ~missing.all(axis=1), np.zeros(len(series))
    level[some] = np.nanmedian(series[some], axis=1)
    out: Floats = np.where(missing, level[:, None], series)
    return out
