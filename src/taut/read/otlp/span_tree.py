"""Spans of all files → one forest: who called whom, which service instance is which rank, and which request is which step.

A step is one trace, in the order in which the traces began. In a trace in which agents are invoked one after the other
under a longer root (a conversation), every invocation is a step of its own; what lies between them is left out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.ids import rows_of_ids
from taut.core.tables import NULL
from taut.read.columns import Codes
from taut.read.contents import Facts, Service, Spans
from taut.read.limits import near
from taut.read.otlp.span_columns import facts

# Operations of which several in a row under one root are turns of a conversation.
TURNS = ("invoke_agent", "invoke_workflow")
NO_FACTS = Facts()
# Most ranks, and most ranks × steps, that are kept.
RANKS, CELLS = 4096, 20_000_000


@dataclass
class Known:
    """What attributes record of spans, by row; those of calls and failures are decoded when first asked for."""

    facts: dict[int, Facts]
    raw: dict[int, bytes]

    def of(self, row: int) -> Facts:
        """What is known of one span."""
        found = self.facts.get(row)
        if found is None:
            raw = self.raw.get(row)
            if raw is None:
                return NO_FACTS
            found = self.facts[row] = facts(raw)
        return found

    def renumbered(self, new: Ints) -> Known:
        """The same with new numbers for the rows; -1 leaves one out."""
        return Known(
            {int(new[row]): one for row, one in self.facts.items() if new[row] >= 0},
            {int(new[row]): raw for row, raw in self.raw.items() if new[row] >= 0},
        )


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


def build_tree(parts: Sequence[Spans]) -> Tree:
    """One forest out of the spans of all files."""
    counts: Counter[str] = sum((part.counts for part in parts), Counter())
    partial = [line for part in parts for line in part.partial]
    usable, keys = _usable_rows(parts, counts)
    known, links = _known(parts, usable)
    row_of = {key: row for row, key in enumerate(keys)}
    trace, above = _texts([part.trace for part in parts], usable), _texts([part.parent for part in parts], usable)
    parent = _parents(trace, above, row_of)
    orphans = int(np.count_nonzero((parent < 0) & np.fromiter(map(bool, above), np.bool_, len(parent))))
    if orphans:
        lost = f"{orphans:,} of {len(keys):,} spans name a parent that is not in the files: nobody is seen to wait for them"
        partial.append(lost)
        counts["spans without their parent"] = orphans
    top = _tops(parent)
    circle = top < 0
    parent[circle], top[circle] = NULL, np.flatnonzero(circle)
    counts["spans in a circle of parents"] += int(circle.sum())
    rank, services = _ranks(parts, usable)
    start, end = (_numbers(columns, usable) for columns in ([p.start_ns for p in parts], [p.end_ns for p in parts]))
    key, keep = _steps(trace, parent, top, start, end, known.facts, counts)
    step, origin = _ordered(key, keep, parent, start)
    if len(origin) * len(services) > CELLS:
        why = f"{len(services):,} services × {len(origin):,} traces are too many at once"
        raise TooLarge(parts[0].label, why, "analyze a shorter time, or fewer services")
    tree = Tree(
        trace=trace,
        span=_texts([part.span for part in parts], usable),
        name=_texts([part.name for part in parts], usable),
        parent=parent,
        rank=rank,
        kind=_numbers([part.kind for part in parts], usable),
        failed=_numbers([part.failed for part in parts], usable).astype(np.bool_),
        start=start,
        end=end,
        step=step,
        origin=origin,
        known=known,
        links={row: row_of[key] for row, key in links.items() if key in row_of},
        services=services,
        counts=+counts,
        partial=partial,
    )
    return _relative(tree, keep)


def _usable_rows(parts: Sequence[Spans], counts: Counter[str]) -> tuple[list[Ints], list[str]]:
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


def _known(parts: Sequence[Spans], usable: Sequence[Ints]) -> tuple[Known, dict[int, str]]:
    """(what attributes record, the key of the span that a link points at), by the rows of all files together."""
    known, links = Known({}, {}), dict[int, str]()
    for part, rows, base in zip(parts, usable, np.cumsum([0, *map(len, usable[:-1])]).tolist(), strict=True):
        place = np.full(len(part.span), NULL, dtype=np.int64)
        place[rows] = base + np.arange(len(rows))
        known.facts.update((int(place[i]), one) for i, one in part.facts.items() if place[i] >= 0)
        known.raw.update((int(place[i]), raw) for i, raw in part.raw.items() if place[i] >= 0)
        links.update((int(place[i]), "".join(to)) for i, to in part.links.items() if place[i] >= 0)
    return known, links


def _texts(columns: Sequence[list[str]], usable: Sequence[Ints]) -> list[str]:
    """The usable rows of a column of texts, of all files one after the other."""
    out: list[str] = []
    for column, rows in zip(columns, usable, strict=True):
        out += column if len(rows) == len(column) else [column[i] for i in rows.tolist()]
    return out


def _numbers(columns: Sequence[Sequence[int] | Ints], usable: Sequence[Ints]) -> Ints:
    """The usable rows of a column of numbers, of all files one after the other."""
    return np.concatenate([np.array(column, dtype=np.int64)[rows] for column, rows in zip(columns, usable, strict=True)])


def _parents(trace: list[str], parent: list[str], row_of: dict[str, int]) -> Ints:
    """Row of every span's parent, -1 if it has none or that is not in the files."""
    pairs = zip(trace, parent, strict=True)
    found = np.array([row_of.get(trace + up, NULL) if up else NULL for trace, up in pairs], dtype=np.int64)
    return np.where(found == np.arange(len(found)), NULL, found)


def _tops(parent: Ints) -> Ints:
    """The topmost ancestor of every span, -1 for those in a circle."""
    n = len(parent)
    at = np.where(parent < 0, np.arange(n), parent)
    # Each round doubles how far a span looks up.
    for _ in range(n.bit_length() + 1):
        at = at[at]
    return np.where(parent[at] < 0, at, NULL)


def _ranks(parts: Sequence[Spans], usable: Sequence[Ints]) -> tuple[Ints, list[Service]]:
    """(rank of every span, the service instance that each rank is): instances in the order of their names."""
    listed = [service for part in parts for service in part.services]
    instances = Codes()
    code = instances.of((service.name, service.instance) for service in listed)
    offset = np.cumsum([0, *(len(part.services) for part in parts[:-1])])
    code_of = code[_numbers([at + np.array(part.service) for part, at in zip(parts, offset, strict=True)], usable)]
    used = np.unique(code_of)
    if len(used) > RANKS:
        why = f"{len(used):,} service instances are more than {RANKS:,}"
        raise TooLarge(parts[0].label, why, "analyze fewer services, or set service.instance.id to something that stays")
    service_of = dict(zip(reversed(code.tolist()), reversed(listed), strict=True))  # the first of each instance stays
    order = sorted(used.tolist(), key=lambda c: (service_of[c].name, _natural(service_of[c].instance)))
    rank = rows_of_ids(np.array(order, dtype=np.int64), len(instances), NULL)
    return rank[code_of], [service_of[c] for c in order]


def _natural(text: str) -> tuple[int, str]:
    """Sorts ``2`` before ``10``."""
    digits = "".join(c for c in text if c.isdecimal())[:18]
    return (int(digits) if digits and digits.isascii() else 0), text


def _steps(
    trace: list[str], parent: Ints, top: Ints, start: Ints, end: Ints, facts: dict[int, Facts], counts: Counter[str]
) -> tuple[Ints, Mask]:
    """(key of every span's step, whether it belongs to one); cuts the tree above the turns of a conversation."""
    key = Codes().of(trace)
    keep = np.ones(len(key), dtype=np.bool_)
    turns: dict[int, list[int]] = {}
    for row, known in facts.items():
        if known.operation in TURNS and parent[row] >= 0 and parent[row] == top[row]:
            turns.setdefault(int(key[row]), []).append(row)
    several = {k: sorted(rows, key=lambda r: int(start[r])) for k, rows in turns.items() if len(rows) > 1}
    conversations = [
        rows
        for rows in several.values()
        if all(start[b] >= end[a] for a, b in itertools.pairwise(rows)) and len({int(top[r]) for r in rows}) == 1
    ]
    if not conversations:
        return key, keep
    cut = np.array([row for rows in conversations for row in rows], dtype=np.int64)
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


def _relative(tree: Tree, keep: Mask) -> Tree:
    """The tree without what belongs to no step, its times from the start of their step."""
    if not keep.all():
        rows = np.flatnonzero(keep)
        new = rows_of_ids(rows, len(keep) + 1, NULL)
        texts = (tree.trace, tree.span, tree.name)
        tree.trace, tree.span, tree.name = ([column[i] for i in rows.tolist()] for column in texts)
        numbers = (tree.rank, tree.kind, tree.start, tree.end, tree.step)
        tree.rank, tree.kind, tree.start, tree.end, tree.step = (column[rows] for column in numbers)
        tree.failed, tree.parent = tree.failed[rows], new[tree.parent[rows]]
        tree.known = tree.known.renumbered(new)
        tree.links = {int(new[a]): int(new[b]) for a, b in tree.links.items() if new[a] >= 0 and new[b] >= 0}
    tree.start, tree.end = tree.start - tree.origin[tree.step], tree.end - tree.origin[tree.step]
    return tree
