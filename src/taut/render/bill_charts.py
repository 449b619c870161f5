"""A bill as pictures: from invoice to useful work, and cost as it accumulates. Needs altair; shows in notebooks, saves as PNG.

Colours are those of Okabe and Ito, which people with any colour vision tell apart, and every bar has its name beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from taut.core.errors import TautError
from taut.render.chart_style import BAR, WIDTH, altair, clean, shown
from taut.render.text import percent

if TYPE_CHECKING:
    from types import ModuleType

    from altair import LayerChart

    from taut.result.types import BillResult, BillShare, CostOverTime

USEFUL, LOST, NEUTRAL, WHOLE = "#009E73", "#D55E00", "#999999", "#0072B2"
KIND_COLOURS = {
    "compute": "#009E73", "communication": "#56B4E9", "waiting": "#E69F00", "restarts": "#D55E00", "idle": "#CC79A7",
    "everything else": "#999999",
}  # fmt: skip
NOT_LOST = ("useful work", "services", "corrections and credits")
"""Categories that are no loss: they are shown apart."""
CLOCKS = ((600, "%H:%M:%S"), (86_400, "%H:%M"), (4 * 86_400, "%d %b %H:%M"), (float("inf"), "%d %b %Y"))
"""How times are written on an axis that is at most so many seconds long."""


class Step(Struct, frozen=True):
    """One bar of the waterfall: from where to where it reaches, and what it is."""

    name: str
    begin: Decimal
    end: Decimal
    colour: str

    @property
    def size(self) -> Decimal:
        """What it adds, or takes."""
        return self.end - self.begin


class BillPlots:
    """The pictures of a bill: ``plot.waterfall()``, ``plot.cost()``."""

    def __init__(self, result: BillResult, over_time: Callable[[], CostOverTime | None]) -> None:
        self._result, self._over_time = result, over_time

    def waterfall(self) -> LayerChart:
        """From what was invoiced (without a bill: from what was used, at its price) down to useful work."""
        return waterfall(self._result)

    def cost(self) -> LayerChart:
        """Cost as it accumulates, by compute, communication, waiting and restarts."""
        found = self._over_time()
        if found is None or self._result.currency is None:
            raise TautError("no cost over time: the bill has no money with a time; give prices, and logs with dates")
        return cost(found, self._result.currency)


def steps(result: BillResult) -> list[Step]:
    """The bars of the waterfall, from the first to useful work; each begins where the one before ends."""
    shares = [one for one in result.categories if one.money is not None and Decimal(one.money) != 0]
    ledger = sum((Decimal(one.money or 0) for one in shares), Decimal(0))
    begin = _beginning(result, ledger)
    found = [Step(begin[0][0], Decimal(0), begin[0][1], WHOLE)]
    for name, size in begin[1:]:
        found.append(Step(name, found[-1].end, found[-1].end + size, NEUTRAL))
    for one in sorted(shares, key=_place):
        if one.name != "useful work":
            colour = NEUTRAL if one.name in NOT_LOST else LOST
            found.append(Step(one.name or "without a name", found[-1].end, found[-1].end - Decimal(one.money or 0), colour))
    return [*found, Step("useful work", Decimal(0), found[-1].end, USEFUL)]


def _place(share: BillShare) -> tuple[bool, Decimal]:
    """What is no loss first, then losses, the largest first."""
    return share.name not in NOT_LOST, -Decimal(share.money or 0)


def _beginning(result: BillResult, ledger: Decimal) -> list[tuple[str, Decimal]]:
    """What was invoiced, and what makes it the sum of all lines; without a bill that sum alone."""
    if result.accrual.effective is None:
        return [("used, at its price", ledger)]
    effective, booked = Decimal(result.accrual.effective), Decimal(result.accrual.ledger or 0)
    billed = sum((Decimal(one.billed) for one in result.invoices), Decimal(0))
    between = [
        ("commitments and other periods", effective - billed),
        ("charged and not used" if effective > booked else "used and not charged", booked - effective),
        ("not in the bill", ledger - booked),
    ]
    return [("invoiced", billed), *((name, size) for name, size in between if size)]


def waterfall(result: BillResult) -> LayerChart:
    """The waterfall of a bill."""
    alt = altair()
    if result.currency is None or not any(one.money is not None for one in result.categories):
        raise TautError("no waterfall: the bill has no money; give --prices or --gpu-hour")
    bars = steps(result)
    whole = max((abs(bar.end) for bar in bars), default=Decimal(1)) or Decimal(1)
    rows = [_row(i, bar, bars[0].size, whole, result.currency) for i, bar in enumerate(bars)]
    names = [row["name"] for row in rows]
    base = alt.Chart(alt.Data(values=rows), width=WIDTH, height=BAR * len(rows), title=_title(alt, bars, result))
    y = alt.Y("name:N", sort=names, axis=alt.Axis(title=None, domain=False, ticks=False, labelLimit=240, labelFontSize=12))
    low = float(min(min(bar.begin, bar.end) for bar in bars))
    scale = alt.Scale(domain=[min(low * 1.25, 0.0), 1.25 * float(whole)], nice=False)
    axis = alt.Axis(title=shown(result.currency), grid=False, format=_form(float(whole)), tickCount=5)
    drawn = base.mark_bar(height=BAR - 10).encode(
        alt.X("begin:Q", scale=scale, axis=axis), alt.X2("end:Q"), y, alt.Color("colour:N", scale=None)
    )
    words = base.mark_text(align="left", dx=6, fontSize=12).encode(alt.X("right:Q"), y, alt.Text("text:N"))
    joined = base.mark_tick(thickness=1, color="#555555", height=BAR).encode(alt.X("end:Q"), y)
    return clean(drawn + joined + words)


def _row(i: int, bar: Step, first: Decimal, whole: Decimal, currency: str) -> dict[str, object]:
    """One bar as data of the chart; one that is too thin to be seen is drawn a little thicker."""
    ends = sorted((float(bar.begin), float(bar.end)))
    thin = 0.003 * float(whole)
    if ends[1] - ends[0] < thin:
        ends[1] = ends[0] + thin
    share = percent(float(abs(bar.size / first))) if first else ""
    sign = "−" if bar.size < 0 else "+" if bar.colour == NEUTRAL else ""
    text = f"{sign}{amount(abs(bar.size))} {currency}" + (f", {share}" if i else "")
    return {
        "name": shown(bar.name),
        "begin": ends[0],
        "end": ends[1],
        "right": ends[1],
        "colour": bar.colour,
        "text": shown(text),
    }


def _title(alt: ModuleType, bars: Sequence[Step], result: BillResult) -> object:
    first, last = bars[0], bars[-1]
    share = f"{percent(float(last.size / first.size))} of " if first.size else ""
    text = f"Useful work: {share}{amount(first.size)} {result.currency} {'invoiced' if first.name == 'invoiced' else 'used'}"
    lost = [bar for bar in bars if bar.colour == LOST]
    worst = max(lost, key=lambda bar: -bar.size, default=None)
    below = [f"Largest loss: {worst.name}, {amount(-worst.size)} {result.currency}"] if worst else ["Nothing was lost"]
    closes = {True: "the bill closes", False: "the bill does not close", None: "no bill was given: prices only"}
    return alt.TitleParams(shown(text), subtitle=[shown(f"{below[0]}; {closes[result.accrual.closes]}")])


def cost(found: CostOverTime, currency: str) -> LayerChart:
    """Cost as it accumulates."""
    alt = altair()
    kinds = [kind for kind in KIND_COLOURS if kind in found.money]
    rows = [
        {"time": time // 1_000_000, "kind": kind, "cost": money, "order": order}
        for order, kind in enumerate(kinds)
        for time, money in zip(found.time_ns, found.money[kind], strict=True)
    ]
    clock = next(form for longest_s, form in CLOCKS if found.time_ns[-1] - found.time_ns[0] <= longest_s * 1e9)
    form = _form(sum(found.money[kind][-1] for kind in kinds))
    base = alt.Chart(alt.Data(values=rows), width=WIDTH, height=300, title=_cost_title(alt, found, kinds, currency))
    x = alt.X("time:T", scale=alt.Scale(type="utc"), axis=alt.Axis(title="UTC", grid=False, tickCount=6, format=clock))
    y = alt.Y("cost:Q", stack="zero", axis=alt.Axis(title=f"{shown(currency)} so far", format=form, gridColor="#eeeeee"))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[KIND_COLOURS[kind] for kind in kinds]), legend=None)
    areas = base.mark_area(stroke="white", strokeWidth=0.7).encode(x, y, colour, order=alt.Order("order:Q"))
    return clean(areas + _labels(alt, found, kinds, currency))


def _labels(alt: ModuleType, found: CostOverTime, kinds: Sequence[str], currency: str) -> LayerChart:
    """The name and the sum of each kind at the right edge, apart enough to be read."""
    total = sum(found.money[kind][-1] for kind in kinds) or 1.0
    at, rows, below = 0.0, [], float("-inf")
    for kind in kinds:
        size = found.money[kind][-1]
        place = max(at + size / 2, below + 0.055 * total)
        at, below = at + size, place
        text = f"{kind}: {amount(Decimal(size))} {currency}, {percent(size / total)}"
        rows.append({"time": found.time_ns[-1] // 1_000_000, "place": place, "text": shown(text), "kind": kind})
    marks = alt.Chart(alt.Data(values=rows)).encode(alt.X("time:T", scale=alt.Scale(type="utc")), alt.Y("place:Q"))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(kinds), range=[KIND_COLOURS[kind] for kind in kinds]), legend=None)
    squares: LayerChart = marks.mark_square(xOffset=9, size=70, opacity=1, clip=False).encode(colour)
    words: LayerChart = marks.mark_text(align="left", dx=18, fontSize=12, clip=False).encode(alt.Text("text:N"))
    both: LayerChart = squares + words
    return both


def _cost_title(alt: ModuleType, found: CostOverTime, kinds: Sequence[str], currency: str) -> object:
    total = sum(found.money[kind][-1] for kind in kinds)
    apart = sum(found.money[kind][-1] for kind in kinds if kind in ("waiting", "restarts"))
    text = f"{amount(Decimal(total))} {currency}, of which waiting and restarts {percent(apart / total) if total else '0 %'}"
    below = [f"{amount(Decimal(found.undated))} {currency} more have no time and are not shown"] if found.undated else []
    return alt.TitleParams(shown(text), subtitle=[shown(line) for line in below])


def amount(value: Decimal) -> str:
    """An amount as people read it: whole above a thousand, else three digits."""
    if abs(value) >= 1000 or value == value.to_integral_value():
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{float(value):.3g}"


def _form(largest: float) -> str:
    """How an axis writes its numbers."""
    return ",.0f" if largest >= 10 else "~g"
