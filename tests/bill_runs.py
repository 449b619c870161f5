"""A traced run of two ranks, as the bill sees it: cells, members, findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from actions import table
from results import FINDING, filled
from taut.core.tables import Action, Member, Table
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.traced_time import Traced
from taut.ledger.charge import FATES, Cell
from taut.result.types import Finding

S = 1_000_000_000
NOON = 20_000 * DAY_NS + DAY_NS // 2


def cells(*rows: tuple[int, int, str, int]) -> Table:
    """Cells of (rank, step, fate, seconds)."""
    columns = {"rank": [r for r, *_ in rows], "step": [s for _, s, *_ in rows],
               "fate": [FATES.index(f) for *_, f, _ in rows], "rank_ns": [n * S for *_, n in rows]}  # fmt: skip
    return Table(Cell, {name: np.array(values) for name, values in columns.items()}, len(rows))


def run(rows: Table, findings: tuple[Finding, ...] = (), **about: Any) -> Traced:
    """A run of two ranks on hosts n1 and n2 that was traced from ten seconds after noon."""
    members = table(Member, [{"rank": 0, "host": "n1"}, {"rank": 1, "host": "n2"}])
    steps = np.unique(rows.step).astype(np.int64)
    return replace(
        Traced(
            name="run", job="a", cells=rows, members=members, actions=Table(Action, {}, 0), findings=findings, steps=steps,
            segment=np.zeros(len(steps), dtype=np.int64), origin_ns=np.array([NOON + 10 * S]), relative=False, world_size=2,
        ),
        **about,
    )  # fmt: skip


TWO_STEPS = cells(
    (0, 1, "productive", 6), (0, 1, "fault wait", 4), (1, 1, "productive", 6), (1, 1, "slow compute", 4),
    (0, 2, "productive", 6), (0, 2, "jitter wait", 4), (1, 2, "productive", 10),
)  # fmt: skip
LATE = filled(Finding, {**FINDING, "id": "f-late", "ranks": [1], "steps": [1, 1]})
NOBODY = filled(Finding, {**FINDING, "id": "f-nobody", "mode": "structural instability", "ranks": [], "steps": [1, 2]})
