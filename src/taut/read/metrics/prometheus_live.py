"""A Prometheus that still runs: the samples that it holds of the traced time, of the metrics that taut knows.

It is asked for ranges of raw samples (an instant query of ``metric[range]``), not for ``query_range``: that one evaluates
at steps of its own and repeats the last sample for minutes, so a stuck sensor and a quick one would look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.core.reporting import dated
from taut.core.tables import Trace
from taut.read.contents import Found, Metrics
from taut.read.metrics.rank_metrics import host_in, hosts_of, ranks_of, traced
from taut.read.metrics.reader import matrix
from taut.read.metrics.series import USUAL, Map, check_series, gather
from taut.read.metrics.vocabulary import known
from taut.read.metrics.web import TRY, Server

# Samples are asked for from this long before the traced time until this long after: a counter's rate needs the one before,
# and scrapes are up to a minute apart.
AROUND_NS = 60_000_000_000
# Times before this (2001) are no unix times.
UNIX_NS = 1_000_000_000_000_000_000
# Characters of hosts in one query: addresses must stay short.
SELECTOR = 2000


def fetch(url: str, trace: Trace, mapped: Map = USUAL) -> Metrics:
    """The metrics of the job that a Prometheus holds; refuses in one line what is no such server or has none of them."""
    server = Server.at(url)
    window = traced(trace)
    if window is None or window[0] < UNIX_NS:
        why = "the traces' times are no unix time, so which samples are theirs is not known"
        raise InputRefused(server.name, why, "give the metrics as a file: --metrics FILE")
    first, last = window[0] - AROUND_NS, window[1] + AROUND_NS
    names = [name for name in _names(server, first, last) if known(name)]
    found: list[Found] = []
    for name in names:
        for hosts in _selectors(mapped.host_label, list(hosts_of(trace))):
            found += _samples(server, f"{{__name__={_quoted(name)}{hosts}}}", first, last)
            check_series(len(found), server.name)
    if not any(len(one.value) for one in found):
        why = f"holds no metrics that taut knows between {dated(first)} and {dated(last)}"
        raise InputRefused(server.name, why, "check that it still keeps that time; docs/metrics.md lists the names")
    return _of_the_job(gather(server.name, found, mapped=mapped), trace)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _selectors(label: str, hosts: Sequence[str]) -> Iterator[str]:
    """Matchers for the job's hosts, where a label was mapped on them; series without that label are asked for, too."""
    safe = re.fullmatch(r"\w+", label, re.ASCII) and all(re.fullmatch(r"[\w.-]+", host, re.ASCII) for host in hosts)
    if not safe or not hosts:
        yield ""
        return
    some: list[str] = [""]
    for host in hosts:
        if sum(map(len, some)) > SELECTOR:
            yield f",{label}=~{_quoted('|'.join(some))}"
            some = []
        some.append(host.split(".")[0] + "([.][^:]*)?(:[0-9]+)?")
    yield f",{label}=~{_quoted('|'.join(some))}"


class _Names(msgspec.Struct):
    data: list[str] = []


def _names(server: Server, first_ns: int, last_ns: int) -> list[str]:
    """The metrics that a server holds of a time."""
    span = {"start": f"{first_ns / 1e9:.3f}", "end": f"{last_ns / 1e9:.3f}"}
    body = server.get("/api/v1/label/__name__/values", span)
    try:
        return msgspec.json.decode(body, type=_Names).data
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InputRefused(server.name, "answers, but not as Prometheus does", TRY) from None


def _samples(server: Server, selector: str, first_ns: int, last_ns: int) -> list[Found]:
    """The raw samples of a time."""
    asked = {"query": f"{selector}[{(last_ns - first_ns) // 10**6}ms]", "time": f"{last_ns / 1e9:.3f}"}
    return matrix(server.get("/api/v1/query", asked), server.name)


def _of_the_job(metrics: Metrics, trace: Trace) -> Metrics:
    """Only what was taken on a rank or a host of the job: a server watches many jobs."""
    hosts, ranks = hosts_of(trace), ranks_of(trace, metrics.series)
    pairs = zip(ranks, metrics.series, strict=True)
    kept = [one for rank, one in pairs if rank >= 0 or host_in(one.place.host, hosts)]
    if not kept:
        there = ", ".join(sorted({one.place.host for one in metrics.series if one.place.host})[:3]) or "none"
        here = ", ".join(sorted(hosts)[:3]) or "none"
        why = f"none of its {len(metrics.series):,} series is of this job (hosts there: {there}; in the traces: {here})"
        remedy = "say which labels hold host and accelerator, or the rank: --map 'Hostname,gpu→rank'"
        raise InputRefused(metrics.label, why, remedy)
    placed, job = len({rank for rank in ranks if rank >= 0}), len(trace.members)
    short = [f"{metrics.label}: metrics of {placed} of {job} ranks"] if placed < job else []
    return replace(metrics, series=kept, notes=[*metrics.notes, *short])
