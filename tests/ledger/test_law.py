"""The conservation law: every rank-nanosecond has one fate, every wait is split without remainder, money closes."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, Do, analyze, barriers, job, play
from jobs import jobs, nonsense
from taut.core.array_types import Ints
from taut.core.tables import Kind, Trace, Verb
from taut.ledger import CATEGORIES, Prices, charge
from taut.ledger.charge import FATES, Category, Context
from taut.replay.blame import PARTS
from taut.run import Analysis


def assert_conserved(done: Analysis) -> None:
    """Cells close to ranks × wall, parts to waits, the matrix to fault and gap."""
    ledger, blame, graph = done.ledger, done.blame, done.graph
    ranks = len(graph.ranks)
    assert ledger.cells.rank_ns.dtype == np.int64
    assert (ledger.cells.rank_ns >= 0).all()
    assert int(ledger.cells.rank_ns.sum()) == ledger.total_rank_ns == ranks * done.observed.wall_ns
    assert ledger.closes
    per_rank = np.bincount(np.searchsorted(graph.ranks, ledger.cells.rank), weights=ledger.cells.rank_ns, minlength=ranks)
    assert (per_rank == done.observed.wall_ns).all()
    waits = blame.waits
    assert (sum(waits.columns[part] for part in PARTS) == waits.wait_ns).all()
    assert all((waits.columns[part] >= 0).all() for part in PARTS)
    assert (waits.wait_ns == done.observed.wait_ns[waits.op]).all()
    assert int(waits.wait_ns.sum()) == int(done.observed.wait_ns.sum())
    assert int(blame.matrix.sum()) == int(blame.fault_ns.sum() + blame.gap_ns.sum())
    assert int(blame.matrix.sum()) == blame.totals.fault_ns + blame.totals.gap_ns
    cause = np.bincount(graph.rank_index, weights=blame.fault_ns + blame.gap_ns, minlength=ranks)
    assert (blame.matrix.sum(axis=1) == cause).all()
    victims = np.bincount(graph.rank_index[waits.op], weights=waits.fault_ns + waits.gap_ns, minlength=ranks)
    assert (blame.matrix.sum(axis=0) == victims).all()
    assert 0 <= ledger.hidden_wait_rank_ns <= blame.totals.wait_ns


@settings(max_examples=120)
@given(jobs())
def test_a_job_is_conserved(built: Trace) -> None:
    """Conservation law, on jobs with every verb, several lanes, launches, skewed and shivering clocks."""
    assert_conserved(analyze(built))


@settings(max_examples=120)
@given(nonsense())
def test_nonsense_is_conserved(built: Trace) -> None:
    """Conservation law, on traces that contradict themselves."""
    assert_conserved(analyze(built))


@settings(max_examples=30)
@given(
    st.integers(0, 1 << 32), st.decimals("0.01", "99", places=2),
    st.sampled_from([1e3, 1e6, 1e9, 1e12]), st.integers(1, 6),
)  # fmt: skip
def test_money_closes_to_the_last_digit(seed: int, price: Decimal, unit: float, ranks: int) -> None:
    """Largest remainder: the lines sum exactly to the rounded total, and none is off by a unit or more."""
    work = np.random.default_rng(seed).random((4, ranks)) * unit
    ledger = analyze(barriers(work, int(unit / 10)), prices=Prices(price, "EUR")).ledger
    lines = ledger.entries()
    total = ledger.price(ledger.total_rank_ns)
    assert sum(Decimal(line["money"]) for line in lines) == Decimal(total or "")
    for line in lines:
        exact = price * line["rank_ns"] / Decimal(3_600_000_000_000)
        assert abs(Decimal(line["money"]) - exact) < Decimal("0.000001")


def test_without_a_price_money_is_null() -> None:
    """No price, no money: nothing is guessed."""
    lines = analyze(job({0: "fwd 5 | AR 1", 1: "fwd 6 | AR 1"})).ledger.entries()
    assert [line["money"] for line in lines] == [None] * len(FATES)
    assert [line["joules"] for line in lines] == [None] * len(FATES)


def test_joules_ride_on_the_same_cells() -> None:
    """Load power while computing, stall power while communicating or waiting."""
    ledger = analyze(job({0: "fwd 6 | AR 1", 1: "fwd 6 | AR 1"}), prices=Prices(load_w=500, stall_w=100)).ledger
    assert sum(line["joules"] for line in ledger.entries()) == pytest.approx(2 * (0.006 * 500 + 0.001 * 100))


def fates(built: Trace) -> dict[str, float]:
    """Rank-milliseconds per fate, the empty ones left out."""
    return {fate: ns / MS for fate, ns in analyze(built).ledger.by_fate.items() if ns}


def test_each_moment_has_the_first_fate_that_applies() -> None:
    """Compute before transfer before wait; idle time belongs to the op that follows."""
    done = fates(job({0: "fwd 5 | AR 2", 1: "fwd 5 | . 1 | AR 2"}))
    assert done["productive"] == 10
    assert done["exposed transfer"] == 4
    assert done["gap"] + done.get("unexplained", 0) == 2
    assert sum(done.values()) == 2 * 8


def test_a_wait_hidden_under_compute_is_not_in_the_ledger() -> None:
    """Rank 0 waits 10 ms in its all-reduce while another lane computes: no rank-time is lost to waiting."""
    hidden = job({0: ["fwd 1 | AR 2", "other 30"], 1: ["fwd 11 | AR 2", "other 30"]})
    done = analyze(hidden)
    assert int(done.observed.wait_ns.sum()) == 10 * MS
    assert done.ledger.hidden_wait_rank_ns == 10 * MS
    assert set(fates(hidden)) <= {"productive", "slow compute"}


def test_half_a_wait_hidden_leaves_the_other_half() -> None:
    """Rank 0 waits 10 ms, another lane computes for 4 of them: 6 ms of wait are exposed."""
    done = analyze(job({0: ["fwd 1 | AR 2", "other 5"], 1: ["fwd 11 | AR 2", "other 5"]}))
    wait = {"fault wait", "jitter wait", "structural wait", "unexplained"}
    assert sum(ns for fate, ns in done.ledger.by_fate.items() if fate in wait) == 6 * MS
    assert done.ledger.hidden_wait_rank_ns == 4 * MS


def test_host_work_is_a_gap_for_the_accelerator() -> None:
    """A loader that runs while nothing computes is host time; under compute it is not seen."""
    ops = [Do(0, "load", 3 * MS, lane=1, kind=Kind.COORDINATE), Do(0, "fwd", 5 * MS, launch=0, idle=MS)]
    assert fates(play(ops)) == {"productive": 5, "gap": 1}


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 10**17), min_size=3, max_size=3), min_size=1, max_size=3).filter(
        lambda steps: sum(map(max, steps)) < 3 * 10**17
    ),
    st.integers(0, 999),
)
def test_years_are_conserved_to_the_nanosecond(steps: list[list[int]], odd: int) -> None:
    """Conservation law where float64 does not hold every ns: beyond 2⁵³ ns, a hundred days."""
    done = analyze(barriers(np.array(steps) + odd))
    assert_conserved_exactly(done)


def assert_conserved_exactly(done: Analysis) -> None:
    """Cells close to ranks × wall for every rank, summed without floats."""
    cells = done.ledger.cells
    assert done.ledger.closes
    assert sum(done.ledger.by_fate.values()) == len(done.graph.ranks) * done.observed.wall_ns
    for rank in done.graph.ranks.tolist():
        assert sum(cells.rank_ns[cells.rank == rank].tolist()) == done.observed.wall_ns


def test_many_ranks_for_years_do_not_overflow() -> None:
    """200 ranks × 3 years are more nanoseconds than 64 bits hold."""
    done = analyze(barriers(np.full((1, 200), 3 * 365 * 86_400 * 10**9)))
    assert done.ledger.total_rank_ns > 2**63
    assert_conserved_exactly(done)
    assert sum(entry["rank_ns"] for entry in done.result["ledger"]["entries"]) == done.ledger.total_rank_ns


def checkpoints(c: Context) -> dict[str, Ints]:
    """A made-up fate: all work of the class ``save``."""
    return c.work(np.array([name == "save" for name in c.graph.names])[c.graph.ops.name])


def half_the_waits(c: Context) -> dict[str, Ints]:
    """Another: half of every fault wait and of every structural one."""
    return {part: c.time[part] // 2 for part in ("fault_ns", "structural_ns")}


@pytest.mark.parametrize("at", [0, 1, 5, 7, 8, len(CATEGORIES)])
def test_a_new_fate_keeps_the_law_wherever_its_line_stands(at: int) -> None:
    """Entries close, the power of every other fate stays its own, and so do joules where the new one draws as much."""
    slow = "fwd 5 | save 4 | AR 1"
    done = analyze(job(lambda step: {0: "fwd 5 | AR 1", 1: slow if step > 4 else "fwd 5 | save 1 | AR 1"}, steps=8))
    prices = Prices(Decimal("2.5"), "EUR", load_w=500, stall_w=200, idle_w=90)
    before = charge(done.graph, done.observed, done.blame, prices)
    for new in (Category("checkpoint save", "load", checkpoints), Category("half of the waits", "stall", half_the_waits)):
        ledger = charge(done.graph, done.observed, done.blame, prices, (*CATEGORIES[:at], new, *CATEGORIES[at:]))
        assert ledger.closes
        assert ledger.total_rank_ns == before.total_rank_ns
        lines, old = ({line["fate"]: line for line in one.entries()} for one in (ledger, before))
        assert sum(line["rank_ns"] for line in lines.values()) == len(done.graph.ranks) * done.observed.wall_ns
        assert sum(Decimal(line["money"]) for line in lines.values()) == Decimal(ledger.price(ledger.total_rank_ns) or "")
        assert sum(line["joules"] for line in lines.values()) == pytest.approx(sum(line["joules"] for line in old.values()))
        for fate in FATES:
            if old[fate]["rank_ns"] and lines[fate]["rank_ns"]:
                assert lines[fate]["joules"] / lines[fate]["rank_ns"] == pytest.approx(
                    old[fate]["joules"] / old[fate]["rank_ns"]
                )
        assert lines[new.fate]["rank_ns"] > 0 or at > 0
        if at == 0 and new.claim is checkpoints:
            assert lines[new.fate]["rank_ns"] == (5 * 1 + 3 * 4) * MS
        energy = ledger.energy(done.graph.steps)
        assert energy is not None
        assert energy.joules.sum() == pytest.approx(sum(line["joules"] for line in lines.values()))
        assert (energy.ideal_joules <= energy.joules).all()


def test_what_no_fate_claims_is_unexplained() -> None:
    """Without the line of transfers their time is still in the ledger, where everybody sees it."""
    done = analyze(job({0: "fwd 5 | AR 2", 1: "fwd 5 | AR 2"}))
    fewer = tuple(one for one in CATEGORIES if one.fate != "exposed transfer")
    ledger = charge(done.graph, done.observed, done.blame, categories=fewer)
    assert ledger.closes
    assert ledger.by_fate["unexplained"] == 4 * MS


def copied(*, beside: str = "", wait: bool = False) -> dict[str, float]:
    """Fates of two ranks that copy for 4 ms on one lane, with something else on another or a wait for the other rank."""
    ops = []
    for rank in range(2):
        ops.append(Do(rank, "copy h2d", 4 * MS, lane=1, kind=Kind.COMMUNICATE, size=1 << 20))
        if beside:
            ops.append(Do(rank, beside, 3 * MS, kind=Kind.COMPUTE if beside == "fwd" else Kind.COMMUNICATE))
        if wait:
            ops.append(Do(rank, "fwd", (1 + 4 * rank) * MS))
            ops.append(Do(rank, "AR", MS, verb=Verb.ALL_REDUCE))
    return fates(play(ops))


def test_a_copy_is_neither_compute_nor_communication_that_cannot_be_divided() -> None:
    """Copies between host and device have a fate of their own."""
    assert copied() == {"exposed copy": 8}


def test_a_copy_under_compute_or_communication_is_not_exposed() -> None:
    """Of 4 ms of copying 3 lie under something else."""
    assert copied(beside="fwd") == {"productive": 6, "exposed copy": 2}
    assert copied(beside="sent") == {"communication undivided": 6, "exposed copy": 2}


def test_a_wait_under_a_copy_is_hidden() -> None:
    """Rank 0 computes 1 ms and waits 4 for rank 1; its copy covers 3 of them."""
    done = copied(wait=True)
    assert done["exposed copy"] == 3
    assert sum(ms for fate, ms in done.items() if "wait" in fate or fate == "unexplained") == 1
