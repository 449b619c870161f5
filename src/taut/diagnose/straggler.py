"""Straggler cascade: excess on few ops, wait on many ranks. Here for a rank's own work and for a link.

Null hypothesis for a rank: the net excess of the last arriver over its waiting peers is ordinary variation, inside the
prediction interval that the peers themselves give (Bonferroni over all waits of the run, see ``replay/blame.py``).
Null hypothesis for a link: its receiver ends ring collectives no later than the others do, beyond the spread of their
ends. Arrival order says rank, ending order says link, the endpoint two slow links share says NIC.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from taut.diagnose.finding import EPISODE_SHARE, EPISODE_STEPS, LISTED_SHARE, NOISE, Evidence, Finding, episodes, spell
from taut.graph import Graph
from taut.replay import Timeline
from taut.replay.blame import at_reference
from taut.replay.ring import Ring, late_receivers, ring, without
from taut.replay.whatif import link_ends
from taut.tables import Kind

MODE = "straggler cascade"


def detect(evidence: Evidence) -> list[Finding]:
    """Links first: what a slow link explains is not the fault of its receiver."""
    return [*_links(evidence), *_ranks(evidence)]


def _ranks(e: Evidence) -> list[Finding]:
    graph, blame = e.graph, e.blame
    own = graph.ops.kind != Kind.COMMUNICATE
    index = graph.rank_index
    cells = index * len(graph.steps) + graph.window
    caused = np.bincount(cells[own], weights=blame.fault_ns[own], minlength=len(graph.ranks) * len(graph.steps))
    caused = caused.reshape(len(graph.ranks), -1)
    score = _excess_score(e, own, cells).reshape(len(graph.ranks), -1)
    late = np.flatnonzero(caused.sum(axis=1) > 0).tolist()
    spans = [(r, a, b) for r in late for a, b in episodes(score[r]) if caused[r, a : b + 1].any()]
    if not spans:
        return []
    key = np.full(len(graph), -1, dtype=np.int64)
    for k, (r, a, b) in enumerate(spans):
        key[own & (index == r) & (graph.window >= a) & (graph.window <= b)] = k
    walls = e.batch.walls(graph.work_ns, at_reference(graph, blame.peers), key, len(spans), graph.gap_ns)
    saved = e.observed.window_ns[:, None] - walls
    top = _top_scores(e)
    out = []
    for k, (r, a, b) in enumerate(spans):
        recovered = int(saved[:, k].sum())
        why = _listed(recovered, saved[a : b + 1, k].sum(), e.observed, a, b)
        if why is None:
            continue
        rank = int(graph.ranks[r])
        mine = (key == k) & (blame.fault_ns > 0)
        names = np.bincount(graph.ops.name[mine], weights=blame.fault_ns[mine])
        classes = tuple(graph.names[i] for i in np.argsort(-names)[:3] if names[i] > 0)
        lost = int(caused[r, a : b + 1].sum())
        excess = spell(float(blame.excess_ns[key == k].sum()) / (b - a + 1))
        out.append(
            Finding(
                MODE, (rank,), (), _stage(graph, r), classes, (int(graph.steps[a]), int(graph.steps[b])), lost, recovered,
                _confidence(top[r], len(blame.waits) * len(graph.ranks)),
                f"rank {rank} spends {excess} a step more in {classes[0] if classes else 'its work'} than its peers "
                f"do, {top[r]:.3g} times their spread (alarm at {blame.threshold:.2f}); the others wait for it{why}",
            )
        )  # fmt: skip
    return out


def _excess_score(e: Evidence, own: Any, cells: Any) -> Any:
    """Excess of every rank in every window, less what its peers' ordinary spread would bring."""
    peers, size = e.blame.peers, len(e.graph.ranks) * len(e.graph.steps)

    def total(values: Any) -> Any:
        return np.bincount(cells[own], weights=np.nan_to_num(values[own]), minlength=size)

    spread = np.sqrt(total(peers.within_ns**2) + total(peers.between_ns) ** 2)
    return total(e.blame.excess_ns) - NOISE * spread


def _top_scores(e: Evidence) -> Any:
    """Largest score among the waits that each rank opened."""
    waits, score = e.blame.waits, np.nan_to_num(e.blame.score)
    top = np.zeros(len(e.graph.ranks))
    at_fault = waits.fault_ns > 0
    np.maximum.at(top, e.graph.rank_index[waits.opener[at_fault]], score[at_fault])
    return top


def _stage(graph: Graph, index: int) -> tuple[int, ...]:
    stage = int(graph.members.stage[index])
    return (stage,) if stage >= 0 else ()


def _confidence(score: float, tests: int) -> float:
    """One minus the corrected chance of such a score under the null."""
    return float(1 - min(1.0, max(tests, 1) * NormalDist().cdf(-score)))


def _listed(recovered: int, in_episode: int, observed: Timeline, a: int, b: int) -> str | None:
    """Why a finding is worth listing, '' if by its share of the wall, None if it is not."""
    if recovered >= LISTED_SHARE * observed.wall_ns:
        return ""
    spent = int(observed.window_ns[a : b + 1].sum())
    if b - a + 1 >= EPISODE_STEPS and in_episode >= EPISODE_SHARE * spent:
        share = 100 * recovered / max(observed.wall_ns, 1)
        return f"; {share:.1f} % of the run, but {100 * in_episode / spent:.0f} % of these {b - a + 1} steps"
    return None


def _links(e: Evidence) -> list[Finding]:
    rings = ring(e.graph)
    if rings is None:
        return []
    slow, score = late_receivers(e.graph, rings)
    mask = slow[e.graph.rank_index[rings.rows]]
    return _link_finding(e, rings, mask, float(score[slow].min())) if slow.any() else []


def _link_finding(e: Evidence, rings: Ring, slow: Any, score: float) -> list[Finding]:
    """One finding for the slow links of a run, with what the rings would be without them."""
    graph, observed, rows = e.graph, e.observed, rings.rows
    window = graph.window[rows]
    late = np.where(slow, rings.late_ns, 0)
    per_window = np.bincount(window, weights=late, minlength=len(graph.steps))
    spans = episodes(per_window - 0.1 * per_window.max(), most=1)
    if not spans:
        return []
    a, b = spans[0]
    inside = (window >= a) & (window <= b)
    key = np.full(len(graph), -1, dtype=np.int64)
    key[rows[inside]] = 0
    walls = e.batch.walls(graph.work_ns, without(graph, rings, slow), key, 1, graph.gap_ns)
    saved = observed.window_ns - walls[:, 0]
    why = _listed(int(saved.sum()), int(saved[a : b + 1].sum()), observed, a, b)
    if why is None:
        return []
    sender, receiver = link_ends(graph)
    chosen = rows[slow]
    pairs = sorted({(int(s), int(r)) for s, r in zip(sender[chosen], receiver[chosen], strict=True)})
    shared = set.intersection(*(set(pair) for pair in pairs)) if len(pairs) > 1 else set()
    names = tuple(dict.fromkeys(graph.names[i] for i in graph.ops.name[chosen]))[:3]
    typical = spell(float(np.median(rings.late_ns[slow])))
    text = ", ".join(f"{s}:{r}" for s, r in pairs)
    where = f"they share rank {next(iter(shared))}: its network interface" if shared else "in that direction only"
    return [
        Finding(
            MODE, tuple(sorted(shared)), tuple(f"{s}:{r}" for s, r in pairs), (), names,
            (int(graph.steps[a]), int(graph.steps[b])),
            int(late[inside].sum() + e.blame.fault_ns[rows].sum()), int(saved.sum()),
            _confidence(score, len(graph.ranks)),
            f"ranks {sorted({r for _, r in pairs})} end ring collectives last, {typical} after the others, whoever "
            f"arrives last: slow link {text} ({where}); every chunk crosses it, so the whole collective waits{why}",
        )
    ]  # fmt: skip
