"""Watts fitted to a run, for time that nobody measured on the same hardware."""

from __future__ import annotations

import numpy as np
import pytest

from actions import table
from taut.core.prices import HostFacts, Prices
from taut.core.tables import Table
from taut.ledger.bill.energy_entries import Measurements, energy_of
from taut.ledger.bill.held_energy import held_energy
from taut.ledger.bill.lent_watts import Lender, lent
from taut.ledger.bill.rows import Held
from taut.result.types import Estimate, StateWatts

S = 1_000_000_000
WATTS = StateWatts(load=Estimate(value=600, lo=580, hi=620), stall=Estimate(value=400, lo=390, hi=410),
                   idle=Estimate(value=100, lo=0, hi=300))  # fmt: skip
RUN = Lender("run", "a", frozenset({"n1"}), frozenset({"H200"}), WATTS)


def held(*rows: tuple[str, str, str, float]) -> Table:
    """A second each: (job, host, fate, joules that a run measured; NaN for none)."""
    return table(Held, [
        {"job": job, "host": host, "fate": fate, "rank_ns": S, "accelerators": 1, "joules": joules,
         "joules_by": "" if np.isnan(joules) else "counter"}
        for job, host, fate, joules in rows
    ])  # fmt: skip


ROWS = held(("a", "n1", "productive", 600.0), ("b", "n1", "kept", np.nan), ("b", "n1", "hold/init", np.nan))


def test_time_on_the_same_host_has_the_watts_of_its_fate() -> None:
    found = energy_of(ROWS, Prices(), Measurements(lenders=[RUN]), 1.0, 0)
    assert found.told.joules is not None
    assert (found.told.joules.value, found.told.joules.lo, found.told.joules.hi) == pytest.approx((1300, 1180, 1520))
    drawn = zip(found.entries.joules.tolist(), found.entries.source.tolist(), found.entries.origin.tolist(), strict=True)
    assert list(drawn)[1] == (pytest.approx(600), "modelled", "run run: watts fitted to its power")


@pytest.mark.parametrize(
    ("job", "host", "models", "known"),
    [("b", "n1", {}, True), ("b", "n2", {}, False), ("b", "n2", {"n2": "H200"}, True), ("b", "n2", {"n2": "A100"}, False),
     ("a", "", {}, True), ("b", "", {}, False)],
)  # fmt: skip
def test_same_hardware_is_a_host_a_model_or_the_job_itself(job: str, host: str, models: dict[str, str], known: bool) -> None:
    prices = Prices(hosts=HostFacts(model_of=models))
    found = held_energy(held((job, host, "kept", np.nan)), prices, lent=lent(held((job, host, "kept", np.nan)), [RUN], prices))
    assert (found.total is not None) == known


def test_watts_that_are_given_count_before() -> None:
    given = Prices(load_w=500)
    assert lent(ROWS, [RUN], given) is None
    assert lent(ROWS, [], Prices()) is None
