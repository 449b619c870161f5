"""The bill: what is named is opened, priced and put together. It prices what was analysed, and never analyses again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from taut.bill_inputs import Opened, opened, rank_place
from taut.core.errors import InputRefused, UsageError
from taut.core.executors import On, checked
from taut.core.finding_place import place_of
from taut.core.json_text import json_text
from taut.core.prices import Prices
from taut.core.tables import Table, concat
from taut.ledger.bill.booking import Booking, book, book_at_prices
from taut.ledger.bill.bought_remedies import of_fabric, of_spare
from taut.ledger.bill.cash_lines import cash_entries, commitment_entries
from taut.ledger.bill.cut_rows import cut_at, inside
from taut.ledger.bill.energy_entries import Energy, Measurements, beside, energy_of
from taut.ledger.bill.entries import Entry, entries_of
from taut.ledger.bill.lent_watts import Lender
from taut.ledger.bill.lines import exact_sums
from taut.ledger.bill.moved_bytes import billed_bytes
from taut.ledger.bill.open_period import last_usage_ns
from taut.ledger.bill.period import Period, period_of
from taut.ledger.bill.recovery import NOBODY, Hourly, recoveries
from taut.ledger.bill.tag_teams import tag_teams
from taut.ledger.bill.traced_time import STRUCTURE
from taut.read.files import Paths, listed
from taut.read.focus.focus_reader import Charges, read_focus
from taut.read.prices_file import load
from taut.result.bill_result import Parts, bill_result
from taut.result.types import BillResult, BrokenRule

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.render.bill_charts import BillPlots

HOUR_NS = Decimal(3_600_000_000_000)


@dataclass(frozen=True, repr=False)
class Bill:
    """A bill: its result, and the tables that it is the sum of."""

    result: BillResult
    held: Table
    """Rows of ``Held``: who held which accelerators when."""
    booked: Table
    """Rows of ``Booked``: what every charge, or price, makes of it."""
    charges: pa.Table | None
    """The charges of the bill; None where prices stand for one."""
    digest: str = ""

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return self.result.verdict

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.verdict}>"

    def _repr_html_(self) -> str:
        from taut.render.bill_card import bill_card

        return bill_card(self.result)

    @property
    def plot(self) -> BillPlots:
        """Pictures of it: ``plot.waterfall()``, ``plot.cost()``; they need altair."""
        from taut.ledger.bill.cost_over_time import cost_over_time
        from taut.render.bill_charts import BillPlots

        return BillPlots(self.result, lambda: cost_over_time(self.held, self.booked, unit=self.result.money_units))

    def to_json(self) -> str:
        """The result as JSON text; the same input gives the same bytes."""
        return json_text(self.result)

    def save(self, folder: str | Path | None = None) -> Path:
        """Write the bill as a run folder (all of it or nothing) and return its path."""
        from taut.run import save_run

        return save_run(folder, f"bill-{self.digest[:8]}", self._write)

    def _write(self, folder: Path) -> dict[str, object]:
        import pyarrow.parquet as pq

        from taut.result.bill_tables import line_table

        tables = {"held": self.held.to_arrow(), "booked": self.booked.to_arrow(), "lines": line_table(self.result)}
        for name, table in (tables | ({} if self.charges is None else {"charges": self.charges})).items():
            pq.write_table(table, folder / f"{name}.parquet", compression="lz4")
        return {"digest": self.digest, "result": self.result, "graph": None}


def bill(
    inputs: Paths = (),
    *,
    prices: Prices | str | Path | None = None,
    focus: Paths = (),
    period: str | None = None,
    currency: str | None = None,
    columns: str = "",
    progress: Callable[[str], None] | None = None,
    on: On = None,
) -> Bill:
    """What ``taut bill`` prints: every unit of money, joule and gram of some jobs once, and whether that closes to a bill.

    ``inputs`` are run folders, job logs and tables of jobs; ``prices`` a ``prices.toml`` or ``taut.Prices``; ``focus`` files
    of a FOCUS bill; ``period`` a month, a day or two days with a slash (UTC); ``currency`` chooses among those of the bill;
    ``on`` says where job logs are read: ``local``, ``dask://HOST:PORT`` or a ``concurrent.futures.Executor``.
    """
    say = progress or (lambda stage: None)
    checked(on)
    paths, bills = listed(inputs), listed(focus)
    if not paths and not bills:
        raise UsageError("nothing to bill: give run folders or job logs, or a bill with --focus")
    given = load(prices) if isinstance(prices, str | Path) else prices or Prices()
    wanted = None if period is None else period_of(period)
    say("reading the bill" if bills else "reading")
    charges = read_focus(bills) if bills else None
    say("reading")
    found = opened(paths, given, columns, None if charges is None else _charged_until(charges, wanted), on)
    if not len(found.held) and charges is None:
        raise InputRefused(str(paths[0]), "tells of no job that held anything", "give run folders, job logs or tables of jobs")
    say("booking")
    return _priced(found, charges, given, wanted, currency)


def _priced(found: Opened, charges: Charges | None, prices: Prices, wanted: Period | None, currency: str | None) -> Bill:
    held = found.held if wanted is None else inside(found.held, wanted)
    held, booking = _booked(held, charges, prices, wanted, currency, found)
    period = booking.period or wanted or _covered(held)
    label = (
        None
        if charges is None
        else charges.files[0].name + (f" and {len(charges.files) - 1} more" if len(charges.files) > 1 else "")
    )
    drawn = _energy(held, prices, found, period, booking.unit)
    entries = concat(
        Entry,
        [
            entries_of(
                held,
                booking.booked,
                booking.uncharged,
                label,
                prices.origin,
                None if charges is None else tag_teams(charges.table),
            ),
            cash_entries(prices, found.attempts, held, period, booking.unit),
            drawn.entries,
            *([commitment_entries(prices, held, period, booking.unit)] if charges is None and period else []),
        ],
    )
    hours = [Hourly(one.run, one.wall_ns, _hour(entries, one.job, booking.unit, len(one.run.ranks))) for one in found.runs]
    causes = {one.id: _words(one.mode, place_of(one) or NOBODY) for billed in found.runs for one in billed.run.findings}
    result = bill_result(
        Parts(
            entries=entries,
            booking=booking,
            period=period,
            prices=prices,
            energy=drawn.told,
            defaults=drawn.defaults,
            recoverable=[
                *recoveries(hours, prices),
                *of_fabric(hours, prices),
                *of_spare(entries, held, prices, period, booking.unit),
            ],
            causes=causes,
            missing=_missing(found, charges, prices),
            notes=[*found.notes, *prices.notes, *drawn.notes, *(charges.notes if charges else ())],
            inputs=_inputs(found, charges, prices),
            rules=_rules(charges),
            name=found.name,
            unit=_unit(held, found),
        )
    )
    digest = hashlib.sha256(json_text([result.inputs, result.period, repr(prices), currency]).encode()).hexdigest()
    return Bill(result, held, booking.booked, None if charges is None else charges.table, digest)


def _booked(
    held: Table, charges: Charges | None, prices: Prices, wanted: Period | None, currency: str | None, found: Opened
) -> tuple[Table, Booking]:
    """What was held in the period, and what was booked for it."""
    if charges is None:
        counted = np.array([job not in found.uncounted for job in held.job.tolist()], dtype=np.bool_)
        booking = book_at_prices(held if counted.all() else held.replace(rank_ns=np.where(counted, held.rank_ns, 0)), prices)
        return held, booking
    booking = book(held, charges, prices, period=wanted, currency=currency)
    if booking.period is None:
        return held, booking
    cut = cut_at(held, np.array(booking.period, dtype=np.int64))
    if len(cut) != len(held):
        booking = book(cut, charges, prices, period=booking.period, currency=currency)
    return _only_inside(cut, booking, found)


def _only_inside(held: Table, booking: Booking, found: Opened) -> tuple[Table, Booking]:
    """Without what was held outside the period of the bill."""
    start, end = booking.period or (0, 0)
    keep = (held.start_ns < 0) | ((held.start_ns >= start) & (held.end_ns <= end))
    if keep.all():
        return held, booking
    hours = float(held.rank_ns[~keep].sum(dtype=np.float64)) / 3.6e12
    found.notes.append(f"{hours:,.1f} accelerator hours lie outside the period of the bill and are not in it")
    place = np.where(keep, np.cumsum(keep) - 1, -1)

    def renumbered(table: Table) -> Table:
        return table.replace(held=np.where(table.held >= 0, place[table.held], -1))

    return held.take(keep), replace(booking, booked=renumbered(booking.booked), uncharged=renumbered(booking.uncharged))


def _charged_until(charges: Charges, wanted: Period | None) -> int | None:
    """How far a bill, or the period that is asked for, goes: jobs that still run are taken to run so long."""
    last = last_usage_ns(charges)
    return last if last is None or wanted is None else min(last, wanted[1])


def _covered(held: Table) -> Period | None:
    """From the first begin to the last end of what was held; None without dates."""
    timed = held.start_ns >= 0
    return (int(held.start_ns[timed].min()), int(held.end_ns[timed].max())) if timed.any() else None


def _energy(held: Table, prices: Prices, found: Opened, period: Period | None, unit: int) -> Energy:
    """Energy of what was held; tasks and processors are no accelerators, and draw nothing that is known."""
    counted = np.array([job not in found.uncounted for job in held.job.tolist()], dtype=np.bool_)
    some = held if counted.all() else held.take(counted)
    seconds = 0.0 if period is None else (period[1] - period[0]) / 1e9
    steps = float(sum(one.run.executed or len(one.run.steps) for one in found.runs))
    places = some.host.copy()
    bare = (some.host == "") & (some.rank >= 0)
    places[bare] = [rank_place(*one) for one in zip(some.job[bare].tolist(), some.rank[bare].tolist(), strict=True)]
    priced = prices.network is not None and prices.network.pj_per_bit is not None
    moved = billed_bytes(some, [one.moved for one in found.runs if one.moved is not None]) if priced else None
    measured = Measurements(found.meters, places, _lenders(found))
    drawn = energy_of(some, prices, measured, seconds, steps, unit, moved)
    whole = max(float(some.rank_ns.sum(dtype=np.float64)), 1.0)
    undated = [(one.energy, one.wall_ns * len(one.run.ranks) / whole) for one in found.runs if one.energy and not one.run.dated]
    drawn = _divided(drawn, some, found)
    return replace(drawn, told=beside(drawn.told, undated)) if undated else drawn


def _lenders(found: Opened) -> list[Lender]:
    """Runs whose own power told what their accelerators draw in each state."""
    out = []
    for one in found.runs:
        if one.energy and one.energy.watts and one.energy.divided_by == "measured":
            hosts, models = (
                frozenset(filter(None, column.tolist())) for column in (one.run.members.host, one.run.members.device)
            )
            out.append(Lender(one.run.name, one.job, hosts, models, one.energy.watts))
    return out


def _divided(drawn: Energy, held: Table, found: Opened) -> Energy:
    """With the watts that were fitted to a run's own power; where all held time has its joules from such, no default counts."""
    fitted = [one for one in found.runs if one.energy and one.energy.watts and one.energy.divided_by == "measured"]
    said = []
    for one in fitted:
        told = one.energy.watts if one.energy else None
        watts = "/".join(f"{found.value:.0f}" for found in (told.load, told.stall, told.idle)) if told else ""
        said.append(f"{one.run.name}: measured energy is divided among fates by {watts} W (load, stall, idle), fitted to it")
    whole = len(fitted) == len(found.runs) and bool((held.joules_by != "").all())
    return replace(drawn, notes=[*drawn.notes, *said], defaults=[] if whole else drawn.defaults)


def _unit(held: Table, found: Opened) -> str:
    """What the time of all jobs counts; accelerators where any does."""
    units = {found.uncounted.get(job, "accelerator") for job in set(held.job.tolist())}
    return units.pop() if len(units) == 1 else "accelerator"


def _hour(entries: Table, job: str, unit: int, ranks: int) -> Decimal | None:
    """What an hour of a job's traced accelerators cost in this bill."""
    mine = entries.take((entries.job == job) & (entries.rank_ns > 0) & (entries.priced == 1))
    if not len(mine):
        return None
    whole = np.zeros(len(mine), dtype=np.int64)
    money, time = (exact_sums(whole, column, 1)[0] for column in (mine.money, mine.rank_ns))
    return Decimal(money) / unit / (Decimal(time) / HOUR_NS) * ranks


def _rules(charges: Charges | None) -> list[BrokenRule]:
    """Rules of FOCUS that a bill breaks, those of the specification first."""
    if charges is None:
        return []
    both = [*((one, False) for one in charges.broken), *((one, True) for one in charges.disputed)]
    return [
        BrokenRule(
            rule=one.rule,
            because=one.what,
            rows=one.rows,
            places=list(one.first),
            validator=one.validator or None,
            disputed=disputed,
        )
        for one, disputed in both
    ]


def _words(mode: str, place: str) -> str:
    return mode if mode == STRUCTURE else f"{place}, {mode}"


def _missing(found: Opened, charges: Charges | None, prices: Prices) -> list[str]:
    """What was not given, and what that leaves unknown."""
    out = prices.missing()
    if charges is None:
        out.append("a bill: nothing closes to what was invoiced (--focus BILL)")
    for unit in sorted(set(found.uncounted.values())):
        jobs = sum(one == unit for one in found.uncounted.values())
        out.append(f"accelerators of {jobs:,} jobs: their logs count {unit}s, which have no price (sacct: add AllocTRES)")
    return out


def _inputs(found: Opened, charges: Charges | None, prices: Prices) -> list[str]:
    bills: Sequence[str] = [] if charges is None else [f"{one.name} sha256:{one.sha256[:12]}" for one in charges.files]
    return [*found.inputs, *([prices.origin] if prices.origin != "options" else []), *bills]
