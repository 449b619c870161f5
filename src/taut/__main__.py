"""The process of ``taut``: ``python -m taut``, and the command that is installed."""

from __future__ import annotations

import os
import sys

from taut.core import signals

TYPE_CHECKING = False  # not from typing, see taut/__init__.py
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and end the process: whatever happens, with an exit code and at most one line of error."""
    try:
        signals.listen()
        code = _run()
        signals.ignore()
    except signals.Stopped:
        signals.leave()
    _end(code)


def _run() -> int:
    """The exit code of the command line."""
    try:
        _open_streams()
        from taut.core import memory

        memory.fit()
        with memory.loading():
            from taut.cli import main as commands
        commands(prog_name="taut")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except MemoryError:
        os.write(2, b"taut: not enough memory to start; raise the limit (ulimit -v)\n")
    return 1


def _open_streams() -> None:
    """Standard streams that the caller has closed go nowhere; left closed, the next file opened would be standard output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif name == "stdout" and not hasattr(stream.buffer, "raw"):
            # Unbuffered (python -u): what does not fit on a full disk would be dropped without an error.
            sys.stdout = open(number, "w", encoding=stream.encoding, errors=stream.errors, closefd=False)  # noqa: SIM115


def _end(code: int) -> NoReturn:
    """End at once: libraries that loaded only half for want of memory crash when Python takes them down."""
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            pass  # the reader has left
        except (OSError, ValueError):
            code = code or 1
    if sys.gettrace() or sys.getprofile():
        raise SystemExit(code)
    os._exit(code)


if __name__ == "__main__":
    main()
