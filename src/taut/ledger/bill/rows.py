"""The two tables that a bill is made of: what was held, and what every charge, or price, makes of it.

Money is whole billionths of the currency, so that sums are exact; what a charge has beyond that is booked as rounding.
"""

from __future__ import annotations

import numpy as np

from taut.core.tables import col

UNIT = 1_000_000_000
"""Units of money in one of its currency."""


class Held:
    """Accelerators of one host that somebody held for a while, with one fate and one cause: a cell that is priced."""

    job: str = col("str", "id of the job", "")
    team: str = col("str", "who is to be shown its cost; empty if nobody told", "")
    host: str = col("str", "host, as the logs call it; empty if unknown", "")
    rank: int = col("int32", "participant, where the job was traced; -1 for all of the host's")
    accelerators: int = col("int32", "accelerators held at once")
    start_ns: int = col("int64", "begin, ns since 1970, UTC; -1 if the logs tell lengths only")
    end_ns: int = col("int64", "end, ns; of a cell that is summed over many intervals, of the last")
    rank_ns: int = col("int64", "accelerator time, ns: the sum of all of these is the ledger's", 0)
    fate: str = col("str", "what it was spent on: a fate of the ledger", "")
    cause: str = col("str", "id of the finding, controller or end of an attempt to which it is traced; empty for none", "")
    source: str = col("str", "measured (traced, or told by logs) or modelled (traced steps taken for those between them)", "")
    origin: str = col("str", "the run or log that says so", "")
    joules: float = col("float64", "energy of the cells that it is made of, where their run measured it; NaN if not", np.nan)
    joules_by: str = col("str", "who measured that: counter or samples; empty for nobody", "")


class Booked:
    """One part of one charge (or, without a bill, one held cell at its price): every unit of money is in exactly one."""

    held: int = col("int64", "row of Held that it pays for; -1 for none")
    charge: int = col("int64", "row of the bill's charges; -1 where prices were given instead of a bill")
    item: str = col("str", "what it is: a word of bill.categories.ITEMS", "")
    host: str = col("str", "host it is booked on; empty for none", "")
    start_ns: int = col("int64", "begin of the part, ns since 1970, UTC; -1 if unknown")
    end_ns: int = col("int64", "its end, ns")
    rank_ns: int = col("int64", "accelerator time that it pays for, ns", 0)
    effective: int = col("int64", "effective cost, billionths of the currency", 0)
    billed: int = col("int64", "billed cost, billionths of the currency", 0)


class Uncharged:
    """Accelerator time that was held, or stood ready, and that no charge of the bill pays for."""

    held: int = col("int64", "row of Held; -1 for accelerators of the host that nobody held meanwhile")
    host: str = col("str", "host", "")
    start_ns: int = col("int64", "begin, ns since 1970, UTC")
    end_ns: int = col("int64", "its end, ns")
    rank_ns: int = col("int64", "accelerator time, ns", 0)
    effective: int = col("int64", "what it would have cost, billionths of the currency; 0 where it is within tolerance", 0)
    why: str = col("str", "missing, open (may still come), host (not in the bill), unbilled (nor is any other), tolerance", "")
