"""What ``torchrun`` (torchelastic) says on standard error: workers that failed, restarts, and that none is left.

At its default level it logs failures only: an attempt begins when the one before failed. Where it logs more, the lines
that start the workers, and the restarts that are left, are used.
"""

from __future__ import annotations

import re

from taut.core.tables import NULL
from taut.read.jobs.job_words import CANCELLED, FAILED
from taut.read.jobs.log_lines import Progress

LAUNCHER = re.compile(rb"torch[./]distributed[./](?:run|elastic|launcher)|failed \(exitcode: -?\d|\bft_launcher\b")
"""What its logs hold."""
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,6}) \(pid: (\d{1,9})\)")
_AGENT = re.compile(r"^(\d{1,7}: |\S{1,64}: )?.{0,40}?\.\d{3,9} (\d{1,9}) torch[./]distributed")
_LEFT = re.compile(r"[Ww]orker group \w+\. (\d{1,6})/(\d{1,6}) attempts left")
_STARTS = re.compile(r"\] (?:Starting|[Rr]endezvous'ing) worker group")
_MOST = re.compile(r"\bmax_restarts\s*[:=]\s*(\d{1,6})")
_WORKERS = re.compile(r"\bnproc_per_node\s*[:=]\s*(\d{1,6})")
_NODES = re.compile(r"\bmax_nodes\s*[:=]\s*(\d{1,6})")
_SIGNAL = re.compile(r"Received (?:Signals\.)?(\w+) death signal")
_GAVE_UP = re.compile(r"\bChildFailedError\b")


_ANY = re.compile(r"exitcode|attempts left|worker group|death signal|ChildFailedError|max_restarts|nproc_per_node|max_nodes")
"""What a line of interest holds: most hold nothing, and are passed over with one look."""


class Launcher:
    """The lines of the launcher; several agents (one a node) fail together."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.failures: dict[str, int] = {}
        """Attempts that each agent saw fail."""
        self.failed = 0
        self.nproc = self.nodes = NULL

    def read(self, line: str) -> bool:
        """Whether the line was one of the launcher's and is used."""
        if not _ANY.search(line):
            return False
        if found := _FAILED.search(line):
            self._fail(line, found)
        elif found := _LEFT.search(line):
            self.progress.most_restarts = int(found[2])
        elif _STARTS.search(line):
            self._start()
        elif (found := _SIGNAL.search(line)) and not self.progress.current.over:
            self.progress.sign_of_life()
            self.progress.close(CANCELLED, f"the launcher received {found[1]}", self.progress.now_ns)
        elif _GAVE_UP.search(line) and self.failed and self.progress.current.over:
            self.progress.gave_up = True
        else:
            self._configured(line)
            return False
        return True

    def _fail(self, line: str, found: re.Match[str]) -> None:
        agent = _AGENT.search(line)
        who = f"{agent[1] or ''}{agent[2]}" if agent else ""
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
        code, rank = found[1], found[2]
        left = f"local rank {rank} exited with {code}"
        progress.close(why or FAILED, f"{text[:140]} ({left})" if text else left, at)

    def _start(self) -> None:
        """Workers start: the first line of a new attempt says when."""
        progress = self.progress
        if progress.current.over:
            progress.restart(progress.now_ns, held=1)
            progress.useful += 1

    def _configured(self, line: str) -> None:
        most, workers, nodes = _MOST.search(line), _WORKERS.search(line), _NODES.search(line)
        if most:
            self.progress.most_restarts = int(most[1])
        self.nproc = int(workers[1]) if workers else self.nproc
        self.nodes = int(nodes[1]) if nodes else self.nodes
        if self.nproc > 0 and self.nodes > 0:
            self.progress.tasks = min(self.nproc * self.nodes, 1 << 24)
