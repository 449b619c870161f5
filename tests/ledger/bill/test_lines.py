"""Lines, categories and drill-downs: the same money, joules and time, each once, whatever they are summed by."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from actions import table
from taut.core.tables import Table
from taut.ledger.bill.categories import CATEGORIES, ITEMS
from taut.ledger.bill.entries import Entry, entries_of
from taut.ledger.bill.lines import DRILLS, Coded, amount, categories, drill, exact_sums, lines
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.rows import Booked, Held, Uncharged

HOUR = 3_600_000_000_000
HELD = [
    {"job": "a", "team": "vision", "host": "n1", "accelerators": 8, "start_ns": 0, "end_ns": HOUR, "rank_ns": 8 * HOUR,
     "fate": "kept", "source": "measured", "origin": "log"},
    {"job": "b", "host": "n1", "accelerators": 8, "start_ns": DAY_NS, "end_ns": DAY_NS + HOUR, "rank_ns": 8 * HOUR,
     "fate": "discarded", "cause": "node failed", "source": "measured", "origin": "log"},
]  # fmt: skip
BOOKED = [
    {"held": 0, "charge": 0, "item": "accelerator time", "effective": 20 * 10**9, "billed": 25 * 10**9, "rank_ns": 8 * HOUR},
    {"held": 1, "charge": 1, "item": "accelerator time", "effective": 16 * 10**9, "billed": 0, "rank_ns": 8 * HOUR},
    {"held": -1, "charge": 2, "item": "storage", "effective": 3 * 10**9, "billed": 3 * 10**9, "start_ns": 0, "end_ns": DAY_NS},
    {"held": -1, "charge": 3, "item": "idle accelerators", "effective": 10**9, "host": "n1", "rank_ns": HOUR},
]  # fmt: skip


def coded(booked: list[dict[str, Any]], uncharged: list[dict[str, Any]] | None = None) -> Coded:
    used = table(Uncharged, uncharged) if uncharged else Table(Uncharged, {}, 0)
    return Coded(entries_of(table(Held, HELD), table(Booked, booked), used, "bill.csv", "prices"))


def test_lines_by_item_fate_cause_and_source() -> None:
    found = [
        (one.category, one.kind, one.item, one.fate, one.cause, one.money, one.billed)
        for one in lines(coded(BOOKED), billed=True)
    ]
    assert found == [
        ("useful work", "useful", "accelerator time", "kept", None, "20.00", "25.00"),
        ("re-runs and discarded work", "direct", "accelerator time", "discarded", "node failed", "16.00", "0.00"),
        ("over-provisioning", "hidden", "idle accelerators", None, None, "1.00", "0.00"),
        ("services", "useful", "storage", None, None, "3.00", "3.00"),
    ]


def test_drill_downs_keep_what_belongs_to_nobody() -> None:
    found = {by: {one.name: (one.money, one.lost) for one in drill(coded(BOOKED), by)} for by in DRILLS}
    assert found["job"] == {"a": ("20.00", "0.00"), "b": ("16.00", "16.00"), None: ("4.00", "1.00")}
    assert found["team"] == {"vision": ("20.00", "0.00"), None: ("20.00", "17.00")}
    assert found["host"] == {"n1": ("37.00", "17.00"), None: ("3.00", "0.00")}
    assert found["day"] == {"1970-01-01": ("23.00", "0.00"), "1970-01-02": ("16.00", "16.00"), None: ("1.00", "1.00")}
    assert found["rank"] == {None: ("40.00", "17.00")}


def test_without_a_price_time_is_there_and_money_is_null() -> None:
    found = coded([])
    assert [(one.money, one.rank_ns) for one in lines(found)] == [(None, 8 * HOUR), (None, 8 * HOUR)]
    assert [(one.money, one.share, one.lost) for one in categories(found)] == [(None, None, None)] * 2


def test_what_was_used_without_a_charge_is_a_line_of_its_own_and_its_time_counts_once() -> None:
    used = [{"held": 1, "host": "n1", "start_ns": DAY_NS, "end_ns": DAY_NS + HOUR, "rank_ns": 8 * HOUR, "effective": 16 * 10**9,
             "why": "missing"}]  # fmt: skip
    found = lines(coded([BOOKED[0]], used))
    assert [(one.fate, one.money, one.source, one.rank_ns) for one in found] == [
        ("kept", "20.00", "measured", 8 * HOUR), ("discarded", "16.00", "given", None),
        ("discarded", None, "measured", 8 * HOUR),
    ]  # fmt: skip
    assert found[1].origin == "used without a charge, at what its host costs otherwise"


def test_two_traced_jobs_have_ranks_of_their_own() -> None:
    both = table(Held, [{**HELD[0], "rank": 0}, {**HELD[1], "rank": 0}])
    found = Coded(entries_of(both, Table(Booked, {}, 0), Table(Uncharged, {}, 0), None, "prices"))
    assert {one.name for one in drill(found, "rank")} == {"a: rank 0 (n1)", "b: rank 0 (n1)"}


FATES = [fate for one in CATEGORIES for fate in one.fates]
WORDS = st.sampled_from(["", "x", "y"])


@st.composite
def entries(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    item = rng.choice(list(ITEMS), count).astype(object)
    texts = {name: rng.choice(["", "x", "y"], count).astype(object) for name in ("cause", "origin", "job", "team", "host")}
    return Table(Entry, texts | {
        "item": item, "fate": np.where([ITEMS[one] is None for one in item], rng.choice(FATES, count), "").astype(object),
        "source": rng.choice(["measured", "modelled", "given"], count).astype(object), "rank": rng.integers(-1, 3, count),
        "day": rng.integers(-1, 3, count), "rank_ns": rng.integers(-1, 1 << 62, count), "priced": rng.integers(0, 2, count),
        "money": rng.integers(-(1 << 62), 1 << 62, count), "billed": rng.integers(-(1 << 62), 1 << 62, count),
        "joules": np.where(rng.random(count) < 0.5, np.nan, rng.random(count)),
    }, count)  # fmt: skip


@settings(max_examples=60)
@given(entries())
def test_every_way_to_sum_gives_the_same(found: Table) -> None:
    coded = Coded(found)
    priced = found.priced == 1
    money = sum(map(int, found.money[priced]))
    time = sum(int(ns) for ns in found.rank_ns.tolist() if ns >= 0)
    for rows in (lines(coded), categories(coded), *(drill(coded, by) for by in DRILLS)):
        assert sum((Decimal(one.money) for one in rows if one.money is not None), Decimal(0)) == Decimal(money) / 10**9
        assert sum(one.rank_ns for one in rows if one.rank_ns is not None) == time
        assert np.isclose(sum(one.joules for one in rows if one.joules is not None), np.nansum(found.joules))


@given(st.integers(-(1 << 80), 1 << 80), st.sampled_from([1, 1000, 10**9]))
def test_an_amount_is_the_decimal_that_it_stands_for(units: int, unit: int) -> None:
    assert Decimal(amount(units, unit) or "") * unit == units


def test_sums_go_beyond_64_bits() -> None:
    values = np.full(8, (1 << 63) - 1)
    assert exact_sums(np.zeros(8, dtype=np.int64), values, 1) == [8 * ((1 << 63) - 1)]
    assert exact_sums(np.zeros(8, dtype=np.int64), -values, 1) == [-8 * ((1 << 63) - 1)]


def test_charges_of_several_days_are_divided_by_time() -> None:
    noon = DAY_NS // 2
    stored = {"held": -1, "item": "storage", "start_ns": noon, "end_ns": 3 * DAY_NS}
    rows = [stored | {"charge": i, "effective": 5 * 10**9, "billed": 10**9} for i in range(2)]
    found = {one.name: one.money for one in drill(coded(rows), "day") if one.money}
    assert found == {"1970-01-01": "2.00", "1970-01-02": "4.00", "1970-01-03": "4.00"}


@given(
    st.lists(st.tuples(st.integers(0, 10**16), st.integers(1, 10**16), st.integers(-(10**12), 10**12)), min_size=1, max_size=6)
)
@settings(max_examples=50)
def test_days_add_up_to_the_charges(charges: list[tuple[int, int, int]]) -> None:
    rows = [
        {"held": -1, "charge": i, "item": "idle accelerators", "start_ns": start, "end_ns": start + took, "effective": cost,
         "billed": cost, "rank_ns": took}
        for i, (start, took, cost) in enumerate(charges)
    ]  # fmt: skip
    entries = entries_of(table(Held, HELD), table(Booked, rows), Table(Uncharged, {}, 0), "bill.csv", "prices")
    idle = entries.take(entries.item == "idle accelerators")
    assert int(idle.money.sum()) == sum(cost for *_, cost in charges)
    assert int(idle.rank_ns.sum()) == sum(took for _, took, _ in charges)
    assert (idle.day >= 0).all()
