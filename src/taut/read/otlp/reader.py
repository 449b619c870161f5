"""OpenTelemetry spans as OTLP/JSON: services, LLM serving, agents; one file per process, or one of the collector.

A service instance is a rank, a trace (a request, an agent's turn) is a step with its own time origin: requests overlap on
the wall, so the wall time of the job is the sum of their latencies. Files are read apart and joined here, because a span
and its parent may lie in different files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from taut.core.errors import InputRefused
from taut.core.tables import Failure, Member, Table, Trace
from taut.read.contents import Service, Spans
from taut.read.merge import left_out
from taut.read.otlp import span_actions, span_columns
from taut.read.otlp.span_calls import Participants, calls, participants
from taut.read.otlp.span_ops import MOST_LANES, Layout
from taut.read.otlp.span_tree import Tree, build_tree

BOM = b"\xef\xbb\xbf"
_FIRST_KEY = re.compile(
    rb'\s*+(?:\[\s*+)?\{\s*+(?:"trace"\s*+:\s*+\{\s*+)?"(?:resourceSpans|batches)"\s*+:\s*+\[\s*+(?:\{\s*+"(?:resource|scopeSpans|'
    rb'instrumentationLibrarySpans|schemaUrl)"|\]|$)|\s*+(?:\[\s*+)?\{\s*+"resourceSpans"\s*+:'
)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """A JSON object (or a list of them) whose first key is ``resourceSpans``; or what Tempo answers."""
    return _FIRST_KEY.match(head.removeprefix(BOM)) is not None


def load(data: bytes | bytearray, label: str) -> Spans:
    """The spans of one file."""
    return span_columns.decode(data[3:] if data[:3] == BOM else data, label)


def gather(parts: Sequence[Spans], refused: Sequence[InputRefused], *, name: str, source: str) -> Trace:
    """One trace out of the spans of all files."""
    tree = build_tree(parts)
    people = participants(tree)
    found = calls(tree, people)
    layout = Layout(tree, people, found)
    ops = layout.table()
    if not len(ops):
        raise InputRefused(source, "no span takes any time", "export spans with start and end")
    actions, totals, guesses = span_actions.actions(tree, layout.words)
    far = sum(by >= 0 for by in people.seen_by)
    notes = [*tree.partial, *guesses, *left_out(refused)]
    if far:
        notes.append(
            f"{far} far ends left no spans: their time was measured by their callers and includes the way there and back"
        )
    named = _names(people)
    return Trace(
        ops=ops,
        names=list(map(str, layout.names)),
        lanes=["answers" if i == MOST_LANES else f"task {i}" for i in range(int(ops.lane.max(initial=0)) + 1)],
        groups=list(map(str, layout.groups)),
        members=_members(people, named),
        name=name,
        source=source,
        world_size=len(named),
        relative=True,
        zero_ns=tree.origin.tolist(),
        timer_ns=1,
        waits_recorded=True,
        actions=actions,
        failures=failures(tree, layout.words),
        partial=notes,
        counts={**tree.counts, **totals},
    )


def _members(people: Participants, named: list[str]) -> Table:
    """Ranks; where the host is not recorded, every instance is taken to have a clock of its own."""
    hosts = [service.host or f"host of {name}" for service, name in zip(people.services, named, strict=True)]
    for rank, by in enumerate(people.seen_by):
        hosts[rank] = hosts[by] if by >= 0 else hosts[rank]
    roles = [service.name for service in people.services]
    text = {key: np.array(words, dtype=object) for key, words in (("host", hosts), ("name", named), ("role", roles))}
    return Table(Member, {"rank": np.arange(len(hosts)), **text})


def _names(people: Participants) -> list[str]:
    """The name of each rank: the service, and which instance where there are several."""
    many = Counter(service.name for service, by in zip(people.services, people.seen_by, strict=True) if by < 0)
    callers = {by for by in people.seen_by if by >= 0}
    out: list[str] = []
    for service, by in zip(people.services, people.seen_by, strict=True):
        if by >= 0:
            out.append(service.name if len(callers) == 1 else f"{service.name} (seen by {out[by]})")
        elif many[service.name] == 1:
            out.append(service.name)
        else:
            which = _short(service)
            out.append(which if which.startswith(service.name) else f"{service.name}/{which}")
    return out


def _short(service: Service) -> str:
    """An instance in a few letters."""
    text = service.instance or service.host or "?"
    return text[:8] if _UUID.fullmatch(text) else text[:40]


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
