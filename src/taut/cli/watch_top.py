"""``taut watch top``: jobs that run, on a terminal."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.cli.common import print_object, write_out
from taut.core.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from taut.result.types import LiveState, WatchedJob

FOLDER = Path("taut-runs") / "watch"
EVERY_S = 1.0
OLD_NS = 10_000_000_000
"""A collector writes every second: what is older says so."""


@click.command(short_help="Jobs that run, on a terminal.")
@click.argument("folder", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--job", "name", metavar="J", help="The job to show; without it the one last heard.")
@click.option("--once", is_flag=True, help="Print once and end, as it does where standard output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print what the collector sees of all jobs as one JSON object, once.")
def top(folder: Path, name: str | None, once: bool, as_json: bool) -> None:
    """Show what a collector sees, every second: verdict, open findings and what they cost an hour, steps, the latest ranks.

    FOLDER is where the collector keeps its findings (taut watch collect --keep FOLDER; default taut-runs/watch). q ends it.

    \b
      taut watch top
      taut watch top --job 4711 --once
      taut watch top --json
    """
    state = _state(folder)
    job = _job(state, name)
    if as_json:
        print_object(state)
    elif once or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        text, styled = _screen(state, job, None)
        write_out(text, color=styled)
    else:
        _live(folder, name, state)


def _state(folder: Path) -> LiveState:
    from taut.watch.kept import live_state

    found = live_state(folder)
    if found is None:
        how = f"start one: taut watch collect{'' if folder == FOLDER else f' --keep {folder}'} (docs/watch.md)"
        raise InputRefused(folder, "no collector has written here what it sees", how)
    return found


def _job(state: LiveState, name: str | None) -> WatchedJob | None:
    """The job to show; None where none is heard."""
    if name is None:
        return state.jobs[0] if state.jobs else None
    found = next((job for job in state.jobs if job.job == name), None)
    if found is None:
        from taut.core.rank_words import listed

        raise UsageError(f"--job {name}: not heard; heard are: {listed([job.job for job in state.jobs]) or 'none'}")
    return found


def _screen(state: LiveState, job: WatchedJob | None, lines: int | None) -> tuple[str, bool]:
    """What is shown, and whether it is styled."""
    from taut.render.terminal import Screen
    from taut.render.watch_screen import render_top

    silent_ns, screen = time.time_ns() - state.at_ns, Screen.of(sys.stdout)
    return render_top(state, job, screen, silent_ns if silent_ns > OLD_NS else None, lines), screen.styled


def _live(folder: Path, name: str | None, state: LiveState) -> None:
    """Show it anew every second, until q is pressed; a job that is gone is shown as it was."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from taut.watch.kept import live_state

    job = _job(state, name)
    shown = Live(console=Console(), screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with _keys() as pressed, shown as live:
        while True:
            text, _ = _screen(state, job, shutil.get_terminal_size().lines)
            live.update(Text.from_ansi(text.rstrip("\n"), no_wrap=True, overflow="crop"), refresh=True)
            if pressed(EVERY_S) in ("q", "Q", "\x04"):
                return
            state = live_state(folder) or state
            job = _again(state, job, name)


def _again(state: LiveState, shown: WatchedJob | None, name: str | None) -> WatchedJob | None:
    """The job that was shown, as it is now: jobs take turns in being the one last heard."""
    same = next((job for job in state.jobs if shown is not None and job.job == shown.job), None)
    return same or (_job(state, None) if name is None else shown)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits so many seconds for a key, and returns it; where standard input is no terminal, none ever comes."""
    if not sys.stdin.isatty():
        yield lambda seconds: select.select([], [], [], seconds) and ""
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 1).decode("latin-1") if ready else ""

    try:
        tty.setcbreak(terminal)
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
