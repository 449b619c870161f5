"""What a collector sees now, as Prometheus reads it: text exposition format 0.0.4, base units, bounded labels.

What is not known has no sample: never zero, never healthy. The label of a job is ``job_name``, because ``job`` is the label
with which Prometheus itself names what it scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, get_args

from taut.core.rank_words import listed
from taut.render.text import safe
from taut.result.types import LiveFinding, LiveState, VerdictClass, WatchedJob

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST = 256
"""Characters of a label."""
CLASSES: tuple[str, ...] = get_args(VerdictClass)
REGIMES = ("stable", "marginal", "unstable")
REASONS = ("dropped", "missing", "unnamed", "strange", "over")
"""Why an event is not used: docs/watch.md."""
COUNTS = {
    "connections": ("taut_collector_connections_total", "Connections that were made to the collector."),
    "refused": ("taut_collector_refused_connections_total", "Connections that the collector ended because of what came."),
    "messages": ("taut_collector_messages_total", "Messages of ranks that were received."),
    "bytes": ("taut_collector_received_bytes_total", "Bytes of messages of ranks that were received."),
    "ranks": ("taut_collector_ranks_total", "Ranks that were heard for the first time."),
    "restarts": ("taut_collector_restarted_ranks_total", "Processes of ranks that replaced another one."),
    "failed looks": ("taut_collector_failed_looks_total", "Looks at a job that failed: nothing new is found there meanwhile."),
    "failed states": ("taut_collector_failed_states_total", "Times that a job could not be described whole."),
    "faults": ("taut_collector_faults_total", "Faults of the collector, each of which ended one connection."),
}
"""Counts of a collector, each with the metric that tells it."""

Labels: TypeAlias = dict[str, str]
Sample: TypeAlias = tuple[str, Labels, float | None]
"""Name, labels, value; None where it is not known."""

METRICS = {
    "taut_collector_info": "Version of the collector, as a label of the value 1.",
    "taut_collector_start_time_seconds": "When the collector began, seconds since 1970.",
    "taut_collector_seen_time_seconds": "When all that these metrics tell was seen, seconds since 1970.",
    **dict(COUNTS.values()),
    "taut_job_step_seconds": "Time of a step, the median of the last ones.",
    "taut_job_last_step": "Number of the last step that all ranks completed.",
    "taut_job_world_ranks": "Ranks that the job says it has.",
    "taut_job_ranks": "Ranks of the job by state: heard, lost (silent for too long), ended (said goodbye).",
    "taut_job_class": "Class of the verdict: 1 for the one that holds.",
    "taut_job_regime": "Regime by the last analysis: 1 for the one that holds; none before the first.",
    "taut_job_reserve_ratio": "Factor by which jitter may still grow before one more accelerator stops paying.",
    "taut_job_reserve_lower_ratio": "Lower end of the interval of the reserve.",
    "taut_job_reserve_upper_ratio": "Upper end of the interval of the reserve.",
    "taut_job_open_findings": "Findings that are open.",
    "taut_job_received_events_total": "Events of all ranks that arrived.",
    "taut_job_lost_events_total": "Events that did not arrive (dropped, missing) or were not used (unnamed, strange, over).",
    "taut_job_watching_faults_total": "Faults of the watching inside the ranks; the job itself goes on.",
    "taut_rank_heard": "Whether the rank is heard; only of the latest ranks of a job.",
    "taut_rank_late_seconds": "How late the rank comes to its gates behind the middle member; only of the latest ranks.",
    "taut_rank_busy_excess_seconds": "How much longer than the middle rank it is busy in a step, outside of calls that wait.",
    "taut_rank_loader_excess_seconds": "How much longer than the middle rank it is in its loader in a step.",
    "taut_rank_dropped_events": "Events that the present process of the rank could not send.",
    "taut_finding_open": "A finding that is open: 1, with mode and place.",
    "taut_finding_cost_per_hour": "What an open finding costs an hour while it lasts, in the currency of its label.",
}
"""Every metric and what it means, in the order in which they are told."""


def exposition(state: LiveState, version: str) -> bytes:
    """All metrics of a collector; of samples with the same labels the first is told."""
    found: dict[str, dict[str, float]] = {name: {} for name in METRICS}
    for name, labels, value in _samples(state, version):
        if value is not None:
            found[name].setdefault(_labels(labels), value)
    lines = []
    for name, samples in found.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels} {value!r}" for labels, value in samples.items()]
    return ("\n".join(lines) + "\n").encode()


def _samples(state: LiveState, version: str) -> Iterator[Sample]:
    yield "taut_collector_info", {"version": version}, 1
    yield "taut_collector_start_time_seconds", {}, state.since_ns / 1e9
    yield "taut_collector_seen_time_seconds", {}, state.at_ns / 1e9
    for count, (name, _) in COUNTS.items():
        yield name, {}, state.counts.get(count, 0)
    for job in state.jobs:
        yield from _job(job)
        yield from _ranks(job)
        for finding in job.findings:
            yield from _finding(finding)


def _job(job: WatchedJob) -> Iterator[Sample]:
    of, reserve = {"job_name": job.job}, job.reserve
    yield "taut_job_step_seconds", of, _seconds(job.step_ns)
    yield "taut_job_last_step", of, job.last_step
    yield "taut_job_world_ranks", of, job.world
    for state, ranks in (("heard", job.heard), ("lost", job.lost), ("ended", job.ended)):
        yield "taut_job_ranks", {**of, "state": state}, ranks
    for kind in CLASSES:
        yield "taut_job_class", {**of, "class": kind}, int(job.kind == kind)
    for regime in REGIMES if job.regime else ():
        yield "taut_job_regime", {**of, "regime": regime}, int(job.regime == regime)
    yield "taut_job_reserve_ratio", of, reserve.value if reserve else None
    yield "taut_job_reserve_lower_ratio", of, reserve.lo if reserve else None
    yield "taut_job_reserve_upper_ratio", of, reserve.hi if reserve else None
    yield "taut_job_open_findings", of, len(job.findings)
    yield "taut_job_received_events_total", of, job.received
    for reason in REASONS:
        yield "taut_job_lost_events_total", {**of, "reason": reason}, job.not_received.get(reason, 0)
    yield "taut_job_watching_faults_total", of, job.not_received.get("faults", 0)


def _ranks(job: WatchedJob) -> Iterator[Sample]:
    for one in job.ranks:
        of = {"job_name": job.job, "rank": str(one.rank), "host": one.host or ""}
        yield "taut_rank_heard", of, int(one.state == "heard")
        yield "taut_rank_late_seconds", of, _seconds(one.late_ns)
        yield "taut_rank_busy_excess_seconds", of, _seconds(one.busy_ns)
        yield "taut_rank_loader_excess_seconds", of, _seconds(one.loader_ns)
        yield "taut_rank_dropped_events", of, one.dropped


def _finding(one: LiveFinding) -> Iterator[Sample]:
    hosts = list(dict.fromkeys(host for host in one.hosts if host))
    of = {
        "job_name": one.job, "mode": one.mode, "rank": listed([str(rank) for rank in one.ranks]), "link": listed(one.links),
        "host": listed(hosts), "finding": one.id,
    }  # fmt: skip
    yield "taut_finding_open", of, 1
    if one.money_per_hour is not None:
        yield "taut_finding_cost_per_hour", {**of, "currency": one.currency or ""}, float(one.money_per_hour)


def _labels(labels: Labels) -> str:
    """Labels as they are written; an empty one is none."""
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    """A name as a label: it may hold anything, and is shown by dashboards, mails and terminals of others."""
    return safe(value[:LONGEST]).replace("\\", "\\\\").replace('"', '\\"')


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
