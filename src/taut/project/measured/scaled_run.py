"""From measurement to projection: a measured job with more replicas of itself, under weak scaling.

A rank keeps its work, its gaps and its place in the pipeline; what grows is whom it meets. At every gate that grows, further
replicas join with the same residuals (``residuals.py``), and transfers take the rounds and bytes of the larger group
(``transfer_growth.py``). The measured graph is replayed with both, once for every draw of what was not measured exactly.
Findings are mended first: a fault is not structure. A structural instability is none, and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Numbers
from taut.core.errors import UsageError
from taut.core.ids import least, numbered
from taut.core.interval import drawn
from taut.diagnose.detectors import Evidence, Finding, diagnose
from taut.diagnose.instability import instability
from taut.diagnose.job_regime import mended
from taut.graph import Graph
from taut.project.measured.fitted_noise import FittedNoise, hiccups_among
from taut.project.measured.meetings import Meeting, meeting
from taut.project.measured.residuals import TAILS, Residuals, lateness
from taut.project.measured.transfer_growth import Transfers, verb_of
from taut.project.measured.widened_graph import Widened
from taut.project.noise import RunNoise
from taut.project.time_groups import bound_by, grouped, largest_term
from taut.replay.blame import blame
from taut.replay.reference import across
from taut.replay.timeline import Batch, Change, batch, replay
from taut.result import types

# Draws behind an interval, for each tail.
DRAWS = 60
# Quantiles of the draws that are the ends of an interval: it covers 90 %; the tails' intervals are joined.
LEVEL = (0.05, 0.95)
# Fewer steps tell no jitter.
LEAST_STEPS = 4
# A forecast for more than so many times the measured ranks is a guess, and so is one for shorter messages than that.
RANGE = 4.0
# Transfers that take this share of a step, and leave its mean open by as much, must be known at more than one size.
UNSURE = 0.1
# Work beyond the third quartile of its class by so many times the middle half is a stall (Tukey's far out).
FAR = 3.0


@dataclass(frozen=True)
class Forecast:
    """What a measured job gives with more ranks."""

    ranks: int
    step_ns: tuple[float, float, float]
    """p10, p50 and p90 of a step."""
    mean_ns: tuple[float, float, float]
    """Mean of a step with its interval: value, lo, hi."""
    ideal_ns: float
    """Mean step of the measured job with every op at its reference, without gaps."""
    terms_ns: dict[str, float]
    """What the mean step is made of."""
    beyond: tuple[str, ...]
    """Why this is a guess; empty if it is none."""

    @property
    def in_range(self) -> bool:
        """Whether the measurement bears the forecast."""
        return not self.beyond

    @property
    def dominant(self) -> str:
        """The largest term of the group that the scale is bound by."""
        return largest_term(self.terms_ns, grouped(self.terms_ns))

    def entry(self) -> types.Forecast:
        """Its part of the result; what a trace does not say is None."""
        (value, low, high), (p10, p50, p90) = self.mean_ns, self.step_ns
        return types.Forecast(
            ranks=self.ranks,
            step_ns=types.Quantiles(p10=p10, p50=p50, p90=p90),
            mean_step_ns=types.Estimate(value=value, lo=low, hi=high),
            tflops_per_device=None,
            mfu=None,
            # What was mended may run ahead of the references of the whole run: no share is more than all.
            effective_throughput_ratio=types.Estimate(
                value=min(self.ideal_ns / value, 1.0), lo=min(self.ideal_ns / high, 1.0), hi=min(self.ideal_ns / low, 1.0)
            ),
            cost_per_unit=None,
            energy_per_unit_j=None,
            dominant=self.dominant,
            terms_ns=self.terms_ns,
            in_range=self.in_range,
            beyond=list(self.beyond),
            groups=grouped(self.terms_ns),
            bound=bound_by(grouped(self.terms_ns)),
        )


@dataclass(frozen=True)
class Measured:
    """What a projection takes from a measured job, findings mended."""

    graph: Graph
    batch: Batch
    meeting: Meeting
    transfers: Transfers
    moves: Ints
    """Per op: its class among the transfers that grow, -1 for none."""
    usual_ns: Numbers
    work_ns: Numbers
    gap_ns: Numbers
    fastest_ns: Numbers
    """Per op: the quickest of its class."""
    fastest_gap_ns: Numbers
    stall_ns: Floats
    """Per op: what of its work lies far out of its class: rare, and not known to come with messages."""
    stall_gap_ns: Floats
    ideal_ns: float
    mended: tuple[str, ...]
    """Findings that were mended."""

    @property
    def ranks(self) -> int:
        """Ranks of the job, untraced ones included."""
        return max(int(self.graph.trace.world_size or 0), len(self.graph.ranks))

    def forecasts(self, ranks: Sequence[int], *, same_hosts: bool = False, seed: int = 0) -> list[Forecast]:
        """A forecast for each number of ranks; with ``same_hosts`` they share the hosts that were measured."""
        return [_forecast(self, n, same_hosts, seed) for n in ranks]

    @cached_property
    def hiccups(self) -> list[FittedNoise]:
        """Hiccups at the gates that grow, as a scenario would say them; a row for each kind of gate that has some."""
        if self.meeting.replicas < 2:
            return []
        met = Widened(self, 1.0, 1.0).residuals(np.ones(len(self.transfers.verb)))
        return [] if met is None else [fit for fit, _ in met.fits if fit.hiccups]

    def assumed(self, same_hosts: bool = False) -> list[str]:
        """What every forecast rests on, one line each."""
        t = self.transfers
        sizes = (
            "latency and bandwidth were fitted to collectives of different sizes"
            if t.sizes_differ
            else "collectives of one size do not tell latency from bandwidth: the share was drawn from what networks are like"
        )
        hosts = (
            "more ranks share the same hosts, where nothing else runs: none to all of transfers, gaps, and what work takes "
            "beyond its quickest grows with them"
            if same_hosts
            else "more ranks come with as many more hosts on the same kind of fabric"
        )
        return [
            "weak scaling: a rank keeps its work and its gaps",
            *self.meeting.text,
            "further replicas stray at gates as the measured ones do; beyond what was seen jitter goes on as a normal or an "
            "exponential tail",
            *(line for fit in self.hiccups for line in fit.text()),
            *([sizes] if len(t.verb) else []),
            "rare stalls grow by a power between none and all of what transfers grow by",
            "collectives pass data round a ring of all members"
            + (", as gloo does" if t.gloo else ", or take the quickest algorithm: half of the draws each"),
            hosts,
            *(f"mended first: {text}" for text in self.mended),
        ]


def learn(graph: Graph, findings: Sequence[Finding] | None = None, *, apart: int | None = None) -> Measured:
    """What a graph says about more ranks; ``apart`` names the groups that grow (see ``meetings.py``)."""
    if len(graph.steps) < LEAST_STEPS or len(graph.ranks) < 2:
        raise UsageError(
            f"{len(graph.steps)} steps of {len(graph.ranks)} ranks tell no jitter; give a run of at least "
            f"{LEAST_STEPS} steps and 2 ranks"
        )
    observed, prepared = replay(graph), batch(graph)
    blamed = blame(graph, observed, replay(graph, gaps=False))
    if findings is None:
        evidence = Evidence(graph, observed, blamed, prepared)
        # Ranks that are each late for a few steps are no stragglers: such hiccups are projected, not mended.
        findings, _ = instability(evidence, diagnose(evidence))
    usual, work, gap = mended(graph, blamed, findings)
    met = meeting(graph, apart)
    moves, transfers = _transfers(graph, met, work)
    ops = graph.ops
    cls, classes = numbered(graph.roles, ops.name, ops.size, graph.place)
    ideal = replay(graph, [Change(np.arange(len(graph)), "work", "set", across(graph))], gaps=False)
    return Measured(
        graph,
        prepared,
        met,
        transfers,
        moves,
        usual,
        work,
        gap,
        least(cls, classes, work)[cls],
        least(cls, classes, gap)[cls],
        _far_out(work, cls, classes),
        _far_out(gap, cls, classes),
        float(ideal.window_ns.mean()),
        tuple(f"{f.mode}, {_where(f)}" for f in findings if f.changes),
    )


def noise_of(graph: Graph, ratios: Floats) -> RunNoise:
    """What a scenario may take from a run: work over its reference (``ratios``), and the hiccups at gates apart from it."""
    if len(graph.steps) < LEAST_STEPS or len(graph.ranks) < 2:
        return RunNoise(ratios)
    found = learn(graph, ()).hiccups
    if not found:
        return RunNoise(ratios)
    most = max(found, key=lambda fit: fit.noise.hiccups_per_1000_steps * fit.noise.hiccup_ms)
    body = ratios[~hiccups_among(ratios - 1)]
    # A step has the hiccups of all its gates.
    often = sum(fit.noise.hiccups_per_1000_steps for fit in found)
    return RunNoise(body / body.mean(), replace(most.noise, hiccups_per_1000_steps=min(often, 1000.0)))


def _far_out(values: Numbers, cls: Ints, classes: int) -> Floats:
    """Per op: what of a value lies far out of its class."""
    order = np.lexsort((values, cls))
    count = np.bincount(cls, minlength=classes)
    first = np.cumsum(count) - count
    # Quartiles of each class, read off the sorted values.
    low, high = (values[order][first + (q * (count - 1)).astype(np.int64)] for q in (0.25, 0.75))
    found: Floats = np.maximum(values - (high + FAR * (high - low))[cls], 0.0)
    return found


def _where(finding: Finding) -> str:
    for word, places in (("link", finding.links), ("rank", finding.ranks), ("stage", finding.stages)):
        if places:
            return f"{word} {', '.join(map(str, places))}"
    return ", ".join(finding.classes) or "the job"


def _transfers(graph: Graph, met: Meeting, work: Numbers) -> tuple[Ints, Transfers]:
    """(class of every op among the transfers that grow, these classes)."""
    gates, windows = graph.gates, len(graph.steps)
    backend = graph.trace.backend
    moves = np.full(len(graph), -1, dtype=np.int64)
    growing = np.flatnonzero(met.grows)
    rows = np.flatnonzero(met.grows[graph.gate] & (graph.gate >= 0)) if len(growing) else growing
    if not len(rows):
        return moves, Transfers((), growing, growing, np.zeros((0, windows)), np.zeros(0), backend)
    of_gate = np.zeros(len(gates), dtype=np.int64)
    of_gate[growing], classes = numbered(gates.verb[growing], met.members[growing], gates.size[growing])
    moves[rows] = of_gate[graph.gate[rows]]
    first = np.zeros(classes, dtype=np.int64)
    first[of_gate[growing]] = growing
    took = np.empty((classes, windows))
    for k in range(classes):
        mine = rows[moves[rows] == k]
        took[k] = np.median(work[mine])
        order = mine[np.argsort(graph.window[mine], kind="stable")]
        cuts = np.flatnonzero(np.diff(graph.window[order])) + 1
        for part in np.split(order, cuts):
            took[k, graph.window[part[0]]] = np.median(work[part])
    weight = np.bincount(moves[rows], weights=work[rows], minlength=classes)
    return moves, Transfers(
        tuple(verb_of(int(v), backend) for v in gates.verb[first]),
        met.members[first],
        gates.size[first],
        took,
        weight / max(weight.sum(), 1.0),
        backend,
    )


def _forecast(m: Measured, ranks: int, same_hosts: bool, seed: int) -> Forecast:
    more = _replicas(m, ranks) - m.meeting.replicas
    job = Widened(m, ranks / m.ranks, ranks / m.ranks if same_hosts else 1.0)
    windows = drawn(len(m.graph.steps), draws=DRAWS, seed=seed)
    rng, evenly = np.random.default_rng(seed), (np.arange(DRAWS) + 0.5) / DRAWS
    at, share, power = (rng.permutation(evenly) for _ in range(3))
    best = (np.arange(DRAWS) % 2 == 0) & (not m.transfers.gloo)
    grown = m.transfers.grown(job.factor, windows, at, best)
    met = job.residuals(np.median(grown, axis=0)) if more > 0 and m.meeting.replicas > 1 else None
    late = [np.zeros((DRAWS, 0)) if met is None else lateness(met, more, windows, tail, seed) for tail in TAILS]
    walls = np.stack([job.walls(grown, share, power, tail) for tail in late])
    means = walls[:, windows, np.arange(DRAWS)[:, None]].mean(axis=2)
    low, high = np.quantile(means, LEVEL, axis=1)
    value = float(np.median(means))
    steps = np.median(np.quantile(walls, (0.1, 0.5, 0.9), axis=1), axis=(1, 2))
    terms = job.terms(np.median(grown, axis=0), np.mean(late, axis=(0, 1)), value)
    interval = value, min(float(low.min()), value), max(float(high.max()), value)
    beyond = tuple(_warnings(m, ranks, met, interval, terms["transfer"] / value))
    return Forecast(ranks, tuple(steps.tolist()), interval, m.ideal_ns, terms, beyond)


def _replicas(m: Measured, ranks: int) -> int:
    """Replicas of so many ranks."""
    each = max(m.ranks // m.meeting.replicas, 1)
    if ranks < m.ranks:
        raise UsageError(f"{ranks} ranks are fewer than the {m.ranks} that were measured; ask for as many or more")
    if ranks % each:
        raise UsageError(f"{ranks} ranks are no whole number of replicas of {each} ranks each; choose a multiple of {each}")
    return ranks // each


def _warnings(m: Measured, ranks: int, met: Residuals | None, interval: tuple[float, float, float], moved: float) -> list[str]:
    """Why a forecast is a guess."""
    out = []
    if ranks > RANGE * m.ranks:
        out.append(f"{ranks} ranks are more than {RANGE:.0f} times the {m.ranks} that were measured")
    replicas = _replicas(m, ranks)
    if met is not None and replicas > met.seen:
        out.append(f"the last of {replicas} arrivals lies beyond the {met.seen} that were seen")
    if ranks > m.ranks and m.meeting.replicas < 2:
        out.append("one replica was measured: what replicas would wait and exchange is not in it")
    if len(m.graph.ranks) < m.ranks:
        out.append(f"{len(m.graph.ranks)} of {m.ranks} ranks were traced: the others are taken to be like them")
    t = m.transfers
    if ranks > m.ranks and len(t.verb) and (t.size > 0).any():
        now, then = t.bytes_per_round(t.members), t.bytes_per_round(np.rint(t.members * ranks / m.ranks))
        if (then > 0).any() and then[then > 0].min() * RANGE < now[now > 0].min():
            out.append("messages would be shorter than those seen")
    if moved > UNSURE and not t.sizes_differ and ranks > m.ranks and interval[2] - interval[1] > UNSURE * interval[0]:
        out.append("collectives of one size do not tell latency from bandwidth")
    return out
