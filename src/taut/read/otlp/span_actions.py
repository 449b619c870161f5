"""Spans → actions: calls that were made again, elsewhere or twice, and what each attempt cost.

Made again (retry): a call with ``http.request.resend_count``; one that points (span link) at a failed one of its name;
one of the same name under the same parent that follows a failed one. Elsewhere (fallback): another model is asked the
same after one failed. At the same time (hedge) or again (duplicate): identical calls, where what was asked is recorded.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.tables import NULL, Action, Table
from taut.read.contents import Facts
from taut.read.otlp.span_columns import CLIENT, PRODUCER
from taut.read.otlp.span_tree import Tree

GEN_AI_CALLS = frozenset({"chat", "text_completion", "generate_content", "embeddings", "execute_tool", "retrieval"})
"""Operations that are calls whatever their span's kind."""
LOOK_BACK = 64
"""Earlier calls of the same name, or ancestors, that are looked at: hostile files hold more than any program makes."""
TEXT = ("layer", "controller", "target", "knob", "before", "after", "trigger", "work", "outcome")
NUMBERS = ("time_ns", "rank", "parent", "attempt", "busy_ns", "tokens_in", "tokens_out", "step")


@dataclass
class _Attempt:
    """One attempt at some work."""

    span: int
    number: int = 0
    after: int = NULL
    """The attempt it follows, as a span."""
    why: str = ""
    """retry, fallback, hedge or duplicate; empty for the first."""
    trigger: str = ""
    outcome: str = ""
    first: int = NULL
    guessed: bool = False


@dataclass
class _Book:
    """Attempts by span; the first of each work is entered when a second comes."""

    tree: Tree
    attempts: dict[int, _Attempt] = field(default_factory=dict)
    followed: set[int] = field(default_factory=set)

    def enter(self, span: int, after: int, why: str, guessed: bool = False) -> None:
        """Span is another attempt at what ``after`` tried."""
        if span in self.attempts and self.attempts[span].why:
            return
        before = self.attempts.setdefault(after, _Attempt(after, first=after))
        trigger = "identical call" if why in ("duplicate", "hedge") else _facts(self.tree, after).error or "error"
        self.attempts[span] = _Attempt(span, before.number + 1, after, why, trigger, "", before.first, guessed)
        if why in ("retry", "fallback"):
            self.followed.add(after)


def _facts(tree: Tree, row: int) -> Facts:
    return tree.known.of(row)


def actions(tree: Tree, words: list[str]) -> tuple[Table, dict[str, int], list[str]]:
    """(the actions, totals of all calls, what was guessed)."""
    book = _Book(tree)
    _again(book)
    _elsewhere(book)
    _identical(book)
    _settle(book)
    tokens_in, tokens_out = _tokens(tree, "tokens_in"), _tokens(tree, "tokens_out")
    wasted = _thrown_away(book)
    covered = _below(tree, wasted)
    rows = sorted(book.attempts, key=lambda span: (int(tree.step[span]), int(tree.start[span]), span))
    totals = _totals(tree, wasted, covered, tokens_in, tokens_out)
    guessed = sum(a.guessed for a in book.attempts.values())
    notes = [f"{guessed} retries are guessed: a failed call was followed by one of the same name under the same parent"]
    return _table(book, rows, words, covered, tokens_in, tokens_out), totals, notes if guessed else []


def _again(book: _Book) -> None:
    """Retries: numbered ones, linked ones, and those that follow a failure."""
    tree = book.tree
    suspects = {row for row in np.flatnonzero(tree.failed).tolist() if tree.parent[row] >= 0}
    suspects |= {row for row, known in tree.known.told.items() if known.resend and tree.parent[row] >= 0}
    wanted = {(int(tree.parent[row]), tree.name[row]) for row in suspects}
    parents = np.isin(tree.parent, np.array(sorted({p for p, _ in wanted}), dtype=np.int64))
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in np.flatnonzero(parents).tolist():
        key = int(tree.parent[row]), tree.name[row]
        if key in wanted:
            groups[key].append(row)
    for group in groups.values():
        _in_group(book, sorted(group, key=lambda row: (int(tree.start[row]), row)))
    for row, other in tree.links.items():
        if tree.failed[other] and tree.name[row] == tree.name[other] and other not in book.followed and row != other:
            book.enter(row, other, "retry")


def _in_group(book: _Book, group: list[int]) -> None:
    tree = book.tree
    open_rows: list[int] = []
    for row in group:
        known = _facts(tree, row)
        for other in open_rows[: -LOOK_BACK - 1 : -1]:
            before = _facts(tree, other)
            differs = bool(known.content and before.content and known.content != before.content)
            later = tree.start[row] >= tree.end[other]
            numbered = known.resend > before.resend
            if not differs and later and (numbered or (tree.failed[other] and not known.resend)):
                same = bool(known.content and known.content == before.content)
                book.enter(row, other, "retry", guessed=not (numbered or same))
                open_rows.remove(other)
                break
        open_rows.append(row)


def _elsewhere(book: _Book) -> None:
    """Fallbacks: after a model failed, the next model call under the same parent that asks the same of another."""
    tree = book.tree
    failed = [
        row for row, k in tree.known.told.items() if k.model and k.operation and tree.failed[row] and tree.parent[row] >= 0
    ]
    if not failed:
        return
    parents = {int(tree.parent[row]) for row in failed}
    by_parent: dict[int, list[int]] = defaultdict(list)
    for row, known in tree.known.told.items():
        if known.model and int(tree.parent[row]) in parents:
            by_parent[int(tree.parent[row])].append(row)
    starts: dict[int, list[int]] = {}
    for parent, rows in by_parent.items():
        rows.sort(key=lambda r: (int(tree.start[r]), r))
        starts[parent] = [int(tree.start[r]) for r in rows]
    for row in sorted(failed, key=lambda r: int(tree.start[r])):
        known, parent = _facts(tree, row), int(tree.parent[row])
        at = bisect.bisect_left(starts[parent], int(tree.end[row]))
        if row in book.followed or at == len(starts[parent]) or by_parent[parent][at] == row:
            continue
        following = by_parent[parent][at]
        other = _facts(tree, following)
        if other.operation == known.operation and other.model != known.model and other.content == known.content:
            book.enter(following, row, "fallback", guessed=not known.content)


def _identical(book: _Book) -> None:
    """Identical calls of a step: at the same time, or again although the first had succeeded."""
    tree = book.tree
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, known in tree.known.told.items():
        if known.operation and known.content:
            groups[int(tree.step[row]), known.operation, known.model, known.tool, known.content].append(row)
    for group in groups.values():
        first, racing = NULL, NULL  # the first that succeeded, and the first of those still at it
        for row in sorted(group, key=lambda row: (int(tree.start[row]), row)):
            if racing >= 0 and tree.start[row] < tree.end[racing]:
                if not _nested(tree, row, racing):
                    book.enter(row, racing, "hedge")
            else:
                racing = row
                if first >= 0 and not _nested(tree, row, first):
                    book.enter(row, first, "duplicate")
            if first < 0 and not tree.failed[row]:
                first = row


def _nested(tree: Tree, row: int, other: int) -> bool:
    """Whether a span lies below another: an agent's span around a model's tells the same call twice."""
    at = int(tree.parent[row])
    for _ in range(LOOK_BACK):
        if at == other or at < 0:
            return at == other
        at = int(tree.parent[at])
    return True  # so deep a tree tells nothing


def _settle(book: _Book) -> None:
    """What became of every attempt: kept, failed, duplicate, or lost to a sibling that was quicker."""
    tree = book.tree
    for a in book.attempts.values():
        a.outcome = "failed" if tree.failed[a.span] else "duplicate" if a.why == "duplicate" else "kept"
    races: dict[int, list[_Attempt]] = defaultdict(list)
    for a in book.attempts.values():
        if a.why == "hedge":
            races[a.after].append(a)
    for first, others in races.items():
        runners = [book.attempts[first], *others]
        won = min((a for a in runners if not tree.failed[a.span]), key=lambda a: int(tree.end[a.span]), default=None)
        for a in runners:
            if a is not won and won is not None:
                a.outcome = "lost"


def _thrown_away(book: _Book) -> Ints:
    gone = [s for s, a in book.attempts.items() if s in book.followed or a.outcome in ("duplicate", "lost")]
    return np.array(sorted(gone), dtype=np.int64)


def _below(tree: Tree, rows: Ints) -> Mask:
    """Spans that lie below one of some spans."""
    marked = np.zeros(len(tree), dtype=np.bool_)
    marked[rows] = True
    has = tree.parent >= 0
    below, up = has & marked[tree.parent], np.where(has, tree.parent, np.arange(len(tree)))
    for _ in range(len(tree).bit_length()):
        below, up = below | below[up], up[up]
    return below


def _tokens(tree: Tree, which: str) -> Ints:
    """Tokens of every span: its own count, else the sum of its children's, -1 where neither is known."""
    own = np.full(len(tree), NULL, dtype=np.int64)
    for row, known in tree.known.told.items():
        own[row] = getattr(known, which)
    if (own < 0).all():
        return own
    depth = _depth(tree.parent)
    total, order = own.copy(), np.argsort(depth, kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])
    for level in levels[:0:-1]:
        rows = level[(total[level] >= 0) & (own[tree.parent[level]] < 0)]
        up = tree.parent[rows]
        total[up] = np.maximum(total[up], 0)
        np.add.at(total, up, total[rows])
    return total


def _depth(parent: Ints) -> Ints:
    """How many ancestors every span has."""
    depth, up = (parent >= 0).astype(np.int64), np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(len(parent).bit_length()):
        depth, up = depth + depth[up], up[up]
    return depth


def _totals(tree: Tree, wasted: Ints, covered: Mask, tokens_in: Ints, tokens_out: Ints) -> dict[str, int]:
    """All calls of the trace, outermost ones only: how many, how long, and the tokens of everything."""
    call = np.isin(tree.kind, (CLIENT, PRODUCER)) & (tree.parent >= 0)
    for row, known in tree.known.told.items():
        call[row] |= known.operation in GEN_AI_CALLS
    call[wasted] = True
    call &= ~_below(tree, np.flatnonzero(call)) | np.isin(np.arange(len(tree)), wasted) & ~covered
    roots = tree.parent < 0
    out = {"calls": int(call.sum()), "call ns": int((tree.end - tree.start)[call].sum())}
    for word, tokens in (("tokens in", tokens_in), ("tokens out", tokens_out)):
        counted = tokens[roots & (tokens >= 0)]
        if len(counted):
            out[word] = int(counted.sum())
    return out


def _table(book: _Book, rows: list[int], words: list[str], covered: Mask, tokens_in: Ints, tokens_out: Ints) -> Table:
    tree = book.tree
    place = {span: i for i, span in enumerate(rows)}
    took = tree.end - tree.start
    text: dict[str, list[str]] = {key: [] for key in TEXT}
    numbers: dict[str, list[int]] = {key: [] for key in NUMBERS}
    for span in rows:
        a = book.attempts[span]
        up = int(tree.parent[span])
        caller = int(tree.rank[up if up >= 0 else span])
        fallback = a.why == "fallback"
        told = {
            "layer": {"fallback": "fallback", "duplicate": "model", "": "retry"}.get(a.why, "retry"),
            "controller": tree.services[caller].name, "target": words[span],
            "knob": "model" if fallback else "hedge" if a.why == "hedge" else "repeat" if a.why == "duplicate" else "attempt",
            "before": _facts(tree, a.after).model if fallback else str(a.number - 1) if a.why else "",
            "after": _facts(tree, span).model if fallback else str(a.number),
            "trigger": a.trigger, "work": f"{tree.trace[a.first]}/{tree.span[a.first]}", "outcome": a.outcome,
        }  # fmt: skip
        for key, value in told.items():
            text[key].append(value)
        # What lies inside an attempt that was thrown away is counted there, and once.
        cost = (0, 0, 0) if covered[span] else (int(took[span]), int(tokens_in[span]), int(tokens_out[span]))
        begin = int(tree.origin[tree.step[span]] + tree.start[span])
        told_numbers = (begin, caller, place.get(a.after, NULL), a.number, *cost, int(tree.step[span]))
        for key, number in zip(numbers, told_numbers, strict=True):
            numbers[key].append(number)
    columns: dict[str, Any] = {key: np.array(values, dtype=object) for key, values in text.items()}
    columns.update({key: np.array(values, dtype=np.int64) for key, values in numbers.items()})
    return Table(Action, columns, len(rows))
