"""The analysis in the words and keys of the JSON contract, and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins

from taut.core.ids import least, numbered
from taut.core.tables import Kind, Verb
from taut.diagnose.components import components, summary
from taut.diagnose.discarded_calls import redundant
from taut.diagnose.failure_envelope import envelope
from taut.diagnose.fan_out_tails import tails
from taut.diagnose.job_indices import indices
from taut.diagnose.job_regime import regime
from taut.diagnose.kept_steps import executed, progress
from taut.replay.whatif import link_ends
from taut.result.jobs_result import block, notes

if TYPE_CHECKING:
    from taut.diagnose.detectors import Finding
    from taut.graph import Graph
    from taut.result.computed import Computed

EXPLAINED_NS = 100_000
"""A start is explained if an edge accounts for it up to this much, or up to a tenth of the op."""
TOP_CAUSES = 10


def report(a: Computed) -> dict[str, Any]:
    """The whole result, ready for JSON."""
    g, fidelity = a.graph, _fidelity(a)
    ledger = {
        "total_rank_ns": a.ledger.total_rank_ns,
        "entries": a.ledger.entries(),
        "currency": a.ledger.prices.currency,
        "closes": a.ledger.closes,
        "hidden_wait_rank_ns": a.ledger.hidden_wait_rank_ns,
    }
    findings = [_finding(f) for f in a.findings]
    controlled = _control(a)
    parts = components(a.graph)
    beside = summary(parts, a.recoverable_wall_ns / max(a.observed.wall_ns, 1))
    return {
        "verdict": {**_verdict(a, fidelity["explained_share"], controlled), "components": beside},
        "job": _job(a),
        "fidelity": fidelity,
        "whatif": {
            "actual_wall_ns": a.whatif.actual_wall_ns, "ideal_wall_ns": a.whatif.ideal_wall_ns, "slowdown": a.whatif.slowdown,
            "by": a.whatif.by, "explained": {"worst_ranks": a.whatif.worst_ranks, "last_stage": a.whatif.last_stage},
        },
        "blame": _blame(a),
        "waits": _waits(a),
        "coupling": to_builtins(a.coupling.entry()),
        "windows": _windows(a),
        "gates": _gates(a),
        "collectives": _undivided(a),
        "findings": findings,
        "early_warning": _early(a),
        "components": parts,
        "recoverable_wall_ns": a.recoverable_wall_ns,
        "indices": _indices(a),
        "regime": regime(a.batch, a.blame, a.findings, a.pays),
        "envelope": envelope(a.batch, a.blame, a.findings) if a.ask_envelope else None,
        "redundant": _redundant(a),
        "tails": tails(g),
        "progress": progress(g.trace.progress, g.trace.world_size or len(g.ranks), a.observed.wall_ns / max(len(g.steps), 1)),
        "ledger": ledger,
        "attempts": _attempts(a),
        "control": controlled,
    }  # fmt: skip


def _control(a: Computed) -> dict[str, Any] | None:
    """Relations between controllers, where they lie on the graph and what they cost; None without actions."""
    if a.ledger.overhead is None:
        return None
    from taut.ledger.zones import controlled

    return controlled(a.graph, a.ledger)


def _attempts(a: Computed) -> dict[str, Any] | None:
    ops, origin = a.graph.ops, int(a.graph.origin_ns.min())
    window = (
        None if a.graph.trace.relative or not len(ops) else (int(ops.start_ns.min()) + origin, int(ops.end_ns.max()) + origin)
    )
    return block(a.graph.trace.attempts, a.attempts, window)


def _job(a: Computed) -> dict[str, Any]:
    g, untargeted = a.graph, a.ledger.overhead.on.untargeted if a.ledger.overhead else ()
    return {
        "name": g.trace.name, "ranks": len(g.ranks), "world_size": g.trace.world_size, "steps": len(g.steps),
        "names": {str(r): name for r, name in zip(g.ranks.tolist(), g.members.name, strict=True) if name},
        "first_step": int(g.steps[0]), "last_step": int(g.steps[-1]), "ops": len(g), "edges": g.edges, "gates": len(g.gates),
        "wall_ns": a.observed.wall_ns, "partial": [*g.partial, *_unplaced(a), *notes(a.attempts, _attempts(a)), *untargeted],
        "counts": dict(g.counts),
    }  # fmt: skip


def _unplaced(a: Computed) -> list[str]:
    """Ranks that the topology does not place."""
    ranks = a.topology.unplaced(a.graph.members) if a.topology is not None else []
    some = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return [f"the topology does not place rank {some}: hops to it are null"] if ranks else []


def _fidelity(a: Computed) -> dict[str, Any]:
    g, clock = a.graph, a.graph.clock
    observed = int((a.observed.end_ns != g.ops.end_ns).sum() + (a.observed.arrival_ns != g.ops.start_ns).sum())
    length = g.ops.end_ns - g.ops.start_ns
    explained = g.explained & (g.gap_ns <= np.maximum(EXPLAINED_NS, length // 10))
    return {
        "replay_error": 0.0 if observed == 0 else observed / (2 * len(g)),
        "gapfree_error": a.gap_free.wall_ns / max(a.observed.wall_ns, 1) - 1,
        "explained_share": float(explained.mean()),
        "dropped_edges": g.dropped_edges,
        "clock": {
            "offset_ns": {
                str(r): {"value": int(v), "lo": int(lo), "hi": int(hi)}
                for r, v, lo, hi in zip(clock.rank, clock.offset_ns, clock.lo_ns, clock.hi_ns, strict=True)
            },
            "drift_ppm": {str(r): None if np.isnan(d) else float(d) for r, d in zip(clock.rank, clock.drift_ppm, strict=True)},
            "residual_ns": g.clock_residual_ns,
        },
    }


def _redundant(a: Computed) -> dict[str, Any] | None:
    """Calls whose result was thrown away, and what the tokens cost."""
    found, prices = redundant(a.graph.trace), a.ledger.prices
    if found is None:
        return None
    money = prices.tokens(found["tokens_in"], found["tokens_out"])
    return {**found, "money": money, "currency": prices.token_currency if money is not None else None}


def _waits(a: Computed) -> dict[str, int]:
    totals = a.blame.totals
    return {
        "observed_rank_ns": totals["wait_ns"],
        "exposed_rank_ns": totals["wait_ns"] - a.ledger.hidden_wait_rank_ns,
        **{f"{part}_rank_ns": totals[f"{part}_ns"] for part in ("fault", "jitter", "structural", "gap", "unexplained")},
    }


def _finding(f: Any) -> dict[str, Any]:
    return {
        "id": f.id, "mode": f.mode, "ranks": list(f.ranks), "links": list(f.links), "stages": list(f.stages),
        "classes": list(f.classes), "steps": list(f.steps), "lost_rank_ns": f.lost_rank_ns,
        "recoverable_wall_ns": f.recoverable_wall_ns, "confidence": f.confidence, "because": f.because,
        "alternatives": list(f.alternatives),
    }  # fmt: skip


def _early(a: Computed) -> list[dict[str, Any]] | None:
    """Series that recover ever more slowly, the clearest first: evidence of what may come, without a cost."""
    g = a.graph
    if a.early is None:
        return None
    return [
        {
            "rank": int(g.ranks[one.rank]) if one.rank >= 0 else None, "steps": [int(g.steps[0]), int(g.steps[one.last])],
            "autocorrelation": list(one.memory), "variance_ratio": one.variance, "autocorrelation_tau": one.tau[0],
            "variance_tau": one.tau[1], "confidence": 1 - one.chance, "because": one.said,
        }
        for one in a.early
    ]  # fmt: skip


def _blame(a: Computed) -> list[dict[str, Any]]:
    """Causes by rank and class (or link), with the wait they caused and what fixing them would recover."""
    g, b, held = a.graph, a.blame, a.ledger.overhead
    caused = b.fault_ns + b.gap_ns
    ops = np.flatnonzero(caused)
    if len(ops) == 0:
        return []
    index, sender = g.rank_index, link_ends(g)[0]
    by_link = (g.ops.kind == Kind.COMMUNICATE) & (sender >= 0) & (b.fault_ns > 0)
    from_gap = (b.gap_ns > b.fault_ns).astype(np.int64)
    ids, count = numbered(index[ops], g.ops.name[ops], by_link[ops], from_gap[ops])
    sums = np.bincount(ids, weights=caused[ops], minlength=count)
    top = np.argsort(-sums, kind="stable")[:TOP_CAUSES]
    place = np.full((len(g.ranks), len(g.names)), -1, dtype=np.int64)
    rows = []
    for k, cause in enumerate(top):
        mine = ops[ids == cause]
        where = index[mine[0]], g.ops.name[mine[0]]
        place[where] = k if place[where] < 0 else place[where]
        rows.append((mine, int(sums[cause]), int(place[where])))
    key = place[index, g.ops.name]
    other_gap = np.where(np.isnan(b.gap_reference), g.gap_ns, np.minimum(g.gap_ns, np.nan_to_num(b.gap_reference)))
    walls = a.batch.walls(g.work_ns, b.usual_ns, key, len(rows), g.gap_ns, other_gap.astype(np.int64)).sum(axis=0)
    total = max(b.totals["wait_ns"], 1)
    out = []
    for mine, wait, k in rows:
        op = mine[0]
        gates = g.gate[mine]
        stage = int(g.members.stage[index[op]])
        link = f"{int(sender[op])}:{int(g.ops.rank[op])}" if by_link[op] else None
        steps = g.steps[g.window[mine]]
        out.append(
            {
                "cause": {
                    "rank": int(g.ops.rank[op]), "stage": stage if stage >= 0 else None,
                    "class": ("gap before " if from_gap[op] else "") + g.names[g.ops.name[op]],
                    "link": link, "group": None, "controller": held.controller(mine) if held and from_gap[op] else None,
                },
                "wait_rank_ns": wait, "share": wait / total, "recoverable_wall_ns": int(a.observed.wall_ns - walls[k]),
                "steps": [int(steps.min()), int(steps.max())],
                "gates": [int(gates[gates >= 0].min()), int(gates.max())] if (gates >= 0).any() else None,
            }
        )  # fmt: skip
    return out


def _windows(a: Computed) -> list[dict[str, Any]]:
    """Step by step: how long it took, the wait that faults and gaps caused in it, and the rank that caused most."""
    g, b = a.graph, a.blame
    caused = (b.fault_ns + b.gap_ns).astype(np.float64)
    by_rank = np.bincount(g.rank_index * len(g.steps) + g.window, weights=caused, minlength=len(g.ranks) * len(g.steps))
    by_rank = by_rank.reshape(len(g.ranks), -1)
    top, total = by_rank.argmax(axis=0), by_rank.sum(axis=0)
    turnover = a.coupling.turnover.distance
    return [
        {
            "step": int(step), "wall_ns": int(wall), "caused_rank_ns": int(total[w]),
            "top_cause": int(g.ranks[top[w]]) if total[w] > 0 else None,
            "effective_throughput_ratio": float(a.whatif.ideal_ns[w] / max(a.whatif.actual_ns[w], 1)),
            "turnover": float(turnover[w]) if np.isfinite(turnover[w]) else None,
        }
        for w, (step, wall) in enumerate(zip(g.steps, a.observed.window_ns, strict=True))
    ]  # fmt: skip


def _gates(a: Computed) -> list[dict[str, Any]]:
    """Who was last: per gate (the first hundred), and per rank over the run."""
    g = a.graph
    t = g.gates
    order = np.argsort(t.opens_ns, kind="stable") if g.trace.relative is False else np.arange(len(t))
    return [
        {
            "gate": int(t.gate[i]), "class": g.names[t.name[i]], "step": int(t.step[i]), "members": int(t.members[i]),
            "last_rank": int(t.last_rank[i]), "late_ns": int(t.late_ns[i]),
        }
        for i in order[:100]
    ]  # fmt: skip


def _undivided(a: Computed) -> list[dict[str, Any]]:
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
            {
                "class": g.names[ops.name[first]], "bytes": int(ops.size[first]) if ops.size[first] >= 0 else None,
                "count": int(mine.sum()), "rank_ns": int(took[mine].sum()), "floor_ns": int(floor[mine][0]),
                "wait_upper_bound_rank_ns": int(over[mine].sum()),
            }
        )  # fmt: skip
    return sorted(out, key=lambda row: -int(row["wait_upper_bound_rank_ns"]))[:20]


def _indices(a: Computed) -> dict[str, Any]:
    done = executed(a.graph.trace.progress)
    told = a.attempts.discarded_steps() if done is None and a.attempts is not None else None
    return indices(
        a.observed, a.gap_free, a.blame, a.whatif, *a.ledger.joules_by_step(a.graph.steps),
        discarded=told if done is None else done.discarded, kept=_kept(told) if done is None else done.kept,
    )  # fmt: skip


def _kept(discarded: Any) -> float:
    """Share of executed steps that were kept, all of them where no log tells."""
    return 1.0 if discarded is None else float(1 - discarded.mean())


def _bound(fates: dict[str, int]) -> str:
    """What the rank-time is bound by."""
    groups = {
        "compute": fates["productive"] + fates["slow compute"] + fates["discarded"],
        "communication": fates["exposed transfer"] + fates["communication undivided"],
        "synchronisation": fates["fault wait"] + fates["jitter wait"] + fates["structural wait"],
        "host": fates["gap"] + fates["control overhead"],
    }
    return max(groups, key=lambda k: groups[k])


def _verdict(a: Computed, explained: float, controlled: dict[str, Any] | None) -> dict[str, Any]:
    """The answer in a sentence or two, its class, and what the time is bound by."""
    g, fates = a.graph, a.ledger.by_fate
    share = {k: 100 * v / max(a.ledger.total_rank_ns, 1) for k, v in fates.items()}
    bound = _bound(fates)
    doubt = (
        "" if explained >= 0.5 else f" Only {100 * explained:.0f} % of starts are explained by an edge: treat this as a guess."
    )
    fought = _fought(a, controlled)
    if fought:
        text, kind = fought, "control"
    elif a.findings:
        text, kind = _found(a), "structural" if a.findings[0].mode == "work imbalance" else "component"
    elif len(g.ranks) == 1:
        text, kind = _alone(a, share), "unknown" if g.trace.world_size != 1 else "healthy"
    elif explained < 0.5:
        text, kind = "Unknown.", "unknown"
    elif share["structural wait"] >= STRUCTURAL:
        text, kind = (
            (
                f"No culprit: {share['structural wait']:.0f} % of the bill is structural waiting {_structure(a)}, "
                f"{share['jitter wait']:.0f} % jitter. {_worst_stage(a)}"
            ).strip(),
            "structural",
        )
    else:
        few = g.trace.world_size is not None and 2 * len(g.ranks) < g.trace.world_size
        text, kind = _quiet(a, share), "unknown" if few else "healthy"
        if few:
            text += f" {len(g.ranks)} of {g.trace.world_size} ranks were traced: what the others do is not known."
    return {"text": text + doubt, "class": kind, "bound": bound}


def _fought(a: Computed, controlled: dict[str, Any] | None) -> str | None:
    """What controllers did to the job, where that is the largest loss and nothing hangs."""
    if controlled is None or any(f.mode == "hang" for f in a.findings):
        return None
    from taut.ledger.zones import said

    return said(controlled, a.ledger)


STRUCTURAL = 5
"""Per cent of the bill in structural wait from which the verdict says structural."""


def _structure(a: Computed) -> str:
    """What structural waiting is: callers wait for whom they call; else roles and pipelines."""
    if not a.graph.trace.told:
        return "(imbalance between roles, pipeline bubble)"
    waits, members = a.blame.waits, a.graph.members
    by_rank = np.bincount(a.graph.rank_index[waits.opener], weights=waits.structural_ns, minlength=len(members))
    most = int(np.argmax(by_rank))
    return f"for calls, {100 * by_rank[most] / max(by_rank.sum(), 1):.0f} % of it for {members.name[most]}"


def _found(a: Computed) -> str:
    f = a.findings[0]
    more = f", and {len(a.findings) - 1} more" if len(a.findings) > 1 else ""
    if f.mode == "hang":
        stopped = f"rank{'s' if len(f.ranks) > 1 else ''} {', '.join(map(str, f.ranks))}"
        return f"Hang: {stopped} stopped, and the others wait for {'them' if len(f.ranks) > 1 else 'it'}{more}."
    verb = "hold" if len(f.links) > 1 or (len(f.ranks) > 1 and not f.links) else "holds"
    gain = 100 * f.recoverable_wall_ns / max(a.observed.wall_ns, 1)
    return (
        f"{f.mode.capitalize()}: {_place(f, a.graph)} {verb} the job up in steps {f.steps[0]}–{f.steps[1]}{more}. "
        f"Fixing it recovers {gain:.1f} % of the wall clock."
    )


def _place(f: Finding, g: Graph) -> str:
    """Where a finding is, in the words of a sentence: links, ranks, stages, or what all ranks do."""
    if f.links:
        return f"link {' and '.join(f.links)}"
    if f.ranks:
        named = dict(zip(g.ranks.tolist(), g.members.name, strict=True))
        return f"rank {', '.join(f'{rank} ({named[rank]})' if named[rank] else str(rank) for rank in f.ranks)}"
    return f"stage {', '.join(map(str, f.stages))}" if f.stages else f"{f.classes[0]} on all ranks" if f.classes else "the job"


def _alone(a: Computed, share: dict[str, float]) -> str:
    world = a.graph.trace.world_size
    text = f"One rank{f' of {world}' if world else ''}: {share['productive'] + share['slow compute']:.0f} % compute, "
    if world == 1:
        return text + f"{share['gap']:.0f} % gaps on the host."
    return text + (
        f"{share['communication undivided']:.0f} % exposed communication (waiting included, an upper bound), "
        f"{share['gap']:.0f} % gaps on the host. Who is waited for needs the traces of all ranks."
    )


def _quiet(a: Computed, share: dict[str, float]) -> str:
    waiting = 100 * (a.blame.totals["wait_ns"] - a.ledger.hidden_wait_rank_ns) / max(a.ledger.total_rank_ns, 1)
    text = (
        f"No finding: {share['productive']:.0f} % productive, {share['gap']:.0f} % gaps and waits for them; "
        f"in all {waiting:.0f} % waiting at gates"
    )
    totals = a.blame.totals
    if totals["gap_ns"] > 0.5 * totals["wait_ns"] and waiting >= 1:
        by_rank = np.bincount(a.graph.rank_index, weights=a.blame.gap_ns, minlength=len(a.graph.ranks))
        worst = int(np.argmax(by_rank))
        part = 100 * by_rank[worst] / max(totals["wait_ns"], 1)
        text += f", {part:.0f} % of it for gaps on rank {int(a.graph.ranks[worst])} (host, launch, input)"
        if len(a.graph.steps) < 3:
            text += f"; {len(a.graph.steps)} step cannot tell habit from accident" if len(a.graph.steps) == 1 else ""
    elif totals["unexplained_ns"] > 0.5 * totals["wait_ns"] and waiting >= 1:
        text += ", most of it unexplained: too few steps to know what is ordinary"
    else:
        text += ", all of it ordinary variation or structure"
    return text + "."


def _worst_stage(a: Computed) -> str:
    """The stage that is too long, if one clearly is."""
    stages = sorted(((v, k) for k, v in a.whatif.by.get("stage", {}).items()), reverse=True)
    if len(stages) < 2 or stages[0][0] < 1.02 or stages[0][0] - 1 < 2 * (stages[1][0] - 1):
        return ""
    return f"Stage {stages[0][1]} is the longest: alone it slows the job by {100 * (stages[0][0] - 1):.0f} %."
