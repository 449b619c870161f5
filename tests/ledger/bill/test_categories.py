"""Categories of a bill: every fate has one, and a word that has none is told where to go."""

from __future__ import annotations

import pytest

from taut.ledger import attempt_ledger
from taut.ledger.attempt_ledger import NOT_HELD
from taut.ledger.bill.categories import CATEGORIES, category_of
from taut.ledger.charge import FATES
from taut.project.training import job_history

HELD = [fate for fate in attempt_ledger.FATES if fate not in NOT_HELD]
"""Fates of attempts that somebody pays for."""


@pytest.mark.parametrize("fate", sorted({*FATES, *HELD, *job_history.FATES}))
def test_every_fate_is_in_one_category(fate: str) -> None:
    assert [fate in one.fates for one in CATEGORIES].count(True) == 1
    assert fate in category_of("accelerator time", fate).fates


def test_energy_of_what_is_not_useful_is_wasted() -> None:
    assert category_of("electricity", "productive").name == "useful work"
    assert category_of("cooling", "gap").name == "energy wasted"


def test_a_fate_without_a_category_is_told_where_to_go() -> None:
    with pytest.raises(KeyError, match=r"fate 'napping' of accelerator time: .* ledger/bill/categories\.py"):
        category_of("accelerator time", "napping")
