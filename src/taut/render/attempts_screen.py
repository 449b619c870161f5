"""Attempts of jobs on a terminal: a section beside the traces, or a screen of its own where there are only job logs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.render.terminal import (
    LEAST_FATE,
    Screen,
    Side,
    clipped,
    fate_mark,
    heading,
    new_table,
    partial_lines,
    screen_text,
    stacked_bar,
    unclosed_lines,
)
from taut.render.text import count, duration, middle, money, percent, safe
from taut.result.types import AnalysisResult, AttemptEntry, AttemptRow, AttemptsResult, DecidedCost

ROWS, DECIDERS = 12, 3
"""Attempts or jobs, and controllers, shown at most."""
FIGURES = 64
"""Columns that the figures beside the name of a job take."""
STYLE = {
    "kept": ("#009e73", "█", "#"),
    "unfinished": ("#f0e442", "▓", "="),
    "discarded": ("#d55e00", "x", "x"),
    "discarded at most": ("#d55e00", "?", "?"),
    "checkpoint save": ("#0072b2", "▒", "-"),
    "restore": ("#56b4e9", "░", "~"),
    "hold/init": ("#cc79a7", "/", "/"),
    "detect+recover": ("#e69f00", "z", "z"),
    "control overhead": ("#aa4499", "%", "%"),
    "unallocated": ("grey37", "_", "_"),
    "down": ("grey62", ".", "."),
}
"""Per fate its colour, its mark, and its mark in ASCII, as in ``analysis_screen.FATE_STYLE``."""


def render_jobs(result: AnalysisResult, screen: Screen) -> str:
    """The whole screen where there are job logs and no traces."""
    from taut.render.index_screen import risk_part

    found, job = result.attempts, result.job
    assert found is not None
    words = [safe(job.name), count(found.jobs, "job"), count(found.attempts, "attempt")]
    words += [f"{duration(job.wall_ns)} from first start to last end"] if job.wall_ns else []
    head: list[ConsoleRenderable] = [
        Text(safe(result.verdict.text), style="bold"),
        Text(),
        Group(Text(" · ".join(words)), *partial_lines(job.partial)),
    ]
    signs = risk_part(result)
    return screen_text([*head, Text(), section(found, screen), *([Text(), signs] if signs else [])], screen)


def section(found: AttemptsResult, screen: Screen) -> ConsoleRenderable:
    """Which attempts there were, where their time went, and what it was worth."""
    few = found.jobs == 1 or (not found.worst and 0 < len(found.rows) <= ROWS)
    parts = [_attempts(found) if few else _jobs(found, screen), _ledger(found, screen), _besides(found)]
    shown = [part for part in parts if part is not None]
    return Group(*(x for i, part in enumerate(shown) for x in ([Text()] if i else []) + [part]))


def _when(ns: int | None) -> str:
    if ns is None:
        return "–"
    at = datetime.fromtimestamp(ns // 10**9, tz=UTC)
    return at.strftime("%m-%d %H:%M:%S")


def _attempts(found: AttemptsResult) -> ConsoleRenderable:
    """One line per attempt of the only job, or of few that were not restarted."""
    many = found.jobs > 1
    stepped = any(row.last_step is not None for row in found.rows)
    table = new_table(
        "job" if many else "attempt",
        ("ended", "left"),
        "started",
        "ran",
        *(["steps", "resumed at"] if stepped else []),
        "discarded",
    )
    for row in found.rows[-ROWS:]:
        ran = "–" if row.ran_ns is None else duration(row.ran_ns)
        traced = " traced" if row.attempt == found.traced_attempt else ""
        steps = [_span(row), "–" if row.resumed_step is None else f"{row.resumed_step:,}"] if stepped else []
        table.add_row(
            clipped(safe(row.job) if many else f"{row.attempt}{traced}", "bold"),
            clipped(safe(row.outcome or "not told")),
            _when(row.start_ns),
            ran,
            *steps,
            _discarded(row.fates),
        )
    more = f", the last {ROWS} of {found.attempts:,}" if found.attempts > ROWS else ""
    lines: list[ConsoleRenderable] = [heading(f"Attempts{more}"), Padding(table, (0, 0, 0, 1))]
    for row in found.rows[-ROWS:]:
        if row.reason and row.outcome != "completed":
            whose = safe(row.job) if many else f"attempt {row.attempt}"
            lines.append(Text(f" {whose}: {safe(row.reason)}", style="dim"))
    return Group(*lines)


def _span(row: AttemptRow) -> str:
    first, last = row.first_step, row.last_step
    return "–" if last is None else f"{last:,}" if first in (None, last) else f"{first:,}–{last:,}"


def _discarded(fates: Mapping[str, int] | None) -> str:
    if fates is None:
        return "–"
    known, bound = fates.get("discarded", 0), fates.get("discarded at most", 0)
    return f"≤ {duration(known + bound)}" if bound else duration(known) if known else ""


def _jobs(found: AttemptsResult, screen: Screen) -> ConsoleRenderable | None:
    """The restarted jobs that lost most."""
    if not found.worst:
        return None
    last_column: list[tuple[str, Side]] = [("last", "left")] if any(row.outcome for row in found.worst) else []
    table = new_table("attempts", "job", *last_column, found.unit or "job", "time", "discarded", "of it", "down")
    for row in found.worst[:ROWS]:
        share = row.discarded_rank_ns / max(row.held_rank_ns, 1)
        named = middle(safe(f"{row.job} {row.name or ''}".strip()), max(screen.width - FIGURES, 12))
        lost = ("≤ " if row.at_most else "") + duration(row.discarded_rank_ns)
        table.add_row(
            f"{row.attempts:>8}",
            clipped(named, "bold"),
            *([clipped(safe(row.outcome or "not told"))] if last_column else []),
            "–" if row.held is None else f"{row.held:,}",
            duration(row.held_rank_ns),
            lost,
            percent(share),
            duration(row.down_ns),
        )
    more = f", {min(ROWS, len(found.worst))} of {found.restarted_jobs:,}" if found.restarted_jobs > 1 else ""
    return Group(heading(f"Restarted jobs by what they discarded{more}"), Padding(table, (0, 0, 0, 1)))


def _ledger(found: AttemptsResult, screen: Screen) -> ConsoleRenderable | None:
    """All time from first start to last end by fate."""
    total = found.total_rank_ns
    if not total:
        return None
    entries = [entry for entry in found.entries if entry.rank_ns / total >= LEAST_FATE]
    priced = bool(found.currency)
    table = new_table("", "fate", "share", "time", *(["cost"] if priced else []), ("", "left"), header=False)
    for entry in entries:
        cost = [money(entry.money, found.currency)] if priced else []
        table.add_row(
            clipped(fate_mark(entry.fate, screen, STYLE) * 2, STYLE[entry.fate][0]),
            entry.fate,
            percent(entry.rank_ns / total),
            duration(entry.rank_ns),
            *cost,
            _held(entry),
        )
    lines: list[ConsoleRenderable] = [
        heading(_bill(found)),
        stacked_bar(entries, total, screen, STYLE),
        Padding(table, (0, 0, 0, 1)),
    ]
    return Group(*lines, *unclosed_lines(found.closes))


def _held(entry: AttemptEntry) -> str:
    """What of it held accelerators, where that is not all."""
    if entry.held_rank_ns == entry.rank_ns:
        return ""
    return f"{duration(entry.held_rank_ns)} held" if entry.held_rank_ns else "nothing held"


def _bill(found: AttemptsResult) -> str:
    words = [f"Where {duration(found.total_rank_ns)} of {found.unit or 'job'} time went, first start to last end"]
    words.append(f"{duration(found.held_rank_ns)} held")
    if found.currency:
        words.append(money(sum((Decimal(e.money) for e in found.entries if e.money is not None), Decimal(0)), found.currency))
    return " · ".join(words)


def _decided(who: str, cost: DecidedCost) -> str:
    """What a controller cost."""
    lost = ((cost.discarded_rank_ns, "discarded"), (cost.control_overhead_rank_ns, "control overhead"))
    parts = [f"{duration(ns)} {word}" for ns, word in lost if ns]
    return f"Decided by {safe(who)}: {' · '.join(parts) or 'nothing lost'}"


def _besides(found: AttemptsResult) -> ConsoleRenderable:
    """Outcomes, delays and steps."""
    lines = ["Outcomes: " + " · ".join(f"{n:,} {safe(word)}" for word, n in found.outcomes.items())]
    if len(by := found.discarded_by or {}) > 1:
        lines.append("Discarded: " + " · ".join(f"{duration(ns)} {safe(word)}" for word, ns in by.items()))
    lines += [_decided(who, cost) for who, cost in list((found.decided_by or {}).items())[:DECIDERS]]
    delays = []
    if found.queue_ns is not None:
        apart = f", {duration(found.cpu_queue_ns)} of it jobs without accelerators" if found.cpu_queue_ns else ""
        delays.append(f"{duration(found.queue_ns)} queued before the first start (burns nothing){apart}")
    if found.down_ns:
        delays.append(f"{duration(found.down_ns)} between attempts")
    if delays:
        lines.append("Delay: " + " · ".join(delays))
    steps = found.steps
    if steps:
        again = steps.replay_probability
        share = f" · replay probability {percent(again.value)}" if again else ""
        lines.append(f"Steps: {steps.discarded:,} of {steps.executed:,} executed were discarded{share}")
    return Text("\n".join(lines))
