"""Ring collectives: in which order their members end, which links that tells to be slow, and what the ring would be without.

Behind a slow link members end as a staircase (``graph/staircase.py``). Libraries send a chunk in two pieces and pass one on
while the other comes, so that a stair is what a chunk takes over that link less half of what it takes elsewhere, and rounds ×
stair ÷ transfer tells the share of the transfer that the link costs: a reference without a baseline or a fabric file.

A ring is tested as a whole. Null: its members end by habit and by chance, whatever their place. From eight members on the
correlation of their ends with the best of all staircases tells (Student, N − 2 degrees of freedom, Bonferroni over all
staircases of all rings); with fewer members habits can imitate a staircase, and only chance is excluded (Student over steps):
there a finding also asks how much small collectives are delayed, or, if sizes do not tell, how far apart members end.
Two links apart from each other are told from eight members on as well, unless they may be the two between two hosts. Either
way stairs must be of the height that closes the ring, and be lower in smaller collectives, or close these as well, where
every chunk is delayed alike (latency): habits and busy hosts do not know how much is sent, nor how long that takes. Sizes and
power are in docs/diagnosis.md (bench/size.py, bench/rings.py).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import numbered, weighed
from taut.core.student import student_tail
from taut.core.tables import Verb
from taut.graph import Graph
from taut.graph.gate_matching import expected_members
from taut.graph.staircase import CLOSES, ENOUGH, RING, SLOWER, Staircase, closing_staircase

FALSE_ALARMS = 0.01
"""Chance that any ring of a healthy run is said to have a slow link."""
UNLIKE, LONGER, ROUGHLY = 4, 1.5, 1.05
"""Collectives whose sizes differ by this factor tell a slow link from a busy host; those that take so many times as long as the
smallest, from habits: by what stairs of the small ones are at most, times this for noise."""
PIECES = 2
"""Pieces of a chunk: a stair is short of a slow round by one of these pieces of a healthy one."""
STEADY = 0.9
"""Members end so much of a stair after the next where nothing but the slow link holds them."""
LEAST_STAIRS, APART = 4, 3.0
"""Stairs that tell whether links between hosts are slower than those inside, and the standard errors from which they are."""
LEAST = 20
"""Without its slow link a transfer keeps at least one part in this many of its time: a stair is an estimate."""


class Ring(Struct, frozen=True):
    """The gates of one ring of at least three members."""

    rows: Ints
    """Ops, gates × members, in the direction in which chunks go."""
    rounds: Ints
    """Per gate: how often each chunk crosses a link."""


class SlowLinks(Struct, frozen=True):
    """Links of a ring whose receivers end last."""

    ring: Ring
    receivers: Indices
    """Positions in the ring."""
    share: float
    """Rounds × stair ÷ transfer."""
    chance: float
    """Of such ends without a slow link, corrected for all staircases and rings."""
    stairs: Floats
    """Per gate: rounds × stair ÷ transfer."""
    by_size: bool | None
    """Whether smaller collectives, which take less time, say the same; None where sizes do not tell."""
    apart_ns: int
    """Between the first member to end and the last, of all gates."""
    stair_ns: float
    """Median over its larger gates."""
    longer: Floats
    """Per gate: what its transfer would take if all came at once, in what it took since the last came."""
    left: float
    """Share of a transfer that the slower kind of the other links, those between hosts or those inside, leaves at least."""

    @property
    def few(self) -> bool:
        """Whether the ring has so few members that habits could imitate it."""
        return len(self.ring.rows[0]) < ENOUGH


def rings(graph: Graph) -> list[Ring]:
    """The rings of a graph: a process group, in each direction in which its collectives send."""
    inside = (graph.gate >= 0) & np.isin(graph.ops.verb, RING)
    members = np.bincount(graph.gate[inside], minlength=len(graph.gates))
    rows = np.flatnonzero(inside & (members[np.maximum(graph.gate, 0)] >= 3)) if len(graph.gates) else np.zeros(0, np.int64)
    down = sends_down(graph, rows)
    rows = rows[np.lexsort((np.where(down, -1, 1) * graph.ops.rank[rows], graph.gate[rows]))]
    first = np.flatnonzero(np.diff(graph.gate[rows], prepend=-1))
    gate = graph.gate[rows[first]]
    key, count = numbered(graph.gates.group[gate], sends_down(graph, rows[first]), members[gate])
    out = []
    for k in range(count):
        mine = np.flatnonzero(key == k)
        wide = int(members[gate[mine[0]]])
        table = rows[first[mine][:, None] + np.arange(wide)]
        rank = graph.ops.rank[table]
        table = table[(rank == rank[0]).all(axis=1) & (np.diff(np.sort(rank, axis=1), axis=1) > 0).all(axis=1)]
        if len(table):
            out.append(Ring(table, _rounds(graph, table[:, 0], wide)))
    return out


def sends_down(graph: Graph, rows: Indices) -> Mask:
    """Whether chunks go from higher to lower ranks: in gloo's rings, but for its all-gather."""
    out: Mask = (graph.trace.backend == "gloo") & (graph.ops.verb[rows] != Verb.ALL_GATHER)
    return out


def _rounds(graph: Graph, rows: Indices, members: int) -> Ints:
    """How often each chunk crosses a link; gloo's reduce-scatter is an all-reduce."""
    both = (Verb.ALL_REDUCE, Verb.REDUCE_SCATTER) if graph.trace.backend == "gloo" else (Verb.ALL_REDUCE,)
    return (members - 1) * np.where(np.isin(graph.ops.verb[rows], both), 2, 1)


def slow_links(graph: Graph, some: list[Ring]) -> list[SlowLinks]:
    """Rings whose members end as behind a slow link."""
    places, wanted = sum(ring.rows.shape[1] for ring in some), expected_members(graph.trace)
    found = [_slow(graph, ring, places) for ring in some if not _with_gaps(graph, ring, wanted)]
    return [one for one in found if one is not None]


def _with_gaps(graph: Graph, ring: Ring, wanted: Ints) -> bool:
    """Whether a small ring has members that were not traced (of each group, those wanted): then its links are not known."""
    group = int(graph.gates.group[graph.gate[ring.rows[0, 0]]])
    return group >= 0 and len(ring.rows[0]) < min(ENOUGH, int(wanted[group]))


def _slow(graph: Graph, ring: Ring, places: int) -> SlowLinks | None:
    """The staircase of one ring, if it has one; all rings have so many places for one."""
    late, large = _in_rounds(graph, ring), _large(graph, ring)
    ends: Floats = np.median(late[large], axis=0)
    found = closing_staircase(ends)
    if found is None or (found.apart and _by_design(graph, ring, found.receivers)):
        return None
    members, stairs = late.shape[1], found.heights(late)
    if members >= ENOUGH:
        chance = places * found.chance
    else:
        chance = places * found.tried * _by_chance(stairs[large], graph.window[ring.rows[large, 0]])
    stair = stairs * graph.work_ns[ring.rows].max(axis=1) / ring.rounds
    if chance >= FALSE_ALARMS or not _by_transfer(graph, ring, stair, stairs):
        return None
    by_size = _by_size(graph, ring, stairs, large)
    if by_size is False:
        return None
    # Of an interface's two receivers one may be a little earlier, which lowers the fit: then the step down from the last of
    # them tells more; among few members, where links in either direction act on each other, the highest step.
    down = _steps_down(graph, ring, found.receivers) if len(found.receivers) > 1 and not found.apart else stairs
    steps = [stairs, down] if members >= ENOUGH else [stairs, down, *(late - np.roll(late, -1, axis=1)).T]
    longer = _begun_before(graph, ring, found.receivers) if members >= ENOUGH else np.ones(len(late))
    share = max(float(np.median((step / longer)[large])) for step in steps)
    left = _slower_kind(_between_hosts(graph, ring), np.median((late / longer[:, None])[large], axis=0), found)
    height, work = float(np.median(stair[large])), graph.work_ns[ring.rows]
    apart = int((work.max(axis=1) - work.min(axis=1)).sum())
    chance = float(min(1.0, chance))
    return SlowLinks(ring, found.receivers, share, chance, stairs / longer, by_size, apart, height, longer, left)


def _begun_before(graph: Graph, ring: Ring, receivers: Indices) -> Floats:
    """Per gate: what all rounds over the slow links take, in what they take once the last member came.

    Chunks of those upstream of a link cross it before, as many as there is time for, if nobody in between is still to come.
    """
    start, members = graph.ops.start_ns[ring.rows], ring.rows.shape[1]
    took = graph.work_ns[ring.rows].max(axis=1, keepdims=True).astype(np.float64)
    rounds, chunks = ring.rounds[:, None], np.arange(members)
    crossed = []
    for receiver in receivers.tolist():
        here = np.maximum.accumulate(start[:, (receiver - chunks) % members], axis=1)
        early = (start.max(axis=1, keepdims=True) - here).astype(np.float64)
        crossed.append(np.minimum(chunks, early * rounds / np.maximum(took + early, 1.0)).max(axis=1))
    return np.asarray(ring.rounds / np.maximum(ring.rounds - np.min(crossed, axis=0), 1.0))


def _by_design(graph: Graph, ring: Ring, receivers: Indices) -> bool:
    """Whether two links may be the two between two hosts, which are slower than those inside them."""
    if (graph.members.host[graph.rank_index[ring.rows[0]]] == "").any():  # two hosts of as many ranks
        return bool(2 * abs(int(receivers[1] - receivers[0])) == len(ring.rows[0]))
    return np.array_equal(np.flatnonzero(_between_hosts(graph, ring)), np.sort(receivers))


def _between_hosts(graph: Graph, ring: Ring) -> Mask:
    """Per member: whether the link into it comes from another host."""
    host = graph.members.host[graph.rank_index[ring.rows[0]]]
    out: Mask = host != np.roll(host, 1)
    return out


def _slower_kind(between: Mask, ends: Floats, found: Staircase) -> float:
    """What a round takes over links between hosts, or over those inside if that is more, in slow rounds; 0 if they are alike.

    A stair is a slow round less what one piece of a chunk takes over the link that it goes down.
    """
    down = np.roll(found.shape, 1) - found.shape > STEADY  # the step into a member from the one before it
    piece = 1 - (np.roll(ends, 1) - ends)
    kinds = [piece[down & between], piece[down & ~between]]
    if min(map(len, kinds)) < 1 or sum(map(len, kinds)) < LEAST_STAIRS:
        return 0.0
    mean, rest = [float(one.mean()) for one in kinds], np.concatenate([one - one.mean() for one in kinds])
    error = np.sqrt((rest @ rest) / (len(rest) - 2) * sum(1 / len(one) for one in kinds))
    return PIECES * max(mean) if abs(mean[0] - mean[1]) > APART * error else 0.0


def _in_rounds(graph: Graph, ring: Ring) -> Floats:
    """Gates × members: how much later than the first each ended, in units of the mean round of its gate."""
    end, work = graph.ops.end_ns[ring.rows], graph.work_ns[ring.rows]
    whole: Floats = np.maximum(work.max(axis=1, keepdims=True), 1.0)
    out: Floats = (end - end.min(axis=1, keepdims=True)) * ring.rounds[:, None] / whole
    return out


def _large(graph: Graph, ring: Ring) -> Mask:
    """Gates at least half as large as the largest of their verb: in small ones latency and habits show instead.

    Of verbs that take about as long as the longest: a job may gather sizes before it reduces gradients.
    """
    size, verb = (column[ring.rows[:, 0]].astype(np.int64) for column in (graph.ops.size, graph.ops.verb))
    took, of, count = graph.work_ns[ring.rows].max(axis=1), *numbered(verb)
    most = np.zeros(count, dtype=np.int64)
    np.maximum.at(most, of, size)
    large = 2 * np.maximum(size, 0) >= most[of]
    usual = np.array([np.median(took[large & (of == k)]) for k in range(count)])
    return np.asarray(large & (UNLIKE * usual >= usual.max())[of])


def _by_chance(stairs: Floats, window: Indices) -> float:
    """Chance of such a mean stair if it were none: steps are independent, the gates of a step are not."""
    of, count = numbered(window)
    if count < 2:
        return 1.0
    mean = weighed(of, stairs, count) / np.bincount(of, minlength=count)
    error = max(float(mean.std(ddof=1)), 1e-9) / np.sqrt(count)
    return student_tail(float(mean.mean()) / error, count - 1)


def _by_transfer(graph: Graph, ring: Ring, stair_ns: Floats, stairs: Floats) -> bool:
    """Whether stairs are higher in larger collectives, or close the smaller ones, too; a busy host is late in all alike.

    True where sizes do not differ enough to tell.
    """
    size = graph.ops.size[ring.rows[:, 0]]
    if size.min() <= 0 or size.max() < UNLIKE * size.min():
        return True
    small = size < 2 * size.min()
    grows = np.median(stair_ns[2 * size > size.max()]) >= 2 * np.median(stair_ns[small])
    return bool(grows or CLOSES[0] <= np.median(stairs[small]) <= CLOSES[1])


def _by_size(graph: Graph, ring: Ring, stairs: Floats, large: Mask) -> bool | None:
    """Whether the smallest collectives, which take less time, end as behind the same link; None where sizes do not tell.

    A link slower by a factor costs the same share of every transfer. One that delays every chunk alike costs more of small
    ones, in which a stair is short of a round by half of a shorter chunk. Habits would weigh as much more as those take less;
    beside a slow link they show in the small ones, and what the large ones take longer is the link's alone.
    """
    size = graph.ops.size[ring.rows[:, 0]]
    if size.min() <= 0 or size.max() <= 2 * size.min():
        return None
    took, small = graph.work_ns[ring.rows].max(axis=1), size < 2 * size.min()
    (long, cost, share), (short, of_small, small_share) = (
        [float(np.median(column[mask])) for column in (took, stairs * took, stairs)] for mask in (large, small)
    )
    short, half = max(short, 1.0), 1 / PIECES
    if long < LONGER * short:
        return None
    most = min(1.0, max(share, half + long / short * (share - half)))
    return small_share <= ROUGHLY * most or cost - of_small >= SLOWER * (long - short)


def without_slow_links(graph: Graph, some: list[Ring], mended: Mask) -> Ints:
    """Work of every op if the links into some members (mask over ops) were like the others, ns.

    A round of the ring takes as long as its slowest link: what another slow link still costs is not saved.
    """
    work = graph.work_ns.copy()
    known = {id(found.ring): found for found in slow_links(graph, some)}
    for ring in some:
        mine = np.flatnonzero(mended[ring.rows[0]])
        if not len(mine):
            continue
        found = known.get(id(ring))
        stairs = _steps_down(graph, ring, mine) if found is None else found.stairs
        if found is not None and not np.isin(found.receivers, mine).all():
            continue
        cls, count = numbered(graph.ops.name[ring.rows[:, 0]], graph.ops.size[ring.rows[:, 0]])
        cost = np.array([np.median(stairs[cls == k]) for k in range(count)])[cls]
        longer = np.ones(len(stairs)) if found is None else found.longer
        if found is not None:
            # Transfers that overlap wait for each other on the link: what the others show of it counts for all large ones.
            cost = np.where(_large(graph, ring), np.maximum(cost, found.share), cost)
            cost = 1 - np.maximum(PIECES * (1 - np.minimum(cost, 1.0)), found.left)
        took = graph.work_ns[ring.rows].max(axis=1)
        shorter = np.rint(took * longer * (1 - np.clip(cost, 0.0, 1 - 1 / LEAST))).astype(np.int64)
        work[ring.rows] = np.minimum(graph.work_ns[ring.rows], np.where(cost > 0, shorter, took)[:, None])
    return work


def _steps_down(graph: Graph, ring: Ring, receivers: Indices) -> Floats:
    """Per gate, in rounds: the highest step from one of these members down to the first downstream that is none of them."""
    members = ring.rows.shape[1]
    free = np.setdiff1d(np.arange(members), receivers)
    if not len(free):
        return np.zeros(len(ring.rows))
    late = _in_rounds(graph, ring)
    after = [int(free[np.argmin((free - place) % members)]) for place in receivers]
    out: Floats = (late[:, receivers] - late[:, after]).max(axis=1)
    return out
