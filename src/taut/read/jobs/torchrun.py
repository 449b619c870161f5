"""What ``torchrun`` (torchelastic) says on standard error: workers that failed, restarts, and that none is left.

At its default level it logs failures only: an attempt begins when the one before failed. Where it logs more, the lines
that start the workers, and the restarts that are left, are used.
"""

from __future__ import annotations

import re

from taut.core.tables import NULL
from taut.read.jobs.job_words import CANCELLED, COMPLETED, FAILED
from taut.read.jobs.log_lines import Progress

LAUNCHER = re.compile(
    rb"torch[./]distributed[./](?:run|elastic|launcher)|failed \(exitcode: -?\d|\bft_launcher\b|torchelastic"
    rb"|orker group FAILED[.,] |Rendezvous'ing worker group|Rendezvous complete for workers"
)
"""What its logs hold."""
_LITERALS = (b"distributed", b"exitcode: ", b"ft_launcher", b"torchelastic", b"orker group", b"for workers")
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,6}) \(pid: (\d{1,9})\)")
_AGENT = re.compile(r"^(\d{1,7}: |\S{1,64}: )?.{0,40}?\.\d{3,9} (\d{1,9}) torch[./]distributed")
_LEFT = re.compile(r"[Ww]orker group \w+[.,][^/]{0,60}?(\d{1,6})/(\d{1,6}) attempts left")
_COUNT = re.compile(r"^.{0,200}?\brestart_count\s?=\s?(\d{1,6})\b")
_JOINED = re.compile(r"Detected (\d{1,6}) new nodes? .{0,80}will restart worker group")
_FINISHED = re.compile(r"orker group successfully finished|ll workers successfully finished|WorkerState\.SUCCEEDED")
_STARTS = re.compile(r"\] (?:Starting|[Rr]endezvous'ing) worker group")
_MOST = re.compile(r"\bmax_restarts\s*[:=]\s*(\d{1,6})")
_WORKERS = re.compile(r"\bnproc_per_node\s*[:=]\s*(\d{1,6})")
_NODES = re.compile(r"\bmax_nodes\s*[:=]\s*(\d{1,6})")
_SIGNAL = re.compile(r"Received (?:Signals\.)?(\w+) death signal")
_GAVE_UP = re.compile(r"\bChildFailedError\b")


_ANY = (
    "exitcode", "orker group", "restart_count", "death signal", "ChildFailedError", "max_restarts", "nproc_per_node",
    "max_nodes", "successfully finished",
)  # fmt: skip
"""What a line of interest holds: most hold nothing, and are passed over with a look."""


def has_launcher(data: bytes) -> bool:
    """Whether a log holds lines of the launcher; plain words first, which are found much faster."""
    return any(word in data for word in _LITERALS) and LAUNCHER.search(data) is not None


class Launcher:
    """The lines of the launcher; several agents (one a node) fail together."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.failures: dict[str, int] = {}
        """Attempts that each agent saw fail."""
        self.failed = 0
        self.told: set[str] = set()
        """Agents that named the worker that failed, and have yet to say how many restarts are left."""
        self.count = NULL
        """The restarts that the launcher counts, and whether it began an attempt since."""
        self.began = True
        self.nproc = self.nodes = NULL

    def read(self, line: str) -> bool:
        """Whether the line was one of the launcher's and is used."""
        if not any(map(line.__contains__, _ANY)):
            return False
        progress = self.progress
        if found := _FAILED.search(line):
            who = _agent(line)
            self.told.add(who)
            self._fail(who, f"local rank {found[2]} exited with {found[1]}")
        elif found := _LEFT.search(line):
            self._left(_agent(line), found)
        elif found := _COUNT.match(line):
            self._counted(int(found[1]))
        elif found := _JOINED.search(line):
            progress.sign_of_life()
            progress.close(CANCELLED, f"the launcher restarts its workers for {found[1]} new nodes", progress.now_ns)
        elif _STARTS.search(line):
            self._start()
        elif _FINISHED.search(line):
            self._finish()
        elif (found := _SIGNAL.search(line)) and not progress.current.over:
            progress.sign_of_life()
            progress.close(CANCELLED, f"the launcher received {found[1]}", progress.now_ns)
        elif _GAVE_UP.search(line) and self.failed and progress.current.over:
            progress.gave_up = True
        else:
            self._configured(line)
            return False
        return True

    def _fail(self, who: str, left: str) -> None:
        self.failures[who] = self.failures.get(who, 0) + 1
        if self.failures[who] <= self.failed:
            return  # another node logs the same failure
        self.failed = self.failures[who]
        progress = self.progress
        if progress.current.over:
            # Workers are started again at once.
            progress.restart(progress.current.end_ns, held=1)
        why, text, at = progress.why, progress.error, progress.now_ns
        progress.sign_of_life()
        progress.close(why or FAILED, f"{text[:140]} ({left})" if text and left else text or left, at)
        self.began = False

    def _left(self, who: str, found: re.Match[str]) -> None:
        """The workers failed, and so many restarts were left; which of them failed may have been said before."""
        if who not in self.told:
            self._fail(who, "")
        self.told.discard(who)
        self.progress.most_restarts = int(found[2])
        if self.progress.current.over:
            self.progress.current.restarts_left = int(found[1])

    def _counted(self, count: int) -> None:
        """Workers start for the n-th time: an attempt of its own, unless a line before began it."""
        if count != self.count != NULL and not self.began:
            if not self.progress.current.over:
                self.progress.close(self.progress.why or FAILED, self.progress.error, self.progress.now_ns)
            self._start()
        self.count, self.began = count, False

    def _finish(self) -> None:
        if not self.progress.current.over:
            self.progress.sign_of_life()
            self.progress.current.outcome = COMPLETED

    def _start(self) -> None:
        """Workers start: the first line of a new attempt says when."""
        progress = self.progress
        if progress.current.over:
            progress.restart(progress.now_ns, held=1)
            progress.useful += 1
            self.began = True

    def _configured(self, line: str) -> None:
        most, workers, nodes = _MOST.search(line), _WORKERS.search(line), _NODES.search(line)
        if most:
            self.progress.most_restarts = int(most[1])
        self.nproc = int(workers[1]) if workers else self.nproc
        self.nodes = int(nodes[1]) if nodes else self.nodes
        if self.nproc > 0 and self.nodes > 0:
            self.progress.tasks = min(self.nproc * self.nodes, 1 << 24)


def _agent(line: str) -> str:
    """Which agent writes, one on each node."""
    found = _AGENT.search(line)
    return f"{found[1] or ''}{found[2]}" if found else ""
