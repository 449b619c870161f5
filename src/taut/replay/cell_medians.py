"""Medians and spreads of cells of rows, the cells cut into shares that are worked on side by side.

``order`` lists the rows cell after cell, ``begin`` says where each cell begins in it (``group_kernels.group_sort``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Floats, Indices, Ints, Numbers
from taut.core.row_shares import over_groups
from taut.core.scratch import empty


def medians(values: Numbers, order: Indices, begin: Ints) -> Floats:
    """Median of each cell; NaN where it has no row."""
    from taut.replay.wait_kernels import cell_medians

    here = _dense(values)
    return _joined(over_groups(lambda share: cell_medians(here, order, _begin(begin, share)), begin))


def medians_and_spreads(values: Numbers, order: Indices, begin: Ints) -> tuple[Floats, Floats]:
    """(median, spread) of each cell (``wait_kernels.describe_cells``)."""
    from taut.replay.wait_kernels import describe_cells

    here = _dense(values)
    found = over_groups(lambda share: describe_cells(here, order, _begin(begin, share)), begin)
    return _joined([median for median, _ in found]), _joined([spread for _, spread in found])


def from_medians(values: Numbers, order: Indices, begin: Ints) -> Floats:
    """Per row: its value less the median of its cell."""
    from taut.replay.wait_kernels import less_medians

    here, out = _dense(values), empty((len(values),), np.float64)
    over_groups(lambda share: less_medians(here, order, _begin(begin, share), out), begin)
    return out


def _dense(values: Numbers) -> NDArray[Any]:
    """The values in one piece: else every share would copy all of them."""
    return np.ascontiguousarray(values)


def _begin(begin: Ints, share: slice) -> Ints:
    """Where the cells of a share begin, and where the last of them ends."""
    return begin[share.start : share.stop + 1]


def _joined(parts: list[Floats]) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
