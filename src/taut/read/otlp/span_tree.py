"""Spans of all files → one forest: who called whom, which service instance is which rank, and which request is which step.

A step is one trace, in the order in which the traces began. In a trace in which agents are invoked one after the other
under a longer root (a conversation), every invocation is a step of its own; what lies between them is left out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.columns import Codes
from taut.read.contents import Facts, Service, Spans
from taut.read.limits import near
from taut.read.otlp.span_columns import facts

TURNS = ("invoke_agent", "invoke_workflow")
"""Operations of which several in a row under one root are turns of a conversation."""
UNTOLD = Facts()
RANKS, CELLS = 4096, 20_000_000
"""Most ranks, and most ranks × steps, that are kept."""


@dataclass
class Known:
    """What attributes tell of spans, by row; those of calls and failures are decoded when first asked for."""

    told: dict[int, Facts]
    raw: dict[int, bytes]

    def of(self, row: int) -> Facts:
        """What is known of one span."""
        found = self.told.get(row)
        if found is None:
            raw = self.raw.get(row)
            if raw is None:
                return UNTOLD
            found = self.told[row] = facts(raw)
        return found

    def moved(self, new: Ints) -> Known:
        """The same after rows were renumbered; -1 leaves one out."""
        told, raw = ({int(new[row]): one for row, one in of.items() if new[row] >= 0} for of in (self.told, self.raw))
        return Known(told, raw)  # type: ignore[arg-type]


@dataclass
class Tree:
    """The spans as columns; times in ns from the start of their step's root, in the clock of their own service."""

    trace: list[str]
    span: list[str]
    name: list[str]
    parent: Ints
    rank: Ints
    kind: Ints
    failed: Mask
    start: Ints
    end: Ints
    step: Ints
    origin: Ints
    """Per step: when its root began, ns."""
    known: Known
    links: dict[int, int]
    """Span → the span it points at."""
    services: list[Service]
    """Per rank."""
    counts: Counter[str]
    partial: list[str]

    def __len__(self) -> int:
        return len(self.span)


def grow(parts: Sequence[Spans]) -> Tree:
    """One forest out of the spans of all files."""
    counts: Counter[str] = sum((part.counts for part in parts), Counter())
    partial = [line for part in parts for line in part.partial]
    good, keys = _good(parts, counts)
    columns = _columns(parts, good)
    known = Known({}, {})
    links: dict[int, str] = {}
    for part, rows, base in zip(parts, good, np.cumsum([0, *map(len, good[:-1])]).tolist(), strict=True):
        place = _place(rows, len(part.span), base)
        known.told.update((int(place[i]), one) for i, one in part.facts.items() if place[i] >= 0)
        known.raw.update((int(place[i]), raw) for i, raw in part.raw.items() if place[i] >= 0)
        links.update((int(place[i]), "".join(to)) for i, to in part.links.items() if place[i] >= 0)
    row_of = {key: row for row, key in enumerate(keys)}
    parent = _parents(columns, row_of)
    orphans = int(np.count_nonzero((parent < 0) & np.fromiter(map(bool, columns["parent"]), np.bool_, len(parent))))
    if orphans:
        lost = f"{orphans:,} of {len(keys):,} spans name a parent that is not in the files: nobody is seen to wait for them"
        partial.append(lost)
        counts["spans without their parent"] = orphans
    top = _tops(parent)
    circle = top < 0
    parent[circle], top[circle] = NULL, np.flatnonzero(circle)
    counts["spans in a circle of parents"] += int(circle.sum())
    rank, services = _ranks(parts, columns["part"], columns["service"])
    start, end = columns["start_ns"], columns["end_ns"]
    key, keep = _steps(columns["trace"], parent, top, start, end, known.told, counts)
    step, origin = _ordered(key, keep, parent, start)
    if len(origin) * len(services) > CELLS:
        why = f"{len(services):,} services × {len(origin):,} traces are too many at once"
        raise TooLarge(parts[0].label, why, "analyze a shorter time, or fewer services")
    tree = Tree(
        columns["trace"], columns["span"], columns["name"], parent, rank, columns["kind"], columns["failed"],
        start, end, step, origin, known, {row: row_of[key] for row, key in links.items() if key in row_of},
        services, +counts, partial,
    )  # fmt: skip
    return _cut(tree, keep)


def _good(parts: Sequence[Spans], counts: Counter[str]) -> tuple[list[Ints], list[str]]:
    """Rows of every file without spans that have no time or were exported twice, and the keys of what is left."""
    good: list[Ints] = []
    keys: list[str] = []
    seen: set[str] = set()
    for part in parts:
        valid = (part.start_ns >= 0) & (part.end_ns >= part.start_ns)
        counts["dropped: no time or negative duration"] += int((~valid).sum())
        kept = near(part.start_ns[valid], part.end_ns[valid])
        counts["dropped: time out of range"] += int((~kept).sum())
        valid[valid] = kept
        mine = list(map(str.__add__, part.trace, part.span))
        fresh = set(mine)
        if not valid.all() or len(fresh) < len(mine) or not seen.isdisjoint(fresh):
            for i in np.flatnonzero(valid).tolist():
                valid[i] = mine[i] not in seen
                seen.add(mine[i])
                counts["dropped: exported twice"] += not valid[i]
        else:
            seen = seen | fresh if seen else fresh
        rows = np.flatnonzero(valid)
        good.append(rows)
        keys += mine if len(rows) == len(mine) else [mine[i] for i in rows.tolist()]
    counts["spans"] = len(keys)
    if not keys:
        raise InputRefused(parts[0].label, "no span has a start and an end", "export spans after they ended")
    return good, keys


def _columns(parts: Sequence[Spans], good: list[Ints]) -> dict[str, Any]:
    """Columns of all files, one after the other."""
    columns: dict[str, Any] = {}
    for name in ("trace", "span", "parent", "name"):
        columns[name] = []
        for part, rows in zip(parts, good, strict=True):
            column = getattr(part, name)
            columns[name] += column if len(rows) == len(column) else [column[i] for i in rows.tolist()]
    types = {"kind": np.int64, "failed": np.bool_, "start_ns": np.int64, "end_ns": np.int64, "service": np.int64}
    for name, dtype in types.items():
        chunks: list[Any] = [np.array(getattr(part, name), dtype=dtype)[rows] for part, rows in zip(parts, good, strict=True)]
        columns[name] = np.concatenate(chunks)
    columns["part"] = np.repeat(np.arange(len(parts)), [len(rows) for rows in good])
    return columns


def _place(rows: Ints, total: int, base: int) -> Ints:
    """New row of every row of a file, -1 for those left out."""
    place = np.full(total, NULL, dtype=np.int64)
    place[rows] = base + np.arange(len(rows))
    return place


def _parents(columns: dict[str, Any], row_of: dict[str, int]) -> Ints:
    pairs = zip(columns["trace"], columns["parent"], strict=True)
    found = np.array([row_of.get(trace + up, NULL) if up else NULL for trace, up in pairs], dtype=np.int64)
    return np.where(found == np.arange(len(found)), NULL, found)


def _tops(parent: Ints) -> Ints:
    """The topmost ancestor of every span, -1 for those in a circle."""
    n = len(parent)
    at = np.where(parent < 0, np.arange(n), parent)
    for _ in range(n.bit_length() + 1):
        at = at[at]
    return np.where(parent[at] < 0, at, NULL)


def _ranks(parts: Sequence[Spans], part: Ints, service: Ints) -> tuple[Ints, list[Service]]:
    """Service instances in the order of their names; a rank is one of them."""
    instances: Codes = Codes()
    offset = np.cumsum([0] + [len(p.services) for p in parts])
    code = instances.of((s.name, s.instance) for p in parts for s in p.services)
    used = np.unique(code[offset[part] + service])
    if len(used) > RANKS:
        why = f"{len(used):,} service instances are more than {RANKS:,}"
        raise TooLarge(parts[0].label, why, "analyze fewer services, or set service.instance.id to something that stays")
    one: dict[int, Service] = {}
    for c, s in zip(code.tolist(), (s for p in parts for s in p.services), strict=True):
        one.setdefault(c, s)
    order = sorted(used.tolist(), key=lambda c: (one[c].name, _natural(one[c].instance)))
    rank = np.full(len(instances), NULL, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[code[offset[part] + service]], [one[c] for c in order]


def _natural(text: str) -> tuple[int, str]:
    """Sorts ``2`` before ``10``."""
    digits = "".join(c for c in text if c.isdecimal())[:18]
    return (int(digits) if digits and digits.isascii() else 0), text


def _steps(
    trace: list[str], parent: Ints, top: Ints, start: Ints, end: Ints, told: dict[int, Facts], counts: Counter[str]
) -> tuple[Ints, Mask]:
    """(key of every span's step, whether it belongs to one); cuts the tree above the turns of a conversation."""
    key = Codes().of(trace)
    keep = np.ones(len(key), dtype=np.bool_)
    turns: dict[int, list[int]] = {}
    for row, known in told.items():
        if known.operation in TURNS and parent[row] >= 0 and parent[row] == top[row]:
            turns.setdefault(int(key[row]), []).append(row)
    several = {k: sorted(rows, key=lambda r: int(start[r])) for k, rows in turns.items() if len(rows) > 1}
    spoken = [
        rows for rows in several.values()
        if all(start[b] >= end[a] for a, b in itertools.pairwise(rows)) and len({int(top[r]) for r in rows}) == 1
    ]  # fmt: skip
    if not spoken:
        return key, keep
    cut = np.array([row for rows in spoken for row in rows], dtype=np.int64)
    parent[cut] = NULL
    above = _tops(parent)
    in_turn = np.zeros(len(key), dtype=np.bool_)
    in_turn[cut] = True
    talk = np.isin(key, key[cut])
    keep = ~talk | in_turn[above]
    counts["spans between the turns of a conversation"] = int((~keep).sum())
    return np.where(talk, len(key) + above, key), keep


def _ordered(key: Ints, keep: Mask, parent: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Steps numbered by the start of their root: (step of every span, origin of every step)."""
    roots = np.flatnonzero((parent < 0) & keep)
    roots = roots[np.argsort(start[roots], kind="stable")]
    first = roots[np.sort(np.unique(key[roots], return_index=True)[1])]
    number = {int(k): i for i, k in enumerate(key[first].tolist())}
    return np.array([number.get(k, NULL) for k in key.tolist()], dtype=np.int64), start[first]


def _cut(tree: Tree, keep: Mask) -> Tree:
    """The tree without what belongs to no step, its times from the start of their step."""
    if not keep.all():
        rows = np.flatnonzero(keep)
        new = np.full(len(keep) + 1, NULL, dtype=np.int64)
        new[rows] = np.arange(len(rows))
        for name in ("trace", "span", "name"):
            column = getattr(tree, name)
            setattr(tree, name, [column[i] for i in rows.tolist()])
        for name in ("rank", "kind", "failed", "start", "end", "step"):
            setattr(tree, name, getattr(tree, name)[rows])
        tree.parent = new[tree.parent[rows]]
        tree.known = tree.known.moved(new)
        tree.links = {int(new[a]): int(new[b]) for a, b in tree.links.items() if new[a] >= 0 and new[b] >= 0}
    tree.start, tree.end = tree.start - tree.origin[tree.step], tree.end - tree.origin[tree.step]
    return tree
