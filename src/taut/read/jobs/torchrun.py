"""What ``torchrun`` (torchelastic) says on standard error: workers that failed, restarts, and that none is left.

At its default level it logs failures only: an attempt begins when the one before failed. Where it logs more, the lines
that start the workers, and the restarts that are left, are used.
"""

from __future__ import annotations

import re

from taut.core.tables import NULL
from taut.read.jobs.job_words import CANCELLED, FAILED
from taut.read.jobs.log_lines import Story

SPOKEN = re.compile(rb"torch[./]distributed[./](?:run|elastic|launcher)|failed \(exitcode: -?\d|\bft_launcher\b")
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
    """The lines of the launcher, one story; several agents (one a node) fail together."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.failures: dict[str, int] = {}
        """Attempts that each agent saw fail."""
        self.failed = 0
        self.nproc = self.nodes = NULL

    def tell(self, line: str) -> bool:
        """Whether the line was one of the launcher's; the story has it then."""
        if not _ANY.search(line):
            return False
        found = _FAILED.search(line)
        if found:
            self._fail(line, found)
            return True
        found = _LEFT.search(line)
        if found:
            self.story.most_restarts = int(found[2])
            return True
        if _STARTS.search(line):
            self._start()
            return True
        found = _SIGNAL.search(line)
        if found and not self.story.current.over:
            self.story.live()
            self.story.close(CANCELLED, f"the launcher received {found[1]}", self.story.now_ns)
            return True
        if _GAVE_UP.search(line) and self.failed and self.story.current.over:
            self.story.burned = True
            return True
        return self._configured(line)

    def _fail(self, line: str, found: re.Match[str]) -> None:
        agent = _AGENT.search(line)
        who = f"{agent[1] or ''}{agent[2]}" if agent else ""
        self.failures[who] = self.failures.get(who, 0) + 1
        if self.failures[who] <= self.failed:
            return  # another node tells of the same failure
        self.failed = self.failures[who]
        story = self.story
        if story.current.over:
            # Workers are started again at once.
            story.restart(story.current.end_ns, held=1)
        why, text, at = story.why, story.error, story.now_ns
        story.live()
        code, rank = found[1], found[2]
        left = f"local rank {rank} exited with {code}"
        story.close(why or FAILED, f"{text[:140]} ({left})" if text else left, at)

    def _start(self) -> None:
        """Workers start: the first line of a new attempt says when."""
        story = self.story
        if story.current.over:
            story.restart(story.now_ns, held=1)
            story.told += 1

    def _configured(self, line: str) -> bool:
        most, workers, nodes = _MOST.search(line), _WORKERS.search(line), _NODES.search(line)
        if most:
            self.story.most_restarts = int(most[1])
        self.nproc = int(workers[1]) if workers else self.nproc
        self.nodes = int(nodes[1]) if nodes else self.nodes
        if self.nproc > 0 and self.nodes > 0:
            self.story.tasks = min(self.nproc * self.nodes, 1 << 24)
        return False
