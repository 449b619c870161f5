"""Bytes that collectives and messages move, and why they are not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import taut
from actions import table
from build import MS, barriers
from taut.core.prices import Network, Prices
from taut.core.tables import Verb
from taut.ledger.bill.moved_bytes import MovedBytes, TracedBytes, Transfers, billed_bytes, moved_bytes
from taut.ledger.bill.rows import Held
from taut.run import analyze_trace


def moved(*rows: tuple[Verb, int, int], in_bytes: bool = True) -> MovedBytes:
    """Of (verb, bytes, members)."""
    verb, size, members = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    return moved_bytes(Transfers(verb, size, members, in_bytes))


@pytest.mark.parametrize(
    ("verb", "bytes_of_a_rank"),
    [(Verb.ALL_REDUCE, 1500.0), (Verb.ALL_GATHER, 750.0), (Verb.REDUCE_SCATTER, 750.0), (Verb.ALL_TO_ALL, 750.0),
     (Verb.BROADCAST, 750.0)],
)  # fmt: skip
def test_what_crosses_the_link_of_every_rank(verb: Verb, bytes_of_a_rank: float) -> None:
    assert moved(*[(verb, 1000, 4)] * 4).count == 4 * bytes_of_a_rank


def test_a_message_counts_once_and_a_barrier_moves_nothing() -> None:
    assert moved((Verb.SEND, 70, -1), (Verb.RECV, 70, -1), (Verb.BARRIER, -1, -1), (Verb.NONE, -1, -1)).count == 70
    assert moved((Verb.RECV, 70, -1)).count == 70


def test_what_is_not_told_is_not_zero() -> None:
    assert moved((Verb.NONE, 8, -1)) == MovedBytes(None, "no collective and no message was traced")
    assert moved((Verb.ALL_REDUCE, 8, 2), in_bytes=False) == MovedBytes(None, "the trace does not tell sizes in bytes")
    some = moved((Verb.ALL_REDUCE, 8, 2), (Verb.ALL_REDUCE, -1, 2))
    assert some == MovedBytes(None, "of 1 of 2 transfers the bytes were not recorded")
    assert moved((Verb.ALL_REDUCE, 8, -1)).why == "how many ranks took part in 1 of 1 transfers is not known"


def test_time_beyond_the_traced_one_moves_as_many_a_second() -> None:
    held = table(Held, [
        {"job": "a", "fate": "productive", "rank_ns": 100}, {"job": "a", "fate": "hold/init", "rank_ns": 50},
        {"job": "b", "fate": "kept", "rank_ns": 70},
    ])  # fmt: skip
    found = billed_bytes(held, [TracedBytes("run", "a", MovedBytes(1000.0), 20.0)])
    assert found == MovedBytes(5000.0, "of 1 jobs without traces the bytes are not known, and not in it")
    dark = TracedBytes("run", "a", MovedBytes(None, "no collective and no message was traced"), 20.0)
    assert billed_bytes(held, [dark]) == MovedBytes(None, "run: no collective and no message was traced")
    assert billed_bytes(held, []).count is None


def test_the_bytes_of_a_run_folder_are_in_its_bill(tmp_path: Path) -> None:
    done = analyze_trace(barriers(np.full((10, 4), 100 * MS), MS))
    folder, steps = done.save(tmp_path / "run"), len(done.graph.steps)
    found = taut.bill(folder, prices=Prices(load_w=500, network=Network(pj_per_bit=20.0))).result.energy
    assert found.moved_bytes == pytest.approx(steps * 4 * 4096 * 1.5)
    assert found.network_joules == pytest.approx(steps * 4 * 4096 * 1.5 * 8 * 20e-12)
    assert found.data_movement_share is not None
    assert taut.bill(folder, prices=Prices(load_w=500)).result.energy.moved_bytes is None
