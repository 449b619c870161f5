"""The last steps of a job → failure mode, place, since when and what it costs: the analysis of recorded runs, on what was seen.

A slow link shows in when members of a gate end. Where ends are recorded for every call, the analysis names it; where they are
recorded for some, transfers before and after are compared here, and the link is the one into the member that ends last.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered, weighed
from taut.core.reporting import LISTED_SHARE
from taut.core.tables import Kind
from taut.diagnose.detectors import diagnose, most_recoverable
from taut.diagnose.finding import Evidence, Finding
from taut.diagnose.instability import instability
from taut.diagnose.job_regime import PAYS, regime
from taut.graph import Graph, link
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay
from taut.result.types import Regime
from taut.watch.named import CLEAR, LEAST_GATES, Named, rise
from taut.watch.observed_devices import DEVICE
from taut.watch.seen import HOP, Seen
from taut.watch.sequential import MATTERS
from taut.watch.slow_devices import awaits_devices, slow_devices
from taut.watch.step_series import MOST_CLASSES, Turns, step_of
from taut.watch.window_trace import MadeTrace, backend_of, trace_of

NOW = 8
"""A finding is of now if it was seen in one of so many last steps; of a long window in its last tenth."""
LEAST_STEPS = 12
"""Fewer steps are not analysed."""
MOST_LOST = 0.9
"""Of a rank's work in a step at most this part counts as waiting for a core."""
LONGEST = 4.0
"""Steps that are longer than the mean by this factor count as if they were not."""


class Diagnosis(Struct, frozen=True):
    """What detectors found in a trace, and on what."""

    evidence: Evidence
    findings: list[Finding]
    wall_ns: Ints
    """How long steps took, waits for a core among it."""


class Waits(Struct, frozen=True):
    """What ranks waited for a core, and how much of it shows."""

    first: int
    """Number of the first step."""
    by_rank: Floats
    """Steps × ranks, s; ranks as in the window, in order."""
    in_work: float
    in_transfers: float
    """What a second of it adds to a rank's own work, and one of the longest to transfers."""


class Look(Struct, frozen=True):
    """What one analysis of the window tells."""

    named: tuple[Named, ...]
    cannot_see: tuple[str, ...]
    regime: Regime | None
    ops: int


def look(
    seen: Seen, meets: dict[int, bool], *, transfers: bool = False, whole: bool = False, waits: Waits | None = None
) -> Look | None:
    """Analyse what was seen, ``transfers`` by the ends that were recorded of them. None where there is too little.

    ``whole``: also what is nobody's, and how near the job is to losing at its gates what more ranks would bring.
    """
    told = trace_of(seen, meets)
    if told is None or len(np.unique(told.trace.ops.step)) < LEAST_STEPS:
        found = _felt(seen, slow_devices(seen, meets, whole=whole))
        return Look(tuple(found), tuple(_unseen(told, seen)), None, 0) if found else None
    diagnosis = _diagnosed(told, whole, waits)
    steps = diagnosis.evidence.graph.steps
    late = int(steps[-1]) - max(NOW, len(steps) // 10)
    found = [_named(diagnosis, one) for one in diagnosis.findings if one.steps[1] >= late]
    found = [one for one in found if one.share >= LISTED_SHARE or waits is None or not waits.by_rank.any()]
    if not told.exact:
        found = _with_transfers(seen, meets, found) if transfers else found
        found = [one for one in found if one.ranks or one.links or _ended_since(seen, meets, one.since_step)]
    if _has_devices(seen):
        found = _felt(seen, found)
        found = _or_devices(found, _felt(seen, slow_devices(seen, meets, whole=whole)))
        if told.exact and transfers and not found:
            found = _behind_hosts(seen, meets)
    found = _on_their_account(found)
    return Look(tuple(found), tuple(_unseen(told, seen)), _regime(diagnosis) if whole else None, len(told.trace.ops))


def _diagnosed(told: MadeTrace, whole: bool, waits: Waits | None) -> Diagnosis:
    """As ``taut.analyze`` does it, without what it computes beside the findings."""
    graph = link(told.trace)
    graph = replace(graph, members=graph.members.replace(host=np.array(told.hosts)))
    wall = None
    if waits is not None and waits.by_rank.any():
        wall, graph = replay(graph).window_ns, _without_waits(graph, waits)
    observed, prepared = replay(graph), batch(graph)
    gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed
    evidence = Evidence(graph, observed, blame(graph, observed, gap_free, None), prepared)
    findings = diagnose(evidence)
    if whole:
        findings = most_recoverable(instability(evidence, findings, PAYS)[0])
    return Diagnosis(evidence, findings, observed.window_ns if wall is None else wall)


def _without_waits(graph: Graph, waits: Waits) -> Graph:
    """The same, as if nobody had waited for a core: every step's work and transfers shorter in proportion."""
    index, own = graph.steps - waits.first, graph.ops.kind != Kind.COMMUNICATE
    known = (index >= 0) & (index < len(waits.by_rank))
    lost = np.where(known[:, None], waits.by_rank[np.clip(index, 0, len(waits.by_rank) - 1)], 0.0) * 1e9
    longest = np.broadcast_to(lost.max(axis=1, keepdims=True), lost.shape)
    cell = graph.window * len(graph.ranks) + graph.rank_index
    work = graph.work_ns.astype(np.float64)
    for mine, less in ((own, waits.in_work * lost), (~own, waits.in_transfers * longest)):
        spent = weighed(cell[mine], work[mine], lost.size)
        kept = 1 - np.minimum(less.ravel() / np.maximum(spent, 1.0), MOST_LOST)
        work[mine] *= kept[cell[mine]]
    return replace(graph, work_ns=np.rint(work).astype(np.int64))


def _named(diagnosis: Diagnosis, finding: Finding) -> Named:
    graph, wall = diagnosis.evidence.graph, diagnosis.wall_ns
    first, last = map(int, np.searchsorted(graph.steps, finding.steps))
    spent = max(int(wall[first : last + 1].sum()), 1)
    saved = finding.recoverable_wall_ns if finding.saved_ns is None else finding.saved_ns[first : last + 1].sum()
    past = finding.reference == "past" and first > 1
    return Named(
        finding.mode,
        finding.ranks,
        finding.links,
        finding.steps[0],
        float(min(max(saved / spent, 0.0), 1.0)),
        finding.because,
        past,
        first <= 1,
    )


def _regime(diagnosis: Diagnosis) -> Regime | None:
    found = regime(diagnosis.evidence.batch, diagnosis.evidence.blame, diagnosis.findings)
    return found if found.kind is not None else None


def _tells_devices(seen: Seen) -> bool:
    """Whether ranks tell what their devices take."""
    return any(one.verb == DEVICE for one in seen.classes)


def _has_devices(seen: Seen) -> bool:
    """Whether ranks compute on accelerators."""
    return _tells_devices(seen) or any(seat.gpu >= 0 for seat in seen.seats.values())


def _unseen(told: MadeTrace | None, seen: Seen) -> list[str]:
    """What this window cannot show."""
    out = []
    ranks, known = len(np.unique(seen.steps.rank)), len(seen.seats)
    if ranks < known:
        out.append(f"{ranks} of {known} ranks were analysed, the latest among them: a link among the others is not seen")
    if told is not None and not told.exact:
        out.append("most transfers have no recorded end: a slow link may show as work of all who meet there")
    if told is not None and told.inferred_sends:
        out.append("sends are not seen: they are taken to be made where their sender's work ends")
    if any(seat.sees == "calls" for seat in seen.seats.values()):
        out.append("compiled collectives are not seen: ranks that meet only there are named together")
    if _tells_devices(seen):
        out.append("times are those of hosts, and of devices in some steps, without what they do on other streams")
    elif _has_devices(seen):
        out.append("times are those of hosts: a late device shows where its host waits for it")
    if not any(one.verb == "load" for one in seen.classes):
        out.append("no loader of torch is used: its time counts as forward")
    return out


def _on_their_account(found: list[Named]) -> list[Named]:
    """Without links of a rank that is slow itself: throttled hosts move bytes slowly too."""
    slow = {one.ranks[0] for one in found if len(one.ranks) == 1 and not one.links}
    return [
        one
        for one in found
        if not any(all(str(rank) in link.split(":") for link in one.links) for rank in slow) or not one.links
    ]


def _with_transfers(seen: Seen, meets: dict[int, bool], found: list[Named]) -> list[Named]:
    """What was found, and transfers that grew; these are what work of all who meet there seemed to be."""
    slow = _slow_transfers(seen, meets)
    slow.sort(key=lambda one: -one.share)
    return [*slow, *(one for one in found if one.ranks or one.links)] if slow else found


def _felt(seen: Seen, found: list[Named]) -> list[Named]:
    """What was found, at what steps became longer by since: a host that is late behind its device holds nobody up."""
    steps, out = seen.steps, []
    took = (steps.end - steps.begin).astype(np.float64)
    took = np.minimum(took, LONGEST * took.mean()) if len(took) else took  # an evaluation is not what a step takes
    for one in found:
        before, since = took[steps.number < one.since_step], took[steps.number >= one.since_step]
        if one.past and len(before) and len(since):
            one = msgspec.structs.replace(one, share=min(one.share, 1 - float(before.mean() / since.mean())))
        if not one.past or one.share >= MATTERS:
            out.append(one)
    return out


def _or_devices(found: list[Named], slow: list[Named]) -> list[Named]:
    """What was found of hosts; devices in the place of what was found of their own ranks, and where nobody is named."""
    placed = [one for one in found if one.ranks or one.links]
    if not slow or (placed and not any(one.device for one in slow)):
        return found
    own = {rank for one in slow for rank in one.ranks}
    others = [one for one in placed if one.links or not set(one.ranks) <= own]
    return [*slow, *others] if len(others) < len(placed) or not placed else found


def _behind_hosts(seen: Seen, meets: dict[int, bool]) -> list[Named]:
    """What all wait for where they meet takes longer, and no host is seen to be late: a device is, or a link."""
    slow = [one for one in _slow_transfers(seen, meets) if one.share >= MATTERS and not one.links]
    worst = max(slow, key=lambda one: one.share, default=None)
    if worst is None or awaits_devices(seen, worst.since_step):
        return []
    devices = "no host is late, and no device alone: a link is slow, or all devices are"
    hosts = "no host is late: a device is, or a link"
    because = f"{worst.because}, and {devices if _tells_devices(seen) else hosts}"
    return [msgspec.structs.replace(worst, ranks=(), because=because)]


def _ended_since(seen: Seen, meets: dict[int, bool], step: int) -> bool:
    """Whether enough transfers since a step have their end: before, what all do more slowly may be a link."""
    gates, begins = seen.gates, seen.steps.take(seen.steps.number == step).begin
    gate = np.array([meets.get(k, False) for k in range(len(seen.classes))])[gates.klass]
    ended = gates.take(gate & (gates.end > 0))
    since = int(begins.min()) if len(begins) else 0
    after = ended.begin >= since
    both = [numbered(some.klass, some.number)[1] for some in (ended.take(after), ended.take(~after))]
    return both[1] < LEAST_GATES or both[0] > LEAST_GATES


def _slow_transfers(seen: Seen, meets: dict[int, bool]) -> list[Named]:
    """Classes of gates whose recorded transfers became longer, of those that have the most gates."""
    count = np.bincount(seen.gates.klass, minlength=1)
    most = np.argsort(-count, kind="stable")[:MOST_CLASSES].tolist()
    some = (_slow_transfer(seen, klass) for klass in sorted(most) if count[klass] and meets.get(klass, False))
    return [one for one in some if one is not None]


def _slow_transfer(seen: Seen, klass: int) -> Named | None:
    """A class of gates whose recorded transfers became longer, from the ends of some of its calls."""
    one = seen.classes[klass]
    mine = seen.gates.take(seen.gates.klass == klass)
    ranks = np.array(sorted(set(seen.steps.rank.tolist())), np.int64)
    gate, gates = numbered(mine.number)
    if one.verb == HOP or not gates:
        return None
    turn = Turns(mine, gate)
    at = np.full(gates, -1)
    np.maximum.at(at, gate, step_of(mine, seen.steps, ranks, int(seen.steps.begin.min())))
    whole = (turn.members == (len(one.ranks) or len(ranks))) & (np.bincount(gate, mine.end > 0, gates) == turn.members)
    rows = np.flatnonzero(whole[gate])
    rows = rows[np.lexsort((mine.rank[rows], gate[rows]))]
    members = int(turn.members[whole][0]) if whole.any() else 0
    if members < 2 or whole.sum() < 2 * LEAST_GATES:
        return None
    took = (mine.end[rows] - turn.opens[gate[rows]]).reshape(-1, members) / 1e9
    step = at[gate[rows]].reshape(-1, members)[:, 0]
    order = np.argsort(step, kind="stable")
    took, step, who = took[order], step[order], mine.rank[rows].reshape(-1, members)[0]
    cut = rise(np.median(took, axis=1))
    if cut is None:
        return None
    grew = took[cut:].mean(axis=0) - took[:cut].mean(axis=0)
    share = _share(seen, float(grew.mean()), int((seen.gates.klass == klass).sum()), members, int(step[cut]))
    links = _link(took, cut, who, grew, backend_of(seen))
    words = (
        f"transfers of {one.verb} in group {one.group or 'all'} take {1e3 * grew.mean():.1f} ms longer since step {step[cut]}"
    )
    return Named("straggler cascade", tuple(who.tolist()) if not links else (), links, int(step[cut]), share, words, True)


def _link(took: Floats, cut: int, who: Ints, grew: Floats, backend: str) -> tuple[str, ...]:
    """The link into the member whose ends moved most; none where all moved alike."""
    apart = took - np.median(took, axis=1, keepdims=True)
    moved = apart[cut:].mean(axis=0) - apart[:cut].mean(axis=0)
    last = int(np.argmax(moved))
    error = np.sqrt(apart[cut:, last].var(ddof=1) / (len(took) - cut) + apart[:cut, last].var(ddof=1) / cut) + 1e-6
    if len(who) < 3 or moved[last] < CLEAR * error or moved[last] < 0.02 * abs(grew.mean()):
        return ()
    sender = who[(last + (1 if backend == "gloo" else -1)) % len(who)]  # gloo's rings send to the rank before
    return (f"{sender}:{who[last]}",)


def _share(seen: Seen, grew_s: float, rows: int, members: int, since: int) -> float:
    steps = seen.steps.take(seen.steps.number >= since)
    usual = float(np.median(steps.end - steps.begin)) / 1e9 if len(steps) else 1.0
    turns = rows / members / max(len(np.unique(seen.steps.number)), 1)
    return float(min(max(grew_s * turns / max(usual, 1e-9), 0.0), 0.9))
