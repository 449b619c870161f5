"""The failure envelope: what would dominate at other scales and with less equal ranks, and where the job stands in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from taut.render.brief.document import Bar, Bars, Block, Cell, Colour, Column, Empty, Grid, Heat, Picture, Section, Terms, Text
from taut.render.brief.sections.gathered import gathered
from taut.render.brief.written import percent, plain, share
from taut.render.text import UNKNOWN, count
from taut.render.workload_words import words_of
from taut.result.brief_types import BriefedRun, BriefedScenario, Briefing
from taut.result.types import Envelope, EnvelopeCell, LossRegion, MechanismLoss, ProjectResult, SpareCapacity, Surroundings

_Words: TypeAlias = Callable[[float], str]
_Lost: TypeAlias = tuple[float, int, float, str]
ALL = "all"
COLOURS: dict[str, Colour] = {"failures": "restart", "interconnect": "communication", "unequal ranks": "slow"}
USEFUL = ("compute", "model calls")
SHORT = {
    "structural instability": "structure",
    "straggler cascade": "straggler",
    "work imbalance": "imbalance",
    "exposed transfer": "transfer",
    "fabric contention": "contention",
    "host stall": "host",
    "input stall": "input",
    "checkpoint stall": "checkpoint",
    "silent degradation": "degradation",
    "partial synchronisation loss": "out of step",
    "tail latency inflation": "tail",
    "energy feedback loop": "energy",
    "jitter": "waiting",
    "data-parallel synchronisation": "gradients",
    "transfer inside a stage": "transfer",
    "pipeline hops": "hops",
    "pipeline bubble": "bubble",
}
"""Failure modes and mechanisms in a word, for a cell of the map."""
WAITING = ("Waiting", "for whoever is late, by chance or for good; the bars and the table say which of the two it is")
MEANINGS = (
    ("Failure envelope", "what loses most of the time at other scales, if ranks differed more, or less, for good"),
    ("Heterogeneity", "how far the speeds of ranks differ for good"),
    ("Structural instability", "waiting for whoever is late, now one and now another, with no part at fault"),
)
LEVEL = "Intervals hold the value in 95 of 100 repetitions."
SEEDS = "Intervals hold 95 of 100 further simulations."
NEEDS = "an analysis with its envelope, or a training scenario"


def envelope(briefing: Briefing) -> Section:
    """The map around every job, and what loses what."""
    blocks, commands = gathered(
        [
            *((_of_run(one), one.source.command) for one in briefing.runs),
            *((_of_scenario(one), one.source.command) for one in briefing.scenarios),
        ]
    )
    if any(isinstance(one, Picture) and isinstance(one.chart, Heat) for one in blocks):
        blocks.append(Terms([*MEANINGS, *([WAITING] if briefing.scenarios else [])]))
    if not blocks:
        blocks.append(Empty("What would dominate around this job was not measured.", NEEDS, "taut analyze TRACES --envelope"))
    return Section("envelope", "Failure envelope", blocks, commands)


def _of_run(run: BriefedRun) -> Iterator[Block]:
    name, found = run.result.job.name, run.result.envelope
    if found is None or not found.map:
        if run.result.whatif is not None:
            says = f"{name}: what would take most if ranks differed more, or met more often, was not computed."
            yield Empty(says, "the traces again, with the envelope", "taut analyze TRACES --envelope")
        return
    gates = _near(found.point.intensity.value, sorted({cell.intensity for cell in found.map}))
    cells = [cell for cell in found.map if cell.intensity == gates]
    own = _own(found, cells)
    lost = (
        f"{own.modes[0]} takes {share(own.losses.get(own.modes[0]))} of the wall"
        if own.modes
        else "no mode takes 3 % of the wall"
    )
    yield Text(f"{name}: where the job stands, {lost}. {_next(own, cells)}", "lead")
    values = [(cell.heterogeneity, cell.ranks, _took(cell), _written(cell.modes[:1], _took(cell))) for cell in cells]
    yield _map(
        name, "how much it takes", values, (own.heterogeneity, own.ranks), lambda value: f"±{100 * value:.2g} %", "of the wall"
    )
    point = found.point
    rows = [
        ["ranks", f"{point.ranks.value:,}", "ranks that take part"],
        ["heterogeneity", share(point.heterogeneity), "how far ranks differ for good, as a share of their work"],
        ["intensity", plain(point.intensity, "gates a step"), "how often ranks meet"],
    ]
    yield Grid(f"Where {name} stands", [Column("Axis"), Column("Value", True), Column("Meaning")], rows, LEVEL)


def _took(cell: EnvelopeCell) -> float:
    """What the mode that dominates takes of the wall."""
    return float(cell.losses[cell.modes[0]].value) if cell.modes and cell.modes[0] in cell.losses else 0.0


def _own(found: Envelope, cells: Sequence[EnvelopeCell]) -> EnvelopeCell:
    """The cell that the job is in: that of the nearest number of ranks, and there of the nearest heterogeneity."""
    ranks, spread = found.point.ranks.value, found.point.heterogeneity.value
    return min(cells, key=lambda cell: (abs(cell.ranks - ranks), abs(cell.heterogeneity - spread)))


def _near(value: float, axis: Sequence[float]) -> float:
    return min(axis, key=lambda one: abs(one - value))


def _next(own: EnvelopeCell, cells: Sequence[EnvelopeCell]) -> str:
    """Which other mode takes over first as the job grows."""
    now = own.modes[:1]
    larger = sorted((cell for cell in cells if cell.heterogeneity == own.heterogeneity and cell.ranks > own.ranks), key=_ranks)
    turn = next((cell for cell in larger if cell.modes[:1] != now and cell.modes), None)
    if turn is None:
        return f"That stays so up to {count(larger[-1].ranks, 'rank')}." if larger else ""
    return f"At {count(turn.ranks, 'rank')} {turn.modes[0]} takes over, with {percent(_took(turn))}."


def _ranks(cell: EnvelopeCell | LossRegion) -> int:
    return cell.ranks


def _written(modes: Sequence[str], lost: float) -> str:
    return f"{_short(modes[0])} {percent(lost)}" if modes else "–"


def _short(mode: str) -> str:
    return SHORT.get(mode, mode)


def _map(name: str, much: str, cells: Sequence[_Lost], own: tuple[float, int], spread_words: _Words, lost: str) -> Picture:
    """A map of (heterogeneity, ranks, share lost, text); ``lost`` says what it is a share of."""
    spreads, ranks = sorted({cell[0] for cell in cells}), sorted({cell[1] for cell in cells})
    at = (spreads.index(own[0]), ranks.index(own[1])) if own[0] in spreads and own[1] in ranks else None
    values = [(spreads.index(spread), ranks.index(n), much_lost, text) for spread, n, much_lost, text in cells]
    chart = Heat(
        [spread_words(one) for one in spreads],
        [f"{n:,}" for n in ranks],
        "how far ranks differ",
        "ranks",
        values,
        lost,
        at,
    )
    worst = max(cells, key=lambda cell: cell[2])
    alt = (
        f"Map of what loses most, rows heterogeneity and columns ranks; the worst cell is {worst[1]:,} ranks at "
        f"{spread_words(worst[0])}: {worst[3]}."
    )
    return Picture(f"{name}: what loses most, and {much}", alt, chart)


def _of_scenario(scenario: BriefedScenario) -> Iterator[Block]:
    found = scenario.result
    if isinstance(found.envelope, Surroundings):
        yield from _at_these_ranks(found, found.envelope)
        return
    words, terms = words_of(found.workload), found.forecasts[-1].terms
    if isinstance(terms, dict) and found.workload != "loops":
        says = f"{found.scenario}: the envelope is drawn for training jobs; this is where the time of a {words.piece} goes."
        yield Text(says)
        known = sorted(((name, value) for name, value in terms.items() if value >= 0.0005), key=lambda one: -one[1])
        bars = [Bar(name, value, "useful" if name in USEFUL else "waiting", percent(value)) for name, value in known]
        alt = f"Bars: {', '.join(f'{name} {percent(value)}' for name, value in known)}."
        yield Picture(f"{found.scenario}: {words.where}", alt, Bars(bars, words.where))


def _at_these_ranks(found: ProjectResult, around: Surroundings) -> Iterator[Block]:
    own = [one for one in around.losses if one.ranks == found.ranks and one.mechanism != ALL]
    whole = next((one for one in around.losses if one.ranks == found.ranks and one.mechanism == ALL), None)
    if whole is not None and own:
        most = max(own, key=lambda one: one.loss_share.value)
        yield Text(
            f"{found.scenario}: on {count(found.ranks, 'rank')} {share(whole.loss_share)} of the work is lost, most of it to "
            f"{most.mechanism}: {share(most.loss_share)}.",
            "lead",
        )
    cells = [cell for cell in around.regimes if cell.intensity == 1]
    values = [
        (cell.heterogeneity, cell.ranks, cell.loss_share, _written([cell.dominates] if cell.dominates else [], cell.loss_share))
        for cell in cells
    ]
    if values:
        yield _map(found.scenario, "how much is lost in all", values, (1.0, found.ranks), _multiple, "of the work")
    if own:
        yield _shares(found.scenario, own)
        yield _losses(around.losses)
    if around.spare_capacity:
        yield _spare(_telling(around.spare_capacity))


def _multiple(value: float) -> str:
    return "as it is" if value == 1 else f"{value:g} × as much"


def _shares(name: str, own: Sequence[MechanismLoss]) -> Picture:
    order = sorted(own, key=lambda one: -one.loss_share.value)
    bars = [
        Bar(one.mechanism, one.loss_share.value, COLOURS.get(one.mechanism, "waiting"), share(one.loss_share)) for one in order
    ]
    alt = f"Bars: {', '.join(f'{one.mechanism} {percent(one.loss_share.value)}' for one in order)}."
    return Picture(
        f"{name}: what loses how much, of the work that the same ranks could do", alt, Bars(bars, "share of the work lost")
    )


def _losses(losses: Sequence[MechanismLoss]) -> Grid:
    """Loss by mechanism at each scale."""
    ranks = sorted({one.ranks for one in losses})
    names = dict.fromkeys(one.mechanism for one in losses)
    at = {(one.ranks, one.mechanism): one.loss_share for one in losses}
    columns = [Column("ranks", True), *(Column("in all" if name == ALL else name, True) for name in names)]
    rows: list[list[Cell | str]] = [[f"{n:,}", *(share(at.get((n, name))) for name in names)] for n in ranks]
    note = "A mechanism's part is its mean effect over all orders of removing them (Shapley value); parts sum to the whole."
    return Grid("Work lost by mechanism, with more and fewer ranks", columns, rows, f"{note} {SEEDS}")


def _telling(spare: Sequence[SpareCapacity]) -> list[SpareCapacity]:
    """Of each way the first that reaches about as much as any of them."""
    best: dict[str, float] = {}
    for one in spare:
        best[one.what] = max(best.get(one.what, 0.0), one.target_share)
    enough = [one for one in spare if one.target_share >= best[one.what] - 0.001]
    return [next(one for one in enough if one.what == what) for what in best]


def _spare(spare: Sequence[SpareCapacity]) -> Grid:
    columns = [
        Column("In excess"), Column("More ranks", True), Column("Reaches what is planned without jitter and failures"),
        Column("Unit cost beside that plan", True),
    ]  # fmt: skip
    rows: list[list[Cell | str]] = []
    for one in spare:
        met = Cell("yes" if one.met else f"no, {percent(one.target_share)} of it", "good" if one.met else "plain")
        cost = UNKNOWN if one.cost_per_unit_change is None else f"{100 * one.cost_per_unit_change:+.0f} %"
        rows.append([one.what, f"{one.extra_ranks:,}", met, cost])
    return Grid("What it takes to hide the loss with more capacity", columns, rows)
