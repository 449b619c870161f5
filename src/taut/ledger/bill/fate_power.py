"""How much power an accelerator draws in a fate: the class of each, of traces and of job logs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from taut.core.array_types import Floats
from taut.core.ids import word_ids
from taut.core.tables import Table
from taut.ledger.charge import CATEGORIES

POWER = {one.fate: one.power for one in CATEGORIES} | {
    "kept": "load",
    "discarded at most": "load",
    "unfinished": "load",
    "recompute": "load",
    "checkpoint save": "stall",
    "restore": "idle",
    "hold/init": "idle",
    "detect+recover": "idle",
    "down": "idle",
    "spare": "idle",
}
"""Class of power by fate, those of job logs too."""


def by_fate(held: Table, value: Mapping[str, float]) -> Floats:
    """A number for each row, by its fate."""
    code, fates = word_ids(held.fate)
    return np.array([value[fate] for fate in fates], np.float64)[code] if len(held) else np.zeros(0)
