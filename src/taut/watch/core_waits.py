"""How long this thread was ready to run and had no core, by the account of Linux: what others on its host take from it.

Time that a quota of its own control group took is left out: that is this rank's, whoever set it.
"""

from __future__ import annotations

import os

QUEUED = "queued"
"""Verb of the stage that holds it: as long as it was in a step, at the step's end."""
LEAST_NS = 500_000
"""Less than this in a step is not told."""
EVERY_NS = 1_000_000_000
"""As often the control group is asked."""
ROOTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup")


class CoreWaits:
    """Asks for the thread that asks first, which is the one that ends steps."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._waited_ns, self._asked_ns = 0, 0
        self._before = 0, 0
        """Waited and throttled when the control group was last asked."""
        self._own = 1.0
        """Share of the waits that no quota explains."""

    def since_last(self, now_ns: int) -> int:
        """Nanoseconds since it was last asked; 0 where that is not known."""
        try:
            if self._file is None:
                self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
                self._waited_ns = self._read()
                self._before = self._waited_ns, throttled_ns()
            before, self._waited_ns = self._waited_ns, self._read()
        except (OSError, ValueError, IndexError):
            return 0
        if now_ns - self._asked_ns > EVERY_NS:
            self._asked_ns = now_ns
            self._ask()
        return int((self._waited_ns - before) * self._own)

    def _read(self) -> int:
        assert self._file is not None
        return int(os.pread(self._file, 64, 0).split()[1])

    def _ask(self) -> None:
        now = self._waited_ns, throttled_ns()
        waited, throttled = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        # A quota that ends may have been counted for another control group: less than nothing is nothing.
        self._own = max(1 - max(throttled, 0) / waited, 0.0) if waited > 0 else 1.0

    def close(self) -> None:
        """Ask no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def throttled_ns() -> int:
    """Time that the quota of this process's control group took; 0 where there is none, or nobody tells."""
    try:
        with open("/proc/self/cgroup", encoding="ascii", errors="replace") as file:
            paths = [(kinds, path) for _, kinds, path in (line.rstrip("\n").split(":", 2) for line in file)]
    except (OSError, ValueError):
        return 0
    for kinds, path in paths:
        if kinds and "cpu" not in kinds.split(","):
            continue
        for root in ROOTS[0 if kinds else 1 :]:
            # In a container the path may be that of its host: its own control group is then the root.
            for folder in (root + path.rstrip("/"), root):
                told = _throttled_in(f"{folder}/cpu.stat")
                if told is not None:
                    return told
    return 0


def _throttled_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            told = dict(line.split(maxsplit=1) for line in file if " " in line)
    except OSError:
        return None
    if "throttled_usec" in told:
        return int(told["throttled_usec"]) * 1000
    return int(told["throttled_time"]) if "throttled_time" in told else None
