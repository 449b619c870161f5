"""The bill: from what was paid down to useful work, what is direct and what is hidden, and what would come back."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from taut.render.bill_charts import NOT_LOST, Step, steps
from taut.render.brief.document import (
    Bar,
    Bars,
    Block,
    Cell,
    Colour,
    Column,
    Empty,
    Fact,
    Facts,
    Grid,
    Picture,
    Section,
    Text,
    Waterfall,
    WaterfallStep,
)
from taut.render.brief.modelled_cost import modelled_cost
from taut.render.brief.remedies import by_money, kind_of, repair_first, what_to_do
from taut.render.brief.written import amounts, cash, percent, plain, share, times_of, worth, worth_a_month
from taut.render.text import UNKNOWN, duration, safe, three
from taut.render.text import money as amount
from taut.result.brief_types import BriefedBill, BriefedRun, Briefing
from taut.result.types import BillResult, BillShare, Finding, LedgerResult, Recovery

COLOURS: dict[str, Colour] = {
    "useful work": "useful", "re-runs and discarded work": "restart", "energy wasted": "slow", "SLA and deadlines": "restart",
    "lower effective utilisation": "waiting", "over-provisioning": "idle", "operational complexity": "gap",
    "downtime after failures": "restart",
}  # fmt: skip
FATE_COLOURS: dict[str, Colour] = {
    "productive": "useful", "slow compute": "slow", "exposed transfer": "communication", "exposed copy": "communication",
    "communication undivided": "communication", "fault wait": "waiting", "jitter wait": "waiting", "structural wait": "waiting",
    "gap": "gap", "idle": "idle", "discarded": "restart",
}  # fmt: skip
FATE_WORDS = {
    "productive": "computing at its usual speed", "slow compute": "computing slower than usual",
    "exposed transfer": "moving data, nothing else runs", "exposed copy": "copying data, nothing else runs",
    "communication undivided": "communication, one side traced", "fault wait": "waiting for somebody at fault",
    "jitter wait": "waiting for whoever happens to be late", "structural wait": "waiting built into the step",
    "gap": "host, input and launch gaps", "discarded": "work that was thrown away", "kept": "attempts whose work was kept",
    "down": "between attempts, nothing held", "hold/init": "held before the first step", "unexplained": "not explained",
    "unobserved": "not traced", "control overhead": "taken by controllers",
}  # fmt: skip
"""Fates in plain words; others are plain enough."""
MEANT = {
    "useful work": "computing at its usual speed, and kept",
    "re-runs and discarded work": "work that was lost and done again; restarts",
    "SLA and deadlines": "penalties, and the price of delay",
    "energy wasted": "electricity and cooling while nothing useful was done",
    "lower effective utilisation": "accelerators that wait, move data, or run slower than usual",
    "operational complexity": "hours of people who look for what is wrong",
    "downtime after failures": "accelerators charged between an attempt that failed and the next",
    "over-provisioning": "other accelerators that are paid for and not used, and commitments",
    "not known": "time that nothing recorded",
    "services": "storage, network and other services of the bill",
    "corrections and credits": "corrections of the provider",
    "unmatched": "charges that no log explains",
}
"""Categories in plain words."""
SPOKEN = {
    "lower effective utilisation": "waiting and slower work", "over-provisioning": "spare and unused accelerators",
    "unmatched": "charges that no log explains",
}  # fmt: skip
"""Categories as a sentence has them, where their name is not plain."""
JOULES_PER_KWH = 3.6e6
RECOVERIES, LINES = 6, 8
"""Rows at most."""
UNBILLED = "No bill was given: what is paid for and not traced is not in this."
PRICE = "taut brief RUN --prices prices.toml --focus bill.csv -o brief.html"


def money(briefing: Briefing) -> Section | None:
    """Every bill; without one, where the rank time of runs went, and how to price it."""
    blocks: list[Block] = []
    for bill in briefing.bills:
        blocks += [Text(f"Bill {safe(bill.source.name)}", "lead")] if len(briefing.bills) > 1 else []
        blocks += _bill(bill, briefing.runs)
    for run in briefing.runs if not briefing.bills else []:
        blocks += [Text(f"Run {safe(run.source.name)}", "lead")] if len(briefing.runs) > 1 else []
        blocks += _unbilled(run)
    for scenario in briefing.scenarios:
        blocks += modelled_cost(scenario)
    if not briefing.bills:
        blocks.append(Empty(UNBILLED, "prices, and the invoice as FOCUS rows", PRICE))
    shown = ("bill", "scenario") if briefing.bills else ("run", "scenario")
    commands = [one.command for one in briefing.inputs if one.kind in shown]
    return Section("money", "Where the money goes", blocks, commands)


def _bill(bill: BriefedBill, runs: Sequence[BriefedRun]) -> list[Block]:
    result = bill.result
    blocks: list[Block] = [Text(_lead(result), "lead"), *_closing(result), *_of_what(result, runs)]
    priced = [one for one in result.categories if one.money is not None and Decimal(one.money) != 0]
    if priced and result.currency:
        blocks.append(_waterfall(result))
    else:
        blocks.append(Empty("Nothing in it has a price.", "gpu_hour, a rate, or the invoice", PRICE))
    blocks.append(_categories(result, runs))
    blocks += _lines(result)
    blocks += _recoverable(result, {finding.id: finding for run in runs for finding in run.result.findings})
    blocks += _energy(result)
    return blocks


def _lead(result: BillResult) -> str:
    """What the bill is, and where it goes, the largest first; what the bill itself says where nothing is priced."""
    parts = sorted((one for one in result.categories if one.share), key=lambda one: -(one.share or 0.0))
    if not parts or result.accrual.ledger is None:
        return safe(result.verdict)
    start, end = (str(one or "")[:10] for one in (result.period.start, result.period.end))
    when = "" if not start else f" of {start}" if start == end else f" of {start} to {end}"
    whole = amount(result.accrual.effective or result.accrual.ledger, result.currency)
    told = ", ".join(f"{percent(one.share)} {safe(SPOKEN.get(one.name or '', one.name or 'without a name'))}" for one in parts)
    what = "The bill" if result.accrual.effective is not None else "What was used, at the price given,"
    return f"{what}{when} comes to {whole}: {told}."


def _closing(result: BillResult) -> list[Block]:
    accrual, currency = result.accrual, result.currency
    if accrual.effective is None:
        return [Text("No invoice was given: amounts are time at its price.", "note")]
    words = "Everything charged is explained." if accrual.closes else _open_words(result)
    facts = [
        Fact("Charged", amount(accrual.effective, currency), "What the provider's bill says this period costs."),
        Fact("Explained", amount(accrual.ledger, currency), words),
    ]
    lost = [Decimal(one.lost) for one in result.categories if one.lost is not None]
    if lost:
        facts.append(Fact("Lost", amount(sum(lost, Decimal(0)), currency), "Neither useful work nor services."))
    return [Facts(facts)]


def _of_what(result: BillResult, runs: Sequence[BriefedRun]) -> list[Block]:
    """Why useful work is another share here than on page one."""
    here = next((one.share for one in result.categories if one.name == "useful work"), None)
    effective = next((run.result.verdict.effective_share for run in runs), None)
    if here is None or effective is None or percent(here) == percent(effective):
        return []
    whole = "everything charged, idle accelerators and services included" if result.accrual.effective else "all time priced"
    traced = f"Page one has {percent(effective)}, of the accelerator time of the traced steps alone."
    return [Text(f"Useful work is {percent(here)} of {whole}. {traced}", "note")]


def _open_words(result: BillResult) -> str:
    left = amount(result.accrual.residual, result.currency)
    return f"{left} is charged and not explained by use; above zero it was charged too much."


def _waterfall(result: BillResult) -> Picture:
    bars, kinds = steps(result), _kinds(result)
    shown = [_step(bar, result, kinds) for bar in bars]
    chart = Waterfall(shown, axis=safe(result.currency or ""))
    alt = "; ".join(f"{one.label} {one.shown}" for one in shown)
    return Picture("From what was paid to useful work", f"{alt}.", chart)


def _step(bar: Step, result: BillResult, kinds: dict[str, str]) -> WaterfallStep:
    whole = max((abs(one.end) for one in steps(result)[:1]), default=Decimal(0))
    part = f", {percent(float(abs(bar.size) / whole))}" if whole and bar.begin != 0 else ""
    kind = kinds.get(bar.name)
    label = f"{safe(bar.name)} ({kind})" if kind in ("direct", "hidden") and bar.name not in NOT_LOST else safe(bar.name)
    if bar.name == "useful work":
        part = f", {percent(float(bar.size / whole))}" if whole else ""
    colour = COLOURS.get(bar.name, "whole" if bar.begin == 0 else "other")
    return WaterfallStep(label, float(bar.begin), float(bar.end), colour, f"{amount(abs(bar.size), result.currency)}{part}")


def _kinds(result: BillResult) -> dict[str, str]:
    """Category → direct, hidden or useful."""
    return {line.category: line.kind for line in result.lines}


def _in(title: str, currency: str | None) -> Column:
    """Head of a column of money."""
    return Column(f"{title}, {safe(currency)}" if currency else title, True)


def _categories(result: BillResult, runs: Sequence[BriefedRun]) -> Grid:
    kinds = _kinds(result)
    unit, joules = _energy_unit([one.joules or 0.0 for one in result.categories])
    columns = [
        Column("Category"), Column("What it is"), Column("Kind"), _in("Money", result.currency), Column("Share", True),
        Column(f"Time of {result.unit}s", True), Column(f"Energy, {unit}", True),
    ]  # fmt: skip
    money, time = amounts([one.money for one in result.categories]), times_of([one.rank_ns for one in result.categories])
    rows = [_category_row(one, kinds, joules, money[k], time[k]) for k, one in enumerate(result.categories)]
    note = (
        "Direct: an event that somebody can point at (a failure, a re-run, a penalty, wasted energy). "
        "Hidden: paid for all the same, and no invoice names it (waiting, idle or spare accelerators, hours of people)."
        f"{_between(result, runs)}{_cooled(result)}"
    )
    return Grid("Direct and hidden cost", columns, rows, note)


def _between(result: BillResult, runs: Sequence[BriefedRun]) -> str:
    """That accelerators which stand still between attempts count as over-provisioning."""
    told = [run.result.attempts for run in runs if run.result.attempts is not None]
    down = sum(entry.rank_ns for found in told for entry in found.entries if entry.fate == "down")
    names = {one.name for one in result.categories}
    if not down or "downtime after failures" in names or "over-provisioning" not in names:
        return ""
    return (
        f" Over-provisioning holds what was charged while no attempt ran, too: {duration(down)} of accelerator time lie "
        "between attempts, after failures."
    )


def _cooled(result: BillResult) -> str:
    """That energy in the table is that of the building."""
    return " Energy is that of accelerators with what is known of cooling, hosts and network." if _cooling(result) else ""


def _cooling(result: BillResult) -> bool:
    """Whether the lines hold more energy than accelerators drew."""
    drawn = result.energy.joules
    return drawn is not None and sum(one.joules or 0.0 for one in result.categories) > 1.001 * float(drawn.value)


def _energy_unit(joules: Sequence[float]) -> tuple[str, float]:
    """The unit that suits some energies, and its joules."""
    return ("kWh", JOULES_PER_KWH) if max(joules, default=0.0) >= JOULES_PER_KWH / 10 else ("kJ", 1000.0)


def _category_row(one: BillShare, kinds: dict[str, str], joules: float, spent: str, time: str) -> list[Cell | str]:
    name, kind = one.name or "without a name", kinds.get(one.name or "", UNKNOWN)
    energy = UNKNOWN if one.joules is None else three(one.joules / joules)
    mark = Cell(kind, "bad") if kind in ("direct", "hidden") else Cell(kind, "good" if kind == "useful" else "plain")
    return [Cell(safe(name), "strong"), MEANT.get(name, ""), mark, spent, percent(one.share), time, energy]


def _lines(result: BillResult) -> list[Block]:
    """What costs most and is no useful work, with what it is traced to; lines that differ only in their source together."""
    sums: dict[tuple[str, str | None, str | None], Decimal] = {}
    sources: dict[tuple[str, str | None, str | None], list[str]] = {}
    for line in result.lines:
        if line.kind != "useful" and line.money is not None:
            key = (line.item, line.fate, line.cause)
            sums[key] = sums.get(key, Decimal(0)) + Decimal(line.money)
            sources.setdefault(key, []).append(line.source)
    order = sorted((key for key in sums if sums[key] > 0), key=lambda key: -sums[key])[:LINES]
    if not order:
        return []
    columns = [Column("Paid for"), Column("Spent on"), Column("Cause"), _in("Money", result.currency), Column("Known from")]
    rows: list[list[Cell | str]] = [
        [safe(key[0]), _fate(key[1]), _cause(key[2], result), spent, " and ".join(dict.fromkeys(sources[key]))]
        for key, spent in zip(order, amounts([sums[key] for key in order]), strict=True)
    ]
    note = "Measured: told by logs, traces and counters. Modelled: computed for steps that were not traced. Given: an input."
    return [Grid("The largest losses", columns, rows, note)]


def _fate(fate: str | None) -> str:
    return UNKNOWN if fate is None else FATE_WORDS.get(fate, safe(fate))


def _cause(cause: str | None, result: BillResult) -> str:
    return UNKNOWN if cause is None else safe(result.causes.get(cause, cause))


def _recoverable(result: BillResult, findings: dict[str, Finding]) -> list[Block]:
    if not result.recoverable:
        return []
    order = sorted(result.recoverable, key=lambda one: by_money(one.per_month))
    order, _ = repair_first(order, lambda one: (kind_of(findings.get(one.cause)), one.per_month))
    columns = [
        Column("Cause"),
        Column("What to do"),
        Column("Gives back", True),
        Column(worth_a_month(result.currency), True),
        _in("Costs once", result.currency),
        Column("Paid back, days", True),
    ]
    rows: list[list[Cell | str]] = [
        [
            _cause(one.cause, result),
            safe(what_to_do(findings.get(one.cause), one.remedy)),
            share(one.saved_share),
            worth(one.per_month, None),
            _once(one),
            plain(one.payback_days),
        ]
        for one in order[:RECOVERIES]
    ]
    note = (
        "Shares of the time on the clock; a month of 30 days in which the job goes on like this. What it costs once is given "
        "with the prices. Several rows together do not simply add up. At most: a bound; it may bring nothing."
    )
    return [Grid("What would come back", columns, rows, note)]


def _once(one: Recovery) -> str:
    """What a remedy costs, as the prices give it."""
    if one.cost is None:
        return "not given"
    monthly = (
        "" if one.cost_per_month is None or not float(one.cost_per_month) else f", {cash(float(one.cost_per_month))} a month"
    )
    return f"{cash(float(one.cost))}{monthly}"


def _energy(result: BillResult) -> list[Block]:
    energy = result.energy
    if energy.joules is None:
        return []
    known = safe(energy.source or "an unknown source")
    words = [f"Accelerators drew {_kwh(float(energy.joules.value))} in all attempts (by {known})"]
    if energy.stall_joules is not None:
        words.append(f"{_kwh(energy.stall_joules)} of it while nothing useful was done")
    beside = (
        " These are the accelerators alone; the table of direct and hidden cost adds what is known of cooling, hosts and "
        "network. The index “energy per useful step” is of the traced steps alone, over what they would take at best."
        if _cooling(result)
        else ""
    )
    return [Text(f"{', '.join(words)}.{beside}")]


def _kwh(joules: float) -> str:
    return f"{three(joules / JOULES_PER_KWH)} kWh" if joules >= JOULES_PER_KWH / 10 else f"{three(joules / 1000)} kJ"


# ---------------------------------------------------------------------------------------------------------------------
# without a bill


def _unbilled(run: BriefedRun) -> list[Block]:
    ledger = run.result.ledger
    if ledger is not None and ledger.total_rank_ns:
        return _ledger(ledger)
    attempts = run.result.attempts
    if attempts is None or not attempts.total_rank_ns:
        return [Empty("Where the time went was not measured.", "traces, or job logs", "taut analyze TRACES LOGS -o RUN")]
    whole = attempts.total_rank_ns
    used = sorted((entry for entry in attempts.entries if entry.rank_ns), key=lambda entry: -entry.rank_ns)
    priced = attempts.currency is not None
    rows: list[list[Cell | str]] = [
        [
            _fate(entry.fate),
            duration(entry.rank_ns),
            percent(entry.rank_ns / whole),
            *([amount(entry.money, attempts.currency)] if priced else []),
        ]
        for entry in used
    ]
    unit = safe(attempts.unit or "accelerator")
    columns = [Column("Spent on"), *(_AMOUNTS if priced else _AMOUNTS[:-1])]
    return [Grid(f"Where the time of {unit}s went, by attempt", columns, rows)]


_AMOUNTS = (Column("Time", True), Column("Share", True), Column("Money", True))


def _ledger(ledger: LedgerResult) -> list[Block]:
    whole = ledger.total_rank_ns
    used = sorted((entry for entry in ledger.entries if entry.rank_ns), key=lambda entry: -entry.rank_ns)
    bars = [
        Bar(
            _fate(entry.fate),
            entry.rank_ns / whole,
            FATE_COLOURS.get(entry.fate, "other"),
            f"{percent(entry.rank_ns / whole)}, {duration(entry.rank_ns)}",
        )
        for entry in used
    ]
    alt = ", ".join(f"{bar.label} {bar.shown}" for bar in bars)
    picture = Picture("Where the rank time went", f"{alt}.", Bars(bars, axis=f"share of {duration(whole)} of rank time"))
    if ledger.currency is None:
        return [picture]
    rows: list[list[Cell | str]] = [
        [_fate(entry.fate), duration(entry.rank_ns), percent(entry.rank_ns / whole), amount(entry.money, ledger.currency)]
        for entry in used
    ]
    return [picture, Grid("The same, priced", [Column("Spent on"), *_AMOUNTS], rows)]
