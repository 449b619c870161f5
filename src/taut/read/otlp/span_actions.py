"""Spans → actions: calls that were made again, elsewhere or twice, and what each attempt cost.

Made again (retry): a call with ``http.request.resend_count``; one that points (span link) at a failed one of its name;
one of the same name under the same parent that follows a failed one. Elsewhere (fallback): another model is asked the
same after one failed. At the same time (hedge) or again (duplicate): identical calls, where what was asked is recorded.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from taut.core.array_types import Column, Ints, Mask
from taut.core.tables import NULL, Action, Table
from taut.read.otlp.span_columns import CLIENT, PRODUCER
from taut.read.otlp.span_tree import Tree

# Operations that are calls whatever their span's kind.
GEN_AI_CALLS = frozenset({"chat", "text_completion", "generate_content", "embeddings", "execute_tool", "retrieval"})
# Earlier calls of the same name, or ancestors, that are looked at: hostile files hold more than any program makes.
LOOK_BACK = 64
LAYERS = {"retry": "retry", "fallback": "fallback", "hedge": "retry", "duplicate": "model", "": "retry"}
# Why an attempt was made → layer and knob of its action.
KNOBS = {"retry": "attempt", "fallback": "model", "hedge": "hedge", "duplicate": "repeat", "": "attempt"}


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
class _Attempts:
    """Attempts by span; the first of each work is added when a second is found."""

    tree: Tree
    by_span: dict[int, _Attempt] = field(default_factory=dict)
    followed: set[int] = field(default_factory=set)

    def add(self, span: int, after: int, why: str, guessed: bool = False) -> None:
        """Add a span as another attempt at what ``after`` tried."""
        if span in self.by_span and self.by_span[span].why:
            return
        before = self.by_span.setdefault(after, _Attempt(after, first=after))
        trigger = "identical call" if why in ("duplicate", "hedge") else self.tree.known.of(after).error or "error"
        self.by_span[span] = _Attempt(span, before.number + 1, after, why, trigger, "", before.first, guessed)
        if why in ("retry", "fallback"):
            self.followed.add(after)


def actions(tree: Tree, words: list[str]) -> tuple[Table, dict[str, int], list[str]]:
    """(the actions, totals of all calls, what was guessed)."""
    attempts = _Attempts(tree)
    _find_retries(attempts)
    _find_fallbacks(attempts)
    _find_repeats(attempts)
    _set_outcomes(attempts)
    tokens_in, tokens_out = _tokens(tree, "tokens_in"), _tokens(tree, "tokens_out")
    wasted = _wasted(attempts)
    covered = _below(tree, wasted)
    rows = sorted(attempts.by_span, key=lambda span: (int(tree.step[span]), int(tree.start[span]), span))
    totals = _totals(tree, wasted, covered, tokens_in, tokens_out)
    guessed = sum(a.guessed for a in attempts.by_span.values())
    notes = [f"{guessed} retries are guessed: a failed call was followed by one of the same name under the same parent"]
    costs = np.where(covered, 0, np.stack([tree.end - tree.start, tokens_in, tokens_out]))
    return _table(attempts, rows, words, costs), totals, notes if guessed else []


def _find_retries(attempts: _Attempts) -> None:
    """Retries: numbered ones, linked ones, and those that follow a failure."""
    tree = attempts.tree
    suspects = {row for row in np.flatnonzero(tree.failed).tolist() if tree.parent[row] >= 0}
    suspects |= {row for row, known in tree.known.facts.items() if known.resend and tree.parent[row] >= 0}
    wanted = {(int(tree.parent[row]), tree.name[row]) for row in suspects}
    parents = np.isin(tree.parent, np.array(sorted({p for p, _ in wanted}), dtype=np.int64))
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in np.flatnonzero(parents).tolist():
        key = int(tree.parent[row]), tree.name[row]
        if key in wanted:
            groups[key].append(row)
    for group in groups.values():
        _find_in_group(attempts, sorted(group, key=lambda row: (int(tree.start[row]), row)))
    for row, other in tree.links.items():
        if tree.failed[other] and tree.name[row] == tree.name[other] and other not in attempts.followed and row != other:
            attempts.add(row, other, "retry")


def _find_in_group(attempts: _Attempts, group: list[int]) -> None:
    """Retries among spans of one name under one parent: of the failed ones; one that is numbered may follow any other."""
    tree = attempts.tree
    every: list[int] = []
    failed: list[int] = []
    followed: set[int] = set()
    at = np.array(group, dtype=np.int64)
    for row, start, fails in zip(group, tree.start[at].tolist(), tree.failed[at].tolist(), strict=True):
        known = tree.known.of(row)
        pool = every if known.resend else failed
        for place in range(len(pool) - 1, max(len(pool) - LOOK_BACK, 0) - 1, -1):
            other = pool[place]
            if other in followed or start < tree.end[other]:
                continue
            before = tree.known.of(other)
            differs = bool(known.content and before.content and known.content != before.content)
            numbered = known.resend > before.resend
            if not differs and (numbered or (not known.resend and tree.failed[other])):
                same = bool(known.content and known.content == before.content)
                attempts.add(row, other, "retry", guessed=not (numbered or same))
                followed.add(other)
                del pool[place]
                break
        every.append(row)
        if fails:
            failed.append(row)


def _find_fallbacks(attempts: _Attempts) -> None:
    """Fallbacks: after a model failed, the next model call under the same parent that asks the same of another."""
    tree = attempts.tree
    failed = [
        row for row, k in tree.known.facts.items() if k.model and k.operation and tree.failed[row] and tree.parent[row] >= 0
    ]
    if not failed:
        return
    parents = {int(tree.parent[row]) for row in failed}
    by_parent: dict[int, list[int]] = defaultdict(list)
    for row, known in tree.known.facts.items():
        if known.model and int(tree.parent[row]) in parents:
            by_parent[int(tree.parent[row])].append(row)
    starts: dict[int, list[int]] = {}
    for parent, rows in by_parent.items():
        rows.sort(key=lambda r: (int(tree.start[r]), r))
        starts[parent] = [int(tree.start[r]) for r in rows]
    for row in sorted(failed, key=lambda r: int(tree.start[r])):
        known, parent = tree.known.of(row), int(tree.parent[row])
        at = bisect.bisect_left(starts[parent], int(tree.end[row]))
        if row in attempts.followed or at == len(starts[parent]) or by_parent[parent][at] == row:
            continue
        following = by_parent[parent][at]
        other = tree.known.of(following)
        if other.operation == known.operation and other.model != known.model and other.content == known.content:
            attempts.add(following, row, "fallback", guessed=not known.content)


def _find_repeats(attempts: _Attempts) -> None:
    """Identical calls of a step: at the same time, or again although the first had succeeded."""
    tree = attempts.tree
    groups: dict[tuple[int, str, str, str, int], list[int]] = defaultdict(list)
    for row, known in tree.known.facts.items():
        if known.operation and known.content:
            groups[int(tree.step[row]), known.operation, known.model, known.tool, known.content].append(row)
    for group in groups.values():
        first, racing = NULL, NULL  # the first that succeeded, and the first of those still at it
        for row in sorted(group, key=lambda row: (int(tree.start[row]), row)):
            if racing >= 0 and tree.start[row] < tree.end[racing]:
                if not _nested(tree, row, racing):
                    attempts.add(row, racing, "hedge")
            else:
                racing = row
                if first >= 0 and not _nested(tree, row, first):
                    attempts.add(row, first, "duplicate")
            if first < 0 and not tree.failed[row]:
                first = row


def _nested(tree: Tree, row: int, other: int) -> bool:
    """Whether a span lies below another: an agent's span around a model's is the same call."""
    at = int(tree.parent[row])
    for _ in range(LOOK_BACK):
        if at == other or at < 0:
            return at == other
        at = int(tree.parent[at])
    return True  # no program nests so deeply


def _set_outcomes(attempts: _Attempts) -> None:
    """Set the outcome of every attempt: kept, failed, duplicate, or lost to a sibling that was quicker."""
    tree = attempts.tree
    for a in attempts.by_span.values():
        a.outcome = "failed" if tree.failed[a.span] else "duplicate" if a.why == "duplicate" else "kept"
    races: dict[int, list[_Attempt]] = defaultdict(list)
    for a in attempts.by_span.values():
        if a.why == "hedge":
            races[a.after].append(a)
    for first, others in races.items():
        runners = [attempts.by_span[first], *others]
        won = min((a for a in runners if not tree.failed[a.span]), key=lambda a: int(tree.end[a.span]), default=None)
        for a in runners:
            if a is not won and won is not None:
                a.outcome = "lost"


def _wasted(attempts: _Attempts) -> Ints:
    """Spans whose result was not used."""
    gone = [s for s, a in attempts.by_span.items() if s in attempts.followed or a.outcome in ("duplicate", "lost")]
    return np.array(sorted(gone), dtype=np.int64)


def _below(tree: Tree, rows: Ints) -> Mask:
    """Spans that lie below one of some spans."""
    marked = np.zeros(len(tree), dtype=np.bool_)
    marked[rows] = True
    has = tree.parent >= 0
    # Pointer doubling: after k rounds a span has seen 2^k of its ancestors.
    below, up = has & marked[tree.parent], np.where(has, tree.parent, np.arange(len(tree)))
    for _ in range(len(tree).bit_length()):
        below, up = below | below[up], up[up]
    return below


def _tokens(tree: Tree, which: str) -> Ints:
    """Tokens of every span: its own count, else the sum of its children's, -1 where neither is known."""
    own = np.full(len(tree), NULL, dtype=np.int64)
    for row, known in tree.known.facts.items():
        own[row] = getattr(known, which)
    if (own < 0).all():
        return own
    depth = _depth(tree.parent)
    total, order = own.copy(), np.argsort(depth, kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])
    # From the leaves up, so that the sums of children are complete when they are added.
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
    for row, known in tree.known.facts.items():
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


def _table(attempts: _Attempts, rows: list[int], words: list[str], costs: Ints) -> Table:
    """One action for each attempt; what lies inside an attempt that was not used is counted there, and costs nothing here."""
    place = {span: i for i, span in enumerate(rows)}
    records = [_action(attempts, span, words[span], place) for span in rows]
    columns: dict[str, Column] = {
        key: np.array([record[key] for record in records], dtype=object if isinstance(value, str) else np.int64)
        for key, value in (records[0] if records else {}).items()
    }
    busy, tokens_in, tokens_out = costs[:, rows]
    return Table(Action, {**columns, "busy_ns": busy, "tokens_in": tokens_in, "tokens_out": tokens_out}, len(rows))


def _action(attempts: _Attempts, span: int, target: str, place: dict[int, int]) -> dict[str, str | int]:
    """What one attempt is as an action, without its cost."""
    tree, attempt = attempts.tree, attempts.by_span[span]
    up, step = int(tree.parent[span]), int(tree.step[span])
    caller = int(tree.rank[up if up >= 0 else span])
    fallback = attempt.why == "fallback"
    return {
        "layer": LAYERS[attempt.why],
        "controller": tree.services[caller].name,
        "target": target,
        "knob": KNOBS[attempt.why],
        "before": tree.known.of(attempt.after).model if fallback else str(attempt.number - 1) if attempt.why else "",
        "after": tree.known.of(span).model if fallback else str(attempt.number),
        "trigger": attempt.trigger,
        "work": f"{tree.trace[attempt.first]}/{tree.span[attempt.first]}",
        "outcome": attempt.outcome,
        "time_ns": int(tree.origin[step] + tree.start[span]),
        "rank": caller,
        "parent": place.get(attempt.after, NULL),
        "attempt": attempt.number,
        "step": step,
    }
