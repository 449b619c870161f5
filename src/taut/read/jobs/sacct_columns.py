"""What the columns of ``sacct`` hold where its header is missing (``-n``): told by their values, where these leave no doubt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from taut.core.array_types import Ints
from taut.read.jobs.job_words import SECOND, elapsed_ns, times

STATE = re.compile(
    r"(?:BOOT_FAIL|CANCELLED(?: by \d{1,10}|\+)?|COMPLETED|COMPLETING|DEADLINE|FAILED|NODE_FAIL|OUT_OF_ME(?:MORY|\+)|PENDING"
    r"|PREEMPTED|RUNNING|REQUEUED|RESIZING|REVOKED|SUSPENDED|TIMEOUT)"
)
NEVER = ("", "Unknown", "None", "N/A")
_DATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[+-]\d\d:?\d\d)?|Unknown|None|N/A|")


def guess_columns(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """What columns without a header hold, where their values leave no doubt; None unless start and end are among them.

    Three dates that never fall are Submit, Start and End; of two, a third column must tell how long it took.
    """
    width = max((len(row) for row in rows), default=0)
    rows = [row for row in rows if len(row) == width]
    if not rows:
        return None
    columns = list(zip(*rows, strict=True))
    dated = _dated_columns(columns)
    if dated is None:
        return None
    names = ["JobID", *(_column_name(column) or f"column {k}" for k, column in enumerate(columns[1:], 1))]
    for k, name in dated.items():
        names[k] = name
    return names


def _column_name(column: Sequence[str]) -> str | None:
    """What a column without dates holds, by the form of its values."""
    if all(STATE.fullmatch(cell) for cell in column):
        return "State"
    if all(re.fullmatch(r"\d{1,3}:\d{1,3}", cell) for cell in column):
        return "ExitCode"
    if all("=" in cell or not cell for cell in column) and any("cpu=" in cell for cell in column):
        return "AllocTRES"
    return None


def _dated_columns(columns: Sequence[Sequence[str]]) -> dict[int, str] | None:
    """Which columns are Submit, Start, End and Elapsed; None where that is in doubt."""
    dates = [k for k, column in enumerate(columns) if all(_DATED.fullmatch(cell) for cell in column)]
    at = [times(["" if cell in NEVER else cell for cell in columns[k]])[0] for k in dates]
    rising = all(not ((a >= 0) & (b >= 0) & (a > b)).any() for a, b in pairwise(at))
    lasted = _length_column(columns, at[-2], at[-1]) if len(at) > 1 else None
    if not rising or not (len(at) == 3 or (len(at) == 2 and lasted is not None)):
        return None
    names = dict(zip(dates, ("Submit", "Start", "End")[-len(at) :], strict=True))
    return names if lasted is None else {**names, lasted: "Elapsed"}


def _length_column(columns: Sequence[Sequence[str]], start: Ints, end: Ints) -> int | None:
    """The column that says how long every row took that has a start and an end."""
    both = [k for k in range(len(start)) if start[k] >= 0 and end[k] >= 0]
    for number, column in enumerate(columns):
        if both and all(abs(elapsed_ns(column[k]) - int(end[k] - start[k])) <= SECOND for k in both):
            return number
    return None
