"""The analysis in the words and keys of the JSON contract, and the verdict."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Mask
from taut.core.ids import least, numbered, weighed
from taut.core.row_shares import meanwhile
from taut.core.tables import Kind, Verb
from taut.diagnose.components import components, summary
from taut.diagnose.discarded_calls import redundant
from taut.diagnose.failed_spans import failed_spans
from taut.diagnose.fan_out_tails import tails
from taut.diagnose.job_indices import indices, needs
from taut.diagnose.job_regime import regime
from taut.diagnose.kept_steps import executed, progress
from taut.graph import Graph
from taut.ledger.device_use import device_use
from taut.replay.blame import AtSome
from taut.replay.whatif import link_ends
from taut.result.analysis_verdict import analysis_verdict, why_no_gate
from taut.result.finding_result import finding_result
from taut.result.jobs_result import block, notes
from taut.result.nominal_share import utilised_and_productive
from taut.result.rank_rows import rank_rows
from taut.result.risk_profile import risk_profile
from taut.result.savings import saved_share
from taut.result.types import (
    AnalysisResult,
    AttemptsResult,
    Blame,
    Cause,
    Clock,
    Collective,
    ControlResult,
    EarlyWarning,
    Envelope,
    Estimate,
    Explained,
    Fidelity,
    Finding,
    GateRow,
    Indices,
    Job,
    LedgerResult,
    Money,
    Phase,
    Redundant,
    Verdict,
    Waits,
    WhatIf,
    Window,
)

if TYPE_CHECKING:
    from taut.diagnose.finding import Finding as Diagnosed
    from taut.graph import Graph
    from taut.result.computed import Computed

EXPLAINED_NS = 100_000
"""A start is explained if an edge accounts for it up to this much, or up to a tenth of the op."""
PART = 1 << 17
"""Ops that are looked at together where each is looked at by itself: temporaries are small."""
TOP_CAUSES = 10
MOST_GATES, MOST_CLASSES = 100, 20
"""Gates and classes of collectives that are listed."""
CENT = Decimal("0.01")
PHASES: dict[str, Phase] = {"prefill": "prefill", "decode": "decode", "mixed": "mixed"}


def report(a: Computed) -> AnalysisResult:
    """The whole result."""
    g = a.graph
    used = meanwhile(lambda: None if g.device is None else device_use(g, g.device))
    known = next((f.structure.regime for f in a.findings if f.structure is not None), None)
    job_regime = meanwhile(lambda: known or regime(a.batch, a.blame, a.findings, a.pays))
    fidelity, controlled, parts = _fidelity(a), _control(a), components(g)
    attempts = _attempts(a)
    beside = summary(parts, a.recoverable_wall_ns / max(a.observed.wall_ns, 1))
    step_ns, found = a.observed.wall_ns / max(len(g.steps), 1), _indices(a)
    result = AnalysisResult(
        verdict=_beside_nominal(analysis_verdict(a, fidelity.explained_share, controlled, beside), a),
        job=_job(a, attempts),
        fidelity=fidelity,
        whatif=_whatif(a),
        blame=_blame(a),
        waits=_waits(a),
        coupling=a.coupling.entry(),
        windows=_windows(a),
        gates=_gates(a),
        collectives=_undivided(a),
        findings=[_finding(f, a) for f in a.findings],
        early_warning=_early(a),
        components=parts,
        recoverable_wall_ns=a.recoverable_wall_ns,
        indices=found,
        index_needs=needs(found, a.observed, a.ledger.energy_known),
        regime=job_regime(),
        envelope=_envelope(a) if a.ask_envelope else None,
        redundant=_redundant(a),
        tails=tails(g),
        progress=progress(g.trace.progress, g.trace.world_size or len(g.ranks), step_ns),
        ledger=LedgerResult(
            total_rank_ns=a.ledger.total_rank_ns,
            entries=a.ledger.entries(),
            currency=a.ledger.prices.currency,
            closes=a.ledger.closes,
            hidden_wait_rank_ns=a.ledger.hidden_wait_rank_ns,
            energy=a.ledger.energy_told,
        ),
        attempts=attempts,
        control=controlled,
        ranks=rank_rows(a),
        device=used(),
        failed=failed_spans(g.trace),
        baseline=a.baseline,
    )
    return replace(result, risk=risk_profile(a, result))


def _beside_nominal(verdict: Verdict, a: Computed) -> Verdict:
    """The verdict with what a dashboard would show, and what was produced."""
    both = utilised_and_productive(a)
    return replace(verdict, nominal_share=both.nominal, nominal_is=both.source, effective_share=both.effective)


def _whatif(a: Computed) -> WhatIf:
    w = a.whatif
    return WhatIf(
        actual_wall_ns=w.actual_wall_ns,
        ideal_wall_ns=w.ideal_wall_ns,
        slowdown=w.slowdown,
        by={dimension: dict(found) for dimension, found in w.by.items()},
        explained=Explained(worst_ranks=w.worst_ranks, last_stage=w.last_stage),
    )


def _control(a: Computed) -> ControlResult | None:
    """Relations between controllers, where they lie on the graph and what they cost; None without actions."""
    if a.ledger.overhead is None:
        return None
    from taut.ledger.zones import control_on_graph

    return control_on_graph(a.graph, a.ledger)


def _attempts(a: Computed) -> AttemptsResult | None:
    ops, origin = a.graph.ops, int(a.graph.origin_ns.min())
    window = (
        None if a.graph.trace.relative or not len(ops) else (int(ops.start_ns.min()) + origin, int(ops.end_ns.max()) + origin)
    )
    return block(a.graph.trace.attempts, a.attempts, window)


def _job(a: Computed, attempts: AttemptsResult | None) -> Job:
    g, untargeted = a.graph, a.ledger.overhead.on.untargeted if a.ledger.overhead else ()
    return Job(
        name=g.trace.name,
        ranks=len(g.ranks),
        world_size=g.trace.world_size,
        steps=len(g.steps),
        unit="window" if _without_steps(g) else "step",
        names={str(r): name for r, name in zip(g.ranks.tolist(), g.members.name, strict=True) if name},
        first_step=int(g.steps[0]),
        last_step=int(g.steps[-1]),
        ops=len(g),
        edges=g.edges,
        gates=len(g.gates),
        wall_ns=a.observed.wall_ns,
        partial=[*g.partial, *_never_met(g), *_unplaced(a), *notes(a.attempts, attempts), *untargeted],
        counts=dict(g.counts),
    )


def _never_met(g: Graph) -> list[str]:
    """Ranks that meet nowhere."""
    why = why_no_gate(g)
    return [f"no rank meets another: {why}, so who waits for whom cannot be told"] if why else []


def _without_steps(g: Graph) -> bool:
    """Whether no steps were found, so that the whole trace is one window."""
    return len(g.steps) == 1 and any("the whole trace is one " in note for note in g.partial)


def _unplaced(a: Computed) -> list[str]:
    """Ranks that the topology does not place."""
    ranks = a.topology.unplaced(a.graph.members) if a.topology is not None else []
    some = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return [f"the topology does not place rank {some}: hops to it are null"] if ranks else []


def _fidelity(a: Computed) -> Fidelity:
    g, clock = a.graph, a.graph.clock
    wrong = int((a.observed.end_ns != g.ops.end_ns).sum() + (a.observed.arrival_ns != g.ops.start_ns).sum())
    offsets = zip(clock.rank, clock.offset_ns, clock.lo_ns, clock.hi_ns, strict=True)
    return Fidelity(
        replay_error=0.0 if wrong == 0 else wrong / (2 * len(g)),
        gapfree_error=a.gap_free.wall_ns / max(a.observed.wall_ns, 1) - 1,
        explained_share=sum(_explained(g, slice(at, at + PART)) for at in range(0, len(g), PART)) / len(g),
        dropped_edges=g.dropped_edges,
        clock=Clock(
            offset_ns={str(r): Estimate(value=int(v), lo=int(lo), hi=int(hi)) for r, v, lo, hi in offsets},
            drift_ppm={str(r): None if np.isnan(d) else float(d) for r, d in zip(clock.rank, clock.drift_ppm, strict=True)},
            residual_ns=g.clock_residual_ns,
        ),
    )


def _explained(g: Graph, rows: slice) -> int:
    """How many ops of some in a row begin when an edge says."""
    length = g.ops.end_ns[rows] - g.ops.start_ns[rows]
    return int(np.count_nonzero(g.explained[rows] & (g.gap_ns[rows] <= np.maximum(EXPLAINED_NS, length // 10))))


def _redundant(a: Computed) -> Redundant | None:
    """Calls whose result was thrown away, and what the tokens cost."""
    found, prices = redundant(a.graph.trace), a.ledger.prices
    if found is None:
        return None
    money = prices.tokens(found.tokens_in, found.tokens_out)
    return replace(found, money=money, currency=prices.token_currency if money is not None else None)


def _waits(a: Computed) -> Waits:
    totals = a.ledger.wait_parts
    return Waits(
        observed_rank_ns=totals.wait_ns,
        exposed_rank_ns=totals.wait_ns - a.ledger.hidden_wait_rank_ns,
        fault_rank_ns=totals.fault_ns,
        jitter_rank_ns=totals.jitter_ns,
        structural_rank_ns=totals.structural_ns,
        gap_rank_ns=totals.gap_ns,
        unexplained_rank_ns=totals.unexplained_ns,
    )


def _finding(f: Diagnosed, a: Computed) -> Finding:
    replayed = f.saved_ns is not None and f.structure is None
    return finding_result(f, _money(f, a), a.graph.members, saved_share(a, f) if replayed else None)


def _money(f: Diagnosed, a: Computed) -> Money | None:
    """What all ranks cost while the wall clock loses what mending would gain, at most the job; None without price or gain."""
    prices, ranks, wall_ns = a.ledger.prices, len(a.graph.ranks), a.observed.wall_ns
    recovered_ns = min(f.recoverable_wall_ns, wall_ns)
    window = a.ledger.price(recovered_ns * ranks)
    if window is None or prices.base_rate is None or prices.currency is None or recovered_ns <= 0:
        return None
    hour = prices.base_rate * ranks * recovered_ns / wall_ns
    per_hour, per_day = (str(one.quantize(CENT)) for one in (hour, 24 * hour))
    return Money(window=window, per_hour=per_hour, per_day=per_day, currency=prices.currency)


def _early(a: Computed) -> list[EarlyWarning] | None:
    """Series that recover ever more slowly, the clearest first: evidence of what may come, without a cost."""
    g = a.graph
    if a.early is None:
        return None
    return [
        EarlyWarning(
            rank=int(g.ranks[one.rank]) if one.rank >= 0 else None,
            steps=(int(g.steps[0]), int(g.steps[one.last])),
            autocorrelation=list(one.memory),
            variance_ratio=one.variance,
            autocorrelation_tau=one.tau[0],
            variance_tau=one.tau[1],
            confidence=1 - one.chance,
            because=one.text,
        )
        for one in a.early
    ]


def _blame(a: Computed) -> list[Blame]:
    """Causes by rank and class (or link), with the wait they caused and what fixing them would recover."""
    g, b, held = a.graph, a.blame, a.ledger.overhead
    ops = np.union1d(b.fault.ops, b.gap.ops).astype(np.int64)
    if len(ops) == 0:
        return []
    by_fault, by_gap = (AtSome(np.searchsorted(ops, one.ops), one.ns).of_all(len(ops)) for one in (b.fault, b.gap))
    index, sender = g.rank_index, link_ends(g)[0][ops]
    by_link = (g.ops.kind[ops] == Kind.COMMUNICATE) & (sender >= 0) & (by_fault > 0)
    from_gap = (by_gap > by_fault).astype(np.int64)
    ids, count = numbered(index[ops], g.ops.name[ops], by_link, from_gap)
    sums = np.bincount(ids, weights=by_fault + by_gap, minlength=count)
    top = np.argsort(-sums, kind="stable")[:TOP_CAUSES]
    place = np.full((len(g.ranks), len(g.names)), -1, dtype=np.int32)
    rows = []
    for k, cause in enumerate(top):
        mine = np.flatnonzero(ids == cause)
        where = index[ops[mine[0]]], g.ops.name[ops[mine[0]]]
        place[where] = k if place[where] < 0 else place[where]
        rows.append((mine, int(sums[cause]), int(place[where])))
    key = place[index, g.ops.name]
    walls = a.batch.walls(g.work_ns, b.usual_ns, key, len(rows), g.gap_ns, b.usual_gap_ns).sum(axis=0)
    total = max(b.totals.wait_ns, 1)
    out = []
    for mine, wait, k in rows:
        first, op = mine[0], ops[mine[0]]
        gates = g.gate[ops[mine]]
        stage = int(g.members.stage[index[op]])
        link = f"{int(sender[first])}:{int(g.ops.rank[op])}" if by_link[first] else None
        steps = g.steps[g.window[ops[mine]]]
        gpu = int(g.members.gpu[index[op]])
        cause = Cause(
            rank=int(g.ops.rank[op]),
            host=g.members.host[index[op]] or None,
            gpu=gpu if gpu >= 0 else None,
            stage=stage if stage >= 0 else None,
            op_class=("gap before " if from_gap[first] else "") + g.names[g.ops.name[op]],
            link=link,
            group=None,
            controller=held.controller(ops[mine]) if held and from_gap[first] else None,
        )
        out.append(
            Blame(
                cause=cause,
                wait_rank_ns=wait,
                share=wait / total,
                recoverable_wall_ns=int(a.observed.wall_ns - walls[k]),
                steps=(int(steps.min()), int(steps.max())),
                gates=(int(gates[gates >= 0].min()), int(gates.max())) if (gates >= 0).any() else None,
            )
        )
    return out


def _windows(a: Computed) -> list[Window]:
    """Step by step: how long it took, the wait that faults and gaps caused in it, and the rank that caused most."""
    g, b = a.graph, a.blame
    ops, ns = (np.concatenate([getattr(one, part) for one in (b.fault, b.gap)]) for part in ("ops", "ns"))
    by_rank = weighed(g.rank_step[ops], ns, len(g.ranks) * len(g.steps)).reshape(len(g.ranks), -1)
    top, total = by_rank.argmax(axis=0), by_rank.sum(axis=0)
    turnover = a.coupling.turnover.distance
    return [
        Window(
            step=int(step),
            wall_ns=int(wall),
            caused_rank_ns=int(total[w]),
            top_cause=int(g.ranks[top[w]]) if total[w] > 0 else None,
            effective_throughput_ratio=float(a.whatif.ideal_ns[w] / max(a.whatif.actual_ns[w], 1)),
            turnover=float(turnover[w]) if np.isfinite(turnover[w]) else None,
            phase=PHASES.get(g.phases[w]),
        )
        for w, (step, wall) in enumerate(zip(g.steps, a.observed.window_ns, strict=True))
    ]


def _gates(a: Computed) -> list[GateRow]:
    """Who was last, gate by gate: the first of them."""
    g, t = a.graph, a.graph.gates
    order = np.argsort(t.opens_ns, kind="stable") if g.trace.relative is False else np.arange(len(t))
    return [
        GateRow(
            gate=int(t.gate[i]),
            op_class=g.names[t.name[i]],
            step=int(t.step[i]),
            members=int(t.members[i]),
            last_rank=int(t.last_rank[i]),
            late_ns=int(t.late_ns[i]),
        )
        for i in order[:MOST_GATES]
    ]


def _undivided(a: Computed) -> list[Collective]:
    """Collectives whose other members were not traced: time above the floor is an upper bound of their wait.

    The floor is bytes over the best bandwidth that this trace shows for the verb; without sizes, the fastest call.
    """
    g = a.graph
    ops = g.ops
    rows = np.flatnonzero((ops.verb != Verb.NONE) & (g.gate < 0))
    if len(rows) == 0:
        return []
    took = (ops.end_ns - ops.start_ns)[rows]
    size, verb = ops.size[rows], ops.verb[rows].astype(np.int64)
    rate = np.where(size > 0, size / np.maximum(took, 1), 0.0)
    best = np.zeros(int(verb.max()) + 1)
    np.maximum.at(best, verb, rate)
    ids, count = numbered(ops.name[rows], size)
    fastest = least(ids, count, took)[ids]
    floor = np.where(best[verb] * (size > 0) > 0, np.minimum(size / np.maximum(best[verb], 1e-12), fastest), fastest)
    over = np.maximum(took - floor, 0)
    out = []
    for k in range(count):
        mine = ids == k
        first = rows[mine][0]
        out.append(
            Collective(
                op_class=g.names[ops.name[first]],
                size_bytes=int(ops.size[first]) if ops.size[first] >= 0 else None,
                count=int(mine.sum()),
                rank_ns=int(took[mine].sum()),
                floor_ns=int(floor[mine][0]),
                wait_upper_bound_rank_ns=int(over[mine].sum()),
            )
        )
    return sorted(out, key=lambda row: -row.wait_upper_bound_rank_ns)[:MOST_CLASSES]


def _envelope(a: Computed) -> Envelope | None:
    from taut.diagnose.failure_envelope import envelope

    return envelope(a.batch, a.blame, a.findings)


def _indices(a: Computed) -> Indices:
    done = executed(a.graph.trace.progress)
    from_logs = a.attempts.discarded_steps() if done is None and a.attempts is not None else None
    return indices(
        a.observed,
        a.gap_free,
        a.blame,
        a.whatif,
        a.ledger.energy(a.graph.steps),
        discarded=from_logs if done is None else done.discarded,
        kept=_kept(from_logs) if done is None else done.kept,
    )


def _kept(discarded: Mask | None) -> float:
    """Share of executed steps that were kept, all of them where no log tells."""
    return 1.0 if discarded is None else float(1 - discarded.mean())
