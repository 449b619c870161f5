"""Straggler cascade: excess on few ops, wait on many ranks. Here for a rank's own work and for a link.

Null hypothesis for a rank: see ``late_ranks.py``. Null hypothesis for a link that became slow: transfers of its groups take
as long as before (``core/change_points.py``), or no longer than transfers that cross none of its ends do meanwhile (demand
that all share); the link is told by who ends later than before, and by what slow groups have in common.
For a link that was slow all along: the members of its ring end by habit and chance, not as a staircase behind it
(``replay/ring_links.py``). Arrival order says rank, ending order says link, the endpoint that slow links share says NIC.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taut.core.array_types import Ints
from taut.core.ids import numbered, weighed
from taut.core.rank_words import rank_label, rank_labels
from taut.core.reporting import spell
from taut.diagnose import against_baseline
from taut.diagnose.as_before import caused_by_rank, links_before
from taut.diagnose.finding import Evidence, Finding, confidence, recovered, top_classes
from taut.diagnose.slow_place import Place, shared_ends
from taut.diagnose.slowdowns import Slowdowns
from taut.graph import Graph
from taut.replay.ring_links import SlowLinks, rings, slow_links, without_slow_links
from taut.replay.timeline import Change
from taut.replay.whatif import link_ends

MODE = "straggler cascade"
MODES = (MODE,)
ELSEWHERE = 0.5
"""Transfers elsewhere that grew by this share of what a link's did speak of demand that all share, not of the link."""
PART = 0.3
"""What a link's past explains of what it costs, at least, to be the better story."""
STARVED = 0.25
"""A rank whose own work costs this share of what its links do is slow itself, and its links with it."""
WITHOUT_PAST, APART = 0.1, 0.065
"""A link of a small ring that was slow all along is believed from this share of the wall on: busy hosts end late, too, and no
past tells. Where collectives of other sizes do not tell either, its members must end so much of the wall apart: habits that
are as large would be a fault of their own."""


def detect(evidence: Evidence) -> list[Finding]:
    """Links first: what a slow link explains is not the fault of its receiver."""
    places, slowdowns = local_links(evidence), evidence.slowdowns
    by_rank = [any(caused_by_rank(slowdowns, rank, links) for rank in slowdowns.ranks) for links in places]
    since = [_since(evidence, place) for place, explained in zip(places, by_rank, strict=True) if not explained]
    along = all_along(evidence) if evidence.both is None else _against_baseline(evidence)
    links = since if places and not since and evidence.both is None else _dearer(evidence, since, along)
    ranks = [f for f in evidence.late_ranks if f.mode == MODE]
    return _of_slow_ranks(evidence, links, ranks) if links is along else [*links, *ranks]


def _against_baseline(e: Evidence) -> list[Finding]:
    """Links that are slower than in the baseline, which tells by how much; which they are, the order of ending tells better."""
    slower = against_baseline.slow_links(e)
    staircase = all_along(e) if slower else []
    if not staircase:
        return slower
    found, names = staircase[0], ", ".join(staircase[0].links)
    because = f"{slower[0].because}; link {names} by the order in which the rings end"
    return [replace(slower[0], links=found.links, ranks=found.ranks, because=because)]


def _of_slow_ranks(e: Evidence, links: list[Finding], ranks: list[Finding]) -> list[Finding]:
    """Slow links of ranks that are slow in their own work, too, are part of these: a starved rank also sends late."""
    for link in links:
        ends = [{int(end) for end in name.split(":")} for name in link.links]
        owner = next((f for f in ranks if f.reference != "past" and all(pair & set(f.ranks) for pair in ends)), None)
        if owner is not None and recovered(e, owner.changes).sum() >= STARVED * recovered(e, link.changes).sum():
            links = [other for other in links if other is not link]
            ranks = [replace(f, changes=(*f.changes, *link.changes)) if f is owner else f for f in ranks]
    return [*links, *ranks]


def _dearer(e: Evidence, since: list[Finding], along: list[Finding]) -> list[Finding]:
    """Links that became slow, or the one that always was: what costs more; if it is the same place, its past tells more.

    Unless it tells of a small part only, as of one hiccup on a link that always was slow.
    """
    if not since or not along:
        return since or along
    same = any(set(one.links) & set(along[0].links) for one in since)
    saved = [int(recovered(e, [change for one in some for change in one.changes]).sum()) for some in (since, along)]
    return since if saved[0] >= (PART if same else 1.0) * saved[1] else along


def local_links(e: Evidence) -> list[Place]:
    """Links that became slow by themselves: elsewhere transfers did not, in the same steps."""
    return [place for place in e.slowdowns.links if place.spikes or not elsewhere_too(e.graph, e.slowdowns, place)]


def elsewhere_too(g: Graph, slowdowns: Slowdowns, place: Place) -> bool:
    """Whether transfers among ranks that are no end of these links grew about as much in the same span."""
    window, _, took = slowdowns.gates
    ends = np.isin(g.ops.rank, [rank for pair in place.links for rank in pair])
    touched = np.zeros(len(g.gates), dtype=bool)
    touched[g.gate[(g.gate >= 0) & ends]] = True
    cls, count = numbered(g.gates.group, g.gates.name, g.gates.size)
    inside = place.holds(window)
    mean = [
        weighed(cls[part], took[part], count) / np.maximum(np.bincount(cls[part], minlength=count), 1)
        for part in (inside, ~inside)
    ]
    # Growth is compared class by class, so that sizes and names do not matter.
    known = np.minimum(*mean) > 0
    grew = np.where(known, mean[0] / np.where(known, mean[1], 1.0) - 1, np.nan)
    here, there = np.unique(cls[place.gates & touched]), np.setdiff1d(cls[~touched], cls[touched])
    here, there = here[known[here]], there[known[there]]
    return bool(len(here) and len(there) and np.median(grew[there]) >= ELSEWHERE * np.median(grew[here]) > 0)


def _since(e: Evidence, place: Place) -> Finding:
    """Links whose transfers take longer from some step on."""
    graph, change, steps = e.graph, links_before(e.slowdowns, place), e.steps(place.first, place.last)
    work = graph.work_ns[change.ops]
    more = np.asarray(work - change.value)
    owners = tuple(place.owners) if len(place.links) > 1 and len(place.owners) == 1 else ()
    where = f" ({shared_end(owners[0], graph)})" if owners else ""
    how = "now and then take far longer, on average by" if place.spikes else "take longer by"
    doubt = "; lost packets or congestion: retransmission counters of the two hosts would tell" if place.spikes else ""
    return Finding(
        mode=MODE,
        ranks=owners,
        links=place.link_names,
        classes=top_classes(graph, change.ops, np.maximum(more, 0)),
        steps=steps,
        lost_rank_ns=int((e.exposed.working[change.ops] * np.clip(more / np.maximum(work, 1), 0, 1)).sum()),
        confidence=confidence(place.score, place.tests),
        because=f"from step {steps[0]} on, transfers over link {', '.join(place.link_names)} {how} {spell(place.extra_ns)} a "
        f"step, while the work of their ranks does not{where}; every transfer of their groups waits for them{doubt}",
        changes=(change,),
        alternatives=("fabric contention",) if place.spikes else (),
        reference="past",
    )


def shared_end(rank: int, graph: Graph) -> str:
    """How a sentence says that slow links have one end in common."""
    return f"all end at {rank_label(rank, graph.members)}: its network interface"


def all_along(e: Evidence) -> list[Finding]:
    """At most one finding: links that were slow from the first step on, told by the order in which rings end."""
    graph, circles = e.graph, rings(e.graph)
    found = _one_place(graph, slow_links(graph, circles))
    if not found:
        return []
    slow = np.zeros(len(graph), dtype=bool)
    for one in found:
        slow[one.ring.rows[:, one.receivers]] = True
    chosen = np.flatnonzero(slow)
    rows = np.concatenate([one.ring.rows.ravel() for one in found])
    change = Change(rows, "work", "set", without_slow_links(graph, circles, slow)[rows], "ring without its slow links")
    saved = recovered(e, [change])
    if any(one.few for one in found) and not _beyond_habits(found, e.observed.wall_ns, int(saved.sum())):
        return []
    pairs = _pairs(graph, chosen)
    shared = shared_ends(pairs) if len(pairs) > 1 else set()
    links, receivers = tuple(f"{s}:{r}" for s, r in pairs), sorted({r for _, r in pairs})
    where = shared_end(next(iter(shared)), graph) if shared else "in that direction only"
    are, crosses, both = _in_words(links, bool(shared))
    stair, share = max((one.stair_ns, one.share) for one in found)
    return [
        Finding(
            mode=MODE,
            ranks=tuple(sorted(shared)) if len(shared) == 1 else (),
            links=links,
            classes=tuple(dict.fromkeys(graph.names[i] for i in graph.ops.name[chosen]))[:3],
            steps=e.steps_of(chosen),
            lost_rank_ns=int(np.maximum(graph.work_ns[rows] - np.asarray(change.value), 0).sum()),
            confidence=1 - min(one.chance for one in found),
            because=f"{are} slow ({where}): {rank_labels(receivers, graph.members)} "
            f"{'ends' if len(receivers) == 1 else 'end'} ring collectives last, and each rank downstream {spell(stair)} before "
            f"the one that sends to it, whoever arrives last; {crosses}, and rounds times that is "
            f"{100 * share:.0f} % of the transfer{both}",
            changes=(change,),
            reference="peers",
        )
    ]


def _beyond_habits(found: list[SlowLinks], wall_ns: int, saved_ns: int) -> bool:
    """Whether slow links of small rings are more than habits of ending could look like."""
    told = all(one.by_size for one in found)
    return saved_ns >= WITHOUT_PAST * wall_ns and (told or sum(one.apart_ns for one in found) >= APART * wall_ns)


def _in_words(links: tuple[str, ...], shared: bool) -> tuple[str, str, str]:
    """Beginnings and ends of the sentence about slow links: which, what crosses them, and that one alone is not enough."""
    names = ", ".join(links)
    if len(links) == 1:
        return f"link {names} is", "every chunk crosses the link", ""
    apart = "" if shared else "; mend both: one of them holds the ring up nearly as much as two"
    return f"links {names} are{'' if shared else ' nearly equally'}", "every chunk crosses them", apart


def _pairs(graph: Graph, receives: Ints) -> list[tuple[int, int]]:
    """(sender, receiver) of the links that some ops show."""
    sender, receiver = link_ends(graph)
    return sorted({(int(s), int(r)) for s, r in zip(sender[receives], receiver[receives], strict=True)})


def _one_place(graph: Graph, found: list[SlowLinks]) -> list[SlowLinks]:
    """Of the rings with slow links those that meet at one rank, where most of their cost does; none if that is not told.

    Several places at once, and no past: with few members in a ring habits look like that.
    """
    ends = [set(np.ravel(_pairs(graph, one.ring.rows[0, one.receivers])).tolist()) for one in found]
    if not found or set.intersection(*ends):
        return found
    if any(one.few for one in found):
        return []
    cost = [one.share * int(graph.work_ns[one.ring.rows].max(axis=1).sum()) for one in found]
    owner = max(set.union(*ends), key=lambda rank: sum(c for c, mine in zip(cost, ends, strict=True) if rank in mine))
    return [one for one, mine in zip(found, ends, strict=True) if owner in mine]
