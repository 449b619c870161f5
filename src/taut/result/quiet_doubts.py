"""Why a run without a finding is not called healthy, and what would tell: silence is no evidence where much could be saved."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.ids import greatest, least
from taut.core.interval import share_of
from taut.core.rank_words import rank_label, rank_labels
from taut.core.reporting import LISTED_SHARE, spell
from taut.diagnose.finding import as_a_habit
from taut.diagnose.slow_sets import shared_place, two_levels
from taut.graph.clocks import WORTH_NS
from taut.graph.gate_matching import EVERYBODY
from taut.read.contents import ONLY_DUMPS
from taut.replay.timeline import Change, Timeline, replay, walls
from taut.result.computed import Computed
from taut.result.types import Estimate

UNEXPLAINED = 10
"""Per cent of the bill without an explanation from which a run is not called healthy."""
UNJUDGED = 100 / 3
"""Per cent of the bill in exposed transfers from which a run is not called healthy: nothing says how long they should be, and
where they take half again as long a third of them is lost, which is UNEXPLAINED."""
ASKED = 16
"""Ranks that are replayed one by one like their peers: those that others waited for most."""
FEW_STEPS = 20
"""Steps from which more of them would hardly tell more."""


def quiet_doubts(a: Computed, share: dict[str, float]) -> list[str]:
    """One sentence for each doubt, with what would settle it; empty where the run is healthy as far as can be told."""
    found = (
        _ranks_missing(a, share),
        _only_dumps(a),
        _clocks(a) or _clocks_or_links(a, share),
        _two_heaps(a),
        _undecided(a),
        _saving(a) or _one_step(a, share),
        _hiccups(a),
        _ends_apart(a),
        _gaps(a),
        _unexplained(a, share),
        _transfers(share),
    )
    return [doubt for doubt in found if doubt]


def _ranks_missing(a: Computed, share: dict[str, float]) -> str | None:
    """Ranks that were not traced: what they do shows as waiting and transfer on the others."""
    world, traced = a.graph.trace.world_size, len(a.graph.ranks)
    if world is None or traced >= world:
        return None
    fates = ("exposed transfer", "communication undivided", "fault wait", "jitter wait", "unexplained")
    lost = sum(share[fate] for fate in fates)
    if 2 * traced >= world and lost < UNEXPLAINED:
        return None
    return f"{traced} of {world} ranks were traced: what the others do is not known; traces of all ranks would tell."


def _only_dumps(a: Computed) -> str | None:
    """Flight recorders without traces: how long transfers took is not known."""
    if not any(note.startswith(ONLY_DUMPS) for note in a.graph.trace.partial):
        return None
    return "Only flight recorders were read, which do not say how long transfers took: traces of some steps would tell."


def _clocks(a: Computed) -> str | None:
    """Clocks of which some are known to be off, and others are hardly known: who is late cannot be told."""
    clock, step_ns = a.graph.clock, float(np.median(a.observed.window_ns))
    doubtful = 0.5 * (clock.hi_ns - clock.lo_ns) >= LISTED_SHARE * step_ns
    if not clock.applied.any() or not doubtful.any():
        return None
    widest = 0.5 * float((clock.hi_ns - clock.lo_ns).max())
    who = rank_labels(clock.rank[doubtful].tolist(), a.graph.members)
    return (
        f"The clocks of some ranks are off, and that of {who} is known to ± {spell(widest)} only: who is late is not sure; "
        "synchronised clocks (PTP, chrony), or more steps, would tell."
    )


def _clocks_or_links(a: Computed, share: dict[str, float]) -> str | None:
    """Clocks that were taken to be off because members end apart, as they would behind a slow link of a small group."""
    g, clock = a.graph, a.graph.clock
    rows = np.flatnonzero((g.gate >= 0) & np.isin(g.ops.verb, EVERYBODY))
    if not len(rows) or not clock.applied.any() or share["exposed transfer"] < UNEXPLAINED:
        return None
    gate, off, gates = g.gate[rows], clock.offset_ns[g.rank_index[rows]], len(g.gates)
    met = np.unique(gate)
    # Nobody leaves before everybody came: where the recorded times say so, clocks are off indeed.
    came, left = greatest(gate, gates, g.ops.start_ns[rows] + off)[met], least(gate, gates, g.ops.end_ns[rows] + off)[met]
    apart = (greatest(gate, gates, off) - least(gate, gates, off))[met]
    if (came - left > WORTH_NS).any() or 100 * apart.sum() < UNEXPLAINED * a.observed.wall_ns:
        return None
    return (
        f"Clocks were taken to be up to {spell(float(apart.max()))} apart, because by them ranks end the same collectives "
        "so far apart; a slow link looks the same: synchronised clocks (PTP, chrony), or a baseline run, would tell."
    )


def _two_heaps(a: Computed) -> str | None:
    """Half of the ranks, or more, are slower than the others."""
    found, g = two_levels(a.graph, a.blame, a.observed), a.graph
    if found is None:
        return None
    slower, faster = (
        shared_place(g, some) or rank_labels([int(g.ranks[i]) for i in some], g.members)
        for some in (found.slower, found.faster)
    )
    return (
        f"{slower[:1].upper()}{slower[1:]}: {100 * found.share:.0f} % slower than {faster} for the same work; if all were as "
        f"fast, the run would be {100 * found.saving:.0f} % shorter. Which of them are right, a baseline run would tell."
    )


def _undecided(a: Computed) -> str | None:
    """Loss at gates that may be nobody's, of which too few episodes were seen."""
    u = a.undecided
    if u is None:
        return None
    few = "1 episode does" if round(u.episodes) == 1 else f"{u.episodes:.0f} episodes do"
    return (
        f"Waiting for whoever is late costs {_per_cent(u.loss_share)} of the wall clock; {few} not tell "
        f"whether anybody in particular causes it: {u.more_steps:,} more steps would tell."
    )


def _saving(a: Computed) -> str | None:
    """A rank that would save something if it were like its peers, though no test calls it slow."""
    g, blame, steps = a.graph, a.blame, len(a.graph.steps)
    asked = np.argsort(-blame.caused_ns, kind="stable")[:ASKED]
    asked = asked[blame.caused_ns[asked] > 0]
    if not len(asked):
        return None
    key = np.full(len(g.ranks), -1, dtype=np.int64)
    key[asked] = np.arange(len(asked))
    walls = a.batch.walls(g.work_ns, blame.usual_ns, key[g.rank_index], len(asked), g.gap_ns, blame.usual_gap_ns)
    saved = a.observed.window_ns[:, None] - walls
    best = int(np.argmax(saved.sum(axis=0)))
    found = share_of(saved[:, best], a.observed.window_ns)
    if found is None:
        return None
    # In few steps one that was late beyond all doubt, once, is no habit yet, and no reason to call the run healthy.
    late = steps < FEW_STEPS and bool((g.rank_index[blame.fault.ops] == asked[best]).any())
    if (found.value if late else _worth(a, saved[:, best], found)) < LISTED_SHARE:
        return None
    who = rank_label(int(g.ranks[asked[best]]), g.members)
    return (
        f"If {who} were like its peers, the run would be {_per_cent(found)} shorter, and no test calls it slow: {_more(steps)}."
    )


def _hiccups(a: Computed) -> str | None:
    """Transfers that now and then take far longer than usual, at no place that can be told."""
    g = a.graph
    if not len(g.gates):
        return None
    saved = a.observed.window_ns - walls(g, [Change(np.arange(len(g)), "work", "set", a.slowdowns.without_hiccups())])
    found = share_of(saved, a.observed.window_ns)
    if found is None or _worth(a, saved, found) < LISTED_SHARE:
        return None
    return (
        f"Some transfers take far longer than usual; without them the run would be {_per_cent(found)} shorter, and no link "
        "stands out: the flight recorder over many more steps, or retransmission counters of the hosts, would tell."
    )


def _ends_apart(a: Computed) -> str | None:
    """Members of collectives that end at different times, in no order that tells a link."""
    g = a.graph
    rows = np.flatnonzero(g.gate >= 0)
    if not len(rows):
        return None
    found = _shorter(
        a, replay(g, [Change(rows, "work", "set", least(g.gate[rows], len(g.gates), g.work_ns[rows])[g.gate[rows]])])
    )
    if found is None or 100 * _least(found) < UNEXPLAINED:
        return None
    return (
        f"Members of the same collectives end at different times; if all ended with the first, the run would be "
        f"{_per_cent(found)} shorter. Slow links or busy hosts do that: a baseline run, or the order of the ring, would tell."
    )


def _gaps(a: Computed) -> str | None:
    """Time in which ranks do nothing that was recorded."""
    saved = a.observed.window_ns - a.gap_free.window_ns
    found = share_of(saved, a.observed.window_ns)
    # In few steps one long gap makes the interval wide: whether it comes again is the doubt.
    if found is None or 100 * (found.value if len(a.graph.steps) < FEW_STEPS else _worth(a, saved, found)) < UNEXPLAINED:
        return None
    return (
        f"Without the gaps in which ranks did nothing that was recorded, the run would be {_per_cent(found)} shorter: "
        "a trace of the hosts (Python stacks, garbage collection, system calls) would tell why."
    )


def _shorter(a: Computed, other: Timeline) -> Estimate | None:
    """By which share another timeline is shorter than the observed one."""
    return share_of(a.observed.window_ns - other.window_ns, a.observed.window_ns)


def _worth(a: Computed, saved_ns: Ints, found: Estimate) -> float:
    """The share that is worth a doubt: the lower end of the interval, or what comes three times, however wide that is."""
    return max(_least(found), float(as_a_habit(saved_ns).sum()) / max(a.observed.wall_ns, 1))


def _least(found: Estimate) -> float:
    """Lower end of its interval; the value itself, where one step has none."""
    return found.value if found.lo is None else found.lo


def _one_step(a: Computed, share: dict[str, float]) -> str | None:
    """Waits of a single step: whether they recur is not known."""
    waiting = sum(share[fate] for fate in ("fault wait", "jitter wait", "unexplained"))
    if len(a.graph.steps) > 1 or waiting < UNEXPLAINED:
        return None
    return f"{waiting:.0f} % of the bill is waiting that is no structure: {_more(1)}."


def _per_cent(found: Estimate) -> str:
    if found.lo is None or found.hi is None:
        return f"{100 * found.value:.1f} %"
    return f"{100 * found.value:.1f} % ({100 * found.lo:.1f}–{100 * found.hi:.1f})"


def _more(steps: int) -> str:
    """What tells habit from accident."""
    few = f"{steps} {'step' if steps == 1 else 'steps'} cannot tell habit from accident; "
    return (
        f"{few}{FEW_STEPS - steps} more steps would" if steps < FEW_STEPS else "a baseline run would tell whether it always was"
    )


def _unexplained(a: Computed, share: dict[str, float]) -> str | None:
    if share["unexplained"] < UNEXPLAINED:
        return None
    more = f"{FEW_STEPS - len(a.graph.steps)} more steps" if len(a.graph.steps) < FEW_STEPS else "a baseline run"
    return f"{share['unexplained']:.0f} % of the bill is unexplained: the flight recorder of every rank, or {more}, would tell."


def _transfers(share: dict[str, float]) -> str | None:
    if share["exposed transfer"] < UNJUDGED:
        return None
    return (
        f"{share['exposed transfer']:.0f} % of the bill is exposed transfer, and nothing here says how long that should take: "
        "a baseline run, or bytes on a known fabric, would tell."
    )
