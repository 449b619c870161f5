"""The charges of a bill as arrays: what each is, where, when, for how much, and what of it lies in the period."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taut.core.array_types import Floats, Ints, Mask
from taut.core.errors import InputRefused
from taut.core.ids import numbered, sums
from taut.ledger.bill.charge_items import CODE, charged_hours, item_codes
from taut.ledger.bill.hosts import NONE, Met
from taut.ledger.bill.money_units import money_sums, unit_for, units
from taut.ledger.bill.overlap import Spans
from taut.ledger.bill.period import Period
from taut.read.focus.focus_charged import Charged
from taut.read.focus.focus_reader import Charges

NO_TIME = np.iinfo(np.int64).min
US = 1000
DAY_NS = 86_400 * 10**9


def of_currency(charges: Charges, wanted: str | None = None) -> tuple[str, Mask]:
    """The bill's currency, and which charges are in it. Two are refused, naming both sums, unless one is ``wanted``.

    A charge that names none is in that of the others: FOCUS allows no bill without.
    """
    v = Charged(charges.table, charges.version, [], {})
    texts, code = v.words("BillingCurrency")
    used = [one for one in np.unique(code).tolist() if texts[one] and str(texts[one]).strip()]
    names = sorted({str(texts[one]).strip().upper() for one in used})
    chosen = wanted.upper() if wanted else names[0] if len(names) == 1 else ""
    if wanted and names and chosen not in names:
        raise InputRefused("--currency", f"no charge is in {chosen}, they are in {' and '.join(names)}", "name one of those")
    if not wanted and len(names) > 1:
        said = " and ".join(f"{amount:,.2f} {name}" for name, amount in currency_sums(v).items() if name)
        raise InputRefused("the bill", f"charges in {len(names)} currencies: {said}", f"choose one: --currency {names[0]}")
    mine = v.where("BillingCurrency", lambda text: not text or not text.strip() or text.strip().upper() == chosen)
    return chosen, mine & ~no_charge(v) if names else mine


def no_charge(v: Charged) -> Mask:
    """Rows that name neither currency nor category nor any time: totals of a spreadsheet, or what is left of a row."""
    found: Mask = v.null("BillingCurrency") & v.null("ChargeCategory")
    for column in ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart"):
        found &= v.time(column) == NO_TIME
    return found


def currency_sums(v: Charged) -> dict[str, Decimal]:
    """Billed cost by currency."""
    found: dict[str, Decimal] = {}
    for name, amount in v.money(np.ones(v.table.num_rows, dtype=np.bool_)).items():
        key = name.strip().upper()
        found[key] = found.get(key, Decimal(0)) + amount
    return dict(sorted(found.items()))


class ChargeRows:
    """Charges in one currency, as arrays. Defects take from ``effective`` and ``billed``, and may move ``spans``."""

    def __init__(self, charges: Charges, met: Met, index: Ints, currency: str = "") -> None:
        """``met`` is of the charges in ``index``, which are rows of the bill."""
        self.table: pa.Table = charges.table.take(pa.array(index)) if len(index) < charges.table.num_rows else charges.table
        self.index, self.version, self.currency = index, charges.version, currency
        self.v = Charged(self.table, charges.version, [], {})
        self.hosts, self.host = met.names, met.host
        self.notes: list[str] = []
        self._read_money()
        self._read_times()
        self.item = item_codes(self.v, self.host)
        everything = np.ones(len(index), dtype=np.bool_)
        self.whole, self.in_period, self.inside = everything, everything, self.spans.end > self.spans.start
        self.kept = everything.copy()
        self.hours, self.each = charged_hours(self.v)

    def __len__(self) -> int:
        return len(self.index)

    def _read_money(self) -> None:
        billed, effective = self.table["BilledCost"], self.table["EffectiveCost"]
        self.exact = _filled(effective, billed), _filled(billed, effective)
        no_effective, no_billed = self.v.null("EffectiveCost"), self.v.null("BilledCost")
        covered = self.v.is_("CommitmentDiscountStatus", "Used") & no_effective & _zero(billed)
        self.unknown: Mask = (no_effective & no_billed) | covered
        for name, other, some in (("EffectiveCost", "BilledCost", no_effective), ("BilledCost", "EffectiveCost", no_billed)):
            taken = int((some & ~self.unknown).sum())
            if taken:
                self.notes.append(f"{taken:,} charges have no {name}: their {other} was taken")
        self.unit = unit_for(list(self.exact))
        self.in_units = units(self.exact[0], self.unit), units(self.exact[1], self.unit)
        self.effective, self.billed = self.in_units[0].copy(), self.in_units[1].copy()

    def _read_times(self) -> None:
        first, last = self._time("ChargePeriodStart"), self._time("ChargePeriodEnd")
        self.backwards: Mask = (last != NO_TIME) & (first != NO_TIME) & (last < first)
        start, end = np.where(self.backwards, last, first), np.where(self.backwards, first, last)
        end = np.where((end == NO_TIME) | (start == NO_TIME), start, end)
        self.spans = Spans(self.host, start, end)
        self.billing = Spans(self.host, self._time("BillingPeriodStart"), self._time("BillingPeriodEnd"))

    def _time(self, column: str) -> Ints:
        time = self.v.time(column)
        return np.where(time == NO_TIME, NO_TIME, np.where(time == NO_TIME, 0, time) * US)

    def is_item(self, *items: str) -> Mask:
        """Which charges are one of some items."""
        return np.isin(self.item, [CODE[item] for item in items])

    def shift(self, by_ns: int) -> bool:
        """Put all charges at another time; whether billing periods move with them. The clock of a bill is one clock.

        They do if more charges for less than a day lie outside else: most who write local times mean a local month. If they do
        not, charges that would leave their billing period stay.
        """
        short = (self.spans.start != NO_TIME) & (self.spans.length < DAY_NS)
        before = int((self._outside() & short).sum())
        away = self._outside()
        known = self.spans.start != NO_TIME
        self.spans = Spans(self.host, self.spans.start + np.where(known, by_ns, 0), self.spans.end + np.where(known, by_ns, 0))
        local = before < int((self._outside() & short).sum())
        if local:
            by = np.where(self.billing.start != NO_TIME, by_ns, 0)
            self.billing = Spans(self.host, self.billing.start + by, self.billing.end + by)
            return local
        back = np.where(known & ~short & self._outside() & ~away, by_ns, 0)
        self.spans = Spans(self.host, self.spans.start - back, self.spans.end - back)
        return local

    def _outside(self) -> Mask:
        """Charges that lie outside their billing period, at least in part."""
        found: Mask = (self.spans.start < self.billing.start) | (self.spans.end > self.billing.end)
        return found

    def own_period(self) -> Period | None:
        """The billing periods of the bill together; else what its charges cover; None for a bill without times."""
        known = (self.billing.start != NO_TIME) & (self.billing.end > self.billing.start)
        spans = self.billing if known.any() else self.spans
        known = known if known.any() else self.spans.start != NO_TIME
        if not known.any():
            return None
        return int(spans.start[known].min()), int(spans.end[known].max())

    def share_in(self, period: Period) -> Floats:
        """What share of each charge belongs to a period: all if its billing period lies inside, else by its own time."""
        start, end = period
        whole = (self.billing.start >= start) & (self.billing.end <= end) & (self.billing.start != NO_TIME)
        timeless = self.spans.start == NO_TIME
        low, high = np.maximum(self.spans.start, start), np.minimum(self.spans.end, end)
        at = self.spans.length == 0
        by_time = np.maximum(high - low, 0) / np.maximum(self.spans.length, 1)
        point = (self.spans.start >= start) & (self.spans.start < end)
        return np.where(whole | timeless, 1.0, np.where(at, point, by_time))

    def cut(self, period: Period) -> None:
        """Leave of every charge what belongs to a period."""
        share = self.share_in(period)
        self.whole, self.in_period = share == 1, share > 0
        self.kept &= self.in_period
        part = ~self.whole
        for money in (self.effective, self.billed):
            money[part] = np.rint(money[part] * share[part]).astype(np.int64)
        low, high = np.maximum(self.spans.start, period[0]), np.minimum(self.spans.end, period[1])
        inside = (self.spans.start != NO_TIME) & (high > low)
        self.hours = self.hours * np.where(inside, (high - low) / np.maximum(self.spans.length, 1), 1.0)
        self.spans = Spans(self.host, np.where(inside, low, self.spans.start), np.where(inside, high, self.spans.end))
        self.inside = inside

    def invoice(self) -> tuple[list[str | None], Ints]:
        """Invoices, and which is each charge's; None for those that name none."""
        texts, code = self.v.words("InvoiceId")
        names = sorted({text.strip() for text in texts if text and text.strip()})
        place = {name: i for i, name in enumerate(names)}
        told = np.array([place.get((text or "").strip(), len(names)) for text in texts], dtype=np.int64)
        return [*names, None], told[code]

    def rounding(self, group: Ints, count: int) -> tuple[Ints, Ints]:
        """What charges have beyond whole units, by group: effective, billed; before anything is taken from them."""
        keep = pa.array(self.whole)
        found = [
            money_sums(cost.filter(keep), group[self.whole], count, self.unit)
            - sums(group[self.whole], rounded[self.whole], count)
            for cost, rounded in zip(self.exact, self.in_units, strict=True)
        ]
        return found[0], found[1]

    def places(self, rows: Ints, most: int = 5) -> list[str]:
        """``file:row`` of the first of some charges."""
        texts, code = self.v.words("file")
        row = self.table["row"]
        return [f"{texts[code[at]]}:{row[at].as_py()}" for at in rows[:most].tolist()]

    def resources(self, rows: Ints) -> str:
        """What some charges are of, in words: the first resources and how many there are."""
        texts, code = self.v.words("ResourceName")
        ids, other = self.v.words("ResourceId")
        named = dict.fromkeys(texts[code[row]] or ids[other[row]] or "no resource" for row in rows[:10_000].tolist())
        return ", ".join(list(named)[:3]) + (f" and {len(named) - 3:,} more" if len(named) > 3 else "")

    def resource_count(self, rows: Ints) -> int:
        """How many resources some charges are of."""
        return numbered(self.v.words("ResourceId")[1][rows], self.v.words("ResourceName")[1][rows])[1]

    def become(self, hosts: Sequence[tuple[str, Ints]]) -> None:
        """Put unmatched charges on hosts of their own."""
        self.host = self.host.copy()
        for code, (_, rows) in enumerate(hosts, len(self.hosts)):
            self.host[rows] = code
            self.item[rows] = CODE["accelerator time"]
        self.hosts = [*self.hosts, *(host for host, _ in hosts)]
        self.spans = Spans(self.host, self.spans.start, self.spans.end)

    def accelerator(self) -> Mask:
        """Charges for some time of accelerators of a host that is known."""
        found: Mask = self.is_item("accelerator time") & (self.host != NONE) & self.inside & self.in_period & self.kept
        return found


def _zero(column: pa.ChunkedArray) -> Mask:
    """Where a cost is 0, and there."""
    found: Mask = pc.fill_null(pc.equal(column, 0), False).to_numpy()
    return found


def _filled(column: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.coalesce(column, other) if column.null_count else column
