"""What more accelerators bring: delivered work, effective share and cost against scale, and where one more stops paying."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from taut.render.brief.document import (
    Block,
    Bullets,
    Cell,
    Column,
    Empty,
    Grid,
    Line,
    Lines,
    Picture,
    Rule,
    Section,
    Terms,
    Text,
)
from taut.render.brief.forecast_tables import Of, cost_of, delivered, forecast_table, kept, level, limit_level, short, step_ms
from taut.render.brief.sections.gathered import gathered
from taut.render.brief.sections.published import published
from taut.render.brief.written import percent, plain, share, times
from taut.render.text import count, three
from taut.render.workload_words import Words, words_of
from taut.result.brief_types import BriefedRun, BriefedScenario, Briefing
from taut.result.types import Estimate, Finding, Forecast, ProjectResult, Regime, Swept, Threshold

_Written: TypeAlias = Callable[[float], str]
MANY = "accelerator"
"""A rank of a scenario is an accelerator."""
AXIS = "accelerators, logarithmic"
CLOSE = 0.6
"""Ends of an interval nearer to its middle than this share have no line of their own."""
FEW = 3
"""So many scales, or fewer, are a table and no picture."""
FAR = 10
"""Scales at which a unit may cost so many times the least are in the table, and not in the picture."""
NEEDS = "a scenario of the job (a TOML file, or one that ships), or a traced run with at least a few dozen steps"
COMMAND = "taut project SCENARIO --ranks 256,512,1024 --envelope"
MEANINGS = (
    ("Effective share", "useful work, as a share of what the same accelerators would do if nothing made them wait or fail"),
    (
        "Limit",
        "the number of accelerators beyond which one more brings less than half of what one brings at best (taut's own rule)",
    ),
)
BAND = "Drawn: intervals are of further runs of the job with pauses drawn anew, and hold"
GROWN_LEVEL = 90
"""Of 100 further runs, those that the interval of a finding's growth holds."""
PLAIN = {
    "weak scaling: a rank keeps its work and its gaps": "each rank keeps its work and its pauses (weak scaling)",
    "groups of": "those who meet, groups of",
    "hiccups as in the run:": "pauses (hiccups) as in the run:",
    "further replicas stray at gates as the measured ones do; beyond what was seen jitter goes on": (
        "further ranks are early and late as the measured ones are; beyond what was seen that goes on"
    ),
    "collectives of one size do not tell latency from bandwidth: the share was drawn": (
        "transfers of one size do not tell how much of them is latency and how much bandwidth: the share was drawn"
    ),
}
"""Begin of an assumption → the same in plainer words."""
PAUSES = (
    "page one counts more pauses than this: there every step counts in which a rank is late beyond its usual spread, here what "
    "comes of a pause at a meeting; what is smaller is drawn as usual variation"
)
MENDED = "mended first: "
"""Begin of the lines of a projection that say what it mends."""
SWEPT = ("effective_capacity", "control_overhead_fraction", "cross_layer_coherence", "decision_conflict_rate")
"""Indices of control loops that are drawn against accelerators."""


def growth(briefing: Briefing) -> Section:
    """Growth of every scenario and of every run that tells it."""
    blocks, commands = gathered(
        [
            *((_of_scenario(one, briefing.costs is not None), one.source.command) for one in briefing.scenarios),
            *((_of_run(one), one.source.command) for one in briefing.runs),
        ]
    )
    if not blocks:
        blocks.append(Empty("How the loss grows with the number of accelerators was not measured.", NEEDS, COMMAND))
    if any(one.grown or one.result.threshold for one in briefing.scenarios):
        blocks.append(Terms(MEANINGS))
    commands += [_widened(one) for one in briefing.runs if one.grown is not None]
    return Section("growth", "What more accelerators bring", blocks, commands)


def _of_scenario(scenario: BriefedScenario, priced: bool) -> Iterator[Block]:
    found = scenario.result
    if isinstance(found.sweep, list) and found.sweep:
        yield from _sweep(found, found.sweep)
        return
    yield from projected(scenario.grown or found, found.ranks, found.threshold, priced)
    beside = published(scenario)
    if beside is not None:
        yield beside


def projected(grown: ProjectResult, own: int, limit: Threshold | None, priced: bool = False) -> Iterator[Block]:
    """Forecasts at several scales, and the limit; ``priced`` where prices are known elsewhere in the briefing."""
    rows = sorted(grown.forecasts, key=lambda one: one.ranks)
    measured = grown.workload == "measured"
    yield Text(f"{grown.scenario}{', projected' if measured else ''}: {_says(limit, own, limit_level(grown))}", "lead")
    if measured:
        yield from _beside_the_run(grown, own, limit)
    if limit is not None and limit.ranks is not None and limit.in_range is False:
        yield Text("The fabric is not known at the scale of the limit, so that it is an extrapolation.", "note")
    if len(rows) > (FEW if measured else 1):
        yield from _pictures(grown, rows, own, limit)
    yield forecast_table(grown, rows, own, priced)
    if limit is not None and limit.ranks is not None and isinstance(limit.without, dict) and limit.without:
        yield _makers(limit, limit.without)
    turns = _turns(grown)
    if turns:
        yield Bullets(turns)
    if measured and isinstance(grown.assumed, list):
        yield Text("What the projection of the run rests on:")
        yield Bullets(
            [
                *map(_in_plainer_words, grown.assumed),
                *([PAUSES] if any("hiccups as in the run" in one for one in grown.assumed) else []),
            ]
        )


def _in_plainer_words(line: str) -> str:
    """An assumption in plainer words, where there are some."""
    for begin, plainer in PLAIN.items():
        if line.startswith(begin):
            return f"{plainer}{line[len(begin) :]}"
    return line


def _beside_the_run(grown: ProjectResult, own: int, limit: Threshold | None) -> Iterator[Block]:
    """Why the limit of a projection need not be that of the run as it was."""
    lines = grown.assumed if isinstance(grown.assumed, list) else []
    mended = [line.removeprefix(MENDED) for line in lines if line.startswith(MENDED)]
    first = f" after this is mended: {'; '.join(mended)}" if mended else ""
    least = f" No limit below the {own:,} that ran can be told." if limit is not None and own in (limit.ranks, limit.lo) else ""
    yield Text(f"Regime and reserve above are those of the run as it was. The projection is of the job{first}.{least}", "note")


def _says(limit: Threshold | None, own: int, of_100: int) -> str:
    """The limit in a sentence or two."""
    if limit is None:
        return f"no limit was sought on {count(own, MANY)}."
    if limit.ranks is None:
        return f"one more {MANY} pays at every scale that was tried, up to {limit.tried:,}."
    here = (
        "is beyond it"
        if own > limit.ranks
        else "is at it"
        if own == limit.ranks
        else f"is at {percent(own / limit.ranks)} of it"
    )
    if limit.lo is not None and limit.lo <= own < (limit.hi or own + 1) and limit.lo != limit.hi:
        here = "may be at it already, or still have room" if limit.hi is not None else "may be at it already, or far from it"
    return f"one more {MANY} stops paying at {_ends(limit, of_100)}; the job has {own:,} and {here}.{_made_by(limit)}"


def _made_by(limit: Threshold) -> str:
    """What makes the limit, and what it would be without."""
    if not isinstance(limit.made_by, str) or not isinstance(limit.without, dict):
        return ""
    away = limit.without.get(limit.made_by)
    without = f"beyond {limit.tried:,}" if away is None else f"at {away:,}"
    return f" What makes this limit is {limit.made_by}; without, it lies {without}."


def _ends(limit: Threshold, of_100: int) -> str:
    if limit.lo == limit.hi in (None, limit.ranks):
        return f"{limit.ranks:,}"
    low = "?" if limit.lo is None else f"{limit.lo:,}"
    high = "no limit found" if limit.hi is None else f"{limit.hi:,}"
    return f"{limit.ranks:,} by the best estimate ({low}–{high} in {of_100} of 100)"


def _pictures(grown: ProjectResult, rows: Sequence[Forecast], own: int, limit: Threshold | None) -> Iterator[Block]:
    name, words, of_100 = grown.scenario, words_of(grown.workload), level(grown)
    rules = [rule for rule in _rules(limit) if rows[0].ranks <= rule.at <= rows[-1].ranks]
    useful = _line("effective share", rows, partial(kept, words))
    if len(useful.x) > 1:
        chart = Lines([useful], AXIS, "effective share", log_x=True, shares=True, rules=rules, points=_own(useful, own))
        title = f"{name}: effective share against accelerators{_band(useful, of_100)}"
        yield Picture(title, _alt(useful, "the effective share", percent), chart)
    rate = _line(words.rate, rows, delivered)
    if len(rate.x) > 1:
        lines = [rate, *_best(rate, words)]
        chart = Lines(lines, AXIS, words.rate, log_x=True, rules=rules, points=_own(rate, own))
        title = f"{name}: {words.rate} against accelerators{_band(rate, of_100)}"
        yield Picture(title, _alt(rate, words.rate, short), chart)
    step = _line("mean step, ms", rows, step_ms)
    if not rate.x and len(step.x) > 1:
        chart = Lines([step], AXIS, "mean step, ms", log_x=True, rules=rules, points=_own(step, own))
        title = f"{name}: mean step against accelerators{_band(step, of_100)}"
        yield Picture(title, _alt(step, "the mean step in ms", three), chart)
    cost = _line(words.cost(rows), _affordable(rows), cost_of)
    if len(cost.x) > 1:
        inside = [rule for rule in rules if cost.x[0] <= rule.at <= cost.x[-1]]
        chart = Lines([cost], AXIS, words.cost(rows), log_x=True, rules=inside, points=_own(cost, own))
        title = f"{name}: {words.cost(rows)}{_band(cost, of_100)}"
        yield Picture(title, _alt(cost, f"the {words.cost(rows)}", three), chart)


def _band(line: Line, of_100: int) -> str:
    return f"; the band holds {of_100} of 100" if line.lo else ""


def _best(rate: Line, words: Words) -> list[Line]:
    """If all brought as much as those of the smallest scale; others than training jobs share a given demand."""
    if words.piece != "step" or rate.y[0] <= 0:
        return []
    return [Line("if all brought as much", rate.x, [rate.y[0] * x / rate.x[0] for x in rate.x], dashed=True)]


def _affordable(rows: Sequence[Forecast]) -> list[Forecast]:
    """Scales whose costs, and the upper ends of these, can be drawn on one axis."""
    costs = [found.value for row in rows if (found := cost_of(row)) is not None]
    most = FAR * min(costs, default=0.0)
    return [row for row in rows if (found := cost_of(row)) is not None and (found.hi or found.value) <= most]


def _line(name: str, rows: Sequence[Forecast], of: Of) -> Line:
    """A line with its band, where every point has an interval."""
    known = [(row.ranks, found) for row in rows if (found := of(row)) is not None]
    x, y = [float(ranks) for ranks, _ in known], [float(found.value) for _, found in known]
    ends = [(found.lo, found.hi) for _, found in known]
    low, high = [one for one, _ in ends if one is not None], [one for _, one in ends if one is not None]
    banded = known and len(low) == len(high) == len(known)
    return Line(name, x, y, low if banded else (), high if banded else ())


def _rules(limit: Threshold | None) -> list[Rule]:
    """The limit, and the lower end of its interval where it lies well below."""
    if limit is None or limit.ranks is None:
        return []
    early = [] if limit.lo is None or limit.lo > CLOSE * limit.ranks else [Rule(limit.lo, "at the earliest")]
    return [Rule(limit.ranks, "one more stops paying"), *early]


def _own(line: Line, own: int) -> list[tuple[float, float, str]]:
    return [(x, y, "this job") for x, y in zip(line.x, line.y, strict=True) if x == own]


def _alt(line: Line, what: str, written: _Written) -> str:
    first, last = (f"{written(line.y[k])} at {line.x[k]:,.0f}" for k in (0, -1))
    return f"Line of {what} against scale: {first}, {last}."


def _makers(limit: Threshold, without: dict[str, int | None]) -> Grid:
    """What the limit would be without each mechanism, the one that makes it first."""
    order = sorted(without, key=lambda one: (one != limit.made_by, without[one] is not None, -(without[one] or 0)))
    elasticity = limit.elasticity if isinstance(limit.elasticity, dict) else {}
    rows: list[list[Cell | str]] = [
        [
            Cell(one, "strong" if one == limit.made_by else "plain"),
            f"more than {limit.tried:,}" if without[one] is None else f"{without[one]:,}",
            plain(elasticity.get(one), "%"),
        ]
        for one in order
    ]
    columns = [
        Column("What takes work away"),
        Column("Limit without it, accelerators", True),
        Column("Moves the limit, for 1 % more of it", True),
    ]
    return Grid("What makes the limit", columns, rows, f"Rule: {limit.rule}.")


def _turns(grown: ProjectResult) -> list[str]:
    found = grown.turns if isinstance(grown.turns, list) else []
    return [
        f"Between {one.last_ranks:,} and {one.ranks:,} accelerators, {one.after} takes over from {one.before}." for one in found
    ]


def _sweep(found: ProjectResult, sweep: Sequence[Swept]) -> Iterator[Block]:
    """Control loops on more and fewer accelerators, demand as it is."""
    worse = [one for one in sweep if one.worse]
    says = (
        f"more accelerators, from {worse[0].ranks:,} on, make this worse: {_listed(worse[0].worse)}."
        if worse
        else f"from {sweep[0].ranks:,} to {sweep[-1].ranks:,} accelerators nothing became surely worse, demand as it is."
    )
    yield Text(f"{found.scenario}: {says}", "lead")
    lines = [line for name in SWEPT if len((line := _swept(sweep, name)).x) > 1]
    if lines:
        own = [Rule(found.ranks, "this system")]
        chart = Lines(lines, "accelerators", "share", shares=True, rules=own)
        alt = "; ".join(_alt(line, line.name, percent) for line in lines)
        yield Picture(f"{found.scenario}: indices against accelerators", alt, chart)
    names = [name for name in SWEPT if any(one.indices.get(name) is not None for one in sweep)]
    columns = [
        Column("Accelerators", True),
        *(Column(_words(name), True) for name in names),
        Column("Surely worse than the row above"),
    ]
    rows: list[list[Cell | str]] = []
    for one in sweep:
        last = Cell(_listed(one.worse), "bad" if one.worse else "plain")
        rows.append([f"{one.ranks:,}", *(percent(one.indices.get(name)) for name in names), last])
    yield Grid(f"{found.scenario} on other numbers of accelerators", columns, rows)


def _swept(sweep: Sequence[Swept], name: str) -> Line:
    known = [(float(one.ranks), value) for one in sweep if (value := one.indices.get(name)) is not None]
    return Line(_words(name), [x for x, _ in known], [y for _, y in known])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_words, names)) or "nothing"


def _of_run(run: BriefedRun) -> Iterator[Block]:
    """A measured run: its regime, and how waiting for whoever is late grows with ranks."""
    found = run.result
    name = found.job.name
    if found.regime and found.regime.kind and isinstance(found.regime.reserve, Estimate):
        yield Text(f"{name}, {count(found.job.ranks, 'rank')}: {found.regime.kind}. {_reserve(found.regime.reserve)}", "lead")
        yield from _rule(found.regime)
    for finding in found.findings:
        if finding.growth:
            yield from _grown(name, found.job.ranks, finding)
    if run.grown is not None:
        yield from projected(run.grown, found.job.ranks, run.grown.threshold)
    elif found.whatif is not None and not any(finding.growth for finding in found.findings):
        says = f"{name}: how its loss grows with ranks is not part of this run."
        yield Empty(says, "the run projected to other scales", _widened(run))


def _widened(run: BriefedRun) -> str:
    """The command that projects a run to more ranks."""
    own = run.result.job.ranks
    return f"taut project --from {run.source.name} --ranks {own},{2 * own},{4 * own}"


def _reserve(reserve: Estimate) -> str:
    """What is left before one more rank brings too little."""
    if reserve.value >= 1 and reserve.hi is None:
        least = three(reserve.lo or reserve.value)
        return f"Variation between ranks may grow to at least {least} × of what it is before one more rank stops paying."
    if reserve.value >= 1:
        return f"Variation between ranks may grow to {times(reserve)} of what it is before one more rank stops paying."
    if reserve.value > 0:
        return f"One more rank does not pay: variation between ranks would have to shrink to {times(reserve)} of what it is."
    return "One more rank does not pay, however little ranks varied."


def _rule(regime: Regime) -> Iterator[Block]:
    """What pays, who says so, and what one more rank brings."""
    if not isinstance(regime.pays, float) or not isinstance(regime.marginal_return, Estimate):
        return
    yield Text(
        f"The rule: one more accelerator pays while it brings at least {percent(regime.pays)} of the work of one that nobody "
        f"held up. That is taut's own rule, and no law; here the next one brings {share(regime.marginal_return)}. Whoever pays "
        "may set another: taut analyze --pays.",
        "note",
    )


def _grown(name: str, own: int, finding: Finding) -> Iterator[Block]:
    rows = finding.growth or []
    line = Line(
        "share of the wall lost",
        [float(one.ranks) for one in rows],
        [float(one.loss_share.value) for one in rows],
        [float(one.loss_share.lo or 0.0) for one in rows],
        [float(one.loss_share.hi or one.loss_share.value) for one in rows],
    )
    title = f"{name}: what waiting for whoever is late would cost, of the clock"
    if len(rows) > FEW:
        chart = Lines([line], "ranks, logarithmic", "share of the wall lost", log_x=True, shares=True, points=_own(line, own))
        yield Picture(f"{title}{_band(line, GROWN_LEVEL)}", _alt(line, "the share of the wall lost", percent), chart)
        return
    columns = [Column("Ranks", True), Column("Costs", True), Column("Rests on")]
    mine = finding.loss_share
    cells = [
        [f"{one.ranks:,}", share(mine), "the run as it was"]
        if one.ranks == own and mine is not None
        else [f"{one.ranks:,}", share(one.loss_share), "drawn"]
        for one in rows
    ]
    yield Grid(title, columns, cells, f"{BAND} {GROWN_LEVEL} of 100. The first row: this run alone, 95 of 100.")
