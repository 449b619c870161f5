"""Straggler cascade: excess on few ops, wait on many ranks. Here for a rank's own work and for a link.

Null hypothesis for a rank: see ``late.py``. Null hypothesis for a link that became slow: transfers of its groups take as
long as before (``change.py``), or no longer than transfers that cross none of its ends do meanwhile (demand that all
share); the link is told by who ends later than before, and by what slow groups have in common.
For a link that was slow all along: its receiver ends ring collectives no later than the others do, beyond the spread of
their ends. Arrival order says rank, ending order says link, the endpoint that slow links share says NIC.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Mask
from taut.core.ids import numbered, weighed
from taut.core.reporting import spell
from taut.diagnose.as_before import links_before
from taut.diagnose.finding import Evidence, Finding, confidence, episodes, recovered
from taut.diagnose.late_ranks import absorbed
from taut.diagnose.slowdowns import Place, shared_ends
from taut.replay.ring import Ring, late_receivers, ring, without_slow_links
from taut.replay.timeline import Change
from taut.replay.whatif import link_ends

MODE = "straggler cascade"
MODES = (MODE,)
ELSEWHERE = 0.5
"""Transfers elsewhere that grew by this share of what a link's did speak of demand that all share, not of the link."""
WITHOUT_PAST = 0.1
"""A link that was slow all along is believed from this share of the wall on: busy hosts end late, too, and no past tells."""


def detect(evidence: Evidence) -> list[Finding]:
    """Links first: what a slow link explains is not the fault of its receiver."""
    places = local_links(evidence)
    since = [_since(evidence, place) for place in places if not absorbed(evidence, place)]
    links = since or ([] if places else _links(evidence))
    return [*links, *(f for f in evidence.late if f.mode == MODE)]


def local_links(e: Evidence) -> list[Place]:
    """Links that became slow by themselves: elsewhere transfers did not, in the same steps."""
    return [place for place in e.slower.links if place.spikes or not _everywhere(e, place)]


def _everywhere(e: Evidence, place: Place) -> bool:
    """Whether transfers among ranks that are no end of these links grew about as much in the same span."""
    g, (window, _, took) = e.graph, e.slower.gates
    ends = np.isin(g.ops.rank, [rank for pair in place.links for rank in pair])
    touched = np.zeros(len(g.gates), dtype=bool)
    touched[g.gate[(g.gate >= 0) & ends]] = True
    cls, count = numbered(g.gates.group, g.gates.name, g.gates.size)
    inside = (window >= place.first) & (window <= place.last)
    mean = [
        weighed(cls[part], took[part], count) / np.maximum(np.bincount(cls[part], minlength=count), 1)
        for part in (inside, ~inside)
    ]
    known = np.minimum(*mean) > 0
    grew = np.where(known, mean[0] / np.where(known, mean[1], 1.0) - 1, np.nan)
    here, there = np.unique(cls[place.gates & touched]), np.setdiff1d(cls[~touched], cls[touched])
    here, there = here[known[here]], there[known[there]]
    return bool(len(here) and len(there) and np.median(grew[there]) >= ELSEWHERE * np.median(grew[here]) > 0)


def _since(e: Evidence, place: Place) -> Finding:
    """Links whose transfers take longer from some step on."""
    graph, a, b = e.graph, place.first, place.last
    change = links_before(e.slower, place)
    rows, usual = change.ops, change.value
    text = ", ".join(f"{s}:{r}" for s, r in place.links)
    owners = place.owners if len(place.links) > 1 else set()
    names = weighed(graph.ops.name[rows], np.maximum(graph.work_ns[rows] - usual, 0))
    classes = tuple(graph.names[i] for i in np.argsort(-names)[:3] if names[i] > 0)
    where = f" (they share rank {min(owners)}: its network interface)" if len(owners) == 1 else ""
    how = "now and then take far longer" if place.spikes else "take longer"
    doubt = " (lost packets or congestion: retransmission counters of the two hosts would tell)" if place.spikes else ""
    slow = np.clip((graph.work_ns[rows] - usual) / np.maximum(graph.work_ns[rows], 1), 0, 1)
    lost = int((e.exposed.working[rows] * slow).sum())
    return Finding(
        MODE, tuple(sorted(owners)) if len(owners) == 1 else (), tuple(f"{s}:{r}" for s, r in place.links), (), classes,
        (int(graph.steps[a]), int(graph.steps[b])), lost, 0, confidence(place.score, place.tests),
        f"transfers over link {text} {how} from step {int(graph.steps[a])} on, {spell(place.extra_ns)} a step, while the "
        f"ranks' own work does not{where}; every transfer of their groups waits for it{doubt}",
        changes=(change,), alternatives=("fabric contention",) if place.spikes else (),
    )  # fmt: skip


def _links(e: Evidence) -> list[Finding]:
    rings = ring(e.graph)
    if rings is None:
        return []
    slow, score = late_receivers(e.graph, rings)
    mask = slow[e.graph.rank_index[rings.rows]]
    return _link_finding(e, rings, mask, float(score[slow].min())) if slow.any() else []


def _link_finding(e: Evidence, rings: Ring, slow: Mask, score: float) -> list[Finding]:
    """One finding for the slow links of a run, with what the rings would be without them."""
    graph, rows = e.graph, rings.rows
    window = graph.window[rows]
    late = np.where(slow, rings.late_ns, 0)
    per_window = weighed(window, late, len(graph.steps))
    spans = episodes(per_window - 0.1 * per_window.max(), most=1)
    if not spans:
        return []
    a, b = spans[0]
    inside = (window >= a) & (window <= b)
    change = Change(
        rows[inside], "work", "set", without_slow_links(graph, rings, slow)[rows[inside]], "ring without its slow links"
    )
    if recovered(e, [change]).sum() < WITHOUT_PAST * e.observed.wall_ns:
        return []
    sender, receiver = link_ends(graph)
    chosen = rows[slow]
    pairs = sorted({(int(s), int(r)) for s, r in zip(sender[chosen], receiver[chosen], strict=True)})
    shared = shared_ends(pairs) if len(pairs) > 1 else set()
    if len(pairs) > 1 and not shared:
        return []  # several places at once, and no past: busy hosts end late, too
    names = tuple(dict.fromkeys(graph.names[i] for i in graph.ops.name[chosen]))[:3]
    typical = spell(float(np.median(rings.late_ns[slow])))
    text = ", ".join(f"{s}:{r}" for s, r in pairs)
    where = f"they share rank {next(iter(shared))}: its network interface" if shared else "in that direction only"
    return [
        Finding(
            MODE, tuple(sorted(shared)), tuple(f"{s}:{r}" for s, r in pairs), (), names,
            (int(graph.steps[a]), int(graph.steps[b])),
            int(late[inside].sum() + e.blame.fault_ns[rows].sum()), 0,
            confidence(score, len(graph.ranks)),
            f"ranks {sorted({r for _, r in pairs})} end ring collectives last, {typical} after the others, whoever "
            f"arrives last: slow link {text} ({where}); every chunk crosses it, so the whole collective waits",
            changes=(change,),
        )
    ]  # fmt: skip
