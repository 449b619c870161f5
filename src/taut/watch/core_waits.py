"""How long this thread was ready to run and had no core, by the account of Linux: what others on its host take from it.

Where a quota of its own control group takes time, nothing is told: that time is this rank's, whoever set the quota.
"""

from __future__ import annotations

import os

QUEUED = "queued"
"""Verb of the stage that holds it: as long as it was in a step, at the step's end."""
LEAST_NS = 500_000
"""Less than this in a step is not told."""
EVERY_NS = 1_000_000_000
"""As often the control group is asked, at most."""
FOUND_EVERY_NS = 60_000_000_000
"""As often it is looked which one that is."""
MOST_BYTES = 1 << 14
"""Of a file of the kernel."""
ROOTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup")


class CoreWaits:
    """Asks for the thread that asks first, which is the one that ends steps."""

    def __init__(self) -> None:
        self._file = -1
        self._waited_ns, self._asked_ns = 0, 0
        self._throttled_ns, self._told_in, self._found_ns = 0, "", 0
        self._own = 1
        """Whether waits are told: 1 or 0."""

    def since_last(self, now_ns: int) -> int:
        """Nanoseconds since it was last asked; 0 where they are few, or not known."""
        try:
            if self._file < 0:
                self._begin()
            before, self._waited_ns = self._waited_ns, int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        waited = self._waited_ns - before
        if waited < LEAST_NS:
            return 0
        if now_ns - self._asked_ns > EVERY_NS:  # only now: it takes longer than all else that a step takes of ours
            self._asked_ns = now_ns
            self._ask(now_ns)
        return waited * self._own

    def _begin(self) -> None:
        self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._waited_ns = int(os.pread(self._file, 64, 0).split()[1])
        self._told_in = told_in()
        self._throttled_ns = throttled_ns(self._told_in)

    def _ask(self, now_ns: int) -> None:
        if now_ns - self._found_ns > FOUND_EVERY_NS:
            self._found_ns, self._told_in = now_ns, told_in()
        before, self._throttled_ns = self._throttled_ns, throttled_ns(self._told_in)
        # Kernels differ in which part of a throttled thread's time is a wait: under a quota that bites, none is told.
        self._own = 0 if self._throttled_ns > before else 1

    def close(self) -> None:
        """Ask no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def told_in() -> str:
    """The file that tells what the quota of this process's control group takes; none where there is none, or nobody tells."""
    try:
        paths = [(kinds, path) for _, kinds, path in (line.split(":", 2) for line in _lines("/proc/self/cgroup"))]
    except (OSError, ValueError):
        return ""
    for kinds, path in paths:
        if kinds and "cpu" not in kinds.split(","):
            continue
        for root in ROOTS[0 if kinds else 1 :]:
            # In a container the path may be that of its host: its own control group is then the root.
            for folder in (root + path.rstrip("/"), root):
                if throttled_ns(f"{folder}/cpu.stat") >= 0:
                    return f"{folder}/cpu.stat"
    return ""


def throttled_ns(path: str) -> int:
    """What a quota took, by the file that tells it; -1 where it does not."""
    try:
        told = dict(line.split(maxsplit=1) for line in _lines(path) if " " in line) if path else {}
    except OSError:
        return -1
    if "throttled_usec" in told:
        return int(told["throttled_usec"]) * 1000
    return int(told.get("throttled_time", -1))


def _lines(path: str) -> list[str]:
    """Of a small file of the kernel; a file object of Python would take longer than the kernel does."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, MOST_BYTES).decode("ascii", "replace").splitlines()
    finally:
        os.close(file)
