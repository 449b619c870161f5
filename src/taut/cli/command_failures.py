"""Every failure of a command is one line on stderr and an exit code of the design."""

from __future__ import annotations

import importlib
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn

import click

from taut.cli.common import ARGUMENTS, FAILED, INTERRUPTED, USAGE, forget_output, reason, say
from taut.core import memory, signals
from taut.core.errors import TautError

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _Wrapped(Exception):
    """An error that click would handle in its own way: an input that ends early (as an interrupt), a reader who left (as 1)."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def _wrapped() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise _Wrapped(error) from error


class Commands(click.Group):
    """A group whose every failure is one line on stderr and an exit code of the design.

    A command that has a file of its own is imported when it is asked for.
    """

    _files: Mapping[str, str] = MappingProxyType({})
    _made: Callable[[click.Command], object]
    """Where commands are that have a file of their own, and what is done to one that was imported."""

    def elsewhere(self, files: Mapping[str, str], made: Callable[[click.Command], object]) -> None:
        """Say in which module each of some commands is, under its own name, and what is done to one that was imported."""
        self._files, self._made = files, made

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, imported or not."""
        return sorted({*self.commands, *self._files})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name in self._files and cmd_name not in self.commands:
            command: click.Command = getattr(importlib.import_module(self._files[cmd_name]), cmd_name)
            self._made(command)
            self.add_command(command)
        return super().get_command(ctx, cmd_name)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Parse; ``--help`` prints here."""
        given = list(args)  # parsing takes it apart
        with _wrapped():
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[ARGUMENTS] = given
        return context

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb, unless it could only crash."""
        _enough_memory()
        with _wrapped():
            return super().invoke(ctx)

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,  # noqa: ANN401
    ) -> object:
        """Run, and exit as the design says."""
        given = list(sys.argv[1:] if args is None else args)
        if any(not _is_text(arg) for arg in given):
            _end("an argument that no shell can give: it holds half a character", USAGE)
        _keep_memory()
        for name in ONE_THREAD:
            # Idle worker threads of linear algebra that taut does not use would cost start-up time.
            os.environ.setdefault(name, "1")
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(USAGE)
        except Exception as error:
            _fail(error.error if isinstance(error, _Wrapped) else error)
        sys.exit(code if isinstance(code, int) else 0)


def _is_text(arg: str) -> bool:
    try:
        os.fsencode(arg)
    except UnicodeEncodeError:
        return False
    return True


def _fail(error: Exception) -> NoReturn:
    if isinstance(error, click.Abort):
        _end("interrupted", INTERRUPTED)
    if signals.asked():  # whatever a library has made of it
        raise signals.Stopped
    if isinstance(error, BrokenPipeError) and _reader_left():
        forget_output()
        sys.exit(0)
    if isinstance(error, click.ClickException):
        _end(_usage(error), error.exit_code)
    if isinstance(error, TautError):
        _end(str(error), error.exit_code)
    if os.environ.get("TAUT_DEBUG"):
        raise error
    if memory.is_short(error):
        _end(_too_little(error), FAILED)
    if isinstance(error, OSError) and error.errno:
        _end(f"{reason(error)} (TAUT_DEBUG=1 shows the traceback)", FAILED)
    _end(f"{type(error).__name__}: {error} (TAUT_DEBUG=1 shows the traceback)", FAILED)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return " ".join(error.format_message().split()) + (
        f" (see: {' '.join(context.command_path.split())} --help)" if context else ""
    )


def _end(message: str, code: int) -> NoReturn:
    say(f"taut: {message}")
    sys.exit(code)


def _reader_left() -> bool:
    """Whether nobody reads standard output any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))
    except (OSError, ValueError):
        return False


def _too_little(error: Exception) -> str:
    limit = memory.limit_bytes()
    where = "give it more" if limit is None else f"raise the limit of {limit >> 20:,} MB (ulimit -v)"
    detail = f" ({error})" if isinstance(error, MemoryError) and str(error) else ""
    return f"not enough memory{detail}; {where}, or fewer traces, steps or ranks at a time"


def _enough_memory() -> None:
    """Refuse a limit at which C libraries end the process without a word."""
    limit, least = memory.limit_bytes(), memory.LEAST_BYTES
    if limit is not None and limit < least:
        limited = f"the address space is limited to {limit >> 20:,} MB, and taut needs {least >> 20:,} MB"
        raise TautError(f"not enough memory: {limited}; raise the limit (ulimit -v {least >> 10})")


def _keep_memory() -> None:
    """Have the C library keep freed memory: handing large arrays back and forth costs a third of a big job's time."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt  # of threshold for mappings, of trimming, padding, number of arenas
        for option, value in ((-3, 1 << 30), (-1, (1 << 31) - 1), (-2, 64 << 20), (-8, 1)):
            mallopt(option, value)
    except (OSError, AttributeError):
        pass  # another C library: only slower
