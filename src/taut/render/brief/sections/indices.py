"""The indices: what each means in a sentence, its value, and what it was before, or is declared to be elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Section, Text
from taut.render.brief.input_names import short_name
from taut.render.brief.written import percent, share, times
from taut.render.evidence_folder import MEANS
from taut.render.index_screen import MEANINGS
from taut.render.text import UNKNOWN, duration, safe
from taut.result.brief_types import BriefedComparison, BriefedControl, BriefedRun, BriefedScenario, Briefing
from taut.result.types import ComparedRun, Estimate, Indices, PolicyComparison

FACTORS = (
    "energy_per_useful_step", "sync_delay_amplification", "actual_attempt_multiplier", "cost_per_completion",
)  # fmt: skip
"""Indices that are factors; the others are shares."""
STEP_SPEED = "step speed against ideal (effective throughput)"
"""An index of measured steps: other shares of a briefing are called effective."""
NAMES = {"replay_probability": "work done again (replay probability)"}
"""Names that say something else in a briefing, where a replay is a computation."""
MEANT = {
    "actual_attempt_multiplier": "attempts for each job, request or task; a job that is restarted counts twice, whether "
    "work is done again or not; 1 is best",
    "energy_per_useful_step": "energy that accelerators take in {piece}s that count, over what these would take if nothing "
    "were lost; 1 is best",
}
"""Meanings that need more words here than on a screen."""
WIDE = 0.6
"""An interval of a share that is as wide says next to nothing."""
LEVEL = "Intervals, and bounds (at least, at most), hold the value in 95 of 100 repetitions."
MOST_NAMED = 2
"""Policies that the head of a column names."""
PIECES = {"serving": "request", "agents": "task", "loops": "request"}
"""Workload → what a step of it is called."""


def indices(briefing: Briefing) -> Section | None:
    """Indices of runs, comparisons, scenarios and control logs."""
    blocks: list[Block] = []
    for run in briefing.runs:
        blocks += _run(run)
    for comparison in briefing.comparisons:
        blocks += _comparison(comparison)
    for scenario in briefing.scenarios:
        blocks += _scenario(scenario)
    for control in briefing.controls:
        blocks += _control(control)
    if not blocks:
        blocks.append(Empty("No index was measured.", "traces of a run, a scenario, or a control log", "taut analyze TRACES"))
    commands = [one.command for one in briefing.inputs if one.kind != "bill"]
    return Section("indices", "The indices, and what they mean", blocks, commands)


def name_of(key: str, measured: bool = False) -> str:
    """An index as people call it; of measured steps by what it compares."""
    if measured and key == "effective_throughput_ratio":
        return STEP_SPEED
    if key in NAMES:
        return NAMES[key]
    return next((one.name for one in MEANINGS if one.key == key), key.replace("_", " "))


def meaning_of(key: str, piece: str = "step") -> str:
    """What an index means, in a sentence."""
    text = MEANT.get(key, MEANS.get(key, "")).replace("{piece}", piece)
    text = text.replace("; 1 loses nothing", "; 100 % loses nothing").replace("; 0 is a clock", "; 0 %: all alike")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def written(key: str, value: Estimate | None) -> str:
    """An index with its interval; of a share that could be nearly anything only that."""
    if key in FACTORS or value is None or value.lo is None or value.hi is None:
        return times(value) if key in FACTORS else share(value)
    if not WIDE <= value.hi - value.lo < 1:
        return share(value)
    return f"too few to tell: {percent(value.lo).removesuffix(' %')}–{percent(value.hi)}"


# ---------------------------------------------------------------------------------------------------------------------
# runs


def _run(run: BriefedRun) -> list[Block]:
    found, needs = run.result.indices, run.result.index_needs
    title = f"Indices of {short_name(run.source)}"
    if found is None:
        return [
            Empty(f"{title}: not measured, job logs tell no steps of ranks.", "traces of the ranks", "taut analyze TRACES LOGS")
        ]
    old = run.result.baseline.indices if run.result.baseline else None
    values = {one.key: _of(found, one.key) for one in MEANINGS}
    before = None if old is None else _Older({one.key: _of(old, one.key) for one in MEANINGS}, "Baseline", "Now")
    grid = _grid(title, values, before, needs=needs, measured=True)
    return [grid, *_turnover(run), *_apart(run)]


def _apart(run: BriefedRun) -> list[Block]:
    """How the amplification differs from the waiting that a delay causes."""
    found, coupling = run.result.indices, run.result.coupling
    if found is None or found.sync_delay_amplification is None or coupling is None or coupling.amplification is None:
        return []
    return [
        Text(
            "Sync delay amplification is how much later the whole job is, over how much later its ranks are on average: if "
            "one of 8 ranks is a second late, that is 0.125 s on average, and the job is later by up to 1 s, 8 times that. The "
            "waiting that a second of delay causes (“Who waits for whom”) adds up what all others wait: another figure.",
            "note",
        )
    ]


def _of(some: Indices, key: str) -> Estimate | None:
    value: Estimate | None = getattr(some, key)
    return value


class _Older(NamedTuple):
    """Values that others are compared with, and how both are headed."""

    values: Mapping[str, Estimate | None]
    title: str
    new_title: str


def _grid(
    title: str,
    new: Mapping[str, Estimate | None],
    older: _Older | None = None,
    *,
    needs: Mapping[str, str] | None = None,
    piece: str = "step",
    measured: bool = False,
) -> Grid:
    """A row for each index; where there are older values, those struck through."""
    columns = [Column("Index"), Column("What it means")]
    columns += [Column("Value", True)] if older is None else [Column(older.title, True), Column(older.new_title, True)]
    old = None if older is None else older.values
    rows = [
        [Cell(name_of(key, measured), "strong"), *_row(key, value, old, (needs or {}).get(key), piece)]
        for key, value in new.items()
    ]
    note = LEVEL if old is None else "Struck through: what it was."
    return Grid(title, columns, rows, note)


def _row(
    key: str, new: Estimate | None, old: Mapping[str, Estimate | None] | None, needs: str | None, piece: str
) -> list[Cell | str]:
    now = written(key, new) if new is not None else _absent(needs)
    row: list[Cell | str] = [meaning_of(key, piece)]
    if old is None:
        return [*row, now]
    before = old.get(key)
    if before is None or new is None:
        return [*row, written(key, before), now]
    changed = written(key, before) != now
    return [*row, Cell(written(key, before), "old" if changed else "plain"), Cell(now, "new" if changed else "plain")]


def _absent(needs: str | None) -> str:
    """Why an index has no value."""
    if needs is None:
        return "not measured"
    return safe(f"not measured: {needs}")


def _turnover(run: BriefedRun) -> list[Block]:
    coupling, baseline = run.result.coupling, run.result.baseline
    value = coupling.turnover.value if coupling is not None else None
    if value is None:
        return []
    before = f" (baseline {percent(baseline.turnover)})" if baseline is not None and baseline.turnover is not None else ""
    return [Text(f"Of the critical path {percent(value)} changes from step to step{before}{_by_chance(run)}.")]


def _by_chance(run: BriefedRun) -> str:
    """What chance alone would change."""
    coupling = run.result.coupling
    expected = None if coupling is None else coupling.turnover.expected
    return "" if expected is None else f"; if who is slowest were drawn by lot in each step, {percent(expected)}"


# ---------------------------------------------------------------------------------------------------------------------
# comparisons


def _comparison(comparison: BriefedComparison) -> list[Block]:
    runs = comparison.result.runs
    if len(runs) < 2:
        return []
    first, last = runs[0], runs[-1]
    columns = [Column("Index"), Column("What it means"), Column(safe(first.run), True), Column(safe(last.run), True)]
    rows = [
        row for row in (_compared(key, first, last) for key in ("effective_throughput_ratio", "runtime_variance_index")) if row
    ]
    rows.append(
        _pair(
            "waiting",
            "Share of the rank time that ranks wait for each other.",
            percent(first.waiting_share),
            percent(last.waiting_share),
        )
    )
    rows.append(_pair("median step", "How long a step takes.", duration(first.step_ns), duration(last.step_ns)))
    between = f"; {len(runs) - 2} more in between" if len(runs) > 2 else ""
    order = "in order of time" if comparison.result.order == "time" else "as they were given"
    return [Text(safe(comparison.result.verdict.text)), Grid("First and last run", columns, rows, f"Runs {order}{between}.")]


def _compared(key: str, first: ComparedRun, last: ComparedRun) -> list[Cell | str]:
    old: Estimate | None = getattr(first, key)
    new: Estimate | None = getattr(last, key)
    return _pair(name_of(key, measured=True), meaning_of(key), written(key, old), written(key, new))


def _pair(name: str, meaning: str, old: str, new: str) -> list[Cell | str]:
    changed = old != new and UNKNOWN not in (old, new)
    return [Cell(name, "strong"), meaning, Cell(old, "old" if changed else "plain"), Cell(new, "new" if changed else "plain")]


# ---------------------------------------------------------------------------------------------------------------------
# scenarios, control logs


def _scenario(scenario: BriefedScenario) -> list[Block]:
    result = scenario.result
    piece = PIECES.get(result.workload, "step")
    title = f"Indices of {safe(scenario.source.name)} at {result.ranks:,} ranks"
    blocks: list[Block] = []
    policies = [one for one in result.policies if one.ranks == result.ranks]
    if any(value is not None for value in result.indices.values()):
        blocks.append(_beside(title, scenario, policies[0] if policies else None, piece))
    else:
        blocks.append(
            Empty(f"{title}: none could be computed.", "a scenario with ranks, jitter and a price", scenario.source.command)
        )
    return [*blocks, *(_policies(one, piece) for one in policies[1:])]


def _beside(title: str, scenario: BriefedScenario, policy: PolicyComparison | None, piece: str) -> Grid:
    """Computed values; beside them what the literature declares for such a system, and what they are with policies."""
    computed = scenario.result.indices
    declared = any(key in computed for key in scenario.declared)
    columns = [Column("Index"), Column("What it means")]
    columns += [Column("Declared elsewhere", True)] if declared else []
    columns.append(Column("Computed", True))
    columns += [Column(_with(policy), True)] if policy is not None else []
    rows = [_beside_row(key, scenario, policy, piece, declared) for key in computed]
    return Grid(title, columns, rows, " ".join(_beside_notes(scenario, policy, declared)))


def _beside_notes(scenario: BriefedScenario, policy: PolicyComparison | None, declared: bool) -> Iterator[str]:
    if declared:
        who = "; ".join(dict.fromkeys(safe(who) for key, who in scenario.declared_by.items() if key in scenario.result.indices))
        yield f"Declared: what the literature gives for such a system{f' ({who})' if who else ''}; → with such policies."
    if policy is not None:
        yield f"Struck through: as it is without {_named(policy)}."


def _beside_row(
    key: str, scenario: BriefedScenario, policy: PolicyComparison | None, piece: str, declared: bool
) -> list[Cell | str]:
    value = scenario.result.indices[key]
    row: list[Cell | str] = [Cell(name_of(key), "strong"), meaning_of(key, piece)]
    row += [_declared(key, scenario)] if declared else []
    now = written(key, value) if value is not None else "not modelled"
    with_it = policy.indices.with_.get(key) if policy is not None else None
    if policy is None or value is None or with_it is None:
        return [*row, now, *([written(key, with_it)] if policy is not None else [])]
    changed = written(key, with_it) != now
    return [*row, Cell(now, "old" if changed else "plain"), Cell(written(key, with_it), "new" if changed else "plain")]


def _declared(key: str, scenario: BriefedScenario) -> str:
    """What is declared, and what with policies."""
    without, with_it = scenario.declared.get(key), scenario.declared_with.get(key)
    after = f" → {written(key, with_it)}" if with_it is not None else ""
    return f"{written(key, without)}{after}"


def _with(one: PolicyComparison) -> str:
    return f"With {_named(one)}" if len(one.policies) <= MOST_NAMED else f"With {len(one.policies)} policies"


def _named(one: PolicyComparison) -> str:
    return ", ".join(safe(policy.name) for policy in one.policies)


def _policies(one: PolicyComparison, piece: str) -> Grid:
    known = {key: value for key, value in one.indices.with_.items() if value is not None}
    return _grid(f"With {_named(one)}", known, _Older(one.indices.without, "Without", "With"), piece=piece)


def _control(control: BriefedControl) -> list[Block]:
    found = {key: value for key, value in control.result.indices.items() if value is not None}
    title = f"Indices of control, {short_name(control.source)}"
    if not found:
        return [Empty(f"{title}: none was measured.", "logs that link attempts, deadlines or demand", control.source.command)]
    silent = [name_of(key) for key, value in control.result.indices.items() if value is None]
    return [_grid(title, found), *_silent(silent)]


def _silent(names: Sequence[str]) -> list[Block]:
    return [Text(f"Not measured: {', '.join(names)}. docs/control.md says what each needs.", "note")] if names else []
