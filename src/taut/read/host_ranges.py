"""Ranges that people name on the host (NVTX, ``record_function``, optimiser steps): they say what a host did between calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Ints
from taut.core.ids import dense
from taut.core.tables import HostRange, Table

MOST_RANGES = 100_000
"""Of more ranges the longest are kept."""
NAME_LENGTH = 80
_OPTIMISER = re.compile(r"^(Optimizer\.\w+)#.*")
_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])")


def range_name(name: str) -> str:
    """What ranges of one kind are called together: without frames, numbers and the class of the optimiser."""
    plain = _OPTIMISER.sub(r"\1", name[:400]).strip("#").strip()
    return _NUMBER.sub("…", plain)[:NAME_LENGTH] or "a range without a name"


def host_ranges(names: Sequence[str], name: Ints, start: Ints, end: Ints, marks: Table) -> Table:
    """Ranges of one rank that are no steps; ``names`` are what the codes in ``name`` stand for."""
    used, ids = dense(name)
    words = np.array([range_name(names[code]) for code in used.tolist()], dtype=object)
    rows = np.flatnonzero((end > start) & ~np.isin(start, marks.start_ns))
    if len(rows) > MOST_RANGES:
        rows = np.sort(rows[np.argsort(start[rows] - end[rows], kind="stable")[:MOST_RANGES]])
    columns = {"name": words[ids[rows]], "start_ns": start[rows], "end_ns": end[rows]}
    return Table(HostRange, columns if len(rows) else {}, len(rows))
