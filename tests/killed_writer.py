"""Kill a writer of an audit log at its first system call, at its second, and so on, and count what is lost.

    python tests/killed_writer.py FOLDER [--every N]

A child appends one record and says so; its parent steps it from system call to system call (ptrace) and kills it (SIGKILL)
before the k-th, of a log that goes on and of one that begins: among them are all writes, syncs, truncations and removals of
the database and its journal. Afterwards the log must verify, hold every record that was acknowledged, and take another.
Prints counts as JSON; exits 77 where nobody may trace.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import rfc8785  # noqa: F401  (imported before the fork, so that system calls of the import are not counted)

from taut.audit.log import open_log
from taut.audit.trust import author_key
from taut.audit.verify import verify
from taut.core.errors import AuditError

PTRACE_TRACEME, PTRACE_SYSCALL = 0, 24
NOT_HERE = 77
NAMES = {1: "write", 18: "pwrite64", 74: "fsync", 75: "fdatasync", 77: "ftruncate", 87: "unlink", 82: "rename"}
"""Of x86-64: what the counts are sorted by; elsewhere all are "other"."""
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def append(path: Path, told: int) -> None:
    """What the child does: one record, acknowledged as a verb acknowledges it."""
    if libc.ptrace(PTRACE_TRACEME, 0, None, None) != 0:
        os._exit(NOT_HERE)
    os.kill(os.getpid(), signal.SIGSTOP)
    with open_log(path, "1", create=True) as log:
        index = log.append("verb", {"text": "x" * 700}).index
        os.write(told, b"%d\n" % index)
    os._exit(0)


def call_at(child: int) -> str:
    """The system call that a stopped child is about to make."""
    if os.uname().machine != "x86_64":
        return "other"
    registers = (ctypes.c_ulonglong * 27)()
    libc.ptrace(12, child, None, ctypes.cast(registers, ctypes.c_void_p))
    return NAMES.get(registers[15], "other")


def killed_before(path: Path, k: int) -> tuple[str | None, int | None]:
    """(system call before which the child died, record that it acknowledged); no call if it ended first."""
    reader, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        append(path, told)
    os.close(told)
    call = stepped(child, k)
    with os.fdopen(reader) as stream:
        lines = stream.read().split()
    return call, int(lines[0]) if lines else None


def stepped(child: int, k: int) -> str | None:
    """Let a child make k system calls and kill it before the next; None if it ended before."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        print("nobody may trace a process here")
        sys.exit(NOT_HERE)
    for _ in range(2 * k + 1):  # a call stops twice: before it, and after
        if libc.ptrace(PTRACE_SYSCALL, child, None, None) != 0:
            break
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return None
    call = call_at(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="kill at every N-th system call only")
    asked = parser.parse_args()
    author_key()  # made before the fork, so that system calls of its making are not counted
    counts: Counter[str] = Counter({"kills": 0, "lost": 0, "damaged": 0, "unwritable": 0})
    calls: Counter[str] = Counter()
    for fresh in (False, True):
        most, k = -1, 0
        while True:
            path = asked.folder / (f"new-{k}.db" if fresh else "audit.db")
            call, told = killed_before(path, k)
            most = max(-1 if fresh else most, -1 if told is None else told)
            judge(path, most, counts)
            if call is None:
                break
            counts["kills"] += 1
            calls[call] += 1
            k += asked.every
    print(json.dumps({**counts, "calls": dict(calls)}))


def judge(path: Path, most: int, counts: Counter[str]) -> None:
    """Count what is wrong with a log whose writer was killed: records up to ``most`` were acknowledged."""
    try:
        found = verify(path)
        counts["damaged"] += not found.ok
        counts["lost"] += found.kept <= most
    except AuditError:  # not there, or rolled back to an empty file: fine where nothing was acknowledged
        counts["lost"] += most >= 0
    try:
        with open_log(path, "1", create=True) as log:
            log.append("verb", {"next": True})
    except Exception:
        counts["unwritable"] += 1


if __name__ == "__main__":
    main()
