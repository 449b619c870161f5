"""Runs of one job side by side: before and after, what changed, and whether the job gives the same time twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from taut.render.brief.document import Block, Bullets, Cell, Column, Empty, Grid, Line, Lines, Picture, Section, Text
from taut.render.brief.written import percent, plain, share
from taut.render.text import UNKNOWN, count, duration, money
from taut.result.brief_types import Briefing
from taut.result.types import (
    ChangedWork,
    ComparedRun,
    CompareResult,
    Difference,
    Estimate,
    Finding,
    Repeats,
    Restarts,
    Setting,
    Trend,
)

MOST = 10
"""Changes that are listed."""
LEVEL = "Intervals hold the value in 95 of 100 repetitions."
SURE, LEAST = 0.05, 0.005
"""Chance below which a difference is shown, and the smallest change that is told."""


def comparison(briefing: Briefing) -> Section | None:
    """All comparisons; nothing where a single run, or none, was given and so nothing to compare."""
    blocks: list[Block] = []
    for one in briefing.comparisons:
        blocks += compared(one.result)
    if not blocks:
        if not briefing.runs:
            return None
        says = "Whether the job gives the same time twice was not measured: one run tells nothing of another."
        blocks.append(Empty(says, "a second run of the same job, before or after a change", "taut compare RUN RUN"))
    return Section("comparison", "Before and after", blocks, [one.source.command for one in briefing.comparisons])


def compared(found: CompareResult) -> Iterator[Block]:
    """What one comparison says."""
    yield Text(found.verdict.text, "lead")
    yield _two(found.runs[0], found.runs[-1]) if len(found.runs) == 2 else _all(found.runs)
    if len(found.runs) > 2:
        yield _course(found.runs)
        yield _trends(found.trends)
    if found.changed:
        yield _changed(found)
    if found.findings:
        yield _findings(found.findings)
    yield from _irreproducible(found)
    yield from _restarts(found.restarts)


def _energy(run: ComparedRun) -> str:
    return UNKNOWN if run.energy_per_kept_step_j is None else f"{run.energy_per_kept_step_j:,.0f} J"


def _cost(run: ComparedRun) -> str:
    return money(run.cost_per_kept_step, run.currency)


def _known(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value=value)


class _Quantity(Struct, frozen=True):
    """A quantity of runs."""

    name: str
    of: Callable[[ComparedRun], Estimate | None]
    written: Callable[[ComparedRun], str]
    more_is_better: bool = False
    is_share: bool = False


def _share(name: str, of: Callable[[ComparedRun], Estimate | None], more_is_better: bool = False) -> _Quantity:
    return _Quantity(name, of, lambda run: share(of(run)), more_is_better, True)


QUANTITIES = (
    _Quantity("Median step", lambda run: _known(run.step_ns), lambda run: duration(run.step_ns)),
    _share("Effective share of the work", lambda run: run.effective_throughput_ratio, True),
    _share("Variation of step times", lambda run: run.runtime_variance_index),
    _share("Waiting, share of the time", lambda run: _known(run.waiting_share)),
    _share("Recoverable, share of the time", lambda run: _known(run.recoverable_share)),
    _Quantity("Energy of a step that was kept", lambda run: _known(run.energy_per_kept_step_j), _energy),
    _Quantity("Cost of a step that was kept", lambda run: _known(_number(run.cost_per_kept_step)), _cost),
)


def _number(amount: str | None) -> float | None:
    return None if amount is None else float(amount)


def _two(before: ComparedRun, after: ComparedRun) -> Grid:
    """Old struck through, new highlighted."""
    columns = [
        Column("Quantity"),
        Column(f"Before: {before.run}", True),
        Column(f"After: {after.run}", True),
        Column("Change", True),
    ]
    rows: list[list[Cell | str]] = []
    for what in QUANTITIES:
        one, two = what.of(before), what.of(after)
        if one is None and two is None:
            continue
        change = _change(one, two, what)
        rows.append([what.name, Cell(what.written(before), "old"), Cell(what.written(after), "new"), change])
    scale = "" if before.ranks == after.ranks else f" {before.ranks:,} ranks before, {after.ranks:,} after."
    return Grid("Before and after", columns, rows, f"{LEVEL}{scale}")


def _change(one: Estimate | None, two: Estimate | None, what: _Quantity) -> Cell | str:
    """Shares in points, others in per cent; good or bad where intervals, if there are any, lie apart."""
    if one is None or two is None or (not what.is_share and one.value == 0):
        return UNKNOWN
    change = two.value - one.value if what.is_share else two.value / one.value - 1
    if abs(change) < LEAST:
        return "none"
    text = f"{100 * change:+.0f} {'points' if what.is_share else '%'}".replace("-", "−")
    if _overlap(one, two):
        return f"{text}, not sure"
    return Cell(text, "good" if (change > 0) == what.more_is_better else "bad")


def _overlap(one: Estimate, two: Estimate) -> bool:
    if one.lo is None or one.hi is None or two.lo is None or two.hi is None:
        return False
    return one.lo <= two.hi and two.lo <= one.hi


def _all(runs: Sequence[ComparedRun]) -> Grid:
    kept = [what for what in QUANTITIES if any(what.of(run) is not None for run in runs)]
    columns = [Column("Run"), Column("Ranks", True), Column("Steps", True), *(Column(what.name, True) for what in kept)]
    rows: list[list[Cell | str]] = []
    for run in runs:
        last = [Cell(what.written(run), "new" if run is runs[-1] else "plain") for what in kept]
        rows.append([run.run, f"{run.ranks:,}", f"{run.steps:,}", *last])
    return Grid("Runs, oldest first", columns, rows, LEVEL)


def _course(runs: Sequence[ComparedRun]) -> Picture:
    line = Line("median step", [float(k) for k in range(1, len(runs) + 1)], [run.step_ns / 1e6 for run in runs])
    alt = f"Line of the median step from run to run: {', '.join(duration(run.step_ns) for run in runs)}."
    return Picture("Median step from run to run", alt, Lines([line], "run, oldest first", "ms"))


def _trends(trends: Sequence[Trend]) -> Grid:
    columns = [Column("Quantity"), Column("Trend"), Column("Change a run", True), Column("Chance without a trend", True)]
    rows: list[list[Cell | str]] = []
    for one in trends:
        slope = None if one.slope is None else one.slope
        sure = one.q is not None and one.q < SURE and slope is not None
        says = (
            "too few runs" if one.q is None else ("rises" if slope and slope.value > 0 else "falls") if sure else "none shown"
        )
        chance = UNKNOWN if one.q is None else f"{one.q:.2g}"
        rows.append([one.quantity.replace("_", " "), Cell(says, "strong" if sure else "plain"), plain(slope), chance])
    return Grid("Trends over the runs", columns, rows, f"The chance is corrected for all that was tested. {LEVEL}")


def _changed(found: CompareResult) -> Grid:
    columns = [
        Column("Work"), Column("Rank", True), Column("Before", True), Column("After", True), Column("Costs on the wall", True),
    ]  # fmt: skip
    rows = [_work(one) for one in found.changed[:MOST]]
    left = len(found.changed) - MOST
    note = f"{len(found.changed)} of {found.changed_tested:,} classes on ranks changed." + (
        f" {left} more." if left > 0 else ""
    )
    return Grid("What changed", columns, rows, note)


def _work(one: ChangedWork) -> list[Cell | str]:
    after, effect = duration(one.after_ns), one.effect_wall_ns
    return [
        one.op_class, f"{one.rank:,}", Cell(duration(one.before_ns), "old"), Cell(after, "new"),
        UNKNOWN if effect is None else duration(effect) if effect else "nothing by itself",
    ]  # fmt: skip


def _findings(findings: Sequence[Finding]) -> Grid:
    columns = [Column("Finding"), Column("Where"), Column("Gains on the wall", True), Column("Because")]
    rows = [[one.mode, where(one), duration(one.recoverable_wall_ns), one.because] for one in findings]
    return Grid("With the earlier run as the baseline of the later", columns, rows)


def where(one: Finding) -> str:
    """The place that a finding names."""
    parts = [f"rank {', '.join(map(str, one.ranks))}"] if one.ranks else []
    parts += [f"link {', '.join(one.links)}"] if one.links else []
    return "; ".join(parts) or one.where or "the whole job"


def _irreproducible(found: CompareResult) -> Iterator[Block]:
    """Non-determinism: runs of one graph that take different times, and graphs that differ."""
    for one in found.non_determinism.repeats:
        yield Text(_repeated(one))
    differ = [one for one in found.non_determinism.structure if not one.same_graph]
    if differ:
        yield Bullets(
            [
                f"{one.run} does not do the same as {one.against}: {count(one.count, 'difference')}"
                f"{f', first: {_difference(one.differences[0])}' if one.differences else ''}."
                for one in differ
            ]
        )
    elif not found.non_determinism.repeats:
        says = "Whether the same work takes the same time was not measured."
        yield Empty(says, "two runs of the same job on the same ranks", "taut compare RUN RUN")


def _difference(one: Difference) -> str:
    """What differs, where, and how."""
    on = [] if one.rank is None else [f"{one.rank}" if one.what == "rank" else f"on rank {one.rank}"]
    where = [one.what, *([one.op_class] if one.op_class else []), *on]
    return f"{' '.join(where)} ({_setting(one.before)} before, {_setting(one.after)} after)"


def _setting(value: Setting) -> str:
    return "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _repeated(one: Repeats) -> str:
    spread = "" if one.within_share is None else f" Steps of one run differ by {percent(one.within_share)}."
    if one.between_share is None:
        return f"Irreproducibility: {count(len(one.runs), 'run')} of the same work, too few steps to compare.{spread}"
    sure = one.q is not None and one.q < SURE
    says = "beyond what their own steps vary by" if sure else "no more than their own steps vary by"
    wide = share(one.between_share)
    if one.between_share.hi is not None and one.between_share.hi > 1:
        wide = f"{percent(one.between_share.value)} (at least {percent(one.between_share.lo)})"
    return (
        f"Irreproducibility: {count(len(one.runs), 'run')} of the same work differ by {wide} of the step time, {says}.{spread}"
    )


def _restarts(found: Restarts) -> Iterator[Block]:
    if not found.at:
        return
    columns = [
        Column("Restart"), Column("At step", True), Column("Steps again", True), Column("Step before", True),
        Column("Step after", True),
    ]  # fmt: skip
    rows: list[list[Cell | str]] = [
        [
            f"{one.before} → {one.after}",
            f"{one.step:,}",
            f"{one.rerun_steps:,}",
            Cell(duration(one.before_ns), "old"),
            Cell(duration(one.after_ns), "new"),
        ]
        for one in found.at
    ]
    says = {
        "reset": "A restart brings the step time back down: something builds up while the job runs.",
        "amplify": "Restarts make steps slower or less even.",
        "none shown": "Restarts change neither the step time nor its spread, as far as these runs show.",
    }
    yield Grid(
        "Restarts", columns, rows, says.get(found.effect or "", "Too few restarts to tell what they do to the step time.")
    )
