"""Metrics of files → one table beside the trace: whose they are, and at which time of the job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from taut.core.tables import NULL, Metric, Table, Trace
from taut.read.contents import Metrics, Series

# Time zones differ by multiples of a quarter of an hour …
QUARTER_NS = 900_000_000_000
# … and by at most this many of them.
FARTHEST = 56


def apply(trace: Trace, found: Sequence[Metrics]) -> Trace:
    """The trace with the metrics that lay beside it."""
    if not found:
        return trace
    window, notes = traced(trace), [line for one in found for line in one.notes]
    series = _unambiguous([_in_zone(one, window, notes) for one in found], set(trace.members.host))
    if not series:  # limits of metrics that are not there
        return replace(trace, partial=(*trace.partial, *dict.fromkeys(notes)))
    placed = list(zip(ranks_of(trace, series), series, strict=True))
    if any(rank >= 0 and s.place.rank is None for rank, s in placed):
        notes.append("metrics of accelerator n are taken as those of the n-th rank of its host")
    placed.sort(key=lambda one: (one[0] if one[0] >= 0 else 1 << 30, one[1].component, one[1].metric))
    table = _table(placed)
    if window and not ((table.time_ns >= window[0]) & (table.time_ns <= window[1])).any():
        notes.append("no metric was sampled while the job was traced: values are those of the whole files")
    counts = {**trace.counts, "metric files": len(found), "metric samples": len(table)}
    return replace(trace, metrics=table, partial=(*trace.partial, *dict.fromkeys(notes)), counts=counts)


def _table(placed: Sequence[tuple[int, Series]]) -> Table:
    """The samples of series in their order, each with its rank."""
    ranks, series = [rank for rank, _ in placed], [one for _, one in placed]
    length = [len(s.time_ns) for s in series]
    return Table(
        Metric,
        {
            "time_ns": np.concatenate([s.time_ns for s in series]),
            "component": np.repeat(np.array([s.component for s in series], dtype=np.object_), length),
            "rank": np.repeat(ranks, length),
            "metric": np.repeat(np.array([s.metric for s in series], dtype=np.object_), length),
            "value": np.concatenate([s.value for s in series]),
            "limit": np.concatenate([s.limit for s in series]),
            "limit_source": np.repeat(np.array([s.limit_source for s in series], dtype=np.object_), length),
        },
    )


def traced(trace: Trace) -> tuple[int, int] | None:
    """When the job was traced; None where times are relative to their step."""
    if len(trace.marks):
        return int(trace.marks.start_ns.min()), int(trace.marks.end_ns.max())
    if trace.relative or not len(trace.ops):
        return None
    return int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())


def _in_zone(one: Metrics, window: tuple[int, int] | None, notes: list[str]) -> Metrics:
    """Dates without a zone are taken as UTC, or as the zone in which they fall into the traced time, if only one does."""
    if not one.zoneless or window is None:
        return one
    first, last = min(int(s.time_ns[0]) for s in one.series), max(int(s.time_ns[-1]) for s in one.series)
    # All zones are tried; UTC stays if the dates fall into the traced time without a shift, or with none.
    shifts = np.arange(-FARTHEST, FARTHEST + 1) * QUARTER_NS
    overlap = np.minimum(last + shifts, window[1]) - np.maximum(first + shifts, window[0])
    if overlap[FARTHEST] >= 0 or overlap.max() < 0:
        return one
    shift = int(shifts[np.argmax(overlap)])
    notes.append(f"{one.label}: dates without a time zone, moved by {shift / 3.6e12:+.2f} h to fall into the traced time")
    return structs.replace(one, series=[structs.replace(s, time_ns=s.time_ns + shift) for s in one.series])


def _unambiguous(found: Sequence[Metrics], hosts: set[str]) -> list[Series]:
    """All series; where two files name the same component, with the name of their host or file.

    A component that names its host is the same in both, unless both tell the same of it.
    """
    files = Counter(component for one in found for component in {s.component for s in one.series})
    twice = Counter(key for one in found for key in {(s.component, s.metric) for s in one.series})
    same = {component for (component, _), count in twice.items() if count > 1}
    out = []
    for one in found:
        parts = [part.split(".")[0] for part in re.split(r"[/\\:]", one.label) if part]
        whose = next((p for p in parts if p in hosts), parts[-1] if parts else "")
        whose = one.label.partition("://")[2] or whose
        for series in one.series:
            at = series.place
            if files[at.component] > 1 and at.rank is None and (not at.host or at.component in same):
                at = at._replace(component=f"{whose} {at.component}", host=at.host or whose)
            out.append(structs.replace(series, place=at))
    return out


def hosts_of(trace: Trace) -> dict[str, list[int]]:
    """The ranks of each host that the traces name."""
    found: dict[str, list[int]] = {}
    for host, rank in zip(trace.members.host, trace.members.rank.tolist(), strict=True):
        if host and isinstance(host, str):
            found.setdefault(host, []).append(rank)
    return found


def host_in(host: str, hosts: Collection[str]) -> str:
    """A host as the traces write it, with its domain or without; empty if it is none of them."""
    if host in hosts:
        return host
    alike = [other for other in hosts if other.split(".")[0] == host.split(".")[0] and ("." in other) != ("." in host)]
    return alike[0] if len(alike) == 1 else ""


def ranks_of(trace: Trace, series: Sequence[Series]) -> list[int]:
    """The rank of each series, -1 if none: named, or the n-th rank of the host whose n-th accelerator it is."""
    members, of_host = trace.members, hosts_of(trace)
    gpus = {(s.place.host, s.place.gpu) for s in series if s.place.gpu is not None}
    if len({host for host, _ in gpus}) == 1 and len(of_host) <= 1 and len(gpus) == len(members):
        # One host is watched and the traces know no other: it is that one, if the numbers agree.
        of_host = {next(iter(gpus))[0]: members.rank.tolist()}
    named: dict[int | None, set[str]] = {}
    for one in series:
        named.setdefault(one.place.rank, set()).add(one.place.host)
    out, there = [], set(members.rank.tolist())
    hosts = {host: host_in(host, of_host) for host in {one.place.host for one in series}}
    for one in series:
        rank, host, gpu = one.place.rank, hosts[one.place.host], one.place.gpu
        here = of_host.get(host, [])
        if rank is None and gpu is not None and gpu < len(here):
            rank = here[gpu]
        elif len(named[rank]) > 1 and rank not in here:
            rank = None  # ranks of several jobs, and this host is not the one that this job's has
        out.append(rank if rank is not None and rank in there else NULL)
    return out
