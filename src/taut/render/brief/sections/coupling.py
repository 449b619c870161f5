"""The coupling map: who waited for whom, and how far a delay travels."""

from __future__ import annotations

from collections.abc import Sequence

from taut.render.brief.document import Block, Empty, Fact, Facts, Heat, Line, Lines, Picture, Section, Text
from taut.render.brief.written import percent, times
from taut.render.text import count, duration, safe, three
from taut.result.brief_types import BriefedRun, Briefing, RankLateness
from taut.result.types import Coupling, Response

TRACED = (
    "Each wait is traced to the rank whose delay began it, at fault or not. Where each is late now and then, and none "
    "stands out, the summary says that nobody in particular causes it."
)
OWN = " On the diagonal: waiting for a delay of one's own that came back by way of others."
TRACE = "taut analyze TRACES -o RUN"


def coupling(briefing: Briefing) -> Section | None:
    """Who waited for whom in every run, and what becomes of a delay."""
    blocks: list[Block] = []
    for run in briefing.runs:
        blocks += [Text(f"Run {safe(run.source.name)}", "lead")] if len(briefing.runs) > 1 else []
        blocks += _run(run)
    if not briefing.runs:
        blocks.append(Empty("Who waits for whom was not measured.", "traces of all ranks of a run", TRACE))
    return Section("coupling", "Who waits for whom", blocks, [run.source.command for run in briefing.runs])


def _run(run: BriefedRun) -> list[Block]:
    found = run.result.coupling
    if found is None:
        return [Empty("Who waits for whom was not measured: job logs tell no operations.", "traces of all ranks", TRACE)]
    return [*_facts(found, run), *_map(run), *_travels(found.response, run)]


def _facts(found: Coupling, run: BriefedRun) -> list[Block]:
    facts, ranks = [], run.result.job.ranks
    reached = found.response.reached_ranks if found.response is not None else None
    if reached is not None:
        says = "Ranks that feel a delay of the rank that others wait for most."
        facts.append(Fact("Reach", f"{reached:,} of {count(ranks, 'rank')}", says))
    if found.amplification is not None:
        says = f"What all others together wait, for each second by which somebody at fault is late.{_of_the_clock(run)}"
        facts.append(Fact("Waiting per second of delay", f"{three(found.amplification)} s", says))
    turnover = found.turnover.value
    if turnover is not None:
        lot = "" if found.turnover.expected is None else f"; drawn by lot it would be {percent(found.turnover.expected)}"
        says = f"How much of the critical path changes from step to step; 0 %: it is always the same rank and work{lot}."
        facts.append(Fact("Turnover", percent(turnover), says))
    return [Facts(facts)] if facts else []


def _of_the_clock(run: BriefedRun) -> str:
    """The index that sounds alike, and is of the clock."""
    index = run.result.indices.sync_delay_amplification if run.result.indices is not None else None
    return "" if index is None else f" Of the clock it is another figure: sync delay amplification, {times(index)}."


def _map(run: BriefedRun) -> list[Block]:
    found = run.lateness
    if found is None or not found.share:
        if run.result.job.ranks < 2:
            return [Empty("One rank waits for nobody.", "traces of all ranks of the job", TRACE)]
        if not run.result.job.gates:
            return [
                Empty(
                    "No meeting of ranks was matched, so nobody is known to wait.",
                    "traces of all ranks, with communication",
                    TRACE,
                )
            ]
        return [Text("Nobody in particular caused others to wait: what waiting there is comes from the structure of the step.")]
    values = [
        (cause, victim, share, percent(share))
        for cause, victim, share in zip(found.cause, found.victim, found.share, strict=True)
    ]
    labels, found_by = [safe(label) for label in found.labels], _by_cause(found)
    short, what = _short(labels)
    rows = [f"{label}: {percent(found_by.get(k, 0.0))}" for k, label in enumerate(labels)]
    heat = Heat(rows, short, "caused it: in all", f"waited{what}", values, "share of the waiting that is traced to a rank")
    told = f"{_most(found)}{_waited(run)}"
    note = f"{TRACED}{OWN if any(k == j for k, j in zip(found.cause, found.victim, strict=True)) else ''}"
    sample = f" (the first {count(found.first_steps, 'step')})" if found.first_steps is not None else ""
    return [Text(told), Picture(f"Who waited for whom{sample}", told, heat), Text(note, "note")]


def _waited(run: BriefedRun) -> str:
    """How much waiting there is at all."""
    if run.view is None:
        return ""
    return f" In all, {percent(sum(node.wait_share for node in run.view.nodes))} of the rank time is waiting."


def _short(labels: Sequence[str]) -> tuple[list[str], str]:
    """Labels for columns, which are narrow, and what they count."""
    for word in ("rank", "stage"):
        if all(label.startswith(word) for label in labels):
            bare = [label.partition(" (")[0].removeprefix(f"{word}s ").removeprefix(f"{word} ") for label in labels]
            return bare, f", {word}"
    return list(labels), ""


def _by_cause(found: RankLateness) -> dict[int, float]:
    """Place in the list of labels → share of the waiting that it caused."""
    sums: dict[int, float] = {}
    for cause, share in zip(found.cause, found.share, strict=True):
        sums[cause] = sums.get(cause, 0.0) + share
    return sums


def _most(found: RankLateness) -> str:
    """Who was waited for most."""
    first, *others = sorted(_by_cause(found).items(), key=lambda pair: -pair[1])
    told = f"{safe(_capital(found.labels[first[0]]))} caused {percent(first[1])} of the waiting that is traced to a rank"
    even = 1 / len(found.labels)
    told += f"; if all were alike, it would be 1 in {len(found.labels)} ({100 * even:.3g} %)." if len(found.labels) > 1 else "."
    if others:
        told += f" Next: {safe(found.labels[others[0][0]])}, {percent(others[0][1])}."
    return told


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith(("rank", "stage")) else text


def _travels(found: Response | None, run: BriefedRun) -> list[Block]:
    if found is None:
        return []
    names = {row.rank: row.label for row in run.result.ranks or []}
    ranks = run.result.job.ranks
    beside = found.median_rank if isinstance(found.median_rank, Response) else None
    both = [one for one in (found, beside) if one is not None]
    blocks: list[Block] = [Text(" ".join(_reach(one, names, ranks) for one in both))]
    responses = [one for one in both if len(one.left_by_step) > 1]
    if not responses:
        return blocks
    lines = [
        Line(f"on {safe(_named(one.rank, names))}", list(range(len(one.left_by_step))), one.left_by_step, dashed=one is beside)
        for one in responses
    ]
    chart = Lines(lines, x_axis="steps later", y_axis="share of the delay that is left", shares=True)
    alt = " ".join(_reach(one, names, ranks) for one in responses)
    return [*blocks, Picture(f"What is left of a delay of {duration(found.delay_ns)}", alt, chart)]


def _named(rank: int, names: dict[int, str]) -> str:
    return names.get(rank, f"rank {rank}")


def _reach(found: Response, names: dict[int, str], ranks: int) -> str:
    """How far a delay travels, in a sentence."""
    who = safe(_named(found.rank, names))
    if not found.reached_ranks:
        return f"A delay put on {who} reaches nobody: slack absorbs it."
    reached = "all ranks" if found.reached_ranks >= ranks else count(found.reached_ranks, "rank")
    when = f" within {count(found.within_steps, 'step')}" if found.within_steps else ""
    left = found.left_by_step[-1] if found.left_by_step else None
    later = (
        ""
        if left is None or len(found.left_by_step) < 2
        else f"; {count(len(found.left_by_step) - 1, 'step')} later {percent(left)} of it is left"
    )
    return f"A delay put on {who} reaches {reached}{when}{later}."
