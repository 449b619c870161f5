"""How a run went: compute, communication and waiting step by step, and cost as it accumulates."""

from __future__ import annotations

from collections.abc import Sequence

from taut.core.finding_place import place_of
from taut.render.brief.document import Areas, Bar, Bars, Block, Cell, Colour, Column, Empty, Grid, Picture, Section, Text
from taut.render.brief.nobody import no_waiting
from taut.render.brief.written import cash, percent
from taut.render.text import UNKNOWN, count, duration, safe
from taut.result.brief_types import BriefedBill, BriefedRun, Briefing, Course
from taut.result.types import AnalysisResult, AttemptRow, AttemptsResult, CostOverTime, Job, RestartedJob

COLOURS: dict[str, Colour] = {
    "compute": "useful", "slow compute": "slow", "communication": "communication", "waiting": "waiting", "gaps": "gap",
    "restarts": "restart", "idle": "idle",
}  # fmt: skip
FATE_COLOURS: dict[str, Colour] = {"kept": "useful", "unallocated": "idle", "spare": "idle"}
"""Fates of attempts that are no restart."""
FATE_WORDS = {
    "kept": "work that was kept", "down": "between attempts", "hold/init": "held before the first step",
    "detect+recover": "noticing a failure, and recovery", "discarded": "work that was thrown away",
    "discarded at most": "work that was thrown away, at most", "unallocated": "fewer accelerators than at most",
}  # fmt: skip
IDLE = "idle: downtime, spare"
"""What stands still over time; the bill's own categories tell downtime from spare accelerators."""
MARKS = 3
"""Findings whose first step is marked."""
ATTEMPTS = 12
"""Attempts that are listed."""
PRICE = "taut brief RUN --gpu-hour 2.50EUR -o brief.html"


def course(briefing: Briefing) -> Section | None:
    """The timeline of every run, of every bill, and the attempts of every job."""
    blocks: list[Block] = []
    for run in briefing.runs:
        blocks += [Text(f"Run {safe(run.source.name)}", "lead")] if len(briefing.runs) > 1 else []
        blocks += _run(run, bool(briefing.bills))
    for bill in briefing.bills:
        blocks += _bill(bill)
    if not briefing.runs and not any(bill.over_time for bill in briefing.bills):
        needs = "traces of a run, or job logs with dates"
        blocks.append(Empty("How the job went over time was not measured.", needs, "taut analyze TRACES LOGS -o RUN"))
    commands = [one.command for one in briefing.inputs if one.kind in ("run", "bill")]
    return Section("course", "How the run went, and what it had cost by when", blocks, commands)


def _run(run: BriefedRun, billed: bool) -> list[Block]:
    attempts = _attempts(run.result.attempts, run) if run.result.attempts else []
    if run.course is None:
        needs = "traces of the ranks beside the logs"
        return [Empty("Steps were not traced.", needs, "taut analyze TRACES LOGS -o RUN"), *attempts]
    job = run.result.job
    return [*_shares(run.course, run, _begins(run.result)), *_cost(run.course, billed, job.ranks), *attempts]


def _begins(result: AnalysisResult) -> list[tuple[float, str]]:
    """Steps in which findings begin, but for such as last from the first step on."""
    found: dict[int, str] = {}
    for one in result.findings:
        place = place_of(one)
        if one.steps and one.steps[0] != result.job.first_step and place:
            found.setdefault(one.steps[0], f"{place} from here on")
    return [(float(step), safe(text)) for step, text in found.items()][:MARKS]


def _shares(found: Course, run: BriefedRun, begins: list[tuple[float, str]]) -> list[Block]:
    unit, offset = run.result.job.unit, run.log_offset
    axis = unit if offset is None else f"traced {unit}; add {offset:,} for the {unit} of the job's log"
    series = [(kind, COLOURS.get(kind, "other"), values) for kind, values in found.shares.items()]
    chart = Areas(found.step, series, x_axis=axis, y_axis="share of the rank time", shares=True, steps=True, marks=begins)
    told = _largest_loss(found, run.result.job, offset)
    return [Text(told), Picture(f"Where the time of each {unit} went", told, chart)]


LOSSES = {
    "waiting": "Waiting for others", "gaps": "Gaps (host, input, launch)", "communication": "Communication",
    "slow compute": "Computing slower than usual",
}  # fmt: skip
"""Kinds of time that are lost, and how a sentence names them."""


def _largest_loss(found: Course, job: Job, offset: int | None = None) -> str:
    """How much the largest loss takes, from step to step."""
    lost = [kind for kind in LOSSES if any(found.shares.get(kind, ()))]
    first = max(lost, key=lambda kind: sum(found.shares[kind]), default=None)
    silent = "" if "waiting" in lost else f" {no_waiting(job)}"
    if first is None:
        return f"All of the rank time is compute.{silent}"
    values, unit = found.shares[first], job.unit
    high, low = max(values), min(values)
    if len(values) == 1 or high - low < 0.005:
        return f"{LOSSES[first]}: {percent(high)} of the rank time of every {unit}.{silent}"
    at = found.step[values.index(high)]
    where = f"the {unit}s from {at:,} on" if len(found.step) < job.steps else f"{unit} {at:,}"
    where += "" if offset is None else f" ({unit} {at + offset:,} of the log)"
    return f"{LOSSES[first]}: {percent(low)} to {percent(high)} of the rank time of a {unit}, most in {where}.{silent}"


def _cost(found: Course, billed: bool, ranks: int) -> list[Block]:
    if found.money is None and billed:
        return []  # the bill below tells it
    if found.money is None:
        return [Empty("What it had cost by when is not known: no price was given.", "the price of an accelerator hour", PRICE)]
    series = [(kind, COLOURS.get(kind, "other"), [0.0, *values]) for kind, values in found.money.items()]
    alt = _sum_words({kind: values[-1] for kind, values in found.money.items()}, found.currency)
    axis = f"{safe(found.currency or '')} so far"
    chart = Areas([0.0, *found.end_s], series, x_axis="seconds since the first step began", y_axis=axis)
    whole, held = sum(values[-1] for values in found.money.values()), found.end_s[-1] * ranks / 3600
    price = f", at {cash(whole / held)} {safe(found.currency or '')} an accelerator-hour" if held else ""
    return [Picture(f"What the traced steps had cost by when{price}", alt, chart)]


def _sum_words(money: dict[str, float], currency: str | None) -> str:
    """What everything cost, and the kinds of it, the largest first."""
    whole, unit = sum(money.values()), safe(currency or "")
    kinds = sorted(money.items(), key=lambda pair: -pair[1])
    parts = [f"{safe(kind)} {cash(value)} {unit} ({percent(value / whole) if whole else UNKNOWN})" for kind, value in kinds]
    return f"{cash(whole)} {unit} in all: {', '.join(parts)}."


HOUR_NS, DAY_NS = 3_600_000_000_000, 86_400_000_000_000


def _bill(bill: BriefedBill) -> list[Block]:
    found, currency = bill.over_time, bill.result.currency
    if found is None or len(found.time_ns) < 2:
        return [
            Empty(
                "When the bill's cost arose is not known.",
                "job logs or runs with dates, and prices",
                "taut bill RUN LOGS --prices FILE",
            )
        ]
    alt = _sum_words({kind: values[-1] for kind, values in found.money.items()}, currency)
    blocks: list[Block] = [Picture("What the bill had cost by when", alt, _areas(found, currency))]
    if found.undated:
        blocks.append(
            Text(f"{cash(found.undated)} {safe(currency or '')} more have no date and are not in the picture.", "note")
        )
    return blocks


def _areas(found: CostOverTime, currency: str | None) -> Areas:
    first = found.time_ns[0]
    span = found.time_ns[-1] - first
    unit, length = (
        ("days", DAY_NS) if span > 2 * DAY_NS else ("hours", HOUR_NS) if span > 2 * HOUR_NS else ("seconds", 1_000_000_000)
    )
    series = [(IDLE if kind == "idle" else kind, COLOURS.get(kind, "other"), values) for kind, values in found.money.items()]
    x = [(time - first) / length for time in found.time_ns]
    return Areas(x, series, x_axis=f"{unit} since the bill begins", y_axis=f"{safe(currency or '')} so far")


# ---------------------------------------------------------------------------------------------------------------------
# attempts


def _attempts(found: AttemptsResult, run: BriefedRun) -> list[Block]:
    """What job logs tell: restarts, and where the time between them went."""
    words = [f"{count(found.attempts, 'attempt')} of {count(found.jobs, 'job')}"]
    words += [f"{count(found.restarted_jobs, 'job')} restarted{_again(found)}"] if found.restarted_jobs else []
    if found.down_ns:
        words.append(f"{duration(found.down_ns)} between attempts")
    known = {outcome: number for outcome, number in found.outcomes.items() if outcome != "not told"}
    ends = ", ".join(f"{number:,} {safe(outcome)}" for outcome, number in (found.outcomes if known else known).items())
    blocks: list[Block] = [Text(f"{'; '.join(words)}. How they ended: {ends or 'not told'}.")]
    bars = _bars(found)
    if bars:
        chart = Bars(bars, axis="share of the accelerator time from the first start to the last end")
        alt = ", ".join(f"{bar.label} {bar.shown}" for bar in bars)
        blocks.append(Picture("Where the time of all attempts went", f"{alt}.", chart))
        blocks += _kept_note(found)
    if found.rows and found.jobs == 1:
        blocks.append(_listed(found.rows, _counting(found, run)))
    elif found.worst:
        blocks.append(_worst(found.worst))
    blocks += [Text(safe(stuck.text), "warning") for stuck in (found.stuck or [])[:3]]
    return blocks


def _again(found: AttemptsResult) -> str:
    """Whether restarts did work twice."""
    steps = found.steps
    if steps is None or not steps.executed:
        return ""
    return ", no step was done twice" if not steps.discarded else f", {count(steps.discarded, 'step')} done twice"


def _kept_note(found: AttemptsResult) -> list[Block]:
    """What kept means, and how much of the time that was held it is."""
    kept = sum(entry.held_rank_ns for entry in found.entries if entry.fate == "kept")
    if not kept or not found.held_rank_ns:
        return []
    words = "Kept: no later attempt did that work again, however the attempt ended."
    return [Text(f"{words} Of the time in which attempts ran, {percent(kept / found.held_rank_ns)} was kept.", "note")]


def _bars(found: AttemptsResult) -> list[Bar]:
    whole = found.total_rank_ns or 0
    used = [entry for entry in found.entries if entry.rank_ns > 0] if whole else []
    return [
        Bar(
            FATE_WORDS.get(entry.fate, entry.fate),
            entry.rank_ns / whole,
            FATE_COLOURS.get(entry.fate, "restart"),
            _shown(entry.rank_ns, whole, entry.held),
        )
        for entry in sorted(used, key=lambda entry: -entry.rank_ns)
    ]


def _shown(rank_ns: int, whole: int, held: bool) -> str:
    return f"{percent(rank_ns / whole)}, {duration(rank_ns)}" + ("" if held else ", nothing held")


def _counting(found: AttemptsResult, run: BriefedRun) -> str:
    """That logs and traces number steps apart, where they do."""
    traced, offset = run.course, run.log_offset
    row = next((row for row in found.rows if row.attempt == found.traced_attempt), None)
    if traced is None or not traced.step or row is None or row.first_step is None or row.last_step is None:
        return ""
    if offset is not None:
        return _numbered(row, traced.step[0] + offset, offset)
    if row.first_step <= traced.step[0] <= row.last_step:
        return ""
    return (
        f"Steps here are those of the job's log, which counts on from attempt to attempt. The pictures above count as the "
        f"traces do: step {traced.step[0]:,} is the first that was traced of attempt {row.attempt}."
    )


def _numbered(row: AttemptRow, first: int, offset: int) -> str:
    """How the log numbers steps, and which of them was not traced."""
    told = f"Steps here are those of the job's log: a traced step and {offset:,}."
    return told if row.first_step == first else f"{told} Step {row.first_step:,} was not kept: the profiler starts in it."


def _listed(rows: Sequence[AttemptRow], counting: str) -> Grid:
    columns = [
        Column("Job"),
        Column("Attempt", True),
        Column("Ended"),
        Column("Ran", True),
        Column("Steps"),
        Column("Why it ended"),
    ]
    shown: list[list[Cell | str]] = [
        [
            safe(row.job),
            f"{row.attempt}",
            safe(row.outcome or "not told"),
            duration(row.ran_ns),
            _steps(row),
            safe(row.reason or UNKNOWN),
        ]
        for row in rows[-ATTEMPTS:]
    ]
    last = f"The last {ATTEMPTS} of {len(rows):,}. " if len(rows) > ATTEMPTS else ""
    return Grid("Attempts", columns, shown, f"{last}{counting}".rstrip())


def _worst(jobs: Sequence[RestartedJob]) -> Grid:
    columns = [
        Column("Job"),
        Column("Attempts", True),
        Column("Held", True),
        Column("Discarded", True),
        Column("Between attempts", True),
    ]
    rows: list[list[Cell | str]] = [
        [
            safe(job.name or job.job),
            f"{job.attempts:,}",
            duration(job.held_rank_ns),
            f"{'at most ' if job.at_most and job.discarded_rank_ns else ''}{duration(job.discarded_rank_ns)}",
            duration(job.down_ns),
        ]
        for job in jobs[:ATTEMPTS]
    ]
    note = "Held and discarded are accelerator time: hours times accelerators."
    return Grid("Jobs that lost most to restarts", columns, rows, note)


def _steps(row: AttemptRow) -> str:
    return UNKNOWN if row.first_step is None or row.last_step is None else f"{row.first_step:,}–{row.last_step:,}"
