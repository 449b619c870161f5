"""What another fabric and a spare host would bring back at most, and when what they cost is earned.

A fabric that takes no time at all saves the exposed transfer; one that helps nobody saves nothing. A spare host that keeps a
copy of the job's state saves the time from a node's failure until the job goes on, and the work that is done again; one that is
only ready saves the first of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from taut.core.ids import word_ids
from taut.core.prices import Fix, Prices
from taut.core.tables import Table
from taut.ledger.bill.entries import TIME
from taut.ledger.bill.lines import exact_sums
from taut.ledger.bill.period import Period
from taut.ledger.bill.recovery import DAYS_A_MONTH, HOURS_A_DAY, Cost, Hourly, fix_of, recovered
from taut.ledger.charge import FATES
from taut.result.types import Estimate, Recovery

TRANSFER, FAILED = "exposed transfer", "node failed"
UNTIL_IT_GOES_ON = ("detect+recover", "hold/init", "restore")
DONE_AGAIN = ("discarded", "discarded at most", "unfinished")
LEAST = 1e-3
"""Share below which nothing is said."""
HOUR_NS = 3_600_000_000_000


def of_fabric(runs: Sequence[Hourly], prices: Prices) -> list[Recovery]:
    """What a fabric that takes no time would save every run."""
    out = []
    for one in runs:
        cells = one.run.cells
        moving = float(cells.rank_ns[cells.fate == FATES.index(TRANSFER)].sum(dtype=np.float64))
        share = moving / max(float(cells.rank_ns.sum(dtype=np.float64)), 1.0)
        if share >= LEAST:
            saved = Estimate(value=share, lo=0.0, hi=share)
            ask = '[[fix]] kind = "fabric", or [network] ports and port_price'
            cost = _fabric(one, prices)
            out.append(recovered(TRANSFER, f"another fabric for {one.run.job}, at most", saved, one.per_hour, cost, ask))
    return out


def _fabric(one: Hourly, prices: Prices) -> Fix | Cost | None:
    """As given for a job, else all ports of the network at their price."""
    network = prices.network
    whole = (
        None
        if network is None or network.ports is None or network.port_price is None
        else Cost(Decimal(str(network.ports)) * network.port_price)
    )
    return fix_of("fabric", (one.run.job, one.run.name, TRANSFER), prices) or whole


def of_spare(entries: Table, held: Table, prices: Prices, period: Period | None, unit: int) -> list[Recovery]:
    """What a spare host would save all jobs of the bill together, where the logs tell that nodes failed."""
    time = entries.take((entries.item == TIME) & (entries.rank_ns > 0))
    code, words = word_ids(time.cause)
    failed = time.take(np.array([*(word.startswith(FAILED) for word in words), False])[code])
    whole = _hours(time)
    most, least = (
        _hours(failed.take(np.isin(failed.fate.astype(np.str_), fates))) / max(whole, Decimal("1e-12"))
        for fates in ((*UNTIL_IT_GOES_ON, *DONE_AGAIN), UNTIL_IT_GOES_ON)
    )
    if float(most) < LEAST:
        return []
    saved = Estimate(value=float(most), lo=float(least), hi=float(most))
    rate = Decimal(_sum(time, "money")) / unit / whole if bool((time.priced == 1).all()) else None
    per_hour = None if rate is None or period is None else rate * whole * HOUR_NS / max(period[1] - period[0], 1)
    ask = '[[fix]] kind = "spare", or a price and [hosts] accelerators'
    return [recovered(FAILED, "a spare host, at most", saved, per_hour, _spare(held, prices, rate), ask)]


def _spare(held: Table, prices: Prices, rate: Decimal | None) -> Fix | Cost | None:
    """As given, else a host that is held and does nothing, at what accelerators cost in this bill."""
    given = fix_of("spare", (FAILED,), prices)
    named = held.accelerators[held.host != ""]
    count = prices.hosts.accelerators or (int(named.max()) if len(named) else None)
    if given is not None or rate is None or count is None:
        return given
    return Cost(per_month=rate * count * HOURS_A_DAY * DAYS_A_MONTH)


def _hours(entries: Table) -> Decimal:
    return Decimal(_sum(entries, "rank_ns")) / HOUR_NS


def _sum(entries: Table, column: str) -> int:
    return exact_sums(np.zeros(len(entries), dtype=np.int64), entries.columns[column], 1)[0]
