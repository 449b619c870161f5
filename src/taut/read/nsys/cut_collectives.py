"""Collectives that a recording cut off on some ranks: found by time, where ranks share a clock.

Who takes part in an all-reduce is in it at the same moment. A recording that begins a moment later on one GPU misses one
there, and counting from the first would match every collective with its neighbour. So collectives of a communicator are
walked through together: the one that ended before the others began has no counterpart, and takes part in nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.core.array_types import Ints
from taut.core.tables import Trace, Verb
from taut.read.verb_words import ALL_WAIT, HOPS

# More than these without a counterpart are no edge: the ranks are not in one communicator, or not on one clock.
FEW, SHARE = 4, 0.1


@dataclass(frozen=True)
class _Part:
    """The collectives of one communicator on one rank, in order of time."""

    trace: int
    rows: Ints
    start: Ints
    end: Ints
    verb: Ints


def without_edges(traces: Sequence[Trace]) -> tuple[list[Trace], int]:
    """The traces without the collectives that have no counterpart, and how many those were."""
    found = list(traces)
    cut = 0
    by_name: dict[str, list[_Part]] = {}
    for place, trace in enumerate(traces):
        talk = np.flatnonzero(~np.isin(trace.ops.verb, (Verb.NONE, *HOPS)))
        for name, rows in by_group(trace, talk).items():
            rows = rows[np.argsort(trace.ops.start_ns[rows], kind="stable")]
            part = _Part(place, rows, trace.ops.start_ns[rows], trace.ops.end_ns[rows], trace.ops.verb[rows])
            by_name.setdefault(name, []).append(part)
    for parts in by_name.values():
        if len(parts) < 2 or not _one_clock([found[part.trace] for part in parts]) or _all_meet(parts):
            continue
        alone = _alone(parts)
        if sum(map(len, alone)) > max(FEW, SHARE * max(len(part.rows) for part in parts)):
            continue
        for part, lost in zip(parts, alone, strict=True):
            cut += len(lost)
            verb = found[part.trace].ops.verb.copy()
            verb[part.rows[lost]] = Verb.NONE
            found[part.trace] = replace(found[part.trace], ops=found[part.trace].ops.replace(verb=verb))
    return found, cut


def _one_clock(traces: list[Trace]) -> bool:
    """Whether all are of one report, or of one host."""
    hosts = {str(trace.members.host[0]) for trace in traces}
    return len({trace.source for trace in traces}) == 1 or (len(hosts) == 1 and hosts != {""})


def by_group(trace: Trace, rows: Ints) -> dict[str, Ints]:
    """Rows of ops by the name of their group; the empty name for those of none."""
    rows = rows[np.argsort(trace.ops.group[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(trace.ops.group[rows])) + 1
    names = [*trace.groups, ""]
    return {names[trace.ops.group[mine[0]]]: mine for mine in np.split(rows, cuts) if len(mine)}


def _all_meet(parts: list[_Part]) -> bool:
    if len({len(part.rows) for part in parts}) > 1:
        return False
    start, end, verb = (np.stack([getattr(part, name) for part in parts]) for name in ("start", "end", "verb"))
    overlap = (start.max(axis=0) < end.min(axis=0)) | ~np.isin(verb[0], ALL_WAIT)
    return bool((overlap & (verb == verb[0]).all(axis=0)).all())


def _alone(parts: list[_Part]) -> list[list[int]]:
    """For each rank the collectives without a counterpart on the others."""
    columns = [(part.start.tolist(), part.end.tolist(), part.verb.tolist()) for part in parts]
    at, alone = [0] * len(parts), [list[int]() for _ in parts]
    while all(place < len(column[0]) for place, column in zip(at, columns, strict=True)):
        heads = [(s[k], e[k], v[k]) for k, (s, e, v) in zip(at, columns, strict=True)]
        same = len({verb for _, _, verb in heads}) == 1
        if same and (heads[0][2] not in ALL_WAIT or max(s for s, _, _ in heads) < min(e for _, e, _ in heads)):
            at = [place + 1 for place in at]
        else:
            # The one that ends first cannot meet the others, which have not begun or are something else.
            first = min(range(len(heads)), key=lambda k: heads[k][1])
            alone[first].append(at[first])
            at[first] += 1
    for k, column in enumerate(columns):
        alone[k] += range(at[k], len(column[0]))
    return alone
