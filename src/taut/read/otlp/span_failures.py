"""Spans that ended in an error: which, why, and whether the error began there or was passed on from below."""

from __future__ import annotations

from collections import Counter

import numpy as np

from taut.core.tables import Failure, Table
from taut.read.otlp.span_tree import Tree


def failures(tree: Tree, words: list[str]) -> Table:
    """One row for each failed span, in order of time; ``words`` are the classes of all spans."""
    rows = np.flatnonzero(tree.failed)
    if not len(rows):
        return Table(Failure, {}, 0)
    at = tree.origin[tree.step[rows]] + tree.start[rows]
    rows, at = rows[order := np.argsort(at, kind="stable")], at[order]
    passed = np.zeros(len(tree), dtype=np.bool_)
    above = tree.parent[rows]
    passed[above[above >= 0]] = True
    many = Counter(words)
    known = [tree.known.of(row) for row in rows.tolist()]
    return Table(
        Failure,
        {
            "name": np.array([words[row] for row in rows.tolist()], dtype=object),
            "error": np.array([one.error for one in known], dtype=object),
            "rank": tree.rank[rows],
            "step": tree.step[rows],
            "time_ns": at,
            "busy_ns": tree.end[rows] - tree.start[rows],
            "tokens": np.array([max(one.tokens_in, 0) + max(one.tokens_out, 0) for one in known], dtype=np.int64),
            "alike": np.array([many[words[row]] for row in rows.tolist()], dtype=np.int64),
            "passed_on": passed[rows].astype(np.int8),
            "request": (tree.parent[rows] < 0).astype(np.int8),
        },
        len(rows),
    )
