"""Metrics that a user names: a file elsewhere than beside the traces, or a Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from taut.core.errors import InputRefused, UsageError
from taut.core.tables import Trace
from taut.read import files
from taut.read.contents import Metrics
from taut.read.metrics import reader as metrics
from taut.read.metrics.series import USUAL, Map, map_of

ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
"""What names a server, not a file."""


def load(given: Sequence[str | Path], trace: Trace, places: str | None) -> list[Metrics]:
    """What every file, folder or address holds; refuses one that holds nothing."""
    if places is not None and not given:
        raise UsageError("--map needs --metrics: it says which of their labels make a rank")
    mapped = USUAL if places is None else map_of(places)
    return [found for name in map(str, given) for found in _of(name, trace, mapped)]


def _of(name: str, trace: Trace, mapped: Map) -> list[Metrics]:
    if ADDRESS.match(name):
        from taut.read.metrics.prometheus_live import fetch

        return [fetch(name, trace, mapped)]
    found = [one for path in files.expand([name]) for one in _in_file(path, mapped)]
    if not found:
        raise InputRefused(name, "no metrics in it", "docs/metrics.md says what taut reads")
    return found


def _in_file(path: str, mapped: Map) -> Iterator[Metrics]:
    for member in files.members(path):
        parquet = member.head[:4] == metrics.PARQUET
        if parquet or metrics.sniff(member.head):
            data = member.read()
            if not parquet or metrics.is_parquet(data):
                yield metrics.load(data, member.label, mapped)
