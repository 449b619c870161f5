"""What a process of ``taut`` does when it is interrupted or told to end. Importing this changes nothing: ``listen`` does.

Imports only what Python has loaded anyway, because it is needed before anything else is imported.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # not from typing, which is not loaded yet
if TYPE_CHECKING:
    from types import FrameType, TracebackType

GRACE_S = 1.0
"""Signals this soon after the first are the same request: terminals and wrappers send them more than once."""
RETRY_S = 0.02
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "terminated"}
_asked: list[tuple[int, float]] = []
"""The first signal that asked to stop, and when."""

_held: list[bool] = []
"""One for every block of Held that is open."""
_late: list[bool] = []
"""Whether Stopped is to be raised when the last of them ends."""


class Stopped(BaseException):
    """The process was asked to stop. Not a KeyboardInterrupt, because libraries handle that in their own ways."""


def listen() -> None:
    """From here on SIGINT, SIGTERM and SIGHUP raise Stopped in the main thread, unless the caller has them ignored."""
    for number in WORDS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)
    signal.signal(signal.SIGALRM, _stop_again)
    sys.unraisablehook = _retry
    sys.excepthook = _last


def asked() -> int | None:
    """The signal that asked the process to stop, if one did."""
    return _asked[0][0] if _asked else None


def check() -> None:
    """Raise Stopped if a library has swallowed it."""
    if _asked:
        raise Stopped


def ignore() -> None:
    """Finish whatever is asked from here on: the work is done."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (*WORDS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


INTERRUPT = (int(signal.SIGINT),)
_set_mask = getattr(signal.pthread_sigmask, "__wrapped__", signal.pthread_sigmask)
"""Without making names of the numbers that it returns, which takes longer than all the rest."""


class Held:
    """A block in which Stopped is not raised; it is raised when the block ends. For steps that must not be torn apart.

    Processes that are started in it never hear SIGINT: a terminal sends it to them too, and they would answer with tracebacks.
    """

    def __enter__(self) -> None:
        """Hold."""
        _held.append(True)
        self._before = _set_mask(signal.SIG_BLOCK, INTERRUPT)

    def __exit__(self, *_: object) -> None:
        """Let go, and raise what was held."""
        _set_mask(signal.SIG_SETMASK, self._before)
        _held.pop()
        if _late and not _held:
            _late.clear()
            _end_workers()
            raise Stopped


def leave() -> None:
    """Say that the process was asked to stop, and end it with 128 and the number of the signal."""
    number = asked() or signal.SIGINT
    ignore()
    try:  # noqa: SIM105 (contextlib may not be loaded yet)
        os.write(2, f"taut: {WORDS[signal.Signals(number)]}\n".encode())
    except OSError:
        pass  # nobody is there to read it
    # Not sys.exit: what was interrupted half-way (imports, threads) may not end well.
    os._exit(128 + number)


def _stop(number: int, _: object) -> None:
    now = time.monotonic()
    if _asked:
        if now - _asked[0][1] > GRACE_S:
            os._exit(128 + number)  # asked again: not even cleaning up is waited for
        return
    _asked.append((number, now))
    if _held:
        _late.append(True)
        return
    _end_workers()
    raise Stopped


def _stop_again(number: int, frame: FrameType | None) -> None:
    if _held:
        _late.append(True)
        return
    while frame is not None:
        if frame.f_code is _retry.__code__:  # on a busy machine: raised here it would be lost for good
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
            return
        frame = frame.f_back
    raise Stopped


def _end_workers() -> None:
    """Worker processes would go on with their files, and be waited for."""
    multiprocessing = sys.modules.get("multiprocessing")
    for worker in multiprocessing.active_children() if multiprocessing else ():
        worker.kill()


def _retry(found: sys.UnraisableHookArgs) -> None:
    """Stopped was raised where it cannot be passed on (a destructor, a callback from C): raise it again a little later."""
    if isinstance(found.exc_value, Stopped):
        signal.setitimer(signal.ITIMER_REAL, RETRY_S)
    elif not _asked:
        sys.__unraisablehook__(found)


def _last(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Nobody caught it: the moment between the last handler and the end."""
    if _asked:
        leave()
    sys.__excepthook__(kind, error, trace)
