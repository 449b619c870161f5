"""Time that was held and that the bill does not charge: missing periods, and hosts that it does not name."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from taut.core.tables import Table
from taut.ledger.bill.defects.found import Found, by_code, listed, reported_only
from taut.ledger.bill.holdings import host_codes

MISSING = "missing period"
HOST = "host not in the bill"
HOUR_NS = 3_600 * 10**9
_NOTHING = np.zeros(0, dtype=np.int64)


def find(uncharged: Table) -> list[Found]:
    """One defect per host, and one for all hosts without any charge."""
    missing = uncharged.take(uncharged.why == "missing")
    names, code = host_codes(missing.host)
    found = [_gap(missing.take(at), names[one]) for one, at in by_code(code)]
    absent = uncharged.take(uncharged.why == "host")
    if len(absent):
        names = sorted(set(absent.host.tolist()))
        hours = float(absent.rank_ns.sum(dtype=np.float64)) / HOUR_NS
        called = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
        because = f"{called}: held for {hours:,.1f} accelerator hours, in no charge; give their bill, or their names in it"
        found.append(reported_only(HOST, _NOTHING, because, -int(absent.effective.sum())))
    return [*listed([one for one in found if one.kind == MISSING]), *(one for one in found if one.kind == HOST)]


def _gap(mine: Table, host: str) -> Found:
    start, end = int(mine.start_ns.min()), int(mine.end_ns.max())
    hours = float(mine.rank_ns[mine.held >= 0].sum(dtype=np.float64)) / HOUR_NS
    because = f"{host} was held for {hours:,.1f} accelerator hours between {_time(start)} and {_time(end)} without a charge"
    return reported_only(MISSING, _NOTHING, because, -int(mine.effective.sum()))


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M")
