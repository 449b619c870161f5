"""What the verbs share: a line on stderr, the stage at work, one JSON object on stdout, a screen, a result that is kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from msgspec import Struct, field

from taut.core import memory, signals
from taut.core.errors import TautError
from taut.render.text import plain, safe

if TYPE_CHECKING:
    from taut.render.terminal import Screen

PATIENCE_S = 5.0
"""Off a terminal, stages are named only after this long."""
FAILED, USAGE, FINDINGS, INTERRUPTED = 1, 2, 3, 130
LONGEST = 600
"""Characters of a line on stderr: more is a value that somebody made long."""
ARGUMENTS = "taut.arguments"
"""Key of the context's notes: the words of the command line."""
Result = TypeVar("Result")


def say(message: str) -> None:
    """One line on stderr, whatever the message holds; the middle of a very long one is left out."""
    line = safe(message)
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    encoding = (getattr(sys.stderr, "encoding", None) or "ascii").lower()
    with suppress(OSError):  # nobody reads it
        click.echo(line if encoding.startswith("utf") else plain(line), err=True)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Names the stage at work: a spinner on a terminal, a line where it takes long, nothing if quiet."""
    with _teller(quiet) as tell:

        def stage(name: str) -> None:
            signals.check()
            tell(name)

        yield stage


@contextmanager
def _teller(quiet: bool) -> Iterator[Callable[[str], None]]:
    if quiet:
        yield lambda stage: None
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        with Console(stderr=True).status("reading …") as status:
            yield lambda stage: status.update(f"{stage} …")
    else:
        yield _Log()


class _Log:
    """Stages as lines, off a terminal: none in the first seconds, then each stage once and a long one now and then."""

    def __init__(self) -> None:
        self._shown, self._quiet_until = "", time.monotonic() + PATIENCE_S

    def __call__(self, stage: str) -> None:
        now, word = time.monotonic(), stage.split(" ", 1)[0]
        if now > self._quiet_until and (word != self._shown or now > self._quiet_until + PATIENCE_S):
            self._shown, self._quiet_until = word, now
            say(f"{stage} …")


def announce_stdin(inputs: Sequence[str]) -> None:
    """Say that taut waits where nobody sends anything: a terminal as standard input."""
    if "-" in inputs and sys.stdin.isatty():
        say("waiting for standard input; end it with Ctrl-D")


def print_object(result: object) -> None:
    """A result as one JSON object in UTF-8."""
    from taut.core.json_text import json_text

    data = f"{json_text(result)}\n".encode()
    write_out(data)
    if (done := _watched.get()) is not None:
        import hashlib

        done.printed = hashlib.sha256(data).hexdigest()


def show(render: Callable[[Result, Screen], str], result: Result) -> None:
    """What a renderer makes of a result, on this screen."""
    from taut.render.terminal import Screen

    screen = Screen.of(sys.stdout)
    write_out(render(result, screen), color=screen.styled)


def write_out(data: str | bytes, color: bool | None = None) -> None:
    """Data on standard output. That a reader leaves early is no error; that there is no room for it is one."""
    try:
        click.echo(data, nl=False, color=color)
    except BrokenPipeError:
        forget_output()
    except OSError as error:
        forget_output()
        raise TautError(f"standard output: cannot be written ({error.strerror}); send it elsewhere") from None


def forget_output() -> None:
    """What is still to be printed goes nowhere."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def shown(show_it: Callable[[], None]) -> Exception | None:
    """Print an answer; the error if that failed, to be raised once the answer is kept."""
    try:
        show_it()
    except Exception as error:
        return error
    return None


def shown_and_kept(show_it: Callable[[], None], save: Callable[[], Path] | None, what: str, remedy: str, quiet: bool) -> None:
    """Print an answer, then keep it where that is asked for: what fails is reported once the rest is done."""
    lost = shown(show_it)
    if save is not None:
        path = kept(save, what, remedy)
        if path is None:
            click.get_current_context().exit(FAILED)
        if not quiet:
            say(f"written: {path}")
    if lost is not None:
        raise lost


class Watched(Struct):
    """What a verb did, for whoever watches it."""

    kept: list[Path] = field(default_factory=list)
    """Where answers were kept."""
    printed: str | None = None
    """SHA-256 of the JSON object on standard output; None of screens, which differ between terminals."""


_watched: ContextVar[Watched | None] = ContextVar("watched verb", default=None)


@contextmanager
def watched() -> Iterator[Watched]:
    """Collect where answers are kept in this block."""
    done = Watched()
    token = _watched.set(done)
    try:
        yield done
    finally:
        _watched.reset(token)


def kept(save: Callable[[], Path], what: str, remedy: str) -> Path | None:
    """Where an answer was kept, or None and a line that says why not: what is printed is not lost with it."""
    try:
        path = save()
        if (done := _watched.get()) is not None:
            done.kept.append(path)
        return path
    except Exception as error:
        if os.environ.get("TAUT_DEBUG"):
            raise
        signals.check()
        message = str(error) if isinstance(error, TautError) else f"{reason(error)}; {remedy}"
        say(f"taut: {what} was not written: {message}")
        return None


def reason(error: Exception) -> str:
    """Why something could not be written or read, in a few words."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) + (f" ({os.fspath(error.filename)!s})" if error.filename else "")
    return "not enough memory" if memory.is_short(error) else f"{type(error).__name__}: {error}"
