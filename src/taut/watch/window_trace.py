"""The last steps of a job, as they were seen live → a trace, as if somebody had recorded it.

Where every call that waits has its end, ops are exact: calls, and between them the stages. Where ends are missing, arrivals
are laid out by the rules of flight-recorder dumps (``read/flight/arrivals.py``): a gate lasts until its last member came. Sends
that nobody saw are put where their sender's work ended, at the same place in every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Mask
from taut.core.ids import numbered, occurrence
from taut.core.tables import NULL, Call, Kind, Mark, Member, Op, Table, Trace, Verb, concat
from taut.read.flight.arrivals import LANES, lay_out
from taut.read.verb_words import verb_of
from taut.watch.seen import BACKWARD, HOP, LOAD, OPTIMIZER, SAVE, Events, Meeting, Seat, Seen, joined, with_members
from taut.watch.step_series import step_of

WORK = ("forward", "data_load", "optimizer", "backward", "checkpoint", "other", "between steps")
"""Names of what a rank does outside of its calls; the loader's and the checkpoint's are those that analysis knows."""
REST, LOADS, OPTIMIZES, GOES_BACK, SAVES, AFTER, BETWEEN = range(len(WORK))
OWN = 0
MANY_TURNS, MOST_TURNS = 6, 0.95
"""Backward passes from which their end is told to be a gate, and the share of them that are looked at."""
SOME, WAITED_NS, SOME_WAIT, HALF = 0.02, 1_000_000, 0.05, 0.5
"""It is one if ranks wait there, by this share of a step and this time, in so many turns; and nobody leaves by more than this
part of a step before the last came."""
SENT = 1
"""Flag of a hop that sends."""


class MadeTrace(Struct, frozen=True):
    """A trace, and what its making left out."""

    trace: Trace
    exact: bool
    """Whether transfers have their ends."""
    inferred_sends: bool
    hosts: tuple[str, ...]
    """Host of each rank by its own name: in the trace ranks of one boot share a host, because they share a clock."""


def trace_of(seen: Seen, meets: Mapping[int, bool], name: str = "job") -> MadeTrace | None:
    """The trace of all whole steps of what was seen; None where nobody meets anybody, or nothing recurs."""
    ranks = np.array(sorted(set(seen.steps.rank.tolist())), np.int64)
    if len(ranks) < 2 or not len(seen.gates):
        return None
    zero = int(seen.steps.begin.min())
    is_gate = np.array(
        [one.verb == HOP or (meets.get(k, False) and one.verb != BACKWARD) for k, one in enumerate(seen.classes)]
    )
    gates = joined([seen.gates.take(is_gate[seen.gates.klass] & np.isin(seen.gates.rank, ranks)), _reduced(seen, ranks, zero)])
    gates = gates.take(np.lexsort((gates.begin, gates.rank)))
    at = step_of(gates, seen.steps, ranks, zero)
    inside = at < np.iinfo(np.int64).max
    gates, at = gates.take(inside), at[inside]
    if not len(gates):
        return None
    hop = np.array([one.verb == HOP for one in seen.classes])[gates.klass]
    exact = bool(((gates.end > 0) | (hop & (gates.flags & SENT > 0))).all())
    made = _exact(seen, gates, at, hop, ranks, zero) if exact else _laid(seen, gates, at, ranks, zero)
    if made is None:
        return None
    ops, names, inferred = made
    hosts = tuple(seen.seats.get(int(rank), Seat()).host for rank in ranks)
    return MadeTrace(_trace(seen, ops, names, ranks, name), exact, inferred, hosts)


def _reduced(seen: Seen, ranks: Ints, zero: int) -> Events:
    """The end of backward passes as a gate, if it is one: of some the last of each step.

    Reductions begin before a pass ends, so a rank may leave before the last has come, but never by more than what all have to
    do after they gave their last gradients away. That is taken off their arrival.
    """
    is_back = np.array([one.verb == BACKWARD for one in seen.classes])
    rows = seen.gates.take(is_back[seen.gates.klass] & np.isin(seen.gates.rank, ranks) & (seen.gates.end > 0))
    at = step_of(rows, seen.steps, ranks, zero)
    order = np.lexsort((rows.begin, rows.rank, at))
    cell, _ = numbered(at[order], rows.rank[order])
    last = order[np.flatnonzero(np.diff(cell, append=-1))]
    steps, turn = np.unique(at[last], return_inverse=True)
    whole = (np.bincount(turn, minlength=len(steps)) == len(ranks)) & (steps < np.iinfo(np.int64).max)
    last = last[whole[turn]]
    if len(last) < MANY_TURNS * len(ranks):
        return rows.take(last[:0])
    came, left = (side[last].reshape(-1, len(ranks)) for side in (rows.begin, rows.end))
    usual = float(np.median(seen.steps.end - seen.steps.begin))
    ahead = np.quantile(np.maximum(came.max(axis=1) - left.min(axis=1), 0), MOST_TURNS)
    if (left - came > max(SOME * usual, WAITED_NS)).mean() < SOME_WAIT or ahead > HALF * usual:
        return rows.take(last[:0])
    found = rows.take(last)
    begun = _begun(seen, is_back, found)
    return msgspec.structs.replace(found, number=at[last], begin=np.maximum(found.begin - int(ahead), begun))


def _begun(seen: Seen, is_back: Mask, found: Events) -> Ints:
    """When the backward pass of each of these rows began."""
    stages = seen.stages.take(is_back[seen.stages.klass]) if len(seen.stages) else seen.stages
    known = dict(zip(zip(stages.rank.tolist(), stages.end.tolist(), strict=True), stages.begin.tolist(), strict=True))
    pairs = zip(found.rank.tolist(), found.begin.tolist(), strict=True)
    return np.array([known.get(pair, pair[1]) for pair in pairs], np.int64)


def _trace(seen: Seen, ops: Table, names: list[str], ranks: Ints, name: str) -> Trace:
    seats = [seen.seats.get(int(rank), Seat()) for rank in ranks]
    named: dict[str, str] = {}
    # Ranks of one boot share a clock whatever their host is called.
    hosts = [named.setdefault(seat.boot, seat.host) if seat.boot else seat.host for seat in seats]
    steps = seen.steps
    return Trace(
        ops=ops.take(np.lexsort((ops.end_ns, ops.start_ns, ops.lane, ops.rank))),
        names=names,
        lanes=LANES,
        groups=[_group(one, k) for k, one in enumerate(seen.classes)],
        group_ranks=_group_ranks(seen, ranks),
        members=Table(Member, {"rank": ranks, "host": hosts, "gpu": [seat.gpu for seat in seats]}),
        marks=Table(Mark, {"rank": steps.rank, "step": steps.number, "start_ns": steps.begin, "end_ns": steps.end}),
        name=name,
        source="watch",
        world_size=len(ranks),
        backend=backend_of(seen),
    )


def _group_ranks(seen: Seen, ranks: Ints) -> dict[str, tuple[int, ...]]:
    """Members of the group of each class; where they are not known, or too many to walk, all ranks."""
    walked, everybody = set(with_members(seen.gates, seen.classes)), tuple(ranks.tolist())
    return {
        _group(one, k): (tuple(one.ranks) if k in walked else ()) or everybody
        for k, one in enumerate(seen.classes)
        if one.verb != HOP
    }


def backend_of(seen: Seen) -> str:
    """Of the job's groups; ranks that have no accelerator talk through gloo."""
    told = {seat.backend for seat in seen.seats.values()} - {""}
    return min(told) if told else "gloo" if all(seat.gpu < 0 for seat in seen.seats.values()) else ""


def _group(one: Meeting, klass: int) -> str:
    """A name of a class of gates of its own: numbers of calls count by class."""
    return f"{one.group or 'all'} {klass}"


def _verbs(classes: Sequence[Meeting]) -> Ints:
    """Verb of every class; the end of a backward pass is a reduction."""
    return np.array([Verb.ALL_REDUCE if one.verb == BACKWARD else verb_of(one.verb) for one in classes], np.int64)


def _calls(seen: Seen, gates: Events) -> dict[str, Ints]:
    """What ops of calls have in common, exact or not."""
    classes, sends = seen.classes, gates.flags & SENT > 0
    hop = np.array([one.verb == HOP for one in classes])[gates.klass]
    source, sink = (np.array([getattr(one, side) for one in classes], np.int64)[gates.klass] for side in ("source", "sink"))
    return {
        "verb": np.where(hop, np.where(sends, Verb.SEND, Verb.RECV), _verbs(classes)[gates.klass]),
        "group": gates.klass,
        "peer": np.where(hop, np.where(sends, sink, source), NULL),
        "seq": gates.number,
    }


# -- exact ----------------------------------------------------------------------------------------------------------------


def _exact(seen: Seen, gates: Events, at: Ints, hop: Mask, ranks: Ints, zero: int) -> tuple[Table, list[str], bool]:
    sends = hop & (gates.flags & SENT > 0)
    words = sorted({one.verb if one.verb != HOP else "recv" for one in seen.classes} | {"send"})
    word = np.array([words.index("recv" if one.verb == HOP else one.verb) for one in seen.classes], np.int64)
    calls = {
        **_calls(seen, gates), "rank": gates.rank, "step": at, "lane": np.full(len(gates), OWN),
        "kind": np.full(len(gates), Kind.COMMUNICATE),
        "name": len(WORK) + np.where(sends, words.index("send"), word[gates.klass]),
        "start_ns": gates.begin, "end_ns": np.where(gates.end > 0, gates.end, gates.begin),
    }  # fmt: skip
    tables = [Table(Op, calls), _work(seen, gates.take(~sends), ranks, zero)]
    alone = _unsent(seen, gates, hop, sends)
    if alone.any():
        tables.append(_sent(seen, gates.take(alone), at[alone], ranks, zero, len(WORK) + words.index("send")))
    return concat(Op, tables), [*WORK, *words], bool(alone.any())


def _unsent(seen: Seen, gates: Events, hop: Mask, sends: Mask) -> Mask:
    """Receives of channels on which no send was seen."""
    seen_to_send = np.zeros(len(seen.classes), np.bool_)
    seen_to_send[gates.klass[sends]] = True
    out: Mask = hop & ~sends & ~seen_to_send[gates.klass]
    return out


def _work(seen: Seen, gates: Events, ranks: Ints, zero: int) -> Table:
    """What ranks did between their calls, by stage."""
    stages, verb = seen.stages.take(np.isin(seen.stages.rank, ranks)), [one.verb for one in seen.classes]
    parts = [(seen.steps.take(np.isin(seen.steps.rank, ranks)), -1), (gates, 0)]
    for index, word in ((LOADS, LOAD), (OPTIMIZES, OPTIMIZER), (GOES_BACK, BACKWARD), (SAVES, SAVE)):
        codes = np.array([one == word for one in verb])
        parts.append((stages.take(codes[stages.klass]) if len(stages) else stages, index))
    rank = np.concatenate([part.rank for part, _ in parts for _ in range(2)])
    time = np.concatenate([side for part, _ in parts for side in (part.begin, part.end)])
    change = np.zeros((len(rank), AFTER), np.int8)
    done = 0
    for part, index in parts:
        if index >= 0:
            change[done : done + len(part), index] = 1
            change[done + len(part) : done + 2 * len(part), index] = -1
        done += 2 * len(part)
    order = np.lexsort((time, rank))
    rank, time, inside = rank[order], time[order], np.cumsum(change[order], axis=0, dtype=np.int64)
    # A stage that was begun before the window is not told apart from none: counts below zero are none.
    begin, end = time[:-1], time[1:]
    kept = (rank[:-1] == rank[1:]) & (end > begin) & (inside[:-1, 0] <= 0)
    rank, begin, end, inside = rank[:-1][kept], begin[kept], end[kept], inside[:-1][kept]
    what = np.select(
        [inside[:, one] > 0 for one in (LOADS, SAVES, OPTIMIZES, GOES_BACK)], [LOADS, SAVES, OPTIMIZES, GOES_BACK], REST
    )
    empty = np.zeros(len(rank), np.int64)
    # A piece that begins where a step ends is of the next.
    at = step_of(Events(rank, empty, empty, empty, begin + 1, end), seen.steps, ranks, zero)
    # A checkpoint now and then must not change which forward of its step a piece is: what comes before the loader is none.
    what = np.where((what == REST) & _before_first(rank, at, begin, what == LOADS), BETWEEN, what)
    what = np.where((what == REST) & _after_last(rank, at, begin, what == GOES_BACK), AFTER, what)
    whole = (at < np.iinfo(np.int64).max) & (begin >= _first_begin(seen, ranks)[np.searchsorted(ranks, rank)])
    columns = {
        "rank": rank, "step": at, "lane": np.full(len(rank), OWN), "name": what, "start_ns": begin, "end_ns": end,
        "kind": np.where(np.isin(what, (LOADS, SAVES)), Kind.COORDINATE, Kind.COMPUTE),
    }  # fmt: skip
    return Table(Op, {key: value[whole] for key, value in columns.items()})


def _first_begin(seen: Seen, ranks: Ints) -> Ints:
    out = np.full(len(ranks), np.iinfo(np.int64).max)
    mine = np.isin(seen.steps.rank, ranks)
    np.minimum.at(out, np.searchsorted(ranks, seen.steps.rank[mine]), seen.steps.begin[mine])
    return out


def _after_last(rank: Ints, step: Ints, begin: Ints, back: Mask) -> Mask:
    """Whether no backward pass of the same step comes any more."""
    cell, cells = numbered(rank, step)
    last = np.full(cells, np.iinfo(np.int64).min)
    np.maximum.at(last, cell[back], begin[back])
    out: Mask = begin > last[cell]
    return out


def _before_first(rank: Ints, step: Ints, begin: Ints, loads: Mask) -> Mask:
    """Whether the loader of the same step is still to come."""
    cell, cells = numbered(rank, step)
    never = np.iinfo(np.int64).max
    first = np.full(cells, never)
    np.minimum.at(first, cell[loads], begin[loads])
    out: Mask = (begin < first[cell]) & (first[cell] < never)
    return out


def _sent(seen: Seen, receives: Events, at: Ints, ranks: Ints, zero: int, name: int) -> Table:
    """Sends that nobody saw: after the piece of work of the sender that, step after step, ends last before the receive does."""
    source = np.array([one.source for one in seen.classes], np.int64)[receives.klass]
    edges = _edges(seen, ranks)
    number, time = _last_before(edges, source, at, receives.end, ranks, zero)
    # The same receive of a step waits for the same piece of work in every step, told by those that did wait.
    place, places = numbered(receives.klass, occurrence(receives.klass, at))
    waited = receives.end - receives.begin > 2 * np.median(receives.end - receives.begin) / 3
    usual = _most_frequent(place, places, number, waited & (number >= 0))
    fixed = _numbered_edge(edges, source, at, usual[place], ranks)
    time = np.where((usual[place] >= 0) & (fixed > 0) & (fixed <= receives.end), fixed, time)
    known = time > 0
    sink = receives.rank
    columns = {
        "rank": source, "step": at, "lane": np.full(len(at), OWN), "kind": np.full(len(at), Kind.COMMUNICATE),
        "name": np.full(len(at), name), "start_ns": time, "end_ns": time, "verb": np.full(len(at), Verb.SEND),
        "group": receives.klass, "peer": sink, "seq": receives.number,
    }  # fmt: skip
    return Table(Op, {key: value[known] for key, value in columns.items()})


def _most_frequent(place: Ints, places: int, number: Ints, told: Mask) -> Ints:
    """The number that each place has most often among those that tell it, the least of several; -1 where none does."""
    place, number = place[told], number[told]
    pair, pairs = numbered(place, number)
    count = np.bincount(pair, minlength=pairs)
    its_place, its_number = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64)
    its_place[pair], its_number[pair] = place, number
    order = np.lexsort((-its_number, count, its_place))
    out = np.full(places, -1, np.int64)
    out[its_place[order]] = its_number[order]  # the last of each place is the most frequent
    return out


def _edges(seen: Seen, ranks: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """(rank, step, number in the step, time) of all times at which ranks ended a piece of work."""
    backs = np.array([one.verb == BACKWARD for one in seen.classes])
    stages = seen.stages.take(backs[seen.stages.klass]) if len(seen.stages) else seen.stages
    gates = seen.gates.take(np.array([one.verb == HOP for one in seen.classes])[seen.gates.klass])
    rank = np.concatenate([gates.rank, stages.rank, seen.steps.rank])
    time = np.concatenate([gates.begin, stages.end, seen.steps.end])
    order = np.lexsort((time, rank))
    rank, time = rank[order], time[order]
    zeros = np.zeros(len(rank), np.int64)
    step = step_of(Events(rank, zeros, zeros, zeros, time, time), seen.steps, ranks, int(seen.steps.begin.min()))
    return rank, step, occurrence(rank, step), time


def _last_before(
    edges: tuple[Ints, Ints, Ints, Ints], source: Ints, at: Ints, end: Ints, ranks: Ints, zero: int
) -> tuple[Ints, Ints]:
    """(number in its step, time) of the sender's last edge in that step before some time; -1 and 0 where there is none."""
    rank, step, number, time = edges
    span = 1 << 42
    keys = np.searchsorted(ranks, rank) * span + np.clip(time - zero, 0, span - 1)
    found = np.searchsorted(keys, np.searchsorted(ranks, source) * span + np.clip(end - zero, 0, span - 1), side="right") - 1
    index = np.maximum(found, 0)
    fits = (found >= 0) & (rank[index] == source)
    same = fits & (step[index] == at)
    return np.where(same, number[index], -1), np.where(fits, time[index], 0)


def _numbered_edge(edges: tuple[Ints, Ints, Ints, Ints], source: Ints, at: Ints, wanted: Ints, ranks: Ints) -> Ints:
    """Time of the edge with that number in the sender's step; 0 where there is none."""
    rank, step, number, time = edges
    whole = step < np.iinfo(np.int64).max
    keys, _ = numbered(
        np.concatenate([rank[whole], source]), np.concatenate([step[whole], at]), np.concatenate([number[whole], wanted])
    )
    known, asked = keys[: int(whole.sum())], keys[int(whole.sum()) :]
    times = np.zeros(int(keys.max(initial=0)) + 1, np.int64)
    times[known] = time[whole]
    return times[asked]


# -- arrivals -------------------------------------------------------------------------------------------------------------


def _laid(seen: Seen, gates: Events, at: Ints, ranks: Ints, zero: int) -> tuple[Table, list[str], bool] | None:
    words = sorted({one.verb for one in seen.classes} | {"send", "recv"})
    sends, hop = gates.flags & SENT > 0, np.array([one.verb == HOP for one in seen.classes])[gates.klass]
    word = np.array([words.index(one.verb) for one in seen.classes], np.int64)[gates.klass]
    word = np.where(hop, np.where(sends, words.index("send"), words.index("recv")), word)
    columns = {**_calls(seen, gates), "rank": gates.rank, "name": word, "created_ns": gates.begin, "done": np.ones(len(gates))}
    first = int(at.min())
    laid = lay_out(Table(Call, columns), words, np.maximum(at - first, 0))
    if laid is None:
        return None
    ops = laid.ops.replace(step=laid.ops.step + first)
    names = laid.names
    for verb, index in ((LOAD, LOADS), (SAVE, SAVES)):
        ops, names = _with_stage(seen, ops, names, ranks, verb, WORK[index])
    return ops, names, False


def _with_stage(seen: Seen, ops: Table, names: list[str], ranks: Ints, verb: str, name: str) -> tuple[Table, list[str]]:
    """The same ops, work in a stage that analysis knows, the loader or a checkpoint, under its name."""
    is_stage = np.array([one.verb == verb for one in seen.classes])
    if not len(seen.stages) or not is_stage[seen.stages.klass].any():
        return ops, names
    stages = seen.stages.take(is_stage[seen.stages.klass])
    work = np.flatnonzero((ops.kind == Kind.COMPUTE) & (ops.lane == OWN))
    work = work[np.lexsort((ops.start_ns[work], ops.rank[work]))]
    zero, span = int(ops.start_ns.min()), 1 << 42
    keys = np.searchsorted(ranks, ops.rank[work]) * span + np.clip(ops.start_ns[work] - zero, 0, span - 1)
    found = (
        np.searchsorted(keys, np.searchsorted(ranks, stages.rank) * span + np.clip(stages.begin - zero, 0, span - 1), "right")
        - 1
    )
    index = work[np.maximum(found, 0)]
    begin, end = np.maximum(stages.begin, ops.start_ns[index]), np.minimum(stages.end, ops.end_ns[index])
    fits = (found >= 0) & (ops.rank[index] == stages.rank) & (end > begin)
    _, one_each = np.unique(index, return_index=True)  # of two in one piece of work the first counts
    fits &= np.isin(np.arange(len(index)), one_each)
    index, begin, end = index[fits], begin[fits], end[fits]
    rest = np.ones(len(ops), np.bool_)
    rest[index] = False
    whole = ops.take(index)
    inside = whole.replace(
        start_ns=begin, end_ns=end, name=np.full(len(index), len(names)), kind=np.full(len(index), Kind.COORDINATE)
    )
    after = whole.replace(start_ns=end)
    before = whole.replace(end_ns=begin, name=np.full(len(index), len(names) + 1))
    pieces = [ops.take(rest), inside, after.take(whole.end_ns > end), before.take(begin > whole.start_ns)]
    return concat(Op, pieces), [*names, name, f"work before {name}"]
