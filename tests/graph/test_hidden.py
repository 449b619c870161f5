"""Waits that no op records: a sender that goes on only once what it sent is received."""

from __future__ import annotations

import numpy as np
import pytest

from build import MS, Do, analyze, play
from taut.core.tables import Trace, Verb
from taut.graph.link import link
from taut.replay.timeline import replay

STEPS, ONSET, SENT = 20, 8, 100_000


def sender_that_waits(seed: int) -> Trace:
    """Rank 0 computes 10 ms and sends; rank 1 computes 40 ms, 80 since ONSET, and receives: then rank 0 goes on."""
    rng = np.random.default_rng(seed)
    ops = []
    for step in range(STEPS):
        late = round((80 if step >= ONSET else 40) * MS * (1 + 0.01 * rng.standard_normal()))
        ops += [
            Do(0, "bwd", 10 * MS, step=step),
            Do(0, "hop", SENT, step=step, verb=Verb.SEND, peer=1, eager=True),
            Do(0, "optimizer", 5 * MS, step=step, idle=late + MS - 10 * MS - SENT + 200_000),
            Do(1, "bwd", late, step=step),
            Do(1, "hop", MS, step=step, verb=Verb.RECV, peer=0),
            Do(1, "optimizer", 5 * MS, step=step, idle=200_000),
        ]
    return play(ops)


def test_a_sender_that_waits_for_its_receiver_is_not_the_slow_one() -> None:
    (found,) = analyze(sender_that_waits(1)).findings
    assert (found.mode, found.ranks, found.steps) == ("straggler cascade", (1,), (ONSET, STEPS - 1))
    assert found.recoverable_wall_ns == pytest.approx((STEPS - ONSET) * 40 * MS, rel=0.05)


def test_a_sender_that_waits_before_now_this_and_now_that_waits_for_its_receiver_all_the_same() -> None:
    """Rank 1 stops in every third step while it receives; what rank 0 does next, once that is over, is not always the same."""
    ops = []
    for step in range(STEPS):
        stop = 90 * MS if step % 3 == 2 else 0
        after = "optimizer" if step % 2 else "logging"
        ops += [
            Do(0, "bwd", 10 * MS, step=step),
            Do(0, "hop", SENT, step=step, verb=Verb.SEND, peer=1, eager=True),
            Do(0, after, 5 * MS, step=step, idle=stop + 920_000),
            Do(1, "bwd", 9 * MS, step=step),
            Do(1, "hop", MS + stop, step=step, verb=Verb.RECV, peer=0),
            Do(1, after, 5 * MS, step=step, idle=200_000),
        ]
    graph = link(play(ops))
    assert (replay(graph).end_ns == graph.ops.end_ns).all()
    mine = graph.ops.rank == 0
    assert int(graph.gap_ns[mine].max()) < 20 * MS, "no gap of the sender is as long as a stop of the receiver"
