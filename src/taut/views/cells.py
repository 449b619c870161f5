"""The ledger of a run, cell by cell: only the columns that a figure needs, because a large job has millions of cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.core.ids import distinct
from taut.core.tables import Table
from taut.ledger.charge import FATES, Cell
from taut.stored import Run, damaged, read_columns, schema_of


def cells_of(run: Run, columns: Sequence[str]) -> Table:
    """These columns of the cells of a run; the others are empty."""
    words = {"fate": list(FATES), "name": list(run.graph.names)}
    schema = {name: kind for name, kind in schema_of(Cell).items() if name in columns}
    found = read_columns(run.folder, run.files, "ledger", schema, {name: words[name] for name in words if name in schema})
    cells = Table(Cell, found)
    if len(cells) and "rank_ns" in columns and int(cells.rank_ns.min()) < 0:
        raise damaged(run.folder, "a cell of its ledger has no time")
    if len(cells) and "step" in columns and not np.isin(distinct(cells.step), run.graph.steps).all():
        raise damaged(run.folder, "a cell of its ledger belongs to no step")
    return cells
