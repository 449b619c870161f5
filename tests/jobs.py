"""Hypothesis strategies for whole jobs: consistent ones, and ones that no machine would do."""

from __future__ import annotations

from dataclasses import replace as edited
from typing import Any

import numpy as np
from hypothesis import strategies as st

from build import Do, play, trace
from taut.core.tables import Kind, Trace, Verb

COLLECTIVES = [v for v in Verb if v not in (Verb.NONE, Verb.SEND, Verb.RECV)]


@st.composite
def jobs(draw: st.DrawFn, relative: bool | None = None) -> Trace:
    """A consistent job: lanes that overlap, launches, gates of every verb, hops, idle time, then clock noise."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    ranks, lanes, steps = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    unit = draw(st.sampled_from([1, 1_000, 1_000_000]))
    verbs = draw(st.lists(st.sampled_from([*COLLECTIVES, Verb.SEND]), max_size=4))
    relative = draw(st.booleans()) if relative is None else relative
    ops: list[Do] = []

    def length() -> int:
        return int(rng.integers(0, 50) * unit)

    for step in range(steps):
        for lane in range(lanes):
            for rank in range(ranks):
                launch = len(ops) - 1 if lane and ops and ops[-1].rank == rank and rng.random() < 0.5 else -1
                for _ in range(rng.integers(1, 4)):
                    ops.append(
                        Do(
                            rank,
                            f"op {lane}",
                            length(),
                            lane,
                            step,
                            idle=length() * int(rng.integers(2)),
                            launch=launch,
                        )
                    )
        for verb in verbs if ranks > 1 else ():
            ops += _meeting(verb, ranks, step, length, rng)
    built = play(ops, relative=relative, hosts={r: f"host {r % 2}" for r in range(ranks)})
    noise = draw(st.sampled_from([0, 1, unit // 4, 3 * unit]))
    return _noisy(built, rng, noise)


def _meeting(verb: Verb, ranks: int, step: int, length: Any, rng: Any) -> list[Do]:
    """Everybody meets on lane 0; a send goes from rank 0 to rank 1, eager or not."""
    if verb == Verb.SEND:
        send = Do(0, "hop", length(), step=step, verb=Verb.SEND, peer=1, eager=bool(rng.integers(2)))
        return [send, Do(1, "hop", length(), step=step, verb=Verb.RECV, peer=0)]
    root = int(rng.integers(ranks))
    return [Do(r, verb.word, length(), step=step, verb=verb, peer=root) for r in range(ranks)]


def _noisy(built: Trace, rng: Any, noise: int) -> Trace:
    """Every rank's clock runs off, and every time stamp shivers: some edges of the trace are now violated."""
    ops = built.ops
    skew = rng.integers(-noise, noise + 1, size=5)[ops.rank]
    start = ops.start_ns + skew + rng.integers(-noise, noise + 1, size=len(ops))
    end = np.maximum(ops.end_ns + skew + rng.integers(-noise, noise + 1, size=len(ops)), start)
    return edited(built, ops=ops.replace(start_ns=start, end_ns=end))


@st.composite
def nonsense(draw: st.DrawFn) -> Trace:
    """Ops that no machine would do: overlaps, gates across time, launches in circles."""
    unit = draw(st.sampled_from([1, 1_000, 100_000]))
    row = st.tuples(
        st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.integers(0, 60), st.integers(0, 40),
        st.sampled_from(list(Verb)), st.integers(0, 1), st.integers(-1, 3), st.integers(0, 3), st.integers(-1, 7),
    )  # fmt: skip
    rows = np.array(draw(st.lists(row, min_size=1, max_size=24)))
    rank, lane, step, start, length, verb, group, seq, peer, launch = rows.T
    columns = {
        "rank": rank, "lane": lane, "step": step, "start_ns": start * unit, "end_ns": (start + length) * unit,
        "verb": verb, "group": np.where(np.isin(verb, COLLECTIVES), group, -1), "seq": seq, "peer": peer,
        "kind": np.where(verb == Verb.NONE, Kind.COMPUTE, Kind.COMMUNICATE), "name": np.minimum(verb, 2),
        "launch": np.where(launch < len(rows), launch, -1),
    }  # fmt: skip
    return trace(columns, ["a", "b", "c"], ["g", "h"], relative=draw(st.booleans()))
