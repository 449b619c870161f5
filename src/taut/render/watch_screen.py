"""A job that runs on a terminal, in the manner of ``top``: the verdict, what is open and costs, the step, the latest ranks."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from taut.core.rank_words import listed, short_host
from taut.render.terminal import CLASS_STYLE, Screen, clipped, heading, screen_text
from taut.render.text import UNKNOWN, count, duration, middle, money, safe, three
from taut.result.types import LiveFinding, LiveState, WatchedJob, WatchedRank

VERDICT, FINDINGS = 5, 6
"""Lines of each at most."""
EXPLAINED = 2
"""Findings of which is said why, and what to do."""
LONGEST_JOB = 32
"""Characters of a job's name."""
HOST_WIDTH = 24
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
FULL = 1.5
"""Bars reach from the shortest step shown to this many times it, or to the longest: jitter is not to look like a mountain."""
REGIME_STYLE = {"stable": "green", "marginal": "yellow", "unstable": "red"}
STATE_STYLE = {"heard": "", "lost": "bold red", "ended": "dim"}


def render_top(
    state: LiveState, job: WatchedJob | None, screen: Screen, silent_ns: int | None = None, lines: int | None = None
) -> str:
    """The screen of ``taut watch top`` about one job, in so many lines at most.

    ``silent_ns`` says for how long nothing was written, where that is too long.
    """
    parts = [*_silence(state, silent_ns), *([_nothing(state)] if job is None else _job(job, state, screen))]
    if job is not None and job.ranks:
        above = screen_text(parts, screen).count("\n")
        room = len(job.ranks) if lines is None else max(lines - above - 2, 0)
        parts += [_ranks(job, job.ranks[:room])] if room else []
    text = screen_text(parts, screen)
    return text if lines is None else "".join(text.splitlines(keepends=True)[:lines])


def _silence(state: LiveState, silent_ns: int | None) -> list[ConsoleRenderable]:
    if silent_ns is None:
        return []
    since = f"nothing is written since {_clock(state.at_ns)}, {duration(silent_ns)} ago"
    return [Text(f"{since}: the collector ended, is busy, or cannot write there", style="bold reverse")]


def _nothing(state: LiveState) -> Text:
    how = "TAUT_WATCH=HOST:PORT and taut.watch.start() in the job (docs/watch.md)"
    return Text(f"no job is heard, since {_clock(state.since_ns)}; {how}")


def _job(job: WatchedJob, state: LiveState, screen: Screen) -> list[ConsoleRenderable]:
    said, most = f"{_name(job.job)}: {safe(job.verdict)}", VERDICT * screen.width
    verdict = said if len(said) <= most else f"{said[: most - 1]}…"
    style = CLASS_STYLE.get(job.kind, "bold")
    return [
        Text(verdict, style=style),
        _about(job, state),
        _steps(job, screen),
        _regime(job),
        *_others(job, state),
        Text(),
        *_findings(job),
    ]


def _about(job: WatchedJob, state: LiveState) -> Text:
    ranks = [f"{job.heard:,} of {count(job.world or job.heard + job.lost + job.ended, 'rank')} heard"]
    ranks += [f"{number:,} {word}" for number, word in ((job.lost, "lost"), (job.ended, "ended")) if number]
    lost = sum(number for name, number in job.not_received.items() if name != "faults")
    ranks += [f"{count(lost, 'event')} lost"] if lost else []
    return clipped(f"{', '.join(ranks)} · seen {_clock(state.at_ns)}", "dim")


def _steps(job: WatchedJob, screen: Screen) -> Text:
    if not job.steps_ns:
        return clipped("step –")
    number = f" {job.last_step:,}" if job.last_step is not None else ""
    head = f"step{number}  {duration(job.step_ns)}  "
    shown = job.steps_ns[-(screen.width - len(head)) :] if screen.width > len(head) else []
    return clipped(head).append(_bars(shown, BARS if screen.unicode else PLAIN_BARS), style="cyan")


def _bars(values: list[int], bars: str) -> str:
    """A bar for each value, the lowest the shortest."""
    low, high = min(values, default=0), max(values, default=0)
    full = max(high - low, (FULL - 1) * low, 1)
    return "".join(bars[min(round((value - low) / full * (len(bars) - 1)), len(bars) - 1)] for value in values)


def _regime(job: WatchedJob) -> Text:
    if job.regime is None:
        return clipped("regime – (after the first analysis, within minutes)", "dim")
    text = clipped("regime ").append(safe(job.regime), style=REGIME_STYLE.get(job.regime, ""))
    if job.reserve is None:
        return text.append(", reserve –")
    ends = f" ({three(job.reserve.lo)} to {three(job.reserve.hi)})" if job.reserve.lo is not None and job.reserve.hi else ""
    return text.append(f", reserve {three(job.reserve.value)}{ends}: jitter may grow by this factor")


def _others(job: WatchedJob, state: LiveState) -> list[ConsoleRenderable]:
    others = [_name(one.job) for one in state.jobs if one is not job]
    return [clipped(f"also heard: {listed(others)} (--job NAME)", "dim")] if others else []


def _findings(job: WatchedJob) -> list[ConsoleRenderable]:
    if not job.findings:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, right in (("finding", False), ("where", False), ("since step", True), ("told", False), ("an hour", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    for one in job.findings[:FINDINGS]:
        since = f"{one.since_step:,}" if one.since_step is not None else UNKNOWN
        cost = money(one.money_per_hour, one.currency)
        table.add_row(clipped(safe(one.mode), "bold"), clipped(_place(one)), since, _clock(one.at_ns), cost)
    why = [Padding(Text(safe(one.text), style="dim"), (0, 0, 0, 1)) for one in job.findings[:EXPLAINED]]
    more = len(job.findings) - FINDINGS
    rest = [clipped(f" and {count(more, 'finding')} more", "dim")] if more > 0 else []
    return [heading("Open findings"), Padding(table, (0, 0, 0, 1)), *rest, *why, Text()]


def _place(one: LiveFinding) -> str:
    hosts = listed(list(dict.fromkeys(_host(host) for host in one.hosts if host)))
    if one.links:
        return ", ".join(filter(None, [f"link {safe(listed(one.links))}", hosts]))
    if not one.ranks:
        return "all ranks"
    return ", ".join(filter(None, [f"rank {listed([str(rank) for rank in one.ranks])}", hosts]))


def _ranks(job: WatchedJob, shown: list[WatchedRank]) -> ConsoleRenderable:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("rank", "host", "GPU", "late", "busy", "loader", "state", "dropped"):
        left = name in ("host", "state")
        table.add_column(name, justify="left" if left else "right", no_wrap=True, overflow="ellipsis")
    for one in shown:
        table.add_row(
            str(one.rank),
            _host(one.host) if one.host else UNKNOWN,
            UNKNOWN if one.gpu is None else str(one.gpu),
            duration(one.late_ns),
            duration(one.busy_ns),
            duration(one.loader_ns),
            Text(one.state, STATE_STYLE[one.state]),
            f"{one.dropped:,}",
        )
    known = job.heard + job.lost + job.ended
    part = f"{len(shown):,} of {known:,} ranks" if len(shown) < known else "Ranks"
    return Group(heading(f"{part}, the latest first"), Padding(table, (0, 0, 0, 1)))


def _host(host: str) -> str:
    return middle(safe(short_host(host)), HOST_WIDTH)


def _name(job: str) -> str:
    return middle(safe(job), LONGEST_JOB)


def _clock(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%H:%M:%S UTC")
