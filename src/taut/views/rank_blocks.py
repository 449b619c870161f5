"""Rows of a picture for ranks: one each, or blocks of neighbours where there are many."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.rank_words import rank_label
from taut.graph import Graph

ROWS = 64
"""Rows at most."""


class Blocks(Struct, frozen=True):
    """Neighbouring ranks together."""

    tall: int
    """Ranks in a row."""
    starts: Ints
    """Index of the first rank of each row."""
    labels: list[str]


def rank_blocks(graph: Graph, rows: int = ROWS) -> Blocks:
    """The rows of a graph's ranks."""
    count = len(graph.ranks)
    tall = max(-(-count // rows), 1)
    starts = np.arange(0, count, tall)
    return Blocks(tall, starts, [_label(graph, int(first), min(int(first) + tall, count) - 1) for first in starts])


def _label(graph: Graph, first: int, last: int) -> str:
    """A rank, or neighbours from the first to the last."""
    if first == last:
        return rank_label(int(graph.ranks[first]), graph.members)
    return f"ranks {int(graph.ranks[first])}–{int(graph.ranks[last])}"
