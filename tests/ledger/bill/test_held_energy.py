"""Joules of what was held: rows and nobody add up to what the meters of a host say, however time is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.prices import Embodied, HostFacts, Network, Prices
from taut.core.tables import Table
from taut.ledger.bill.categories import CATEGORIES
from taut.ledger.bill.fate_power import POWER
from taut.ledger.bill.held_energy import bill_energy, held_energy, host_energy, network_energy, sci
from taut.ledger.bill.meters import Metered, counter_meter, sample_meter
from taut.ledger.bill.rows import Held

S = 1_000_000_000
WATTS = {"load_w": 700.0, "stall_w": 300.0, "idle_w": 100.0}
GIVEN = Prices(**WATTS)


def held(*rows: tuple[str, float, float, int, str]) -> Table:
    """Rows of (host, start s, end s, accelerators, fate), held all of their time."""
    start, end = (np.array([round(row[i] * S) for row in rows], np.int64) for i in (1, 2))
    count = np.array([row[3] for row in rows], np.int64)
    words = {"host": [row[0] for row in rows], "fate": [row[4] for row in rows]}
    texts = {key: np.array(value, np.object_) for key, value in words.items()}
    return Table(Held, {"start_ns": start, "end_ns": end, "accelerators": count, "rank_ns": count * (end - start), **texts})


def host(name: str, *power_w: float, counter: bool = True) -> list[Metered]:
    """A host with an accelerator of each of these constant powers, metered from 0 to 100 s."""
    time_ns = np.arange(0, 101, dtype=np.int64) * S
    out = []
    for i, power in enumerate(power_w):
        meter = counter_meter(time_ns, 1 + power * np.arange(101.0)) if counter else sample_meter(time_ns, np.full(101, power))
        assert meter is not None
        out.append(Metered(f"{name} gpu {i}", -1, name, {"counter" if counter else "samples": meter}))
    return out


def test_every_fate_has_a_class_of_power() -> None:
    assert {fate for category in CATEGORIES for fate in category.fates} <= set(POWER)


def test_a_host_that_one_job_holds_gives_it_all() -> None:
    found = held_energy(held(("n1", 0, 50, 2, "kept"), ("n1", 50, 100, 2, "down")), Prices(), host("n1", 400, 600))
    assert found.joules.tolist() == pytest.approx([50_000, 50_000])
    assert (found.source, found.coverage) == ("counter", pytest.approx(1))
    assert found.total.lo is None


def test_who_holds_part_of_a_host_takes_its_part_and_nobody_draws_idle_power() -> None:
    found = held_energy(held(("n1", 0, 100, 1, "kept")), GIVEN, host("n1", 350, 450))
    assert found.joules.tolist() == pytest.approx([800 * 100 * 700 / (700 + 100)])


def test_two_jobs_on_one_host_divide_it_by_what_they_do() -> None:
    found = held_energy(held(("n1", 0, 100, 1, "kept"), ("n1", 0, 100, 1, "fault wait")), GIVEN, host("n1", 400, 400))
    assert found.joules.tolist() == pytest.approx([56_000, 24_000])


def test_sources_stand_side_by_side_and_their_difference_is_the_interval() -> None:
    both = [
        Metered(one.component, -1, "n1", {**one.meters, **other.meters})
        for one, other in zip(host("n1", 400), host("n1", 700, counter=False), strict=True)
    ]
    found = held_energy(held(("n1", 0, 100, 1, "kept")), GIVEN, both)
    assert [(one.name, round(one.joules)) for one in found.sources] == [
        ("counter", 40_000),
        ("samples", 70_000),
        ("states", 70_000),
    ]
    assert (found.total.value, found.total.lo, found.total.hi) == pytest.approx((40_000, 40_000, 70_000))


def test_what_nobody_measured_is_modelled_or_unknown_never_zero() -> None:
    rows = held(("n1", 0, 100, 1, "kept"), ("n2", 0, 100, 1, "kept"))
    assert held_energy(rows, GIVEN, host("n1", 400)).joules.tolist() == pytest.approx([40_000, 70_000])
    unknown = held_energy(rows, Prices(), host("n1", 400))
    assert np.isnan(unknown.joules[1])
    assert unknown.total is None
    assert unknown.sources[0].coverage == pytest.approx(0.5)
    nothing = bill_energy(rows, held_energy(rows, Prices()))
    assert (nothing.joules, nothing.source, nothing.stall_joules, nothing.sources) == (None, None, None, [])


def whole_node(name: str, power_w: float) -> Metered:
    meter = host(name, power_w, counter=False)[0].meters["samples"]
    return Metered(name, -1, name, {"node samples": meter}, "node")


def test_a_node_that_was_measured_whole_counts_where_its_accelerators_were_not() -> None:
    rows = held(("n1.site", 0, 100, 2, "kept"))
    found = held_energy(rows, Prices(), [whole_node("n1", 1500)])
    assert (found.joules.tolist(), found.source) == ([pytest.approx(150_000)], "node samples")
    less = held_energy(rows, Prices(host_w=250.0), [whole_node("n1", 1500)])
    assert less.joules.tolist() == pytest.approx([100_000])
    four = held_energy(rows, Prices(**WATTS, hosts=HostFacts(accelerators=4)), [whole_node("n1", 1600)])
    assert four.joules.tolist() == pytest.approx([1600 * 100 * 1400 / (1400 + 200)])
    both = held_energy(
        rows.replace(host=np.array(["n1"], np.object_)), Prices(), [whole_node("n1", 1500), *host("n1", 400, 500)]
    )
    assert both.source == "counter"
    assert [one.name for one in both.sources] == ["counter", "node samples"]


def test_hosts_have_what_their_processors_count_else_what_was_given() -> None:
    counted = Metered("n1", -1, "n1", {"counter": host("n1", 300)[0].meters["counter"]}, "processors")
    rows = held(("n1", 0, 100, 2, "kept"), ("n1", 0, 100, 1, "down"), ("n2", 0, 100, 2, "kept"))
    found = host_energy(rows, Prices(host_w=90.0), [counted])
    assert found.joules.tolist() == pytest.approx([20_000, 10_000, 18_000])
    assert np.isnan(host_energy(rows, Prices(), [counted]).joules[2])


def test_what_a_run_tells_of_its_cells_is_taken() -> None:
    rows = held(("n1", 0, 10, 1, "productive"), ("n1", 0, 10, 1, "gap"))
    found = held_energy(rows, GIVEN, told={"samples": np.array([5.0, np.nan])})
    assert found.joules.tolist() == pytest.approx([5.0, 1000.0])
    assert found.measured.tolist() == [True, False]


def test_rows_without_times_are_modelled() -> None:
    rows = held(("n1", 0, 100, 1, "kept")).replace(start_ns=np.array([-1]))
    assert held_energy(rows, GIVEN, host("n1", 400)).joules.tolist() == pytest.approx([70_000])


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 99_999), max_size=6), st.lists(st.floats(50, 1000), min_size=2, max_size=2),
    st.lists(st.sampled_from(["kept", "down", "jitter wait"]), min_size=2, max_size=2),
)  # fmt: skip
def test_any_cut_of_what_was_held_adds_up_to_the_meters(cuts: list[int], power: list[float], fates: list[str]) -> None:
    edges = [0.0, *sorted(one / 1000 for one in set(cuts)), 100.0]
    parts = [("n1", a, b, 1, fate) for fate in fates for a, b in pairwise(edges)]
    found = held_energy(held(*parts), GIVEN, host("n1", *power))
    assert found.joules.sum() == pytest.approx(100 * sum(power))
    whole = held_energy(held(*(("n1", 0, 100, 1, fate) for fate in fates)), GIVEN, host("n1", *power))
    assert found.joules[: len(edges) - 1].sum() == pytest.approx(whole.joules[0])


def test_a_board_without_a_meter_is_not_covered_and_takes_the_power_of_the_others() -> None:
    rows = held(("n1", 0, 100, 8, "kept"))
    found = held_energy(rows, Prices(), host("n1", *[100.0] * 7))
    assert found.joules.tolist() == pytest.approx([8 * 100 * 100])
    assert [one.coverage for one in found.sources] == pytest.approx([7 / 8])
    few = held_energy(rows, Prices(), host("n1", *[100.0] * 3))
    assert few.total is None


def test_time_without_readings_goes_by_states_where_watts_are_given() -> None:
    rows = held(("n1", 0, 200, 1, "kept"))
    found = held_energy(rows, GIVEN, host("n1", 500.0))
    assert found.joules.tolist() == pytest.approx([500 * 100 + 700 * 100])
    assert found.sources[0].coverage == pytest.approx(0.5)
    bare = held_energy(rows, Prices(), host("n1", 500.0))
    assert bare.joules.tolist() == pytest.approx([500 * 200])
    assert bare.sources[0].coverage == pytest.approx(0.5)


def test_stall_energy_and_bloat_are_told_apart() -> None:
    fates = ("kept", "jitter wait", "structural wait", "fault wait", "idle")
    rows = held(*(("n1", 10 * i, 10 * i + 10, 1, fate) for i, fate in enumerate(fates)))
    told = bill_energy(rows, held_energy(rows, GIVEN))
    assert told.stall_joules == pytest.approx(10 * (3 * 300 + 100))
    assert (told.intrinsic_bloat_joules, told.extrinsic_bloat_joules) == pytest.approx((6000, 3000))


def test_the_network_draws_by_ports_and_by_bits() -> None:
    network = Network(ports=10, port_w=5.0, pj_per_bit=15.0)
    assert network_energy(Prices(network=network), 100, 1e12) == pytest.approx(10 * 5 * 100 + 8e12 * 15e-12)
    assert network_energy(Prices(network=Network(pj_per_bit=15.0)), 100, None) is None
    assert network_energy(Prices(), 100, 1e12) is None


def test_carbon_of_making_is_spread_over_its_life() -> None:
    prices = Prices(embodied=Embodied(kg=365.0, years=1.0))
    assert sci(1.0, prices, 86_400, 10) == pytest.approx((1 + 1) / 10)
    assert sci(1.0, Prices(), 86_400, 10) is None
