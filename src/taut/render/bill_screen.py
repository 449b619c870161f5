"""A bill on a terminal: the verdict, whether it closes, where the money went, what is wrong with it, what would come back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.render.figure_table import digits, in_blocks
from taut.render.terminal import Screen, Side, clipped, heading, new_table, spaced_text
from taut.render.text import count, duration, middle, money, percent, safe
from taut.result.types import Accrual, BillLine, BillPeriod, BillResult, BillShare, Estimate, Recovery

LINES, SHARES, DEFECTS, UNMATCHED, NOTES, RECOVERIES = 10, 12, 12, 5, 6, 5
"""Rows at most: lines, a drill-down, defects, resources, notes and what is missing, what would come back."""
KINDS = {"useful": ("#009e73", "█", "#"), "direct": ("#d55e00", "x", "x"), "hidden": ("#e69f00", "▒", "=")}
"""Kind of a category → colour, mark, and mark in ASCII; the mark alone tells them apart."""
KIND_OF = {
    "useful work": "useful", "services": "useful", "corrections and credits": "useful",
    "re-runs and discarded work": "direct", "SLA and deadlines": "direct", "energy wasted": "direct",
}  # fmt: skip
RULES = 3
"""Rules of FOCUS that are told."""
WIDE = 100
"""Screens from here on have room for where a line is from."""
NAME = 34
"""Columns of a name in a drill-down."""


def render_bill(result: BillResult, screen: Screen, by: str | None = None) -> str:
    """The whole screen of ``taut bill``; ``by`` adds one drill-down."""
    parts = [
        _head(result),
        _closing(result),
        _categories(result, screen),
        _lines(result, screen),
        _defects(result),
        _unmatched(result),
        _rules(result),
        _energy(result),
        _recoverable(result, screen),
        _budget(result),
        _drill(result, by) if by else None,
        _besides(result),
    ]
    return spaced_text(parts, screen)


def _head(result: BillResult) -> ConsoleRenderable:
    period = result.period
    words = []
    if period.start and period.end:
        words.append(f"{_short(period.start)} to {_last(period)} UTC" + (", still open" if period.open else ""))
    for what in ("job", "host", "team"):
        known = sum(one.name is not None for one in result.by.get(what, []))
        words += [count(known, what)] if known > 1 else []
    about = [Text(" · ".join(words), style="dim")] if words else []
    return Group(Text(safe(result.verdict), style="bold"), *about)


def _short(moment: str) -> str:
    """A moment without what midnight and seconds add nothing to."""
    return moment.removesuffix("T00:00:00Z").replace("T", " ").partition(".")[0].removesuffix("Z")


def _last(period: BillPeriod) -> str:
    """The end of a period; of whole days its last one."""
    end = period.end or ""
    if not end.endswith("T00:00:00Z") or not (period.start or "").endswith("T00:00:00Z"):
        return _short(end)
    return str(date.fromisoformat(end[:10]) - timedelta(days=1))


def _closing(result: BillResult) -> ConsoleRenderable | None:
    accrual, currency = result.accrual, result.currency
    if accrual.effective is None:
        return None
    lines: list[ConsoleRenderable] = [heading("Closing")]
    table = new_table("", "", "in the bill", "in lines", "left over", ("", "left"))
    both = [money(one, "") for one in (accrual.effective, accrual.ledger, accrual.residual)]
    table.add_row(
        "accrual",
        "effective cost",
        *both,
        _named(accrual),
    )
    short = [one for one in result.invoices if not one.closes]
    for one in [*short, *(one for one in result.invoices if one.closes)][:UNMATCHED]:
        name = "without an invoice" if one.id is None else f"invoice {middle(safe(one.id), 24)}"
        table.add_row(
            clipped(name),
            "billed cost",
            money(one.billed, ""),
            money(one.allocated, ""),
            money(one.residual, ""),
            "named below" if not one.closes and one.explained == one.residual else _closes(one.closes),
        )
    lines.append(Padding(table, (0, 0, 0, 1)))
    more = len(result.invoices) - UNMATCHED
    if more > 0:
        lines.append(Text(f" {count(more, 'invoice')} more, in {safe(currency or '')}: see --json", style="dim"))
    return Group(*lines)


def _named(accrual: Accrual) -> str:
    """What is left over, in words: nothing, what is merely not charged yet, or defects."""
    if accrual.closes or accrual.explained != accrual.residual or not Decimal(accrual.residual or 0):
        return _closes(accrual.closes)
    return "named below" if Decimal(accrual.residual or 0) + Decimal(accrual.not_charged_yet or 0) else "still open"


def _closes(closes: bool | None) -> str:
    return "closes" if closes else "does not close"


def _categories(result: BillResult, screen: Screen) -> ConsoleRenderable | None:
    """Money, share, time, energy and carbon of every category, as bars of one scale."""
    rows = result.categories
    if not rows:
        return None
    priced = any(one.money is not None for one in rows)
    energy = any(one.joules is not None for one in rows)
    heads = ["", "", "money" if priced else "time", "share", *(["kWh", "kg CO2e"] if energy else [])]
    table = new_table(*heads, ("", "left"))
    ordered = sorted(((one, _size(one, rows)) for one in rows), key=lambda pair: _place(pair[0]))
    texts = [_figures(one, share, priced, energy) for one, share in ordered]
    wide = sum(max(len(head), *(len(text[i]) for text in texts)) + 2 for i, head in enumerate(heads))
    room, kind = max(6, min(28, screen.width - wide - 2)), ""
    most = max((abs(share) for _, share in ordered), default=0.0)
    for (_, share), (mine, name, *figures) in zip(ordered, texts, strict=True):
        colour, shade, letter = KINDS[mine]
        bar = (shade if screen.unicode else letter) * max(1, round(room * abs(share) / most)) if share else ""
        table.add_row(mine if mine != kind else "", clipped(name), *figures, clipped(bar, colour))
        kind = mine
    return Group(heading(_went(result, priced)), Padding(table, (0, 0, 0, 1)))


def _figures(one: BillShare, share: float, priced: bool, energy: bool) -> list[str]:
    """The row of a category without its bar: kind, name, money or time, share, energy and carbon."""
    amount = money(one.money, "") if priced else duration(one.rank_ns)
    part = "–" if priced and one.money is None else percent(share) if share >= 0 else f"−{percent(-share)}"
    drawn = [_kwh(one.joules), "–" if one.kg_co2e is None else digits(one.kg_co2e)] if energy else []
    return [KIND_OF.get(one.name or "", "hidden"), safe(one.name or "none"), amount, part, *drawn]


def _place(one: BillShare) -> int:
    return list(KINDS).index(KIND_OF.get(one.name or "", "hidden"))


def _size(one: BillShare, rows: Sequence[BillShare]) -> float:
    if one.share is not None:
        return one.share
    return (one.rank_ns or 0) / max(sum(other.rank_ns or 0 for other in rows), 1)


def _went(result: BillResult, priced: bool) -> str:
    rows = result.categories
    hours = duration(sum(one.rank_ns or 0 for one in rows))
    if not priced:
        return f"Where {hours} of {safe(result.unit)} time went"
    total = sum((Decimal(one.money) for one in rows if one.money is not None), Decimal(0))
    return f"Where {money(total, result.currency)} went · {hours} of {safe(result.unit)} time"


def _kwh(joules: float | None) -> str:
    return "–" if joules is None else digits(joules / 3.6e6)


def _lines(result: BillResult, screen: Screen) -> ConsoleRenderable | None:
    """The largest lines that are neither useful nor services, with what they are traced to."""
    lost = [one for one in result.lines if one.kind != "useful"]
    if any(one.money is not None for one in lost):
        lost = [one for one in lost if one.money is not None]
    rows = sorted(lost, key=lambda one: (-abs(Decimal(one.money or 0)), -(one.rank_ns or 0)))[:LINES]
    if not rows:
        return None
    priced = any(one.money is not None for one in rows)
    wide = screen.width >= WIDE
    source: list[tuple[str, Side]] = [("from", "left")] if wide else []
    table = new_table("line", "cause", "money" if priced else "time", ("how", "left"), *source)
    for one in rows:
        amount = money(one.money, "") if priced else duration(one.rank_ns)
        what = one.fate if one.fate and one.item == "accelerator time" else one.item
        table.add_row(
            clipped(safe(what)),
            clipped(_cause(one, result)),
            amount,
            one.source,
            *([clipped(safe(one.origin))] if wide else []),
        )
    more = f", {len(rows)} of {len(lost)}" if len(lost) > len(rows) else ""
    return Group(heading(f"The largest lines that are no useful work{more}"), Padding(table, (0, 0, 0, 1)))


def _cause(line: BillLine, result: BillResult) -> str:
    if line.cause is None:
        return ""
    return safe(result.causes.get(line.cause, line.cause))


def _defects(result: BillResult) -> ConsoleRenderable | None:
    if not result.defects:
        return None
    table = new_table("defect", "because", "rows", "money")
    for one in result.defects[:DEFECTS]:
        table.add_row(clipped(safe(one.kind)), safe(one.because), f"{one.rows:,}", money(one.money, ""))
    more = len(result.defects) - DEFECTS
    lines: list[ConsoleRenderable] = [heading("What is wrong with the bill"), Padding(table, (0, 0, 0, 1))]
    return Group(*lines, *([Text(f" {more} more: see --json", style="dim")] if more > 0 else []))


def _unmatched(result: BillResult) -> ConsoleRenderable | None:
    rows = result.unmatched
    if not rows:
        return None
    table = new_table("resource", "remedy", "rows", "money")
    for one in rows[:UNMATCHED]:
        name = middle(safe(one.resource), 36) if one.resource else "not named"
        table.add_row(clipped(name), safe(one.remedy), f"{one.rows:,}", money(one.money, ""))
    total = sum((Decimal(one.money) for one in rows), Decimal(0))
    more = f", {UNMATCHED} of {len(rows)}" if len(rows) > UNMATCHED else ""
    head = f"Charges for accelerators that meet no host: {money(total, result.currency)}{more}"
    return Group(heading(head), Padding(table, (0, 0, 0, 1)))


def _rules(result: BillResult) -> ConsoleRenderable | None:
    """Rules of FOCUS that the bill breaks: how many, and the first."""
    if not result.rules:
        return None
    known = sum(one.validator is not None for one in result.rules)
    beside = f", {known} of them reported by focus-validator 1.0.0" if known else ""
    lines = [heading(f"The bill breaks {count(len(result.rules), 'rule')} of FOCUS{beside}")]
    for one in result.rules[:RULES]:
        where = f" ({count(one.rows, 'row')})" if one.rows else ""
        lines.append(Text(f" {safe(one.because)}{where}"))
    more = len(result.rules) - RULES
    return Group(*lines, *([Text(f" {more} more: see --json, rules", style="dim")] if more > 0 else []))


def _energy(result: BillResult) -> ConsoleRenderable | None:
    energy = result.energy
    if energy.joules is None:
        return None
    alone = " alone" if len(energy.sources) == 1 else ""
    words = [f"{_range(energy.joules, 3.6e6)} kWh by {safe(energy.source or 'nobody')}{alone}"]
    words += (
        [f"{percent(energy.stall_joules / max(energy.joules.value, 1e-9))} of it while nothing useful was done"]
        if energy.stall_joules is not None
        else []
    )
    words += [f"network {_kwh(energy.network_joules)} kWh"] if energy.network_joules is not None else []
    words += [f"moving data {percent(energy.data_movement_share)} of all"] if energy.data_movement_share is not None else []
    beside = "; ".join(
        f"{safe(one.name)} {_kwh(one.joules)} kWh for {percent(one.coverage)} of the time" for one in energy.sources
    )
    said = [Text(" · ".join(words)), *([Text(beside, style="dim")] if len(energy.sources) > 1 else [])]
    return Group(heading("Energy"), *(Padding(one, (0, 0, 0, 1)) for one in said))


def _range(found: Estimate, by: float = 1.0) -> str:
    """A figure with its interval, where it has one."""
    value, low, high = (None if one is None else digits(one / by) for one in (found.value, found.lo, found.hi))
    return f"{value}" if low is None or high is None or low == high else f"{value} ({low}–{high})"


def _recoverable(result: BillResult, screen: Screen) -> ConsoleRenderable | None:
    rows = result.recoverable[:RECOVERIES]
    if not rows:
        return None
    cells = {"what": [safe(one.remedy) for one in rows], "of the wall": [_shares(one.saved_share) for one in rows]}
    if any(one.per_hour for one in rows):
        cells |= {"an hour": [_each(one.per_hour) for one in rows], "a day": [_each(one.per_day) for one in rows]}
        cells["a month"] = ["–" if one.per_month is None else _range(one.per_month) for one in rows]
    if any(one.payback_days is not None or one.cost is not None for one in rows):
        cells["paid back after days"] = [_paid_back(one) for one in rows]
    money_in = f", in {safe(result.currency)}" if "an hour" in cells and result.currency else ""
    table = in_blocks(cells, screen.width - 1, ["what"])
    said = Text(" of jobs that go on like this; not to be added up", style="dim")
    return Group(heading(f"What would come back{money_in}"), Padding(table, (0, 0, 0, 1)), said)


def _paid_back(one: Recovery) -> str:
    if one.payback_days is not None:
        least = one.payback_days.hi is None and one.payback_days.lo is not None
        return f"{digits(one.payback_days.value)} or more" if least else _range(one.payback_days)
    return "never" if one.cost is not None and one.per_day is not None else "–"


def _each(found: Estimate | None) -> str:
    return "–" if found is None else digits(found.value)


def _shares(found: Estimate) -> str:
    if found.lo is None or found.hi is None or found.lo == found.hi:
        return percent(found.value)
    return f"{100 * found.value:.1f} % ({100 * found.lo:.0f}–{100 * found.hi:.0f})"


def _budget(result: BillResult) -> ConsoleRenderable | None:
    found = result.budget
    if found is None:
        return None
    left = Decimal(found.left or 0)
    word = "under" if left >= 0 else "over"
    amounts = [
        f"budget {money(found.budget, result.currency)}",
        f"so far {money(found.actual, '')}",
        f"at the end {money(found.forecast, '')}",
    ]
    return Text(
        f"Budget: {', '.join(amounts)}: {money(abs(left), result.currency)} {word}"
        if found.left is not None
        else f"Budget: {amounts[0]}"
    )


def _drill(result: BillResult, by: str) -> ConsoleRenderable | None:
    rows = result.by.get(by, [])
    if not rows:
        return None
    priced = any(one.money is not None for one in rows)
    shown = rows if by == "day" else rows[:SHARES]
    columns = ["money", "share", "lost"] if priced else []
    table = new_table(by, "", *columns, "time", *(["kWh"] if any(one.joules is not None for one in rows) else []))
    for one in shown:
        name = "none" if one.name is None else result.causes.get(one.name, one.name)
        figures = [money(one.money, ""), percent(one.share), money(one.lost, "")] if priced else []
        energy = [_kwh(one.joules)] if any(other.joules is not None for other in rows) else []
        table.add_row(
            clipped(middle(safe(name), NAME), "" if one.name is None else "bold"), "", *figures, duration(one.rank_ns), *energy
        )
    more = f", {len(shown)} of {len(rows):,}" if len(rows) > len(shown) else ""
    return Group(heading(f"By {by}{more}"), Padding(table, (0, 0, 0, 1)))


def _besides(result: BillResult) -> ConsoleRenderable | None:
    lines = [Text(f"default: {safe(line)}", style="dim") for line in result.defaults[:NOTES]]
    lines += [Text(f"note: {safe(line)}", style="dim") for line in result.notes[:NOTES]]
    lines += [Text(f"{len(result.notes) - NOTES} notes more: see --json", style="dim")] if len(result.notes) > NOTES else []
    if result.missing:
        names = [safe(line.partition(":")[0]) for line in result.missing]
        lines.append(Text(f"not given: {', '.join(names)} (what each leaves unknown: --json, missing)", style="dim"))
    return Group(*lines) if lines else None
